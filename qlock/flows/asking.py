"""From a suite's items to token ids.

One ``Asker`` serves one suite at one point: it cuts the items, plays each to its first request, renders and tokenizes
it, digests all of that for the lock, and turns later requests into work for the engine.

Does not live here: keeping many plays going (``flows.driver``), grading (``flows.grading``).
"""

from __future__ import annotations

from typing import Any, assert_never

import msgspec
from msgspec import UNSET

from qlock.core.base import Base, Positive
from qlock.core.digest import digest_of
from qlock.core.exchange import (
    Call,
    Chat,
    Complete,
    Diverge,
    Message,
    Raw,
    Request,
    Score,
)
from qlock.core.facts import ReadBack
from qlock.core.lock import PromptsPin, SuitePin
from qlock.core.plan import item_seed
from qlock.core.record import item_digest
from qlock.core.spec import PromptSpec
from qlock.core.template import RenderRequest, Template, starts_with_bos
from qlock.engines.interface import (
    Contrast,
    Engine,
    Generate,
    Measure,
    Sampling,
    Vocabulary,
    Work,
    vocabulary_of,
)
from qlock.errors import InputError
from qlock.flows.kinds import SuiteKind, items_of
from qlock.flows.run_folder import items_digest
from qlock.suites.interface import Data, Item, Play
from qlock.world.render import Renderer

MOST_CHARACTERS = 4_000_000
"""Of one prompt, where no context could hold more."""
MOST_CHARACTERS_OF_A_TOKEN = 256
"""No vocabulary has longer tokens in numbers that matter."""
MOST_CHARACTERS_OF_A_SUITE = 1 << 28
"""Of all first prompts together: 500 of a 128k context."""
MOST_RENDERING_S = 600.0
"""Processor seconds in which a chat template renders all items of a suite; one item takes milliseconds."""

_THINKING = {"template-default": None, "on": True, "off": False}


class Prompt(Base, frozen=True, kw_only=True):
    """One request as text and as token ids."""

    text: str
    tokens: tuple[int, ...]
    uses_date: bool


class Question(Base, frozen=True, kw_only=True):
    """One item, ready to be asked."""

    item: Item
    digest: str
    first: Prompt
    given: Score | Diverge | None
    """The first request, where it gives token ids instead of a prompt."""


