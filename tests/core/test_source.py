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
    file_name,
    parse_source,
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
        ("url:https://example.org/m.gguf?x=1", UrlSource(url="https://example.org/m.gguf?x=1"), "m.gguf"),
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
        "url:http://example.org/m.gguf",
        "FILE:x",
    ],
)
def test_what_is_none_of_them_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_source(text)
    shown = text.replace("\0", "\\x00")
    assert str(caught.value) == (
        f"got `{shown}`, expected file:PATH, wheel:NAME==VERSION/MEMBER, hub:OWNER/REPO/FILE or url:https://…"
    )


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
