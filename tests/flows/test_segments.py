import msgspec

from qlock.core.canon import from_json, json_bytes
from qlock.flows.segments import RunFacts, Segment, with_segment
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


def test_one_segment_takes_the_place_of_another(project: Project) -> None:
    (first,) = folder_of(project, sealed(project)).facts().segment
    second, third, other = (msgspec.structs.replace(first, host_name=name) for name in "bcx")
    facts = RunFacts(facts_version=1, segment=(first, second, third))
    assert [with_segment(facts, number, other).segment for number in range(3)] == [
        (other, second, third),
        (first, other, third),
        (first, second, other),
    ]
