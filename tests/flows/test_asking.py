from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from qlock.core.digest import digest_of
from qlock.core.exchange import (
    Call,
    Chat,
    Complete,
    Diverge,
    Message,
    Outcome,
    Raw,
    Request,
    Right,
    Score,
)
from qlock.core.lock import SuitePin
from qlock.core.plan import item_seed
from qlock.core.record import item_digest
from qlock.core.spec import PromptSpec, SamplingSpec
from qlock.engines.interface import (
    Contrast,
    Generate,
    Load,
    Measure,
    Sampling,
)
from qlock.errors import InputError
from qlock.flows.asking import Asker, respondent
from qlock.flows.kinds import SuiteKind
from qlock.suites.interface import Answer, Data, Item, Play, TokensOf
from qlock.world.render import Renderer
from tests.fakes.documents import a_setting, a_suite
from tests.fakes.engine import BOS, FakeEngine, Script

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


@pytest.fixture(scope="module")
def renderer() -> Iterator[Renderer]:
    with Renderer() as shared:
        yield shared


@pytest.fixture
def engine(tmp_path: Path) -> FakeEngine:
    return Script(tmp_path / "engine").open_engine()


def kind_of(requests: dict[str, Request]) -> SuiteKind:
    """A suite that asks each item its one request."""

    def items(data: Data, params: Any, tokens_of: TokensOf) -> tuple[Item, ...]:
        return tuple(Item(id=id_, slices={"part": "a"}, body={"n": 1}) for id_ in requests)

    def ask(item: Item, params: Any) -> Play:
        yield requests[item.id]
        return Answer()

    def grade(item: Item, answer: Answer, params: Any) -> Outcome:
        return Right()

    return SuiteKind(
        kind="one-request",
        ask_version=1,
        grade_version=1,
        sources=(),
        params=None,
        items=items,
        ask=ask,
        grade=grade,
        trials=lambda items, params: (),
    )


def asker(
    engine: FakeEngine, renderer: Renderer, *, suite: SuitePin | None = None, template: str | None = TEMPLATE
) -> Asker:
    path = Path(engine._folder) / "libllama.so"
    read_back = engine.load(Load(weights=(str(path),), setting=a_setting()))
    plain = a_suite(items_limit=100, prompt=PromptSpec(), sampling=SamplingSpec())
    return Asker(
        respondent=respondent(engine, read_back),
        renderer=renderer,
        template=template,
        kind=kind_of({}),
        params=None,
        suite=suite or plain,
        frozen_date="2026-01-01",
    )


def asking(made: Asker, **requests: Request) -> Asker:
    return msgspec.structs.replace(made, kind=kind_of(requests))


def chat(*turns: str) -> Complete:
    """``user: text`` and so on."""
    messages = tuple(Message(role=turn.split(": ")[0], content=turn.split(": ")[1]) for turn in turns)
    return Complete(prompt=Chat(messages=messages))


def raw(text: str) -> Complete:
    return Complete(prompt=Raw(text=text))


def prompted(made: Asker, request: Request) -> tuple[str, tuple[int, ...]]:
    (question,) = asking(made, q=request).questions({})
    return question.first.text, question.first.tokens


def test_raw_text_gets_the_bos_of_the_model_and_reads_no_special_tokens(
    engine: FakeEngine, renderer: Renderer
) -> None:
    made = asker(engine, renderer)
    assert prompted(made, raw("ab")) == ("ab", (BOS, 97, 98))
    assert prompted(made, raw("<s>")) == ("<s>", (BOS, 60, 115, 62))


def test_a_conversation_is_rendered_and_gets_bos_where_the_template_writes_none(
    engine: FakeEngine, renderer: Renderer
) -> None:
    made = asker(engine, renderer)
    text, tokens = prompted(made, chat("user: hi"))
    assert (text, tokens[:2]) == ("<user>hi", (BOS, ord("<")))
    own = msgspec.structs.replace(made, template="{{ bos_token }}" + TEMPLATE)
    text, tokens = prompted(own, chat("user: hi"))
    assert (text, tokens[:2]) == ("<s><user>hi", (BOS, ord("<")))


def test_two_bos_tokens_are_refused(engine: FakeEngine, renderer: Renderer) -> None:
    made = asker(engine, renderer)
    twice = Score(tokens=(BOS, BOS, 3), score_from=1)
    with pytest.raises(InputError) as caught:
        asking(made, q=twice).questions({})
    assert (str(caught.value), caught.value.hint) == (
        "q: the prompt begins with two BOS tokens",
        "look at the chat template",
    )


