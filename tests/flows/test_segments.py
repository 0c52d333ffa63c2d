import msgspec

from qlock.core.canon import from_json, json_bytes
from qlock.flows.segments import RunFacts, Segment
from tests.fakes.project import Project, folder_of, sealed


def test_a_segment_without_what_came_later_is_still_read(project: Project) -> None:
    (segment,) = folder_of(project, sealed(project)).facts().segment
    plain = msgspec.to_builtins(segment)
    for name in ("memory", "other_timing"):
        del plain[name]
    found = msgspec.convert(plain, Segment)
    assert (found.memory, found.other_timing) == ({}, {})
    facts = RunFacts(facts_version=1, segment=(segment,))
    assert from_json(json_bytes(facts), RunFacts, name="facts.json") == facts
