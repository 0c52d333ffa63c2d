"""The grader ``json_schema``: the reply is JSON that obeys a schema (JSON Schema, Draft 2020-12).

The item's ``expected`` is the schema. The schema is the user's, the JSON is the model's: patterns are searched
with RE2, nothing is fetched, ``format`` is not checked, and the work is counted, not timed, so that JSON that is
too much work is unparsable on every machine alike.

Refused when the items are read, because they cannot be kept within those bounds: references that leave the
schema, other drafts, and ``unevaluatedItems`` / ``unevaluatedProperties`` (close an object with
``additionalProperties`` instead).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from qlock.core.base import Base
from qlock.core.escape import for_message
from qlock.core.exchange import Outcome, Right, Ungraded, Unparsable, Wrong
from qlock.suites.tasks.patterns import as_bytes, compiled
from qlock.suites.tasks.reading import inner_values, json_part, quoted, read_json

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

MOST_STEPS = 200_000
"""Keywords of the schema that are applied to one reply."""
DEEPEST_STEPS = 120
"""Keywords of the schema within each other; far from the interpreter's own limit, which depends on the caller."""

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_REFERENCES = ("$ref", "$dynamicRef")
_UNBOUNDED = ("unevaluatedItems", "unevaluatedProperties")


class JsonSchema(Base, frozen=True, kw_only=True, tag_field="kind", tag="json_schema"):
    """The reply, or its last fenced block, is JSON that the item's schema accepts."""

    def refusal(self, expected: object) -> str:
        """Why ``expected`` is no schema that can be checked here; empty when it is."""
        if not isinstance(expected, dict):
            return "expected a JSON Schema (a table)"
        return _refusal_within(expected) or _refusal_of(expected)

    def grade(self, text: str, expected: object) -> Outcome:
        """Right when the JSON obeys the schema."""
        read = read_json(json_part(text))
        if isinstance(read, Unparsable):
            return read
        return _checked(read.value, expected)

    def gold(self, expected: object) -> str | None:  # noqa: ARG002 - every grader has the same methods
        """Nothing: no example follows from a schema, so the row must give one."""
        return None

    def bad(self, expected: object) -> str | None:  # noqa: ARG002 - every grader has the same methods
        """Prose instead of JSON."""
        return "Here is what you asked for"


class _TooMuchWorkError(Exception):
    """The step counter ran out."""


def _checked(value: Any, schema: object) -> Outcome:
    from referencing.exceptions import Unresolvable

    validator = _validator(schema, _Steps())
    try:
        error = next(iter(validator.iter_errors(value)), None)
    except (_TooMuchWorkError, RecursionError):
        return Unparsable(why="the JSON takes more steps than the schema is given")
    except Unresolvable as unresolved:
        return Ungraded(why=f"the schema refers to {quoted(str(unresolved.ref))}, which it does not hold")
    if error is None:
        return Right()
    return Wrong(why=f"at {quoted(error.json_path)}: {for_message(error.message)}")


def _refusal_within(schema: dict[str, object]) -> str:
    """What the schema holds that cannot be checked within bounds."""
    for part in inner_values(schema):
        if not isinstance(part, dict):
            continue
        for key in _REFERENCES:
            target = part.get(key)
            if isinstance(target, str) and not target.startswith("#"):
                return f"got the reference {quoted(target)}, expected one inside the schema (`#…`)"
        dialect = part.get("$schema", _DRAFT)
        if (
            not isinstance(dialect, str)
            or dialect.rstrip("#") != _DRAFT
            or (part is not schema and "$schema" in part)
        ):
            return f"got the dialect {quoted(str(dialect))}, expected `{_DRAFT}`, once"
        if part is not schema and isinstance(part.get("$id"), str):
            return f"got the inner `$id` {quoted(part['$id'])}, expected none below the top"
        unbounded = next((key for key in _UNBOUNDED if key in part), None)
        if unbounded:
            return f"`{unbounded}` is not checked here"
        refusal = _refusal_of_patterns(part)
        if refusal:
            return refusal
    return ""


def _refusal_of_patterns(part: dict[str, object]) -> str:
    keyed = part.get("patternProperties")
    for pattern in (part.get("pattern"), *(keyed if isinstance(keyed, dict) else ())):
        if isinstance(pattern, str):
            try:
                compiled(pattern)
            except ValueError as error:
                return f"the pattern {quoted(pattern)}: {error}"
    return ""