def test_more_tokens_to_score_than_the_context_holds_are_refused(
    engine: FakeEngine, renderer: Renderer
) -> None:
    made = asker(engine, renderer)
    room = made.respondent.context_tokens
    fitting = Score(tokens=tuple(range(2, room + 2)), score_from=1)
    assert len(asking(made, q=fitting).questions({})) == 1
    with pytest.raises(InputError) as caught:
        asking(made, q=Score(tokens=(*fitting.tokens, 3), score_from=1)).questions({})
    assert (str(caught.value), caught.value.hint) == (
        f"q: got `{room + 1}` tokens to score, expected at most the context of `{room}`",
        "raise `context_tokens` of the setting, or ask for less at once",
    )


@pytest.mark.parametrize(
    "rule, turns, text",
    [
        (PromptSpec(system="S"), ("user: hi",), "<system>S<user>hi"),
        (PromptSpec(system="S"), ("system: own", "user: hi"), "<system>own<user>hi"),
        (
            PromptSpec(
                system="S",
                few_shot=(Message(role="user", content="1"), Message(role="assistant", content="2")),
            ),
            ("user: hi",),
            "<system>S<user>1<assistant>2<user>hi",
        ),
        (
            PromptSpec(few_shot=(Message(role="user", content="1"),)),
            ("system: own", "user: hi"),
            "<system>own<user>1<user>hi",
        ),
    ],
)
def test_what_a_suite_puts_around_an_item(
    engine: FakeEngine, renderer: Renderer, rule: PromptSpec, turns: tuple[str, ...], text: str
) -> None:
    made = asker(engine, renderer, suite=a_suite(prompt=rule))
    assert prompted(made, chat(*turns))[0] == text


@pytest.mark.parametrize(
    "rule, text",
    [
        (PromptSpec(), "-/-"),
        (PromptSpec(thinking="on"), "True/-"),
        (PromptSpec(thinking="off", effort="high"), "False/high"),
    ],
)
def test_thinking_and_effort_reach_the_template(
    engine: FakeEngine, renderer: Renderer, rule: PromptSpec, text: str
) -> None:
    template = "{{ enable_thinking | default('-') }}/{{ reasoning_effort | default('-') }}"
    made = asker(engine, renderer, suite=a_suite(prompt=rule), template=template)
    assert prompted(made, chat("user: hi"))[0] == text


def test_a_template_that_asks_for_the_day_gets_the_frozen_one_and_is_pinned_so(
    engine: FakeEngine, renderer: Renderer
) -> None:
    template = "{{ strftime_now('%Y-%m-%d') }}"
    made = asking(asker(engine, renderer, template=template), a=raw("x"), b=chat("user: hi"))
    questions = made.questions({})
    assert questions[1].first.text == "2026-01-01"
    assert (made.pin(questions[:1]).uses_date, made.pin(questions).uses_date) == (False, True)


def test_a_conversation_needs_a_template(engine: FakeEngine, renderer: Renderer) -> None:
    made = asker(engine, renderer, template=None)
    with pytest.raises(InputError) as caught:
        prompted(made, chat("user: hi"))
    assert (str(caught.value), caught.value.hint) == (
        "q: the model has no chat template and the item is a conversation",
        'give `[suite.prompt] template = "file:…"`, or items with `prompt`',
    )


def test_a_template_that_refuses_names_the_item(engine: FakeEngine, renderer: Renderer) -> None:
    made = asker(engine, renderer, template="{{ raise_exception('no system turns') }}")
    with pytest.raises(InputError) as caught:
        asking(made, first=raw("x"), second=chat("user: hi")).questions({})
    assert (
        str(caught.value) == "second: the chat template refuses the conversation at line 1: no system turns"
    )


def test_a_prompt_that_no_context_could_hold_is_refused_before_it_is_tokenized(
    engine: FakeEngine, renderer: Renderer
) -> None:
    made = asker(engine, renderer, template="{% for _ in range(5) %}{{ 'a' * 1000000 }}{% endfor %}")
    context = made.respondent.context_tokens
    for request in (chat("user: hi"), raw("a" * 5_000_000)):
        with pytest.raises(InputError) as caught:
            asking(made, q=request).questions({})
        assert str(caught.value) == (
            f"q: the prompt is too long for a context of `{context}` tokens: got `5000000` characters, "
            "expected at most `4000000`"
        )
    wide = msgspec.structs.replace(made.respondent, context_tokens=20_000)
    made = msgspec.structs.replace(made, respondent=wide)
    with pytest.raises(InputError, match=r"^q: got a prompt of `5000001` tokens, which leaves no room"):
        asking(made, q=raw("a" * 5_000_000)).questions({})


