"""Loops: small examples, a labelled corpus with precision and recall, then laws."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.loops import Loop, LoopRule, loop_in_tokens
from qlock.errors import InputError

# Roughly what a tokenizer makes of text: short pieces of words, one CJK character, a few equal signs together.
# Long runs are cut, so that an endless "aaaa" or "!!!!" becomes many equal pieces.
CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
PIECES = re.compile(rf"\s{{1,16}}|[{CJK}]|[^\W{CJK}]{{1,8}}|([^\w\s])\1{{0,15}}")


def loop_in_text(text: str) -> Loop | None:
    """The loop of a text in pieces of about the size of tokens."""
    numbers: dict[str, int] = {}
    return loop_in_tokens(
        [numbers.setdefault(found.group(), len(numbers)) for found in PIECES.finditer(text)]
    )


# ---------------------------------------------------------------- examples


def test_one_token_for_ever() -> None:
    assert loop_in_tokens([1, 2, 3] + [7] * 97) == Loop(
        start=3, period_tokens=1, copies=97, covered_tokens=97, share=0.97
    )


def test_an_unfinished_last_copy_is_covered_but_not_counted() -> None:
    tokens = list(range(100, 120)) * 3 + list(range(100, 110))
    assert loop_in_tokens(tokens) == Loop(start=0, period_tokens=20, copies=3, covered_tokens=70, share=1.0)


@pytest.mark.parametrize(
    "period, copies, found",
    [
        (16, 3, True),
        (15, 3, False),
        (1, 48, True),
        (1, 47, False),
        (256, 3, True),
        (257, 3, False),
        (60, 2, False),
    ],
)
def test_the_borders_of_the_default_rule(period: int, copies: int, found: bool) -> None:  # noqa: FBT001 - a table
    tokens = [-1, *list(range(period)) * copies, -2]
    assert (loop_in_tokens(tokens) is not None) == found


def test_the_rule_can_be_tuned() -> None:
    tokens = [1, 2] * 5
    assert loop_in_tokens(tokens) is None
    assert loop_in_tokens(tokens, LoopRule(least_covered_tokens=10)) == Loop(
        start=0, period_tokens=2, copies=5, covered_tokens=10, share=1.0
    )
    assert loop_in_tokens(tokens, LoopRule(least_covered_tokens=10, least_copies=6)) is None
    assert loop_in_tokens(tokens, LoopRule(least_covered_tokens=10, longest_period_tokens=1)) is None


def test_a_rule_without_repetition_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        loop_in_tokens([1, 2, 3], LoopRule(least_copies=1))
    assert str(caught.value) == "a loop has copies: got `least_copies` `1`, expected at least `2`"


def test_of_two_loops_the_one_that_covers_more() -> None:
    tokens = [1, 2] * 30 + [9] * 100 + [3, 4, 5] * 30
    assert loop_in_tokens(tokens) == Loop(
        start=60, period_tokens=1, copies=100, covered_tokens=100, share=0.4
    )


def test_of_two_equal_loops_the_earlier() -> None:
    assert loop_in_tokens([7] * 50 + [1] + [8] * 50) == Loop(
        start=0, period_tokens=1, copies=50, covered_tokens=50, share=50 / 101
    )


@pytest.mark.parametrize("tokens", [[], [1], [1, 1], list(range(47))])
def test_short_outputs_have_no_loop(tokens: list[int]) -> None:
    assert loop_in_tokens(tokens) is None


@pytest.mark.parametrize("text", ["a" * 5000, "!" * 5000, "\n" * 5000, "世" * 60, "да " * 60, "<|x|>" * 40])
def test_one_sign_for_ever_is_a_loop_in_text(text: str) -> None:
    loop = loop_in_text(text)
    assert loop is not None
    assert loop.share > 0.95


@pytest.mark.parametrize(
    "text", ["", "no no no no", "-" * 120, "=" * 80 + "\nTitle\n" + "=" * 80, "|---" * 8 + "|"]
)
def test_ordinary_repeats_are_no_loop(text: str) -> None:
    assert loop_in_text(text) is None


def test_loops_survive_json() -> None:
    loop = loop_in_tokens([7] * 50)
    assert msgspec.json.decode(msgspec.json.encode(loop), type=Loop) == loop


# ---------------------------------------------------------------- a labelled corpus

WORDS = re.findall(
    r"\w+",
    "the a model answer value table of in and weights when order bank text long short first next because "
    "river green stone walks under seven always never light paper makes finds old new city water against",
)


def sentence(rng: random.Random) -> str:
    words = [rng.choice(WORDS) for _ in range(rng.randint(5, 16))]
    return " ".join(words).capitalize() + "."


def prose(rng: random.Random) -> str:
    return " ".join(sentence(rng) for _ in range(rng.randint(10, 60)))


def numbered(rng: random.Random) -> str:
    same = sentence(rng)
    return "\n".join(f"{i}. {same}" for i in range(1, rng.randint(20, 120)))


def table(rng: random.Random) -> str:
    rows = (f"| {i} | {rng.randint(0, 9)} | {rng.choice(WORDS)} |" for i in range(rng.randint(10, 80)))
    return "| n | k | word |\n|---|---|---|\n" + "\n".join(rows)


def code(rng: random.Random) -> str:
    names = [f"{rng.choice(WORDS)}_{i}" for i in range(rng.randint(8, 40))]
    return "\n".join(f"    self.{name} = options.get('{name}', None)" for name in names)


def json_rows(rng: random.Random) -> str:
    rows = [{"id": i, "name": rng.choice(WORDS), "price": 0, "tags": []} for i in range(rng.randint(10, 80))]
    return json.dumps(rows)


def refrain(rng: random.Random) -> str:
    chorus = " ".join(sentence(rng) for _ in range(3))
    return "\n\n".join(f"{sentence(rng)} {sentence(rng)}\n\n{chorus}" for _ in range(rng.randint(3, 8)))


def said_twice(rng: random.Random) -> str:
    paragraph = " ".join(sentence(rng) for _ in range(5))
    return f"{sentence(rng)}\n{paragraph}\n{paragraph}\n{sentence(rng)}"


def digits(rng: random.Random) -> str:
    return " ".join(str(rng.randint(0, 1)) for _ in range(rng.randint(50, 300)))


def counting(rng: random.Random) -> str:
    return ", ".join(str(i) for i in range(rng.randint(50, 500)))


def stuck_sentence(rng: random.Random) -> str:
    return prose(rng) + "\n" + (sentence(rng) + " ") * rng.randint(10, 40)


def stuck_word(rng: random.Random) -> str:
    return prose(rng) + f" {rng.choice(WORDS)}" * rng.randint(60, 400)


def stuck_sign(rng: random.Random) -> str:
    return prose(rng) + rng.choice("!G@0.") * rng.randint(1000, 4000)


def stuck_line(rng: random.Random) -> str:
    return numbered(rng) + f"\n7. {sentence(rng)}" * rng.randint(10, 40)


def stuck_paragraph(rng: random.Random) -> str:
    paragraph = "\n".join(sentence(rng) for _ in range(4)) + "\n\n"
    return prose(rng) + "\n\n" + paragraph * rng.randint(4, 9)


def stuck_and_recovered(rng: random.Random) -> str:
    return prose(rng) + f" Wait, {sentence(rng)}" * rng.randint(8, 20) + " " + prose(rng)


def stuck_call(rng: random.Random) -> str:
    call = json.dumps({"name": rng.choice(WORDS), "arguments": {"path": rng.choice(WORDS)}})
    return f"<tool_call>\n{call}\n</tool_call>\n" * rng.randint(5, 30)


HEALTHY = (prose, numbered, table, code, json_rows, refrain, said_twice, digits, counting)
LOOPING = (
    stuck_sentence, stuck_word, stuck_sign, stuck_line, stuck_paragraph, stuck_and_recovered, stuck_call,
)  # fmt: skip


def detected(makers: tuple[Callable[[random.Random], str], ...], each: int) -> dict[str, int]:
    """How many of ``each`` outputs per kind are found to loop."""
    return {
        make.__name__: sum(
            loop_in_text(make(random.Random(f"{make.__name__} {i}"))) is not None for i in range(each)
        )
        for make in makers
    }


def test_precision_and_recall_on_a_labelled_corpus() -> None:
    each = 80  # 9 healthy and 7 looping kinds: 1,280 outputs
    false_alarms = detected(HEALTHY, each)
    found = detected(LOOPING, each)
    assert false_alarms == {make.__name__: 0 for make in HEALTHY}  # precision 1
    assert found == {make.__name__: each for make in LOOPING}  # recall 1


def test_long_texts_written_by_people_have_no_loop(shared_data: Path) -> None:
    text = (shared_data / "wikitext2" / "wiki.test.raw").read_text("utf-8")
    lines, articles = text.split("\n"), re.split(r"(?m)^ = (?!=)", text)
    assert max(map(len, articles)) > 70_000
    assert [part[:60] for part in (*lines, *articles) if loop_in_text(part) is not None] == []


# ---------------------------------------------------------------- laws


def slow_loop(tokens: list[int], rule: LoopRule) -> Loop | None:
    """The definition, tried for every start and period."""
    best: Loop | None = None
    for period in range(1, rule.longest_period_tokens + 1):
        for start in range(len(tokens) - period):
            end = start + period
            while end < len(tokens) and tokens[end] == tokens[end - period]:
                end += 1
            covered = end - start
            if covered < rule.least_covered_tokens or covered // period < rule.least_copies:
                continue
            if best is None or covered > best.covered_tokens:
                best = Loop(
                    start=start, period_tokens=period, copies=covered // period,
                    covered_tokens=covered, share=covered / len(tokens),
                )  # fmt: skip
    return best


@given(
    st.lists(st.integers(0, 2), max_size=40),
    st.builds(
        LoopRule,
        longest_period_tokens=st.integers(1, 12),
        least_copies=st.integers(2, 4),
        least_covered_tokens=st.integers(1, 14),
    ),
)
def test_equals_the_definition(tokens: list[int], rule: LoopRule) -> None:
    assert loop_in_tokens(tokens, rule) == slow_loop(tokens, rule)


@given(
    before=st.lists(st.integers(1000, 10**9), max_size=60, unique=True),
    period=st.lists(st.integers(0, 400), min_size=1, max_size=256, unique=True),
    more_copies=st.integers(0, 5),
    after=st.lists(st.integers(-(10**9), -1), max_size=60, unique=True),
)
def test_a_planted_loop_is_found_at_its_place(
    before: list[int], period: list[int], more_copies: int, after: list[int]
) -> None:
    copies = max(3, -(-48 // len(period))) + more_copies
    tokens = before + period * copies + after
    covered = len(period) * copies
    assert loop_in_tokens(tokens) == Loop(
        start=len(before),
        period_tokens=len(period),
        copies=copies,
        covered_tokens=covered,
        share=covered / len(tokens),
    )


@given(st.integers(0, 2**32), st.integers(4, 50_000), st.integers(0, 3000))
def test_random_tokens_have_no_loop(seed: int, vocabulary: int, length: int) -> None:
    rng = random.Random(seed)
    assert loop_in_tokens([rng.randrange(vocabulary) for _ in range(length)]) is None


@given(st.lists(st.integers(0, 3), max_size=200), st.integers(1, 100))
def test_more_tokens_never_hide_a_loop(tokens: list[int], more: int) -> None:
    rule = LoopRule(least_covered_tokens=12)
    loop = loop_in_tokens(tokens, rule)
    longer = loop_in_tokens(tokens + list(itertools.islice(itertools.cycle([5, 6, 7]), more)), rule)
    if loop is not None:
        assert longer is not None
        assert longer.covered_tokens >= loop.covered_tokens
