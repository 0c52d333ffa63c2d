"""What each exit code means, in words; shown by ``qlock --help`` and in the README.

Does not live here: which error has which code (``errors``).
"""

from __future__ import annotations

from qlock.errors import ExitCode

SPECS = "Every key of a spec, an items file and a grader: docs/spec.md of qlock."

MEANINGS = {
    ExitCode.YES: "yes: done, up to date, verified, gates passed",
    ExitCode.NO: (
        "no: lock stale or not as wanted, gate failed or undecided, anchor off, trial of a grader failed, seal broken"
    ),
    ExitCode.USAGE: "the command line makes no sense",
    ExitCode.REFUSED: "refused: something is not as locked",
    ExitCode.INVALID: "the comparison is not valid",
    ExitCode.INCOMPLETE: "incomplete: items are missing or in error; run again to go on",
    ExitCode.INPUT: "a spec, lock, GGUF or record is unreadable, inconsistent or edited",
    ExitCode.ENGINE: "the engine did not start, died, hung or answered nonsense",
    ExitCode.ABSENT: "something is not there: file, network, disk space, GPU, Slurm, or the folder is held by another run",
    ExitCode.BUG: "a bug in qlock",
    ExitCode.INTERRUPTED: "ended by Ctrl-C; what was measured is kept",
    ExitCode.TERMINATED: "ended by SIGTERM, SIGHUP or SIGUSR1; what was measured is kept",
}


def help_text() -> str:
    """Where specs are explained, and every code with its meaning, as click shows it unwrapped."""
    rows = [f"  {int(code):>3}  {meaning.partition(':')[0]}" for code, meaning in MEANINGS.items()]
    return "\n".join((SPECS, "", "\b", "Exit codes:", *rows))
