"""A small sample of the suite `tasks` for the contract of suites: one row for every grader."""

import json

ROWS: list[dict[str, object]] = [
    {"id": "1", "prompt": "a", "expected": "b", "grader": {"kind": "exact"}},
    {"id": "2", "prompt": "a", "expected": 4},
    {"id": "3", "prompt": "a", "expected": "C", "grader": {"kind": "choice"}, "slices": {"topic": "letters"}},
    {"id": "4", "prompt": "a", "grader": {"kind": "regex", "pattern": "(x+)+y"}, "gold": "xxy"},
    {"id": "5", "messages": [{"role": "user", "content": "a"}], "expected": ["b", "c"], "grader": {"kind": "contains"}},
    {"id": "6", "prompt": "a", "expected": {"type": "array"}, "grader": {"kind": "json_schema"}, "gold": "[]"},
    {"id": "7", "prompt": "a", "expected": {"a": 1, "b": "c"}, "grader": {"kind": "field_f1"}},
    {
        "id": "8",
        "messages": [{"role": "user", "content": "a"}],
        "tools": [{"name": "f"}],
        "expected": [{"name": "f", "arguments": {"a": 1}}],
        "grader": {"kind": "tool_call"},
    },
    {"id": "9", "prompt": "a", "expected": [], "grader": {"kind": "tool_call", "ordered": True}},
]  # fmt: skip

PARAMS: dict[str, object] = {"items": "file:rows", "grader": {"kind": "number"}}
DATA = {"items": "\n".join(map(json.dumps, ROWS)).encode()}
