"""The README's tables are those of the command line."""

from __future__ import annotations

import pytest

from qlock.errors import ExitCode
from tests.cli.tables import README, REMEDY, TABLES, commands, exit_codes, place, renewed


@pytest.mark.parametrize("name", TABLES)
def test_the_readme_has_the_table_as_it_is_now(name: str) -> None:
    found = place(name).search(README.read_text(encoding="utf-8"))
    assert found is not None, f"README.md has no `<!-- {name} -->` … `<!-- /{name} -->`"
    assert found[2] == f"{TABLES[name]()}\n", f"renew it with `{REMEDY}`"


def test_tables_are_put_between_their_comments_and_nowhere_else() -> None:
    text = "a\n<!-- commands -->\nold\n<!-- /commands -->\nb\n<!-- exit-codes -->\n<!-- /exit-codes -->\nc\n"
    once = renewed(text)
    assert once == (
        f"a\n<!-- commands -->\n{commands()}\n<!-- /commands -->\nb\n"
        f"<!-- exit-codes -->\n{exit_codes()}\n<!-- /exit-codes -->\nc\n"
    )
    assert renewed(once) == once
    assert renewed("no table here") == "no table here"


def test_every_exit_code_has_its_row() -> None:
    rows = exit_codes().split("\n")[2:]
    assert [row.split(" | ")[0] for row in rows] == [f"| {int(code)}" for code in ExitCode]


def test_commands_are_shown_as_they_are_typed() -> None:
    assert "| `qlock resolve SPEC` | Make a spec exact, as a lock for this machine. |" in commands().split(
        "\n"
    )
    assert "| `qlock diff A [B]` | Compare points, where they may be compared. |" in commands().split("\n")