class _Text(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as text, and how it is made tokens of."""

    text: str
    add_bos: bool
    has_special: bool
    """Whether special tokens are read in it."""
    uses_date: bool


_NO_TEXT = _Text(text="", add_bos=False, has_special=False, uses_date=False)
"""Of a request that gives token ids."""


class Respondent(msgspec.Struct, frozen=True, kw_only=True):
    """Who is asked: an engine with a vocabulary loaded, and the room for prompt and answer together."""

    engine: Engine
    vocabulary: Vocabulary
    context_tokens: Positive


def respondent(engine: Engine, read_back: ReadBack) -> Respondent:
    """An engine with a point loaded."""
    return Respondent(
        engine=engine, vocabulary=vocabulary_of(read_back), context_tokens=read_back.context_tokens
    )


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """One suite at one point."""

    respondent: Respondent
    renderer: Renderer
    template: str | None
    """The chat template in use: the suite's own, else the model's; ``None`` where there is none."""
    kind: SuiteKind
    params: Any
    suite: SuitePin
    frozen_date: str

    def play(self, item: Item) -> Play:
        """A fresh play of one item."""
        return self.kind.ask(item, self.params)

    def questions(self, data: Data) -> tuple[Question, ...]:
        """Every item in order, with its first request rendered and tokenized.

        Raises:
            InputError: Two items share an id, a template cannot render an item, BOS is doubled, or a prompt, or all
                of them together, are too long to be tokenized.
        """
        limit = self.suite.items_limit
        every = items_of(self.kind, self.params, self.suite, data, self._tokens_of)
        items = every[: None if limit is UNSET else limit]
        return self.questions_of(items)

    def questions_of(self, items: tuple[Item, ...]) -> tuple[Question, ...]:
        """The same of items that are known already."""
        _check_ids(items)
        return tuple(self._question(item, prompt, given) for item, prompt, given in self._first(items))

    def _first(self, items: tuple[Item, ...]) -> list[tuple[Item, Prompt, Score | Diverge | None]]:
        texts: list[_Text] = []
        given: dict[str, Score | Diverge] = {}
        characters = 0
        began_s = self.renderer.spent_s
        for number, item in enumerate(items, start=1):
            play = self.play(item)
            request = next(play)
            play.close()
            match request:
                case Score() | Diverge():
                    given[item.id] = request
                    texts.append(_NO_TEXT)
                case Complete(prompt=prompt):
                    texts.append(self._text(prompt, item.id))
                    characters += len(texts[-1].text)
                    _refuse_endless(characters, self.renderer.spent_s - began_s, items=number)
                case Call():
                    raise InputError("the play begins with a call, expected a request to the model").within(
                        item.id
                    )
        prompts = [
            Prompt(
                text=text.text,
                tokens=given[item.id].tokens if item.id in given else tokens,
                uses_date=text.uses_date,
            )
            for item, text, tokens in zip(items, texts, self._tokenize(texts), strict=True)
        ]
        return [(item, prompt, given.get(item.id)) for item, prompt in zip(items, prompts, strict=True)]

    def _question(self, item: Item, prompt: Prompt, given: Score | Diverge | None) -> Question:
        bos = self.respondent.vocabulary.bos_token
        if bos >= 0 and prompt.tokens[:2] == (bos, bos):
            raise InputError(
                "the prompt begins with two BOS tokens", hint="look at the chat template"
            ).within(item.id)
        room = self.respondent.context_tokens
        if given is not None and len(prompt.tokens) > room:
            raise InputError(
                f"got `{len(prompt.tokens)}` tokens to score, expected at most the context of `{room}`",
                hint="raise `context_tokens` of the setting, or ask for less at once",
            ).within(item.id)
        if given is None and len(prompt.tokens) >= room:
            raise InputError(
                f"got a prompt of `{len(prompt.tokens)}` tokens, which leaves no room for an answer in a context of "
                f"`{room}`",
                hint="raise `context_tokens` of the setting, or shorten the item",
            ).within(item.id)
        return Question(
            item=item,
            digest=item_digest(item.id, item.slices, item.body),
            first=prompt,
            given=given,
        )

    def _text(self, prompt: Chat | Raw, item: str) -> _Text:
        match prompt:
            case Raw(text=text):
                self._refuse_long(text, item)
                return _Text(text=text, add_bos=True, has_special=False, uses_date=False)
            case Chat():
                try:
                    rendered = self.renderer.render(self._template(), self._render_request(prompt))
                except InputError as error:
                    raise error.within(item) from None
                self._refuse_long(rendered.text, item)
                has_bos = starts_with_bos(rendered.text, self.respondent.vocabulary.bos_text)
                return _Text(
                    text=rendered.text,
                    add_bos=self.respondent.vocabulary.add_bos and not has_bos,
                    has_special=True,
                    uses_date=rendered.uses_date,
                )

    def _refuse_long(self, text: str, item: str) -> None:
        """Refuse what no context could hold before minutes go into tokenizing it."""
        context = self.respondent.context_tokens
        most = max(MOST_CHARACTERS, context * MOST_CHARACTERS_OF_A_TOKEN)
        if len(text) > most:
            raise InputError(
                f"the prompt is too long for a context of `{context}` tokens: got `{len(text)}` characters, "
                f"expected at most `{most}`",
                hint="look at the item and at the chat template",
            ).within(item)

    def _template(self) -> Template:
        if self.template is None:
            raise InputError(
                "the model has no chat template and the item is a conversation",
                hint='give `[suite.prompt] template = "file:…"`, or items with `prompt`',
            )
        return Template(
            text=self.template,
            bos_token=self.respondent.vocabulary.bos_text,
            eos_token=self.respondent.vocabulary.eos_text,
        )

    def _render_request(self, chat: Chat) -> RenderRequest:
        rule = self.suite.prompt
        return RenderRequest(
            messages=tuple(msgspec.to_builtins(message) for message in conversation(chat, rule)),
            tools=chat.tools,
            thinking=_THINKING[rule.thinking],
            variables={"reasoning_effort": rule.effort} if rule.effort else {},
            frozen_date=self.frozen_date,
        )

    def _tokens_of(self, text: str) -> tuple[int, ...]:
        return self.respondent.engine.tokenize([text], add_special=True, parse_special=False)[0]

    def _tokenize(self, texts: list[_Text]) -> list[tuple[int, ...]]:
        found: dict[int, tuple[int, ...]] = {}
        for add_bos, has_special in sorted({(text.add_bos, text.has_special) for text in texts}):
            chosen = [
                index
                for index, text in enumerate(texts)
                if (text.add_bos, text.has_special) == (add_bos, has_special)
            ]
            ids = self.respondent.engine.tokenize(
                [texts[index].text for index in chosen], add_special=add_bos, parse_special=has_special
            )
            found |= dict(zip(chosen, ids, strict=True))
        return [found[index] for index in range(len(texts))]

    def tight(self, questions: tuple[Question, ...]) -> str:
        """How many answers the context may end before the token cap does; empty where there is none."""
        room, cap = self.respondent.context_tokens, self.suite.sampling.answer_tokens
        lengths = [len(question.first.tokens) for question in questions if question.given is None]
        longest = max(lengths, default=0)
        if longest + cap <= room:
            return ""
        count = sum(length + cap > room for length in lengths)
        return (
            f"the context may end {count} of {len(questions)} answers of suite {self.suite.name}: prompt and "
            f"`answer_tokens = {cap}` come to up to {longest + cap} tokens, the context has {room}"
        )

    def pin(self, questions: tuple[Question, ...]) -> PromptsPin:
        """What the lock pins of all that is asked."""
        return PromptsPin(
            suite=self.suite.name,
            items=len(questions),
            items_digest=items_digest([(question.item.id, question.digest) for question in questions]),
            text_digest=digest_of("prompts", [question.first.text for question in questions]),
            tokens_digest=digest_of("tokens", [question.first.tokens for question in questions]),
            uses_date=any(question.first.uses_date for question in questions),
        )

    def first_work(self, question: Question, *, repeat: int) -> Work:
        """The first request of an item as work for the engine."""
        if question.given is not None:
            return self.work(question.item, question.given, repeat=repeat)
        return self._generate(question.item.id, question.first.tokens, repeat)

    def work(self, item: Item, request: Request, *, repeat: int) -> Work:
        """A later request of a play as work for the engine."""
        match request:
            case Score(tokens=tokens, score_from=score_from):
                return Measure(id=item.id, tokens=tokens, score_from=score_from)
            case Diverge(tokens=tokens, score_from=score_from, pieces=pieces):
                return Contrast(id=item.id, tokens=tokens, score_from=score_from, pieces=pieces)
            case Complete(prompt=prompt):
                (tokens,) = self._tokenize([self._text(prompt, item.id)])
                return self._generate(item.id, tokens, repeat)
            case Call():
                raise InputError("tool calls need a sandbox, which this version does not have").within(
                    item.id
                )
            case _:
                assert_never(request)

    def _generate(self, item: str, tokens: tuple[int, ...], repeat: int) -> Generate:
        rule = self.suite.sampling
        sampling = Sampling(
            temperature=rule.temperature,
            top_k=rule.top_k,
            top_p=rule.top_p,
            min_p=rule.min_p,
            repeat_penalty=rule.repeat_penalty,
            presence_penalty=rule.presence_penalty,
            frequency_penalty=rule.frequency_penalty,
            penalty_tokens=rule.penalty_tokens,
            seed=item_seed(rule.seed, item, repeat),
            answer_tokens=rule.answer_tokens,
            stop=rule.stop,
            ignore_eos=False,
        )
        return Generate(id=item, tokens=tokens, sampling=sampling, logprobs=False, logits_digest=False)


def conversation(chat: Chat, rule: PromptSpec) -> tuple[Message, ...]:
    """Every message that the template is given: the system's, the shown examples, then the item's.

    A system message of the item takes the place of the suite's.
    """
    messages = chat.messages
    system: tuple[Message, ...] = ()
    if messages and messages[0].role == "system":
        system, messages = messages[:1], messages[1:]
    elif rule.system:
        system = (Message(role="system", content=rule.system),)
    return (*system, *rule.few_shot, *messages)


def _refuse_endless(characters: int, rendering_s: float, *, items: int) -> None:
    """Refuse a suite whose prompts would fill the memory, or whose template would go on for hours."""
    if characters > MOST_CHARACTERS_OF_A_SUITE:
        raise InputError(
            f"the prompts of the first `{items}` items have `{characters}` characters, "
            f"expected at most `{MOST_CHARACTERS_OF_A_SUITE}` in a suite",
            hint="look at the chat template, or split the suite",
        )
    if rendering_s > MOST_RENDERING_S:
        raise InputError(
            f"the chat template took longer than {MOST_RENDERING_S:g} s for the first `{items}` items",
            hint="look at the chat template, or split the suite",
        )


def _check_ids(items: tuple[Item, ...]) -> None:
    first: dict[str, int] = {}
    for index, item in enumerate(items, start=1):
        if item.id in first:
            raise InputError(f"two items have the id `{item.id}`: number {first[item.id]} and number {index}")
        first[item.id] = index
    if not items:
        raise InputError("got no items, expected at least one")
