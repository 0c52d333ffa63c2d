import json

import jsonschema
import pytest

from qlock.core.canon import from_json
from qlock.core.comparison import Comparison
from qlock.reports.json import SUFFIX, render, schema
from tests.golden.make_reports import a_comparison, an_invalid_comparison


def test_it_is_written_to_a_json_file() -> None:
    assert SUFFIX == ".json"


def test_it_is_one_line_that_reads_back_as_the_comparison() -> None:
    for found in (a_comparison(), an_invalid_comparison()):
        text = render(found)
        assert text.index("\n") == len(text) - 1
        assert from_json(text.encode(), Comparison, name="report") == found
        assert text.startswith('{"comparison_version":1,')


def test_no_control_character_is_in_it() -> None:
    text = render(a_comparison())
    assert all(one >= " " for one in text.rstrip("\n"))
    assert "\\u001b" not in text


def test_what_is_written_follows_the_published_schema_and_nothing_else_does() -> None:
    validator = jsonschema.Draft202012Validator(json.loads(schema()))
    validator.check_schema(validator.schema)
    for found in (a_comparison(), an_invalid_comparison()):
        comparison = json.loads(render(found))
        validator.validate([comparison])
        for wrong in ({**comparison, "state": "fine"}, {**comparison, "more": 1}, {"state": "valid"}):
            with pytest.raises(jsonschema.ValidationError):
                validator.validate([wrong])
