"""Command lines, and the builds that they are for."""

from __future__ import annotations

from pathlib import Path

import pytest

from qlock.engines.llama_cpp.harmless import HARMLESS
from qlock.engines.llama_cpp.options import Place, arguments, for_perplexity, for_server, options_of
from qlock.engines.llama_cpp.props import CHAT_TEMPLATE
from qlock.engines.llama_cpp.tools import Build, printed
from qlock.errors import EngineError, RefusedError
from tests.engines.llama_cpp.conftest import NOWHERE, changed

live = pytest.mark.live

HELP = (Path(__file__).parents[2] / "fakes" / "llama_server_help.txt").read_text()
OPTIONS = options_of(HELP)
PLACE = Place(model="/m.gguf", alias="nonce", host="/run/s.sock")


def line(
    changes: dict[str, object] | None = None, *, place: Place = PLACE, devices: int = 0
) -> tuple[str, ...]:
    return arguments(for_server(changed(**(changes or {})), place, devices=devices), OPTIONS)


def value(name: str, given: tuple[str, ...]) -> str:
    return given[given.index(name) + 1]


def test_options_are_read_with_all_their_names() -> None:
    text = (
        "----- common params -----\n\n"
        "-h,    --help, --usage                  print usage\n"
        "--reasoning [on|off|auto]               (env: LLAMA_ARG_REASONING)\n"
        "-kvo,  --kv-offload, -nkvo, --no-kv-offload\n"
        "                                        --indented is a description\n"
        "--fim-qwen-1.5b-default                 use it\n"
    )
    assert options_of(text) == (
        ("-h", "--help", "--usage"),
        ("--reasoning",),
        ("-kvo", "--kv-offload", "-nkvo", "--no-kv-offload"),
        ("--fim-qwen-1.5b-default",),
    )


def test_a_help_without_options_is_refused() -> None:
    with pytest.raises(EngineError) as caught:
        options_of("usage: llama-server\n")
    assert caught.value.message == "cannot verify the options of the build: its `--help` lists none"


def test_a_complete_line_for_the_least_build() -> None:
    assert line() == (
        *("--model", "/m.gguf", "--alias", "nonce", "--host", "/run/s.sock"),
        *(
            "--ctx-size",
            "512",
            "--parallel",
            "1",
            "--no-kv-unified",
            "--batch-size",
            "64",
            "--ubatch-size",
            "64",
        ),
        *("--threads", "2", "--threads-batch", "2", "--cache-type-k", "f16", "--cache-type-v", "f16"),
        *(
            "--flash-attn",
            "off",
            "--fit",
            "off",
            "--gpu-layers",
            "0",
            "--split-mode",
            "none",
            "--main-gpu",
            "0",
        ),
        *(
            "--kv-offload",
            "--repack",
            "--device",
            "none",
            "--swa-full",
            "--no-cache-prompt",
            "--no-context-shift",
        ),
        *("--metrics", "--jinja", "--chat-template", CHAT_TEMPLATE, "--special"),
        *("--samplers", "temperature", "--seed", "0", "--temp", "0", "--top-k", "0", "--top-p", "1"),
        *("--min-p", "0", "--top-n-sigma", "-1", "--xtc-probability", "0", "--xtc-threshold", "0.1"),
        *("--typical", "1", "--repeat-last-n", "0", "--repeat-penalty", "1", "--presence-penalty", "0"),
        *("--frequency-penalty", "0", "--dry-multiplier", "0", "--dry-base", "1.75"),
        *("--dry-allowed-length", "2", "--dry-penalty-last-n", "0", "--dynatemp-range", "0"),
        *("--dynatemp-exp", "1", "--mirostat", "0", "--mirostat-lr", "0.1", "--mirostat-ent", "5"),
        *("--verbosity", "4"),
    )