def _refusal_of(schema: dict[str, object]) -> str:
    """Why the whole is no schema, or refers to what it does not hold."""
    from jsonschema import Draft202012Validator, FormatChecker, SchemaError
    from referencing.exceptions import Unresolvable

    try:
        Draft202012Validator.check_schema(schema, format_checker=FormatChecker(()))
    except RecursionError:
        return "the schema is nested too deep"
    except SchemaError as error:
        return f"no JSON Schema: at {quoted(error.json_path)}: {for_message(error.message)}"
    validator = _validator(schema, _Steps())
    for part in inner_values(schema):
        if not isinstance(part, dict):
            continue
        for key in _REFERENCES:
            target = part.get(key)
            if not isinstance(target, str):
                continue
            try:
                next(iter(validator.evolve(schema={key: target}).iter_errors(None)), None)
            except (Unresolvable, _TooMuchWorkError, RecursionError):
                return f"the reference {quoted(target)} leads nowhere"
    return ""


class _Steps:
    """How much work is left; one for each check."""

    def __init__(self) -> None:
        self.left = MOST_STEPS
        self.depth = 0

    @contextmanager
    def step(self) -> Iterator[None]:
        """Count one step while it runs."""
        self.left -= 1
        self.depth += 1
        if self.left < 0 or self.depth > DEEPEST_STEPS:
            raise _TooMuchWorkError
        try:
            yield
        finally:
            self.depth -= 1


def _validator(schema: Any, steps: _Steps) -> Validator:
    """A validator that fetches nothing, searches with RE2 and counts its steps."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import create
    from referencing import Registry

    replaced = dict(Draft202012Validator.VALIDATORS) | {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
    }
    counted = {name: _counted(check, steps) for name, check in replaced.items()}
    kind = create(
        meta_schema=Draft202012Validator.META_SCHEMA,
        validators=counted,
        type_checker=Draft202012Validator.TYPE_CHECKER,
    )
    # With a dialect inside, subschemas would go to the library's own class of that dialect.
    made: Validator = kind(
        {key: value for key, value in schema.items() if key != "$schema"}, registry=Registry()
    )
    return made


def _counted(check: Any, steps: _Steps) -> Any:
    def counting(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        with steps.step():
            yield from check(validator, value, instance, schema) or ()

    return counting


def _error(message: str) -> ValidationError:
    from jsonschema.exceptions import ValidationError

    return ValidationError(message)


def _finds(pattern: str, text: str) -> bool:
    return compiled(pattern).search(as_bytes(text)) is not None


def _pattern(_validator: Any, pattern: str, instance: object, _schema: object) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _finds(pattern, instance):
        yield _error(f"{quoted(instance)} does not match {quoted(pattern)}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: object, _schema: object
) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for pattern, inner in patterns.items():
            for key, value in instance.items():
                if _finds(pattern, key):
                    yield from validator.descend(value, inner, path=key, schema_path=pattern)


def _additional_properties(
    validator: Any, allowed: Any, instance: object, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    patterns: Iterable[str] = schema.get("patternProperties", {})
    for key, value in instance.items():
        if key in schema.get("properties", {}) or any(_finds(pattern, key) for pattern in patterns):
            continue
        if allowed is False:
            yield _error(f"the key {quoted(key)} is not allowed")
        elif isinstance(allowed, dict):
            yield from validator.descend(value, allowed, path=key)


def _unique_items(
    _validator: Any, wanted: object, instance: object, _schema: object
) -> Iterator[ValidationError]:
    if wanted is not True or not isinstance(instance, list):
        return
    seen: set[str] = set()
    for value in instance:
        key = _key(value)
        if key in seen:
            yield _error("two elements are the same")
            return
        seen.add(key)


def _key(value: object) -> str:
    """A text that is equal for equal JSON values: keys sorted, 1 and 1.0 the same number."""
    return json.dumps(_numbers_alike(value), sort_keys=True)


def _numbers_alike(value: object) -> object:
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: _numbers_alike(inner) for key, inner in value.items()}
        case list():
            return [_numbers_alike(inner) for inner in value]
        case _:
            return value
