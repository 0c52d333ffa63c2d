"""Talk and answers: nothing foreign reaches a terminal raw, and colour only where it is wanted."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.cli.shown import (
    Talk,
    document,
    finding_rows,
    offline,
    readable,
    real_means,
    short_path,
    whole_path,
)
from qlock.core.verify import Finding
from tests.fakes.hub import served
from tests.fakes.world import fake_world


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def talk(environment: Mapping[str, str] | None = None, *, terminal: bool = False) -> tuple[Talk, io.StringIO]:
    stream = Terminal() if terminal else io.StringIO()
    return Talk(stream, environment or {}), stream


FINDING = Finding(rule="device", where="device.d.cores", expected="2", found="4", effect="timing")


def test_a_labelled_line() -> None:
    said, stream = talk()
    said.say("error", "no")
    said.verb("Added", "model A")
    said.line("as it is")
    said.line()
    assert stream.getvalue() == "error: no\nAdded model A\nas it is\n\n"


def test_a_terminal_gets_colour() -> None:
    said, stream = talk(terminal=True)
    said.say("error", "no")
    said.verb("Added", "model A")
    assert stream.getvalue() == "\x1b[31m\x1b[1merror:\x1b[0m no\n\x1b[1mAdded\x1b[0m model A\n"


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_who_wants_no_colour_gets_none(environment: dict[str, str]) -> None:
    said, stream = talk(environment, terminal=True)
    said.say("error", "no")
    assert stream.getvalue() == "error: no\n"


def test_an_empty_no_color_says_nothing() -> None:
    said, _ = talk({"NO_COLOR": ""}, terminal=True)
    assert said.has_colour


WAYS: dict[str, Callable[[Talk, str], None]] = {
    "line": lambda said, text: said.line(text),
    "say": lambda said, text: said.say("error", text),
    "verb": lambda said, text: said.verb("Added", text),
    "rows": lambda said, text: said.rows(("why", text or "x")),
    "table": lambda said, text: said.table((text,), []),
}


@pytest.mark.parametrize("way", WAYS)
@given(text=st.text())
def test_whatever_is_said_is_one_line_without_control_characters(way: str, text: str) -> None:
    said, stream = talk()
    WAYS[way](said, text)
    shown = stream.getvalue()
    assert shown.count("\n") == 1
    assert shown.endswith("\n")
    assert all(ord(letter) >= 32 for letter in shown[:-1])
    assert not {"\x7f", "\x9b", "\u202e", "\u2028"} & set(shown)


def test_a_table_has_its_columns_below_one_another() -> None:
    said, stream = talk()
    said.table(("name", "n", ""), [("a", "1", "x"), ("longer", "100", "")], right=(1,))
    assert stream.getvalue() == "name      n\na         1  x\nlonger  100\n"


def test_a_finding_that_is_forced_is_a_warning_without_a_hint() -> None:
    said, stream = talk()
    said.findings([FINDING], allowed=lambda finding: finding == FINDING)
    assert stream.getvalue() == (
        "warning: device.d.cores is not as locked (device) (forced with --allow)\n"
        "  expected: 2\n"
        "  found:    4\n"
    )


def test_findings_for_a_document_say_what_to_do() -> None:
    assert finding_rows((FINDING,)) == [
        {
            "rule": "device",
            "where": "device.d.cores",
            "expected": "2",
            "found": "4",
            "effect": "timing",
            "why": "",
            "parts": (),
            "hint": "run on the locked device, or resolve for this one",
        }
    ]


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.booleans())))
def test_a_document_is_ascii_and_reads_back(value: dict[str, object]) -> None:
    text = document(value)
    assert text.isascii()
    assert text.endswith("}\n")
    assert json.loads(text) == value


def test_a_document_refuses_what_is_no_number() -> None:
    with pytest.raises(ValueError, match="Out of range float values are not JSON compliant"):
        document({"x": float("nan")})


def test_a_document_refuses_what_it_does_not_know() -> None:
    with pytest.raises(NotImplementedError, match=r"^no JSON for `object`$"):
        document({"x": object()})


def test_readable_text_keeps_its_lines_and_its_length() -> None:
    assert readable("a\n\x1b[2J\tb\n") == "a\n\\x1b[2J\\tb\n"
    long = "x" * 100_000 + "\n"
    assert readable(long) == long


def test_paths_are_made_whole_without_following_links(tmp_path: Path) -> None:
    world = fake_world(tmp_path)
    assert whole_path(world, Path("specs/../locks/./x.toml")) == world.cwd / "locks" / "x.toml"
    assert whole_path(world, Path("/elsewhere")) == Path("/elsewhere")
    (world.cwd / "link.toml").symlink_to("/elsewhere/other.toml")
    assert whole_path(world, Path("link.toml")) == world.cwd / "link.toml"


def test_paths_are_short_below_the_folder_where_one_is(tmp_path: Path) -> None:
    world = fake_world(tmp_path)
    assert short_path(world, world.cwd / "locks" / "x.toml") == "locks/x.toml"
    assert short_path(world, tmp_path / "x.toml") == f"{tmp_path}/x.toml"


def test_offline_leaves_the_rest_of_the_environment(tmp_path: Path) -> None:
    world = msgspec.structs.replace(fake_world(tmp_path), environment={"PATH": "/bin"})
    assert offline(world).environment == {"PATH": "/bin", "HF_HUB_OFFLINE": "1"}
    assert world.environment == {"PATH": "/bin"}


def test_waiting_for_a_server_is_said_by_the_real_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with served() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.setenv("HF_HOME", str(tmp_path))
        hub.trouble.answers = [(429, {"Retry_After": "0"})]
        hub.repository("o/m").commit({"README.md": b"# M"})
        real_means().world().hub.commit_of("o/m", "main")
    assert capsys.readouterr().err == "note: the Hub: too many requests (429); waiting 0 s\n"


def test_a_path_that_is_not_utf_8_is_shown_by_its_bytes() -> None:
    said, stream = talk()
    path = os.fsdecode(b"runs/a\xff\xc3(")
    said.say("error", f"no run in `{path}`")
    said.verb("Wrote", path)
    said.rows(("path", path))
    said.table(("path",), ((path,),))
    assert stream.getvalue() == (
        "error: no run in `runs/a\\xff\\xc3(`\nWrote runs/a\\xff\\xc3(\n  path:     runs/a\\xff\\xc3(\n"
        "path\nruns/a\\xff\\xc3(\n"
    )
