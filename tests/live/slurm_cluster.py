"""A whole Slurm cluster on this machine: a controller and nodes on loopback, started and ended by a test.

Root is wanted, as slurmd asks for it. No munge and no control groups: authentication is `auth/none`, processes are
followed by their parents (`proctrack/linuxproc`). Several slurmd run side by side where Slurm was built for that
(`--enable-multiple-slurmd`, as Debian's is).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

TOOLS = ("slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol")

_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={spool}/%n
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=5
OverTimeLimit=0
MinJobAge=300
InactiveLimit=0
SlurmdTimeout=300
PropagateResourceLimits=NONE
{nodes}
PartitionName=all Nodes=n[1-{count}] Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


class Cluster:
    """A running cluster.

    Args:
        folder: Where its files lie.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}

    def call(self, *words: str) -> str:
        """What a tool of Slurm says."""
        done = self.try_call(*words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def try_call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The same, where it may fail: a job can have ended since it was seen."""
        return subprocess.run(
            words,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def let_go(self) -> None:
        """Have requeued elements begin now: Slurm holds them back for two minutes otherwise."""
        until = time.monotonic() + 30
        while any(state not in ("RUNNING", "PENDING") for _, state in self.queue()):
            assert time.monotonic() < until, self.queue()
            time.sleep(0.1)
        for line in self.call("squeue", "--noheader", "--array", "--states=PENDING", "--format=%i").split():
            self.try_call("scontrol", "update", f"JobId={line}", "StartTime=now")

    def queue(self) -> list[tuple[str, str]]:
        """Index and state of each element that waits or runs."""
        lines = self.call("squeue", "--noheader", "--array", "--format=%K|%T").split()
        return sorted((line.partition("|")[0], line.partition("|")[2]) for line in lines)

    def wait_empty(self, at_most_s: float = 90.0) -> None:
        """Wait until the queue is empty."""
        until = time.monotonic() + at_most_s
        while self.queue():
            assert time.monotonic() < until, self.queue()
            time.sleep(0.2)

    def wait_running(self, at_most_s: float = 30.0) -> None:
        """Wait until something runs."""
        until = time.monotonic() + at_most_s
        while not any(state == "RUNNING" for _, state in self.queue()):
            assert time.monotonic() < until, self.queue()
            time.sleep(0.05)


def why_none() -> str:
    """Why there can be no cluster here; empty when there can."""
    for tool in TOOLS:
        if shutil.which(tool) is None:
            return f"`{tool}` is not on the PATH; Debian has it in slurm-wlm"
    return "" if os.geteuid() == 0 else "slurmd wants to be started by root"


@contextmanager
def cluster(folder: Path, nodes: int = 2, *more: str) -> Iterator[Cluster]:
    """A cluster of so many nodes, until the end of the `with`; skipped, with the reason, where it cannot be.

    `more` are further lines of its slurm.conf.
    """
    if why := why_none():
        pytest.skip(why)
    ports = _free_ports(nodes + 1)
    host = socket.gethostname()
    cores = os.cpu_count() or 1
    lines = [
        f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[number]} CPUs={cores} State=UNKNOWN"
        for number in range(1, nodes + 1)
    ]
    (folder / "state").mkdir(parents=True)
    made = Cluster(folder)
    with ExitStack() as stack:
        # Sockets lie there, whose paths may have 107 bytes: a test's own folder can be too deep for them.
        spool = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp")))
        for number in range(1, nodes + 1):
            (spool / f"n{number}").mkdir()
        conf = _CONF.format(
            host=host, ports=ports, folder=folder, spool=spool, nodes="\n".join(lines), count=nodes
        )
        (folder / "slurm.conf").write_text("\n".join((conf, *more)) + "\n")
        stack.enter_context(_daemon(made, "slurmctld", "-D"))
        for number in range(1, nodes + 1):
            stack.enter_context(_daemon(made, "slurmd", "-D", "-N", f"n{number}"))
        _wait_idle(made, nodes)
        yield made
        made.call("scancel", f"--user={os.getuid()}")


@contextmanager
def _daemon(made: Cluster, *words: str) -> Iterator[None]:
    process = subprocess.Popen(
        words,
        env={**os.environ, **made.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_idle(made: Cluster, nodes: int) -> None:
    until = time.monotonic() + 30
    said = ""
    while time.monotonic() < until:
        done = subprocess.run(
            ["sinfo", "--noheader", "--Node", "--partition=all", "--format=%T"],
            env={**os.environ, **made.environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        said = f"{done.stdout}{done.stderr}"
        if done.stdout.split() == ["idle"] * nodes:
            return
        time.sleep(0.1)
    logs = {path.name: path.read_text(errors="replace")[-1500:] for path in made.folder.glob("*.log")}
    pytest.fail(f"the nodes of a Slurm of our own do not come up: {said} {logs}")


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
