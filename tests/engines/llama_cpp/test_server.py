"""Servers that do not start, are not the ones that were started, or do not say what they are."""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path

import msgspec
import pytest

from qlock.core.facts import Buffer
from qlock.core.verify import read_back_findings
from qlock.engines.interface import Deviation
from qlock.engines.llama_cpp import server
from qlock.engines.llama_cpp.props import CHAT_TEMPLATE
from qlock.engines.llama_cpp.server import listens
from qlock.errors import EngineError
from tests.engines.llama_cpp.conftest import DEADLINES, Opener, changed, load_of, work

UNSAID = "the server does not say it"
NO_LINE = "got no line about it in the engine's log, expected one"


def refusal(opener: Opener, model: Path, **behaviour: object) -> str:
    """Why a point cannot be loaded; nothing is left behind."""
    engine = opener(**behaviour)
    with pytest.raises(EngineError) as caught:
        engine.load(load_of(model))
    with pytest.raises(EngineError, match=r"^no model is loaded$"):
        engine.tokenize(["a"], add_special=False, parse_special=False)
    return caught.value.message


def test_a_flag_that_the_build_does_not_know_is_quoted_at_once(played: Opener, model: Path) -> None:
    began_s = time.monotonic()
    assert refusal(played, model, bad_flag="--no-mmap") == (
        "the server did not start (exit code 1): error: invalid argument: --no-mmap"
    )
    assert time.monotonic() - began_s < DEADLINES.load_s / 2


def test_a_server_that_loads_for_ever_is_ended(played: Opener, model: Path) -> None:
    deadlines = msgspec.structs.replace(DEADLINES, load_s=0.7)
    assert refusal(played, model, health_503=True, deadlines=deadlines) == (
        "the server was not ready after 0.7 s: got HTTP status `503` and `"
        '{"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}`'
    )


def test_a_server_that_does_not_answer_is_ended(played: Opener, model: Path) -> None:
    deadlines = msgspec.structs.replace(DEADLINES, load_s=0.7)
    message = refusal(played, model, mute=True, deadlines=deadlines)
    assert message == "the server was not ready after 0.7 s: it does not answer"


@pytest.mark.parametrize(
    "behaviour, message",
    [
        ({"props_empty": True}, "cannot verify `model_alias`: the server does not say it"),
        ({"props_404": True}, "cannot verify `model_alias`: `/props` answers with HTTP status `404`"),
        ({"props_router": True}, "cannot verify `model_path`: the server does not say it"),
        ({"props_lacks": "total_slots"}, "cannot verify `slots`: the server does not say it"),
        (
            {"props_lacks": "default_generation_settings"},
            "cannot verify `context_tokens`: the server does not say it",
        ),
        ({"props_lacks": "bos_token"}, "cannot verify `bos_text`: the server does not say it"),
        (
            {"props_types": True},
            "cannot verify `model_alias`: `/props` holds Expected `int`, got `str` - at `$.total_slots`",
        ),
        ({"other_path": "/other.gguf"}, "got `model_path = /other.gguf`, expected `{model}`"),
        (
            {"log_lacks": "n_batch  "},
            f"cannot verify `batch_tokens`: {NO_LINE}",
        ),
        (
            {"log_lacks": "n_vocab"},
            f"cannot verify `vocab_tokens`: {NO_LINE}",
        ),
        (
            {"log_lacks": "kv_cache"},
            f"cannot verify `cache_type_k` and `cache_type_v`: {NO_LINE}",
        ),
        (
            {"tokenize_nonsense": True},
            "the engine answered nonsense to `/tokenize`: Expected `object`, got `array`",
        ),
    ],
)
def test_what_a_server_does_not_say_is_not_taken_for_granted(
    played: Opener, model: Path, *, behaviour: dict[str, object], message: str
) -> None:
    assert refusal(played, model, **behaviour) == message.replace("{model}", str(model))


def test_another_server_behind_the_socket_is_found(played: Opener, model: Path) -> None:
    assert re.fullmatch(
        "another server answered: got the model `somebody-else`, expected `qlock-[0-9a-f]{16}`",
        refusal(played, model, swap_model=True),
    )