def test_a_prompt_must_leave_room_for_a_token_of_the_answer(engine: FakeEngine, renderer: Renderer) -> None:
    made = asker(engine, renderer)
    room = made.respondent.context_tokens
    assert len(prompted(made, raw("a" * (room - 2)))[1]) == room - 1
    with pytest.raises(InputError) as caught:
        asking(made, short=raw("a"), long=raw("a" * (room - 1))).questions({})
    assert (str(caught.value), caught.value.hint) == (
        f"long: got a prompt of `{room}` tokens, which leaves no room for an answer in a context of `{room}`",
        "raise `context_tokens` of the setting, or shorten the item",
    )


def test_answers_that_the_context_may_end_are_counted(engine: FakeEngine, renderer: Renderer) -> None:
    made = asker(engine, renderer, suite=a_suite(prompt=PromptSpec(), sampling=SamplingSpec(answer_tokens=8)))
    room = made.respondent.context_tokens
    fitting, tight = raw("a" * (room - 9)), raw("a" * (room - 8))
    scored = Score(tokens=(BOS, *range(room - 1)), score_from=1)
    assert made.tight(asking(made, a=fitting, b=scored).questions({})) == ""
    assert made.tight(asking(made, a=fitting, b=tight, c=raw("a" * (room - 2))).questions({})) == (
        f"the context may end 2 of 3 answers of suite orders: prompt and `answer_tokens = 8` come to up to "
        f"{room + 7} tokens, the context has {room}"
    )
    assert made.tight(()) == ""


