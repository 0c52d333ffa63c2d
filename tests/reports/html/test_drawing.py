from qlock.reports.html.drawing import axis_below, axis_left, box, drawing, figure, number, shortened, word
from qlock.reports.html.markup import text
from qlock.reports.html.scale import Scale
from tests.fakes.pages import Page


def test_a_drawing_reads_as_its_label() -> None:
    assert drawing(50, "a <label>", word(1, 2, "x<y")) == (
        '<svg viewBox="0 0 360 50" role="img" aria-label="a &lt;label&gt;"><title>a &lt;label&gt;</title>'
        '<text x="1" y="2" text-anchor="start" class="word">x&lt;y</text></svg>'
    )


def test_a_figure_has_its_title_above_and_its_caption_below() -> None:
    assert figure("T", text("…"), "C") == "<figure><h4>T</h4>…<figcaption>C</figcaption></figure>"


def test_a_box_tells_a_pointer_what_it_is() -> None:
    plain = '<rect x="1" y="2" width="3" height="4" class="k"/>'
    assert box((1, 2), (3, 4), "k") == plain
    assert box((1, 2), (3, 4), "k", told="t") == f"<g><title>t</title>{plain}</g>"


def test_a_name_is_cut_in_its_middle() -> None:
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefgh", 6) == "abc…gh"
    assert len(shortened("x" * 99, 7)) == 7


def test_axes_have_a_line_and_a_number_at_each_mark() -> None:
    scale = Scale(low=0, high=10, start=0, end=100)
    below = Page(axis_below(scale, (0.0, 5.0), y=50, top=0, name="GB"))
    assert below.words == ["0", "5", "GB"]
    assert [line["x1"] for line in below.all("line")] == ["0", "50"]
    left = Page(axis_left(Scale(low=0, high=10, start=100, end=0), 20, 90, "%"))
    assert left.words == ["0", "2", "4", "6", "8", "10", "%"]
    assert [line["y1"] for line in left.all("line")] == ["100", "80", "60", "40", "20", "0"]


def test_a_number_has_no_noise_in_its_last_bits() -> None:
    assert number(0.1 + 0.2) == "0.3"
    assert number(-0.0) == "0"
    assert number(24.5) == "24.5"
