"""``qlock``: the group of verbs, the only ``except`` of the command line, and the only exit.

A verb is a file ``qlock/cli/<verb>.py`` with a click command called ``verb``, which is handed a ``Means`` and returns
an ``Answer``; no list of them is kept. Heavy imports sit inside the functions of the verbs.

Does not live here: what any verb does (``flows``) and says (its own file).
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click

import qlock.cli
from qlock import __version__
from qlock.cli.codes import help_text
from qlock.cli.shown import Answer, Means, real_means
from qlock.cli.signals import TerminatedExit, TimeUpExit, hold, listen, stop_in
from qlock.errors import AbsentError, ExitCode, QlockError

TRACEBACK = "QLOCK_TRACEBACK"


class Verbs(click.Group):
    """Verbs found by the names of their files, each imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all verbs, sorted."""
        return [name for name in _files() if self.get_command(ctx, name) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        """The verb of this name; ``None`` when there is none."""
        if cmd_name not in _files():
            return None
        verb: click.Command | None = vars(importlib.import_module(f"qlock.cli.{cmd_name}")).get("verb")
        return verb


def _files() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(qlock.cli.__path__))


@click.group(
    cls=Verbs,
    invoke_without_command=True,
    epilog=help_text(),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="qlock %(version)s")
@click.option("--traceback", is_flag=True, help=f"Show where a bug in qlock lies; also {TRACEBACK}=1.")
@click.pass_context
def verbs(context: click.Context, *, traceback: bool) -> Answer | None:
    """A lockfile for measurements of quantized language models.

    Write what you want measured in a spec; `resolve` makes it exact as a lock; `run` measures only what is locked and
    refuses otherwise.
    """
    context.meta[TRACEBACK] = traceback
    if context.invoked_subcommand is not None:
        return None
    click.echo(context.get_help(), err=True)
    return Answer(ExitCode.USAGE)


def main() -> int:
    """Run the command line of this process; gives its exit code."""
    hold()
    # Closed by whoever started us (`>&-`): Python then has no stream at all.
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 - for the life of the process
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115 - the same
    means = real_means()
    try:
        listen()
        code = exit_code(sys.argv[1:], means)
        # From here on there is nothing to stop, and Python's own end would say it with a traceback.
        hold()
    except (KeyboardInterrupt, TerminatedExit) as stop:
        hold()
        code = _stopped(stop, means)
    return code


def exit_code(arguments: Sequence[str], means: Means) -> int:
    """What the verb answers, or what stopped it, said and turned into an exit code."""
    try:
        return _code(arguments, means)
    except (KeyboardInterrupt, TerminatedExit) as stop:
        return _stopped(stop, means)


def _stopped(stop: KeyboardInterrupt | TerminatedExit, means: Means) -> ExitCode:
    match stop:
        case TimeUpExit():
            means.talk.say("error", "incomplete: the time is up")
            return ExitCode.INCOMPLETE
        case TerminatedExit(name=name):
            means.talk.say("error", f"ended by {name}")
            return ExitCode.TERMINATED
        case _:
            means.talk.say("error", "interrupted")
            return ExitCode.INTERRUPTED


def _code(arguments: Sequence[str], means: Means) -> int:
    talk = means.talk
    with_traceback = "--traceback" in arguments or os.environ.get(TRACEBACK, "") not in {"", "0"}
    try:
        return _asked(list(arguments), means)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as wrong:
        talk.say("error", _click_words(wrong))
        talk.say("hint", f"see `{_command(wrong)} --help`")
        return ExitCode.USAGE
    except QlockError as error:
        _tell(error, means)
        return error.exit_code
    except MemoryError:
        talk.say("error", "out of memory")
        return ExitCode.ABSENT
    except BrokenPipeError:
        # Whoever read the help has gone, so nobody is told.
        _put("")
        return ExitCode.ABSENT
    except Exception as bug:  # noqa: BLE001 - whatever else comes is a bug, and is said to be one
        if (stop := stop_in(bug)) is not None:
            # What fails while everything is being closed does not hide why it was.
            return _stopped(stop, means)
        try:
            # Help is written by click; where there was no room for it, there is none now.
            _put("")
        except AbsentError as full:
            _tell(full, means)
            return full.exit_code
        return _say_bug(bug, means, with_traceback=with_traceback)


def _say_bug(bug: Exception, means: Means, *, with_traceback: bool) -> int:
    from qlock.world.files import path_error

    talk = means.talk
    if (outside := path_error(bug)) is not None:
        # Anything can ask whether something is there, and that fails where its name is too long.
        _tell(outside, means)
        return outside.exit_code
    if with_traceback:
        import traceback

        for line in "".join(traceback.format_exception(bug)).rstrip().split("\n"):
            talk.line(line)
    talk.say("error", f"a bug in qlock: {type(bug).__name__}: {bug}")
    talk.say("hint", f"run it again with {TRACEBACK}=1 and report what it says")
    return ExitCode.BUG


def _asked(arguments: list[str], means: Means) -> int:
    """Call the verb and put its answer on stdout."""
    with verbs.make_context("qlock", arguments, obj=means) as context:
        answer = verbs.invoke(context)
    match answer:
        case Answer(code=code, data=data):
            _put(data)
            return code
        case _:
            raise TypeError(f"got `{type(answer).__name__}` from the verb, expected an answer")


def _put(data: str) -> None:
    """Write an answer; a reader that goes away early has what it wanted.

    Raises:
        AbsentError: The answer has no room where it should go.
    """
    try:
        sys.stdout.buffer.write(data.encode())
        sys.stdout.flush()
    except OSError as error:
        # Python flushes stdout once more at its end, and would complain there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise AbsentError(f"the answer cannot be written: {error.strerror}") from error


def _click_words(wrong: click.ClickException) -> str:
    words = wrong.format_message().rstrip(".")
    return words[:1].lower() + words[1:]


def _command(wrong: click.ClickException) -> str:
    match wrong:
        case click.UsageError(ctx=click.Context() as context):
            return context.command_path
        case _:
            return "qlock"


def _tell(error: QlockError, means: Means) -> None:
    from qlock.flows.refusal import FindingsError

    match error:
        case FindingsError(findings=findings):
            means.talk.findings(findings, allowed=lambda _: False)
        case _:
            means.talk.say("error", str(error))
            if error.hint:
                means.talk.say("hint", error.hint)
