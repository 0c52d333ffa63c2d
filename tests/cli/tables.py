"""The README's tables, made from the command line itself; `python -m tests.cli.tables` puts them in their places.

Each table stands between two comments, such as `<!-- commands -->` and `<!-- /commands -->`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from qlock.cli.codes import MEANINGS
from qlock.cli.main import verbs

README = Path(__file__).resolve().parents[2] / "README.md"
REMEDY = "python -m tests.cli.tables"


def commands() -> str:
    """Every verb with its arguments and the first line of its help."""
    context = click.Context(verbs, info_name="qlock")
    rows = ["| command | what it does |", "|---|---|"]
    for name in verbs.list_commands(context):
        command = verbs.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        words = [word for word in command.collect_usage_pieces(inner) if word != "[OPTIONS]"]
        help_line = (command.help or "").partition("\n\n")[0].replace("\n", " ")
        rows.append(f"| `{' '.join(['qlock', name, *words])}` | {help_line} |")
    return "\n".join(rows)


def exit_codes() -> str:
    """Every exit code with its meaning."""
    rows = ["| code | meaning |", "|---|---|"]
    rows += [f"| {int(code)} | {meaning} |" for code, meaning in MEANINGS.items()]
    return "\n".join(rows)


TABLES = {"commands": commands, "exit-codes": exit_codes}


def place(name: str) -> re.Pattern[str]:
    """Where a table stands in a text."""
    return re.compile(rf"(<!-- {name} -->\n)(.*?)(<!-- /{name} -->)", re.DOTALL)


def renewed(text: str) -> str:
    """The text with every table as it is now."""
    for name, table in TABLES.items():
        made = table()
        text = place(name).sub(lambda found, made=made: f"{found[1]}{made}\n{found[3]}", text)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    README.write_text(renewed(README.read_text(encoding="utf-8")), encoding="utf-8")
    sys.exit(0)
