"""Variables that a spec may give an engine."""

from __future__ import annotations

import pytest

from qlock.core.environment import OWN_VARIABLES, refuse_variables
from qlock.core.spec import read_spec
from qlock.errors import InputError

SPEC = """\
spec_version = 1
name = "a"
[engine.environment]
{line}
[[model]]
name = "m"
source = "file:m.gguf"
[[setting]]
name = "s"
[[suite]]
name = "t"
kind = "perplexity"
text = "file:t.txt"
"""


def refusal(line: str) -> str:
    with pytest.raises(InputError) as caught:
        read_spec(SPEC.format(line=line).encode(), name="a.toml")
    return str(caught.value)


def test_variables_are_kept_as_they_are_written() -> None:
    spec = read_spec(SPEC.format(line='GGML_CUDA_DISABLE_GRAPHS = "1"\n_x = ""').encode(), name="a.toml")
    assert spec.engine.environment == {"GGML_CUDA_DISABLE_GRAPHS": "1", "_x": ""}


@pytest.mark.parametrize("name", sorted(OWN_VARIABLES))
def test_what_qlock_sets_itself_cannot_be_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"^got the variable `{name}`, which qlock sets itself$"):
        refuse_variables({"GGML_X": "1", name: "1"})


@pytest.mark.parametrize(
    "line, message",
    [
        ('HOME = "/"', "a.toml: engine: got the variable `HOME`, which qlock sets itself"),
        ("GGML_X = 1", "a.toml: engine.environment[...]: got an integer, expected text"),
        ('"A=B" = "1"', "a.toml: engine: got the variable `A=B`, expected letters, digits and `_`"),
        ('"" = "1"', "a.toml: engine: got the variable ``, expected letters, digits and `_`"),
        (
            'A = "\\u0000"',
            "a.toml: engine: the variable `A` has a value that no process can be given: got a NUL, or more than 65536 bytes",
        ),
    ],
)
def test_what_is_no_variable_is_refused(line: str, message: str) -> None:
    assert refusal(line) == message