@pytest.mark.parametrize(
    "behaviour, changes, found",
    [
        (
            {"slots_divide": True},
            {},
            [("point.x.context_tokens", "512", "256"), ("point.x.slots", "1", "2")],
        ),
        ({"cpu_fallback": True}, {"gpu_layers": 99}, [("point.x.layers_offloaded", "3", "0")]),
        (
            {"layers_left": 1, "devices": ["CUDA0"]},
            {"gpu_layers": 3},
            [("point.x.layers_offloaded", "3", "2")],
        ),
        ({"devices": ["CUDA0"]}, {"gpu_layers": 3}, []),
        (
            {"devices": ["CUDA0"], "cache_on": "CPU"},
            {"gpu_layers": 3},
            [("point.x.cache_buffer", "memory of a card alone", "CPU")],
        ),
        (
            {"devices": ["CUDA0"], "weights_on": "CPU_Mapped"},
            {"gpu_layers": 3},
            [("point.x.weights_buffer", "memory of a card", "CPU_Mapped")],
        ),
        ({"cache_on": "CUDA0"}, {}, [("point.x.cache_buffer", "the CPU's memory alone", "CUDA0")]),
    ],
)
def test_what_is_not_as_ordered_becomes_a_finding(
    played: Opener,
    model: Path,
    *,
    behaviour: dict[str, object],
    changes: dict[str, object],
    found: list[tuple[str, str, str]],
) -> None:
    load = load_of(model, **changes)
    read_back = played(**behaviour).load(load)
    findings = read_back_findings("point.x", load.setting, read_back)
    assert [(one.where, one.expected, one.found) for one in findings] == found


@pytest.mark.parametrize(
    "behaviour, expected",
    [
        ({}, ()),
        (
            {"default_is": {"temperature": 0.8}},
            (Deviation(name="sampling.temperature", expected="0.0", found="0.8"),),
        ),
        (
            {"default_lacks": "min_p"},
            (Deviation(name="sampling.min_p", expected="0.0", found="missing", why=UNSAID),),
        ),
        (
            {"no_defaults": True},
            (
                Deviation(
                    name="sampling", expected="a default for every sampler", found="missing", why=UNSAID
                ),
            ),
        ),
        (
            {"props_say": {"chat_template": "{{ of_the_model }}"}},
            (Deviation(name="chat_template", expected=CHAT_TEMPLATE, found="{{ of_the_model }}"),),
        ),
        (
            {"props_lacks": "chat_template"},
            (Deviation(name="chat_template", expected=CHAT_TEMPLATE, found="missing", why=UNSAID),),
        ),
        (
            {"props_say": {"build_info": "b1-other"}},
            (Deviation(name="build_info", expected="b9333-35c9b1f39", found="b1-other"),),
        ),
        (
            {"props_say": {"modalities": {"vision": True}}},
            (Deviation(name="modalities", expected="none", found="vision"),),
        ),
        ({"kv_unified": True}, (Deviation(name="kv_unified", expected="false", found="true"),)),
    ],
)
def test_what_a_server_says_otherwise_than_it_was_told_is_kept(
    played: Opener, model: Path, *, behaviour: dict[str, object], expected: tuple[Deviation, ...]
) -> None:
    engine = played(**behaviour)
    with pytest.raises(EngineError, match=r"^no model is loaded$"):
        engine.deviations()
    engine.load(load_of(model))
    assert engine.deviations() == expected


def test_a_file_that_is_replaced_while_it_is_loaded_is_found(played: Opener, model: Path) -> None:
    assert refusal(played, model, replaces_model=True) == f"`{model}` was changed while the engine loaded it"


# --- a port, where a socket's path would be too long ------------------------------------------------------