@pytest.mark.parametrize(
    "changes, name, expected",
    [
        ({"context_tokens": 1024}, "--ctx-size", "1024"),
        ({"batch_tokens": 32}, "--batch-size", "32"),
        ({"ubatch_tokens": 16}, "--ubatch-size", "16"),
        ({"threads": 3}, "--threads", "3"),
        ({"batch_threads": 5}, "--threads-batch", "5"),
        ({"cache_type_k": "q8_0"}, "--cache-type-k", "q8_0"),
        ({"cache_type_v": "q4_0"}, "--cache-type-v", "q4_0"),
        ({"flash_attention": True}, "--flash-attn", "on"),
        ({"gpu_layers": 7, "split_mode": "layer"}, "--split-mode", "layer"),
        ({"gpu_layers": 7, "main_gpu": 1}, "--main-gpu", "1"),
        ({"gpu_layers": 7}, "--gpu-layers", "7"),
        ({"slots": 4}, "--parallel", "1"),
    ],
)
def test_each_choice_of_a_setting_is_said(*, changes: dict[str, object], name: str, expected: str) -> None:
    assert value(name, line(changes)) == expected


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"kv_offload": False}, "--no-kv-offload"),
        ({"repack": False}, "--no-repack"),
    ],
)
def test_switches_are_said_in_either_position(*, changes: dict[str, object], expected: str) -> None:
    assert expected in line(changes)
    assert expected.replace("--no-", "--") not in line(changes)


def test_layers_are_dealt_out_evenly_over_several_cards() -> None:
    layered: dict[str, object] = {"gpu_layers": 9, "split_mode": "layer"}
    assert value("--tensor-split", line(layered, devices=3)) == "1,1,1"
    assert "--tensor-split" not in line(layered, devices=1)
    assert "--device" not in line(layered, devices=1)


def test_a_port_is_picked_by_the_kernel_and_needs_a_key() -> None:
    given = line(place=Place(model="/m", alias="a", host="127.0.0.1", api_key_file="/run/key"))
    assert (value("--port", given), value("--api-key-file", given)) == ("0", "/run/key")


def test_an_option_that_nobody_has_looked_at_is_refused() -> None:
    with pytest.raises(RefusedError) as caught:
        arguments(for_server(changed(), PLACE, devices=0), (*OPTIONS, ("-x", "--turbo-answers")))
    assert (caught.value.message, caught.value.hint) == (
        "the build has an option that qlock does not know: `--turbo-answers`",
        "use a build of llama.cpp that this version of qlock knows",
    )


def test_many_such_options_are_counted() -> None:
    strange = tuple((f"--x{number}",) for number in range(12))
    with pytest.raises(RefusedError) as caught:
        arguments(for_server(changed(), PLACE, devices=0), (*OPTIONS, *strange))
    named = ", ".join(f"`--x{number}`" for number in range(10))
    assert caught.value.message == f"the build has options that qlock does not know: {named} and 2 more"


def test_a_build_without_an_option_that_matters_is_refused() -> None:
    older = tuple(names for names in OPTIONS if not {"--flash-attn", "--no-context-shift"} & set(names))
    with pytest.raises(RefusedError) as caught:
        arguments(for_server(changed(), PLACE, devices=0), older)
    assert (caught.value.message, caught.value.hint) == (
        "the build has no option `--flash-attn`, `--no-context-shift`, without which nothing can be promised",
        "use a newer build of llama.cpp",
    )


@live
@pytest.mark.parametrize("program", ["llama-server", "llama-perplexity"])
def test_every_option_of_the_real_build_is_passed_or_harmless(
    program: str, build_bin: Path, temporary: Path
) -> None:
    from qlock.engines.llama_cpp.home import Home

    home = Home(variables={}, system_options=NOWHERE)
    path = Build(folder=str(build_bin)).program(program)
    options = options_of(printed(path, "--help", home=home, deadline_s=60))
    home.close()
    assert len(options) > 100
    given = (
        for_server(changed(), PLACE, devices=0)
        if program == "llama-server"
        else for_perplexity(changed(), model="/m", text="/t", logits="/l", devices=0)
    )
    passed = arguments(given, options)
    has = {name for names in options for name in names}
    assert [one.name for one in given if one.name not in has] == []
    # What is passed is not also called harmless.
    assert {name for names in HARMLESS.values() for name in names} & set(passed) == set()
