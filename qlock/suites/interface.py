"""What a suite is: questions, a play that asks them, a grader, and trials that prove the grader.

A suite is a module ``qlock/suites/<kind>.py`` (or a folder) that defines

- ``ASK_VERSION``: rises when what is asked, or how, changes (measure again);
- ``GRADE_VERSION``: rises when a score can move (grade again, no engine needed);
- ``Params``: a struct with defaults, the suite's own keys in ``[[suite]]``;
- ``SOURCES``: the names of those keys that hold a data source (``"items"``, ``"text"``), one that is unset is none;
- ``GATES``: the rules of gates that its outcomes can decide;
- ``items(data, params, tokens_of)``: the questions, in order, before ``limit``;
- ``ask(item, params)``: a generator that yields a ``Request``, is sent a ``Reply`` and returns an ``Answer``;
- ``grade(item, answer, params)``: the ``Outcome``;
- ``trials(items, params)``: canned replies with what they must earn, one gold and one bad for each kind of item.

Only where a suite needs them, it also defines

- ``REFERENCE = True``: every point is held against the one that ``[compare] reference`` names, which is loaded beside
  it, or whose log-probabilities are read from a file where the suite's own key ``stored`` is true;
- ``read(item, answer, params)``: what the grader reads out of an answer, part by part, to show how two differ; ``None``
  where it reads none of that;
- ``tokenizer_of(data, params)``: the ``tokenizer_digest`` that its data is made of; empty where any will do;
- ``tensors_of(data, params)``: the ``tensors_digest`` that its reference must have; empty where any will do.

All of it is pure: the same replies give the same outcome, so a record keeps the replies and is graded again by
playing them back.

Does not live here: rendering, tokenizing, sampling (``flows.run``); finding a suite by name (``flows.kinds``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

from qlock.core.base import Base
from qlock.core.exchange import Diverged, Failed, Reply, Request


class Item(Base, frozen=True, kw_only=True):
    """One question."""

    id: str
    """Unique in its suite."""
    slices: dict[str, str]
    """Slice name to value: the axes by which scores are also shown."""
    body: dict[str, object]
    """What the suite needs to ask and grade; plain JSON values."""


class Answer(Base, frozen=True, kw_only=True):
    """What the play made of its replies."""

    text: str = ""
    nats: tuple[float, ...] = ()
    diverged: Diverged | None = None
    failed: str = ""
    """Why no answer could be had; such an item is never scored."""


class Trial(Base, frozen=True, kw_only=True):
    """A canned reply and what it must earn, tried before anything is measured."""

    item: Item
    replies: tuple[Reply, ...]
    passes: bool
    """Whether the outcome must be ``Right`` (gold) or must not (bad)."""


TokensOf = Callable[[str], tuple[int, ...]]
"""Text to token ids under the point's own vocabulary, BOS added where the model wants one."""

Data = Mapping[str, bytes]
"""Key of ``SOURCES`` to the bytes of its file."""

Play = Generator[Request, Reply, Answer]


def play_back(play: Play, replies: tuple[Reply, ...]) -> Answer:
    """The answer of a play that is sent recorded replies.

    Fewer replies than the play asks for, or a ``Failed`` one, give an answer with ``failed`` set.
    """
    try:
        next(play)
        for reply in replies:
            if isinstance(reply, Failed):
                return Answer(failed=reply.why)
            play.send(reply)
    except StopIteration as stop:
        answer: Answer = stop.value
        return answer
    finally:
        play.close()
    return Answer(failed="the record ends before the play does")
