"""``qlock verify``: its options, what it says, and its exit code.

Does not live here: looking at the run (``flows.verify_run``).
"""

from __future__ import annotations

from pathlib import Path

import click

from qlock.cli.asked import run_asked
from qlock.cli.shown import Answer, Means, document, say_distances, short_path
from qlock.core.units import count_text
from qlock.errors import ExitCode

_CODES = {"verified": ExitCode.YES, "broken": ExitCode.NO, "unsealed": ExitCode.INCOMPLETE}
_MOST_FAULTS = 50


@click.command("verify")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def verb(means: Means, /, *, run: Path, as_json: bool) -> Answer:
    """Hold a run against its seal.

    Every sealed file is read again, and the grades are worked out anew; no engine and no model is needed. Prints the
    run's answers_digest, which two parties who ran the same lock compare.
    """
    from qlock.flows.verify_run import verify_run

    world, talk = means.world(), means.talk
    path = run_asked(world, run)
    seen = verify_run(world, path)
    for fault in seen.faults[:_MOST_FAULTS]:
        talk.say("error", f"{fault.what} is not as sealed")
        talk.rows(("expected", fault.expected), ("found", fault.found))
    if len(seen.faults) > _MOST_FAULTS:
        talk.say(
            "error", f"not as sealed either: {count_text(len(seen.faults) - _MOST_FAULTS, 'more thing')}"
        )
    for note in seen.notes:
        talk.say("note", note)
    for fact in seen.forced:
        talk.say("warning", f"FORCED: `{fact}` was allowed to differ; no comparison with this run is valid")
    say_distances(talk, seen.scores)
    match seen.state:
        case "verified":
            talk.say(
                "ok", f"{count_text(seen.files, 'file')} and {count_text(seen.jobs, 'job')} are as sealed"
            )
        case "broken":
            talk.say("error", "the seal is broken: this run is not what was measured")
            talk.say("hint", "get it again from whoever measured it, or measure again")
        case "unsealed":
            talk.say("error", f"`{short_path(world, path)}` is not sealed: it is not whole yet")
            talk.say("hint", "run its lock again to go on")
    code = _CODES[seen.state]
    if as_json:
        return Answer(code, document({"verb": "verify", **_plain(seen)}))
    return Answer(code, f"{seen.answers_digest}\n" if seen.state == "verified" else "")


def _plain(seen: object) -> dict[str, object]:
    import msgspec

    plain: dict[str, object] = msgspec.to_builtins(seen)
    return plain