def test_prompts_too_long_together_are_refused(
    engine: FakeEngine, renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qlock.flows.asking.MOST_CHARACTERS_OF_A_SUITE", 10)
    made = asker(engine, renderer)
    assert len(asking(made, q1=raw("abcde"), q2=raw("abcde")).questions({})) == 2
    with pytest.raises(InputError) as caught:
        asking(made, q1=raw("abcd"), q2=raw("abcd"), q3=raw("abcd"), q4=raw("abcd")).questions({})
    assert str(caught.value) == (
        "the prompts of the first `3` items have `12` characters, expected at most `10` in a suite"
    )


def test_a_template_that_takes_long_over_all_items_is_refused(
    engine: FakeEngine, renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qlock.flows.asking.MOST_RENDERING_S", 0.0)
    made = asker(engine, renderer)
    assert len(asking(made, q=raw("not rendered")).questions({})) == 1
    with pytest.raises(InputError) as caught:
        asking(made, q=chat("user: hi")).questions({})
    assert str(caught.value) == "the chat template took longer than 0 s for the first `1` items"


def test_a_play_that_begins_with_a_call_is_refused(engine: FakeEngine, renderer: Renderer) -> None:
    made = asker(engine, renderer)
    with pytest.raises(InputError) as caught:
        prompted(made, Call(calls=("f()",), state={}))
    assert str(caught.value) == "q: the play begins with a call, expected a request to the model"
    item = Item(id="q", slices={}, body={})
    with pytest.raises(InputError) as caught:
        made.work(item, Call(calls=("f()",), state={}), repeat=1)
    assert str(caught.value) == "q: tool calls need a sandbox, which this version does not have"


def test_items_keep_their_order_however_their_prompts_are_made(
    engine: FakeEngine, renderer: Renderer
) -> None:
    made = asking(
        asker(engine, renderer),
        a=chat("user: hi"),
        b=raw("x"),
        c=Score(tokens=(BOS, 7, 8), score_from=2),
        d=chat("user: ho"),
    )
    questions = made.questions({})
    assert [question.item.id for question in questions] == ["a", "b", "c", "d"]
    assert [question.given for question in questions] == [
        None,
        None,
        Score(tokens=(BOS, 7, 8), score_from=2),
        None,
    ]
    assert questions[2].first.tokens == (BOS, 7, 8)
    assert [question.first.text for question in questions] == ["<user>hi", "x", "", "<user>ho"]


def test_a_limit_takes_the_first_items_and_no_limit_takes_all(engine: FakeEngine, renderer: Renderer) -> None:
    made = asking(asker(engine, renderer), a=raw("1"), b=raw("2"), c=raw("3"))
    for limit, names in ((2, ["a", "b"]), (9, ["a", "b", "c"]), (UNSET, ["a", "b", "c"])):
        limited = msgspec.structs.replace(made, suite=a_suite(items_limit=limit))
        assert [question.item.id for question in limited.questions({})] == names


def test_a_suite_without_items_is_refused(engine: FakeEngine, renderer: Renderer) -> None:
    with pytest.raises(InputError) as caught:
        asker(engine, renderer).questions({})
    assert str(caught.value) == "got no items, expected at least one"


def test_two_items_of_one_id_are_refused_with_both_places(engine: FakeEngine, renderer: Renderer) -> None:
    made = asking(asker(engine, renderer), a=raw("1"), b=raw("2"))
    double = made.kind.items({}, None, lambda _: ())
    twice = msgspec.structs.replace(made.kind, items=lambda data, params, tokens_of: (*double, double[0]))
    with pytest.raises(InputError) as caught:
        msgspec.structs.replace(made, kind=twice).questions({})
    assert str(caught.value) == "two items have the id `a`: number 1 and number 3"


def test_what_is_pinned_is_ids_contents_texts_and_tokens(engine: FakeEngine, renderer: Renderer) -> None:
    made = asking(asker(engine, renderer), a=raw("1"), b=raw("2"))
    questions = made.questions({})
    pin = made.pin(questions)
    digests = [item_digest(id_, {"part": "a"}, {"n": 1}) for id_ in ("a", "b")]
    assert (pin.suite, pin.items) == ("orders", 2)
    assert pin.items_digest == digest_of("items", [["a", digests[0]], ["b", digests[1]]])
    assert pin.text_digest == digest_of("prompts", ["1", "2"])
    assert pin.tokens_digest == digest_of("tokens", [[BOS, 49], [BOS, 50]])
    assert made.pin(questions[::-1]).items_digest != pin.items_digest


def test_work_carries_every_sampler_and_a_seed_of_item_and_repeat(
    engine: FakeEngine, renderer: Renderer
) -> None:
    rule = SamplingSpec(temperature=0.5, top_k=3, seed=7, answer_tokens=9, stop=("\n",), penalty_tokens=5)
    made = asking(asker(engine, renderer, suite=a_suite(sampling=rule, prompt=PromptSpec())), q=raw("a"))
    (question,) = made.questions({})
    work = made.first_work(question, repeat=2)
    assert work == Generate(
        id="q",
        tokens=(BOS, 97),
        sampling=Sampling(
            temperature=0.5,
            top_k=3,
            top_p=1.0,
            min_p=0.0,
            repeat_penalty=1.0,
            presence_penalty=0.0,
            frequency_penalty=0.0,
            penalty_tokens=5,
            seed=item_seed(7, "q", 2),
            answer_tokens=9,
            stop=("\n",),
            ignore_eos=False,
        ),
        logprobs=False,
        logits_digest=False,
    )
    assert made.work(question.item, raw("a"), repeat=2) == work
    assert made.first_work(question, repeat=1) != work


def test_a_score_is_work_to_measure(engine: FakeEngine, renderer: Renderer) -> None:
    made = asking(asker(engine, renderer), q=Score(tokens=(1, 2, 3), score_from=2))
    (question,) = made.questions({})
    expected = Measure(id="q", tokens=(1, 2, 3), score_from=2)
    assert made.first_work(question, repeat=1) == expected
    assert made.work(question.item, Score(tokens=(1, 2, 3), score_from=2), repeat=1) == expected


@pytest.mark.parametrize("pieces", [True, False])
def test_a_divergence_is_work_to_contrast(engine: FakeEngine, renderer: Renderer, *, pieces: bool) -> None:
    request = Diverge(tokens=(1, 2, 3), score_from=2, pieces=pieces)
    made = asking(asker(engine, renderer), q=request)
    (question,) = made.questions({})
    expected = Contrast(id="q", tokens=(1, 2, 3), score_from=2, pieces=pieces)
    assert made.first_work(question, repeat=1) == made.work(question.item, request, repeat=1) == expected


def test_a_request_later_in_a_play_is_rendered_as_the_first(engine: FakeEngine, renderer: Renderer) -> None:
    made = asking(asker(engine, renderer), q=chat("user: hi"))
    (question,) = made.questions({})
    work = made.work(question.item, chat("user: hi", "assistant: ho", "user: go on"), repeat=1)
    assert bytes(work.tokens[1:]) == b"<user>hi<assistant>ho<user>go on"
