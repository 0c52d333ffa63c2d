"""Prompts rendered by qlock against `/apply-template` of a real llama-server, on every chat template at hand.

The server takes a BOS off the text, since its tokenizer adds one again; so it is taken off ours too. Everything else that
differs stands in the table, with the reason. Nothing here runs a model: prompts go to servers as token ids.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from qlock.core.template import RenderRequest
from qlock.engines.llama_cpp.server import _accepts
from qlock.errors import InputError
from qlock.world.process import ServerChild
from tests.core.test_template_models import CONVERSATIONS, TOOL, compiled

pytestmark = pytest.mark.live

AT_ONCE = 8
THINKING = {"": None, " off": False, " on": True}
ASKED = {
    "user": ("user alone", False),
    "system": ("with a system turn", False),
    "turns": ("several turns", False),
    "call": ("a tool call and its result", False),
    "tools": ("a tool call and its result", True),
    "reasoning": ("reasoning", False),
}
CASES = tuple(f"{name}{thinking}" for name in ASKED for thinking in THINKING)
ALL = frozenset(CASES)
UNSAID = frozenset(ASKED)
"""Where nobody says whether to think."""


def of(*names: str) -> frozenset[str]:
    """These conversations, whatever is said about thinking."""
    return frozenset(f"{name}{thinking}" for name in names for thinking in THINKING)


_TOLD_TO_THINK = (
    "Bielik-11B-v3.0-Instruct",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
    "Qwen-QwQ-32B",
    "Reka-Edge",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "deepseek-ai-DeepSeek-V3.1",
    "deepseek-ai-DeepSeek-V3.2",
    "deepseek-ai-DeepSeek-V4",
    "deepseek-ai-DeepSeek-V4-Flash-0731",
    "google-gemma-4-31B-it",
    "google-gemma-4-31B-it-interleaved",
    "llama-cpp-rwkv-world",
    "openbmb-MiniCPM5-1B",
    "poolside-Laguna-XS-2.1",
    "poolside-Laguna-XS.2",
)

DIFFERENT: dict[str, dict[str, frozenset[str]]] = {
    "nobody says whether to think: qlock gives the template no word about it, the server `enable_thinking = true`": dict.fromkeys(
        _TOLD_TO_THINK, UNSAID
    ),
    "the server gives the template a switch of its own that keeps the thoughts of earlier turns": {
        "GLM-4.7-Flash": of("reasoning"),
        "LFM2.5-8B-A1B": of("reasoning"),
        "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": of("reasoning"),
        "deepseek-ai-DeepSeek-V4": frozenset({"turns on", "reasoning on"}),
        "deepseek-ai-DeepSeek-V4-Flash-0731": frozenset({"turns on", "reasoning on"}),
        "mistralai-Ministral-3-14B-Reasoning-2512": of("reasoning"),
        "poolside-Laguna-S-2.1": frozenset({"turns off", "call off", "tools off", "reasoning off"}),
    },
    "the server gives the template today's date, where the template has a date of its own for when it gets none": {
        "meta-llama-Llama-3.1-8B-Instruct": ALL,
        "meta-llama-Llama-3.3-70B-Instruct": ALL,
    },
    "the server rewrites the conversation for this model before the template sees it": {
        "StepFun3.5-Flash": ALL,
        "google-gemma-4-31B-it-interleaved": of("call", "tools"),
        "unsloth-mistral-Devstral-Small-2507": of("reasoning"),
    },
    "the template refuses a system turn, and the server puts it into the user's turn": {
        "google-gemma-2-2b-it": of("system", "turns"),
    },
    "the template fails in Jinja, as it does in transformers, and the server's own engine takes it": {
        "CohereForAI-c4ai-command-r-plus-tool_use": ALL,
        "Kimi-K2-Instruct": of("call", "tools"),
        "Kimi-K2-Thinking": of("call", "tools"),
        "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": of("user", "system", "turns", "call", "reasoning"),
        "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": of("user", "system", "turns", "call", "reasoning"),
        "fireworks-ai-llama-3-firefunction-v2": ALL,
        "llama-cpp-deepseek-r1": of("tools"),
        "meetkai-functionary-medium-v3.2": of("call", "tools"),
    },
    "the server writes a tool as JSON, and Jinja as Python would": {
        "Apriel-1.6-15b-Thinker-fixed": of("tools"),
        "unsloth-Apriel-1.5": of("tools"),
    },
    "the template marks texts as safe, so Jinja escapes what is joined to them, and the server does not": {
        "meetkai-functionary-medium-v3.1": of("tools"),
    },
}


def ours(source: str, case: str) -> str | None:
    """Our text without its BOS; ``None`` when the template does not take the conversation."""
    name, word, tail = case.partition(" ")
    conversation, tools = ASKED[name]
    request = RenderRequest(
        messages=CONVERSATIONS[conversation],
        tools=(TOOL,) if tools else (),
        thinking=THINKING[word + tail],
        frozen_date=dt.datetime.now().astimezone().date().isoformat(),
    )
    try:
        text = compiled(source).render(request).text
    except InputError:
        return None
    return text.removeprefix("<s>")


def theirs(client: httpx.Client, case: str) -> str | None:
    """The server's text; ``None`` when it refuses."""
    name, word, tail = case.partition(" ")
    conversation, tools = ASKED[name]
    body: dict[str, Any] = {"messages": list(CONVERSATIONS[conversation])}
    if tools:
        body["tools"] = [TOOL]
    thinking = THINKING[word + tail]
    if thinking is not None:
        body["chat_template_kwargs"] = {"enable_thinking": thinking, "thinking": thinking}
    answer = client.post("/apply-template", json=body, timeout=60)
    return str(answer.json()["prompt"]) if answer.status_code == 200 else None


