"""``qlock demo``: shows what qlock does, on a small model, with the commands that people type.

Every step prints a command, runs the very verb behind it, and is checked: the demo ends with exit code 0 only if each
step did what it should, the refusal among them.

Does not live here: the demo's folder and files (``flows.demo``), and the verbs (their own files).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qlock.cli.shown import Answer, Means, data_line, short_path, whole_path
from qlock.core.escape import for_shell
from qlock.core.units import count_text
from qlock.errors import ExitCode

if TYPE_CHECKING:
    from qlock.world.interface import World

_MEBIBYTE = 1 << 20


@click.command("demo")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo"),
    show_default=True,
    metavar="DIR",
    help="Where the demo's files go; new, empty, or of an earlier demo, which then starts over.",
)
@click.pass_obj
def verb(means: Means, folder: Path) -> Answer:
    """Show what qlock does, on a small model, from a lock to a refusal.

    Makes a folder with a spec, quantized models, a text and an exam, and runs the other verbs on them, about two
    minutes on two cores. Needs the extra `demo`. Prints the folder.
    """
    world = means.world()
    tour = _Tour(means, whole_path(world, folder), shown=str(folder))
    code = tour.go()
    data = data_line(short_path(world, whole_path(world, folder))) if code == ExitCode.YES else ""
    return Answer(code, data)


def _way_in(folder: str, python: Path) -> tuple[str, ...]:
    """What to type once, so that the commands of the demo work: into its folder, and qlock onto the PATH."""
    activate = python.with_name("activate")
    first = f"cd {for_shell(folder)}"
    return (first, f". {for_shell(str(activate))}") if activate.is_file() else (first,)


class _Tour:
    """The steps, in order; each gives ``None`` when it did what it should, else the exit code to leave with."""

    def __init__(self, means: Means, folder: Path, *, shown: str) -> None:
        self._means = means
        self._talk = means.talk
        self._folder = folder
        self._shown = shown

    def go(self) -> ExitCode:
        """All steps, until one does not do what it should; no other demo may use the folder meanwhile."""
        from qlock.flows import demo

        was_there = demo.open_folder(self._folder)
        with self._means.world().folders.hold(self._folder):
            if was_there:
                self._talk.say(
                    "note", f"starting over in `{self._shown}`: what an earlier demo made is removed"
                )
                demo.start_over(self._folder)
            return self._steps()

    def _steps(self) -> ExitCode:
        steps = (
            ("Make a project, with three models", self._project),
            ("Make the spec exact: a lock for this machine", self._lock),
            ("Measure what the lock says", self._run),
            ("Compare a quant with the F16, item by item", self._diff),
            ("Add a quant: only the new point is measured", self._add),
            ("Change one byte of a model, and be refused", self._refuse),
        )
        for number, (title, step) in enumerate(steps, start=1):
            self._talk.line()
            self._talk.verb(f"{number}/{len(steps)}", title)
            code = step()
            if code is not None:
                return code
        self._summary()
        return ExitCode.YES

    def _project(self) -> ExitCode | None:
        from qlock.flows import demo

        for name in (demo.ORIGINAL, *demo.FIRST_QUANTS):
            self._make(name)
        self._talk.say(
            "note",
            "this F16 was made from Q4_1, the only form in which the model comes as a package: it knows no more than "
            "the Q4_1 does, and only stands for an original here",
        )
        text = demo.write_files(self._world(), self._folder)
        self._command(f"cat {demo.SPEC}")
        for line in text.rstrip("\n").split("\n"):
            self._talk.line(line)
        return None

    def _lock(self) -> ExitCode | None:
        from qlock.flows import demo

        self._talk.line("Each new point is loaded and put to the proof, some ten seconds each.")
        return self._qlock("resolve", demo.SPEC)

    def _run(self) -> ExitCode | None:
        return self._qlock("run", self._lock_path())

    def _diff(self) -> ExitCode | None:
        from qlock.flows import demo

        # Without a point, every quant is compared: more than a first look needs.
        return self._qlock("diff", f"{self._run_path()}:{demo.FIRST_QUANTS[-1]}@{demo.SETTING}")

    def _add(self) -> ExitCode | None:
        from qlock.flows import demo

        self._make(demo.THIRD_QUANT)
        added = demo.add_third(self._world(), self._folder)
        self._command(f"tail -n 3 {demo.SPEC}")
        for line in added.split("\n"):
            self._talk.line(line)
        code = self._lock() or self._run()
        if code is not None:
            return code
        share = demo.share_of_run(self._world(), self._folder)
        measured = f" ({', '.join(share.measured)})" if share.measured else ""
        told = f"{count_text(len(share.measured), 'point')} measured{measured}, {len(share.taken_over)} taken over"
        if len(share.measured) != 1 or len(share.taken_over) != 1 + len(demo.FIRST_QUANTS):
            return self._stop(ExitCode.NO, f"{told}, expected one measured and the others taken over")
        self._talk.say("ok", told)
        return None

    def _refuse(self) -> ExitCode | None:
        from qlock.flows import demo

        path = demo.model_path(self._folder, demo.THIRD_QUANT)
        with demo.changed_byte(path) as changed:
            self._write_byte(changed.offset, changed.after)
            code = self._qlock("run", self._lock_path(), expected=ExitCode.REFUSED)
        if code is not None:
            return code
        self._talk.say("ok", "refused, as it should be; now the byte is put back")
        self._write_byte(changed.offset, changed.before)
        return self._run()

    def _summary(self) -> None:
        self._talk.line()
        self._talk.say("ok", "every step did what it should, the refusal too")
        self._talk.rows(
            ("spec", f"{self._shown}/specs/demo.toml"),
            ("lock", f"{self._shown}/{self._lock_path()}"),
            ("runs", f"{self._shown}/runs/, one folder for each lock, with every answer"),
            ("qlock", str(Path(sys.executable).with_name("qlock"))),
        )
        lock, run = self._lock_path(), self._run_path()
        self._talk.line("What to try next:")
        for command in _way_in(self._shown, Path(sys.executable)):
            self._talk.line(f"  {command}")
        for command, why in (
            (f"qlock diff {run}", "every quant against the F16"),
            (f"qlock verify {run}", "does the record still fit its seal?"),
            (f"qlock run {lock} --repeat-lock", "does everything come out again, bit for bit?"),
            (
                f"qlock run {lock}",
                "after a change in specs/demo.toml: does the lock still say what the spec asks?",
            ),
        ):
            self._talk.line(f"  {command}")
            self._talk.line(f"      {why}")

    def _make(self, name: str) -> None:
        from qlock.engines.llama_cpp_python.quantize import quantize
        from qlock.flows import demo

        def quantizer(source: Path, target: Path, file_type: str, threads: int) -> None:
            quantize(source, target, file_type=file_type, threads=threads)

        made = demo.make_model(self._world(), self._folder, name, quantizer)
        self._talk.line(
            f"{made.path}: made by llama.cpp's quantizer from {made.made_from}, {made.size_bytes / _MEBIBYTE:.0f} MiB"
        )

    def _write_byte(self, offset: int, byte: int) -> None:
        from qlock.flows import demo

        path = f"models/{demo.THIRD_QUANT}.gguf"
        self._command(f"printf '\\x{byte:02x}' | dd of={path} bs=1 seek={offset} conv=notrunc status=none")

    def _qlock(self, *arguments: str, expected: ExitCode = ExitCode.YES) -> ExitCode | None:
        """Show a command and run its verb in the demo's folder."""
        from qlock.cli.main import exit_code

        self._command(f"qlock {' '.join(arguments)}")
        code = ExitCode(exit_code(arguments, self._means._replace(world=self._world)))
        if code == expected:
            return None
        return self._stop(code, f"`qlock {arguments[0]}` gave exit code {code}, expected {expected}")

    def _stop(self, code: ExitCode, why: str) -> ExitCode:
        self._talk.say("error", f"the demo stops here: {why}")
        return ExitCode.NO if code == ExitCode.YES else code

    def _command(self, text: str) -> None:
        self._talk.line(f"{self._shown}$ {text}")

    def _world(self) -> World:
        """The world as if the demo's folder were the one that commands are typed in."""
        import msgspec

        return msgspec.structs.replace(self._means.world(), cwd=self._folder)

    def _run_path(self) -> str:
        from qlock.flows import demo

        return demo.run_path(self._world(), self._folder).relative_to(self._folder).as_posix()

    def _lock_path(self) -> str:
        from qlock.flows import demo

        path, _, _ = demo.the_lock(self._world(), self._folder)
        return path.relative_to(self._folder).as_posix()
