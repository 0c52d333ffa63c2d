import html
import re

import msgspec

from qlock.core.agreement import Agreement
from qlock.core.compare import compare
from qlock.core.comparison import Comparison
from qlock.core.endings import Endings
from qlock.core.ladder import ladder
from qlock.reports.markdown import MOST_CHARACTERS, SUFFIX, render, render_all
from tests.fakes.comparisons import a_side
from tests.golden.make_reports import a_comparison, a_ladder

replace = msgspec.structs.replace


def huge(suites: int = 60) -> Comparison:
    """More suites than a page holds, each with every slice and flip it may have, and texts that grow when escaped."""
    found = a_comparison()
    suite = found.suite[1]
    assert isinstance(suite.agreement, Agreement)
    wild = "<&|`*[~" * 40
    flips = tuple(
        replace(flip, item=f"{wild}{number}", text_a=wild, text_b=wild)
        for number, flip in enumerate(suite.agreement.flip * 8)
    )
    slices = replace(suite.slices, row=suite.slices.row * 20)
    many = [
        replace(suite, suite=f"suite{number}", slices=slices, agreement=replace(suite.agreement, flip=flips))
        for number in range(suites)
    ]
    return replace(found, suite=tuple(many), why=(wild * 20,) * 21)


def test_it_is_written_to_a_markdown_file() -> None:
    assert SUFFIX == ".md"


def test_a_mark_says_at_once_whether_it_is_valid() -> None:
    a = a_side("r")
    assert render(compare(a, a)).startswith("## ✅ VALID: ")
    assert render(compare(a, replace(a, forced=("device",)))).startswith("## ❌ INVALID: ")
    assert render(compare(a, replace(a, sealed=False))).startswith("## ⚠️ INCOMPLETE: ")


def test_it_never_outgrows_a_comment_and_says_what_did_not_fit() -> None:
    page = render(huge())
    assert MOST_CHARACTERS - 5_000 < len(page) <= MOST_CHARACTERS
    assert re.search(r"\n\n\d+ lines did not fit here; the JSON report has them all\.\n\Z", page)


def test_no_fold_stays_open() -> None:
    for page in (render(huge()), render(huge(1)), render(huge(2)), render(a_comparison())):
        assert page.count("<details>") == page.count("</details>")
        assert page.count("<summary>") == page.count("</summary>")
    assert "did not fit" in render(huge(2))
    assert render(huge(2)).count("<details>") > 0


def test_the_headline_scores_stand_before_any_fold() -> None:
    page = render(a_comparison())
    assert page.index("### Scores") < page.index("### Endings") < page.index("<details>")


def test_all_rows_of_a_table_have_its_columns() -> None:
    for block in re.findall(r"(?:^\|.*\n)+", render(a_comparison()), re.MULTILINE):
        columns = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(columns) == 1


def test_an_answer_cannot_be_markup() -> None:
    page = render(a_comparison())
    tags = set(re.findall(r"<[^>]*>", page))
    assert tags == {"<details>", "</details>", "<summary>", "</summary>"}
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "](" not in html.unescape(page).replace("\\]", "")


def test_numbers_and_names_stay_readable_in_the_source() -> None:
    page = render_all(a_ladder())
    assert "\n| Q8_0@f16kv | 144.8 MB | 8.50 | 75.8 % (67.4 to 82.6 %) | +0.8 points (-" in page
    assert "- fatal: device.cpu_model: A has `AMD EPYC 9555`, B has `Intel Xeon`\n" in page


def test_a_summary_is_html_and_no_markdown() -> None:
    found = a_comparison()
    odd = replace(found, b=replace(found.b, point="<a*b>"))
    page = render_all(ladder([odd, found]))
    assert (
        "<details><summary>VALID: &lt;a*b&gt; (B) against F16@f16kv (A); meant to differ: weights</summary>"
        in page
    )
    assert "- ✅ VALID: &lt;a\\*b&gt; (B) against F16@f16kv (A); meant to differ: weights\n" in page


def test_a_suite_without_endings_leaves_no_empty_table() -> None:
    found = a_comparison()
    assert isinstance(found.suite[1].endings, Endings)
    assert "### Endings" not in render(replace(found, suite=found.suite[:1]))


def test_many_points_stand_in_one_view_and_each_comparison_is_folded() -> None:
    page = render_all(ladder([a_comparison()] * 2, at_most_bytes=106_000_000))
    assert page.startswith(
        "## 2 comparisons\n\n"
        "- ✅ VALID: runs/ladder:Q4_K_M@f16kv (B) against runs/ladder:F16@f16kv (A); meant to differ: weights\n"
        "- ✅ VALID: runs/ladder:Q4_K_M@f16kv (B) against runs/ladder:F16@f16kv (A); meant to differ: weights\n"
        "\n### Ladder of wikitext\n\n- best at or under 106.0 MB: F16@f16kv, of 2 points\n\n| point | size |"
    )
    assert page.index("Ladder of orders") < page.index("<details>") < page.index("### Scores")
    assert page.count("<details>") == page.count("</details>")


def test_a_ladder_never_outgrows_a_comment() -> None:
    page = render_all(ladder([huge(3)] * 12))
    assert len(page) <= MOST_CHARACTERS
    assert page.count("<details>") == page.count("</details>")
    assert "did not fit" in page