def servers(
    llama_bin: Path, model: Path, files: list[Path], folder: Path
) -> Iterator[tuple[Path, httpx.Client]]:
    """A server for each template, some at once."""
    fixed = (
        "-c",
        "256",
        "-ngl",
        "0",
        "--device",
        "none",
        "--fit",
        "off",
        "--no-warmup",
        "--offline",
        "--jinja",
    )
    for start in range(0, len(files), AT_ONCE):
        running = []
        try:
            for place, file in enumerate(files[start : start + AT_ONCE]):
                socket = folder / f"{start + place}.sock"
                argv = (str(llama_bin / "llama-server"), "-m", str(model), "--host", str(socket), *fixed)
                given = (*argv, "--chat-template-file", str(file))
                child = ServerChild(
                    given, env={"HOME": str(folder)}, cwd=folder, log=folder / f"{start + place}.log"
                )
                running.append((file, socket, child))
            for file, socket, child in running:
                while not _accepts(socket):
                    assert child.wait_ended(0.01) is None, f"{file.name}: the server ended"
                transport = httpx.HTTPTransport(uds=str(socket))
                with httpx.Client(transport=transport, base_url="http://qlock", trust_env=False) as client:
                    while client.get("/health", timeout=60).status_code != 200:
                        assert child.wait_ended(0.01) is None, f"{file.name}: the server ended"
                    yield file, client
        finally:
            for _, _, child in running:
                child.close()


def test_prompts_equal_those_of_the_server_but_for_what_is_listed(
    build_bin: Path, templates_folder: Path, tiny: Path, short_folder: Path
) -> None:
    files = sorted(templates_folder.glob("*.jinja"))
    assert len(files) >= 60
    found: dict[str, frozenset[str]] = {}
    for file, client in servers(build_bin, tiny, files, short_folder):
        source = file.read_text()
        other = frozenset(case for case in CASES if ours(source, case) != theirs(client, case))
        if other:
            found[file.stem] = other
    listed: dict[str, frozenset[str]] = {}
    for cases_of in DIFFERENT.values():
        for name, cases in cases_of.items():
            listed[name] = listed.get(name, frozenset()) | cases
    assert found == listed
    assert len(files) - len(found) >= 30
