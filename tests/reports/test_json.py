import json

import jsonschema
import pytest

from qlock.core.canon import from_json
from qlock.core.ladder import Ladder, ladder
from qlock.reports.json import SUFFIX, render, render_all, schema
from tests.golden.make_reports import a_comparison, a_ladder, an_invalid_comparison


def test_it_is_written_to_a_json_file() -> None:
    assert SUFFIX == ".json"


def test_it_is_one_line_that_reads_back_as_the_ladder() -> None:
    for found in (ladder([a_comparison()]), ladder([an_invalid_comparison()]), a_ladder()):
        text = render_all(found)
        assert text.index("\n") == len(text) - 1
        assert from_json(text.encode(), Ladder, name="report") == found
        assert text.startswith('{"ladder_version":1,"comparison":[{"comparison_version":1,')


def test_one_comparison_is_a_ladder_of_its_two_points() -> None:
    assert render(a_comparison()) == render_all(ladder([a_comparison()]))
    whole = json.loads(render(a_comparison()))
    assert [rung["name"] for rung in whole["rung"]] == ["F16@f16kv", "Q4_K_M@f16kv"]
    assert (whole["best"], "at_most_bytes" in whole) == ([], False)


def test_what_a_point_came_to_stands_in_one_place() -> None:
    whole = json.loads(render_all(a_ladder()))
    q4 = next(rung for rung in whole["rung"] if rung["name"] == "runs/ladder:Q4_K_M@f16kv")
    assert (q4["file_bytes"], q4["bits_per_weight"], q4["memory_bytes"]) == (105_500_000, 4.85, 152_685_920)
    marks = {mark["suite"]: mark for mark in q4["mark"]}
    assert marks["orders"]["tokens_per_s"] == pytest.approx(42.87, abs=0.01)
    assert (marks["orders"]["unfinished_share"], marks["orders"]["is_on_front"]) == (2 / 120, True)
    assert marks["distance"]["distance"]["kld_nats"] == pytest.approx(0.02375)
    assert marks["wikitext"]["tokens_per_s"]["kind"] == "unknown"
    assert whole["at_most_bytes"] == 110_000_000
    assert {best["suite"]: best["rung"] for best in whole["best"]} == dict.fromkeys(
        ("distance", "wikitext", "orders"), "runs/ladder:Q4_K_M@f16kv"
    )


def test_no_control_character_is_in_it() -> None:
    text = render(a_comparison())
    assert all(one >= " " for one in text.rstrip("\n"))
    assert "\\u001b" not in text


def test_what_is_written_follows_the_published_schema_and_nothing_else_does() -> None:
    validator = jsonschema.Draft202012Validator(json.loads(schema()))
    validator.check_schema(validator.schema)
    for found in (ladder([a_comparison()]), ladder([an_invalid_comparison()]), a_ladder()):
        whole = json.loads(render_all(found))
        validator.validate(whole)
        first = whole["comparison"][0]
        for wrong in (
            {**whole, "more": 1},
            {**whole, "rung": [{"name": "x"}]},
            {**whole, "comparison": [{**first, "state": "fine"}]},
            {**whole, "comparison": [{**first, "more": 1}]},
            {"ladder_version": 1},
            [first],
        ):
            with pytest.raises(jsonschema.ValidationError):
                validator.validate(wrong)