@pytest.fixture
def long_folder(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = temporary / ("long" * 30)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_port_is_proven_to_be_its_own(long_folder: Path, played: Opener, model: Path) -> None:
    engine = played()
    assert engine.load(load_of(model)).context_tokens == 512
    assert engine.tokenize(["hi"], add_special=True, parse_special=False) == [(256, 104, 105)]


def test_a_port_of_another_server_is_refused(long_folder: Path, played: Opener, model: Path) -> None:
    other = played()
    other.load(load_of(model))
    port = int(re.findall(r"127\.0\.0\.1:(\d+)", other.log_tail())[0])
    assert re.fullmatch(
        "another server answered: got the model `qlock-[0-9a-f]{16}`, expected `qlock-[0-9a-f]{16}`",
        refusal(played, model, port_taken=port),
    )
    assert listens(other.pids[0], port)
    assert not listens(other.pids[0], port - 1)
    assert not listens(1 << 22, port)


def test_a_server_with_our_name_on_a_port_of_another_process_is_refused(
    long_folder: Path, played: Opener, model: Path
) -> None:
    message = refusal(played, model, forwards=True)
    assert re.fullmatch(r"port `\d+` does not belong to the server that was started", message)


def test_options_of_the_setting_reach_the_command_line(played: Opener, model: Path) -> None:
    engine = played()
    engine.load(load_of(model, flash_attention=True, cache_type_v="q8_0"))
    line = Path(f"/proc/{engine.pids[0]}/cmdline").read_text().split("\0")
    assert line[line.index("--flash-attn") + 1] == "on"
    assert line[line.index("--cache-type-v") + 1] == "q8_0"
    assert changed().flash_attention is False


def test_the_cards_that_a_server_uses_are_those_of_its_log(played: Opener, model: Path) -> None:
    engine = played(devices=["CUDA0"], uses=["0000:18:00.0"])
    with pytest.raises(EngineError, match=r"^no model is loaded$"):
        engine.devices()
    engine.load(load_of(model, gpu_layers=3))
    assert engine.devices() == ("0000:18:00.0",)


def test_every_server_has_buffers_of_its_own_but_for_the_file_that_all_map(
    played: Opener, model: Path
) -> None:
    engine = played()
    with pytest.raises(EngineError, match=r"^no model is loaded$"):
        engine.memory()
    engine.load(load_of(model, replicas=3))
    assert engine.memory() == (
        Buffer(place="CPU_Mapped", use="model", size_bytes=230_687),
        Buffer(place="CPU", use="KV", size_bytes=3 * 125_829),
    )


def test_a_server_on_the_cpu_uses_no_card(played: Opener, model: Path) -> None:
    engine = played()
    engine.load(load_of(model))
    assert engine.devices() == ()


def test_servers_on_different_cards_are_refused(played: Opener, model: Path) -> None:
    engine = played(devices=["CUDA0"], uses=["0000:PID:00.0"])
    with pytest.raises(EngineError) as caught:
        engine.load(load_of(model, gpu_layers=3, replicas=2))
    assert caught.value.message == (
        "the servers do not say the same of themselves, started with the same command line"
    )


def test_a_server_that_floods_its_log_is_ended(
    played: Opener, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LOG_BYTES", 1 << 20)
    assert refusal(played, model, floods=True) == (
        "the server wrote more than `1048576` bytes before it was ready"
    )


def test_a_log_that_grows_is_cut_and_its_end_is_kept(
    played: Opener, model: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LOG_BYTES", 20_000)
    engine = played(chatty=9_000, die_on_item=9)
    engine.load(load_of(model))
    sizes = []
    for item in range(8):
        engine.submit(work(str(item), (1, 2)))
        engine.next_done()
        sizes.append(sum(path.stat().st_size for path in temporary.glob("*/*/log")))
    assert max(sizes) < 50_000 < 8 * 9_000
    engine.submit(work("last", (1, 2)))
    with pytest.raises(EngineError) as caught:
        engine.next_done()
    assert caught.value.message == (
        "the engine died (signal SIGABRT): GGML_ASSERT(n_tokens <= n_batch) failed"
    )


def test_a_log_that_is_behind_is_waited_for(
    played: Opener, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SETTLE_S", 60.0)
    assert played(log_late_s=1.0).load(load_of(model)).context_tokens == 512
