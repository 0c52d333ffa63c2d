from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.compare import compare
from qlock.core.escape import visible
from qlock.core.ladder import ladder
from qlock.reports.interface.bridge import DESCRIBES
from qlock.reports.junit import SUFFIX, render, render_all
from tests.fakes.comparisons import a_crossing, a_side
from tests.golden.make_reports import HOSTILE, a_comparison, an_invalid_comparison

replace = msgspec.structs.replace


def test_it_is_written_to_an_xml_file() -> None:
    assert SUFFIX == ".xml"


def test_each_gate_and_the_validity_are_cases() -> None:
    assert render(a_comparison()) == (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<testsuites name="qlock diff" tests="4" failures="0" errors="1" skipped="0">\n'
        '  <testsuite name="VALID: Q4_K_M@f16kv (B) against F16@f16kv (A); meant to differ: weights" '
        'tests="4" failures="0" errors="1" skipped="0">\n'
        '    <testcase classname="Q4_K_M@f16kv.validity" name="the comparison is valid"/>\n'
        '    <testcase classname="Q4_K_M@f16kv.gates" name="non-inferior of orders: B - A above -20.0 points"/>\n'
        '    <testcase classname="Q4_K_M@f16kv.gates" name="no-more-errors of orders north: errors of A at most"/>\n'
        '    <testcase classname="Q4_K_M@f16kv.gates" name="non-inferior of orders third=0: B - A above -1.0 points">\n'
        '      <error type="undecided" message="undecided: undecidable: the margin lies under the noise of 2.7 %"/>\n'
        "    </testcase>\n"
        "  </testsuite>\n"
        "</testsuites>\n"
    )


def test_every_reason_why_it_is_not_valid_is_a_failure() -> None:
    (suite,) = ET.fromstring(render(an_invalid_comparison()))
    assert [(case.get("name"), case[0].tag, case[0].get("message")) for case in suite] == [
        (
            "fatal: device.cpu_model",
            "failure",
            "fatal: device.cpu_model: A has `AMD EPYC 9555`, B has `Intel Xeon`",
        ),
        (
            "confound: setting.cache_type_k",
            "failure",
            "confound: setting.cache_type_k: A has `f16`, B has `q8_0`",
        ),
    ]


def test_a_step_of_a_bridge_is_neither_passed_nor_failed() -> None:
    a, here, there, b = a_crossing("rr", "rw", "rw", "ww")
    root = ET.fromstring(render(compare(a, b, through=(here, there))))
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("7", "4", "3")
    assert [
        (case.get("name"), case[0].attrib) for case in root[0] if case.get("classname") == "Q2_K@f16kv.bridge"
    ] == [
        (f"orders through Q4_K_M@f16kv: {what}", {"message": f"{change}; {DESCRIBES}"})
        for what, change in (
            ("weights, on A's device", "-50.0 points"),
            ("device and engine alone", "0.0 points"),
            ("weights, on B's device", "-50.0 points"),
        )
    ]


def test_an_open_run_is_an_error() -> None:
    (suite,) = ET.fromstring(render(compare(a_side("r"), a_side("r", sealed=False))))
    assert [(case[0].tag, case[0].get("type")) for case in suite] == [("error", "incomplete")]


def test_a_gate_that_fails_is_a_failure() -> None:
    found = a_comparison()
    gate = replace(found.gate[0], verdict="fail")
    (suite,) = ET.fromstring(render(replace(found, gate=(gate,))))
    assert (suite.get("failures"), suite[1][0].get("message")) == (
        "1",
        "fail: +1.8 points (-5.2 to +9.0 points), 112 pairs",
    )


def test_several_comparisons_are_one_document() -> None:
    suites = ET.fromstring(render_all(ladder([a_comparison(), an_invalid_comparison()])))
    assert [suite.get("tests") for suite in suites] == ["4", "2"]
    assert (suites.get("tests"), suites.get("failures"), suites.get("errors")) == ("6", "2", "1")


@pytest.mark.parametrize("written", [HOSTILE, "]]>", '"/><x', "&amp;"])
@given(more=st.text(max_size=30))
def test_no_text_breaks_the_document(written: str, more: str) -> None:
    found = replace(an_invalid_comparison(), why=(written + more,))
    (suite,) = ET.fromstring(render(found))
    assert suite[0][0].get("message") == visible(written + more, keep="\n\t")
