"""The complete command line of a llama-server, and every option that a build may have.

llama-server fits its parameters to free memory, to the number of cores and to files that lie about, unless told
otherwise; so everything that can change an answer is said. A build's own ``--help`` is read and every option in it
must be one that is passed here or is listed here as harmless, with the reason. An option that is neither is one whose
effect nobody has looked at, and no server is started.

An option that a build does not have is left out, since what does not exist cannot act, except for the few without
which nothing can be promised.

Does not live here: starting anything (``server``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from qlock.core.base import Base
from qlock.core.facts import Setting
from qlock.core.words import listed
from qlock.engines.llama_cpp import harmless
from qlock.engines.llama_cpp.props import CHAT_TEMPLATE
from qlock.engines.llama_cpp.samplers import DEFAULTS, option_value
from qlock.errors import EngineError, RefusedError

_OPTION_LINE = re.compile(r"(-[^\s,]+(?:, +-[^\s,]+)*)(?: |$)")


class Given(Base, frozen=True, kw_only=True):
    """One option as it is passed."""

    name: str
    value: str = ""
    """Empty for a switch."""
    needed: bool = False
    """Whether nothing can be promised of a build that does not have it."""


class Place(Base, frozen=True, kw_only=True):
    """Where a server finds its model and is found itself."""

    model: str
    """Absolute path of the (first) file of weights."""
    alias: str
    """A word that no other server answers with."""
    host: str
    """A path that ends in ``.sock``, or ``127.0.0.1``."""
    api_key_file: str = ""
    """Empty with a socket, which only this user can reach."""


def options_of(help_text: str) -> tuple[tuple[str, ...], ...]:
    """The options of a build, each with all its names, out of its ``--help``.

    Raises:
        EngineError: There is none.
    """
    lines = [line for line in help_text.split("\n") if not line.startswith("-----")]
    found = [match for line in lines if (match := _OPTION_LINE.match(line)) is not None]
    if not found:
        raise EngineError("cannot verify the options of the build: its `--help` lists none")
    return tuple(tuple(re.split(", +", match[1])) for match in found)


def for_server(setting: Setting, place: Place, *, devices: int) -> list[Given]:
    """What llama-server is given.

    Args:
        setting: How to run.
        place: Where.
        devices: GPUs that the build sees.
    """
    return [
        *_identity(place),
        *_sizes(setting),
        *_placement(setting, devices),
        *_behaviour(),
        *_sampling(),
        # The lines that tell what llama.cpp made of its orders are hidden otherwise.
        Given(name="--verbosity", value="4", needed=True),
    ]


def for_perplexity(setting: Setting, *, model: str, text: str, logits: str, devices: int) -> list[Given]:
    """What llama-perplexity is given to score the first window of a text.

    Args:
        setting: How to run; ``context_tokens`` is the length of the window.
        model: Path of the (first) file of weights.
        text: Path of the text.
        logits: Path of the file that it shall write.
        devices: GPUs that the build sees.
    """
    one_sequence = {"--parallel", "--threads-http"}
    return [
        Given(name="--model", value=model, needed=True),
        Given(name="--file", value=text, needed=True),
        Given(name="--save-all-logits", value=logits, needed=True),
        Given(name="--chunks", value="1", needed=True),
        *(one for one in _sizes(setting) if one.name not in one_sequence),
        *_placement(setting, devices),
        Given(name="--no-context-shift"),
        Given(name="--no-warmup"),
        Given(name="--offline"),
    ]


def arguments(given: Sequence[Given], options: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The arguments of a program whose build has these options.

    Raises:
        RefusedError: The build has an option that is not known, or lacks one that is needed.
    """
    passed = {one.name for one in given}
    _refuse_unknown(options, harmless.NAMES | _looked_at(passed))
    has = {name for names in options for name in names}
    lacking = [one.name for one in given if one.needed and one.name not in has]
    if lacking:
        raise RefusedError(
            f"the build has no option {listed(lacking, in_backticks=True)}, without which nothing can be promised",
            hint="use a newer build of llama.cpp",
        )
    return tuple(
        part
        for one in given
        if one.name in has
        for part in ((one.name, one.value) if one.value else (one.name,))
    )


def _identity(place: Place) -> list[Given]:
    given = [
        Given(name="--model", value=place.model, needed=True),
        Given(name="--alias", value=place.alias, needed=True),
        Given(name="--host", value=place.host, needed=True),
    ]
    if place.api_key_file:
        # The kernel picks a free port; the server says which in its log.
        given.append(Given(name="--port", value="0", needed=True))
        given.append(Given(name="--api-key-file", value=place.api_key_file, needed=True))
    return given


def _sizes(setting: Setting) -> list[Given]:
    return [
        Given(name="--ctx-size", value=str(setting.context_tokens), needed=True),
        Given(name="--parallel", value="1", needed=True),
        Given(name="--no-kv-unified", needed=True),
        Given(name="--batch-size", value=str(setting.batch_tokens), needed=True),
        Given(name="--ubatch-size", value=str(setting.ubatch_tokens), needed=True),
        Given(name="--threads", value=str(setting.threads), needed=True),
        Given(name="--threads-batch", value=str(setting.batch_threads), needed=True),
        Given(name="--threads-http", value="4"),
        Given(name="--cache-type-k", value=setting.cache_type_k, needed=True),
        Given(name="--cache-type-v", value=setting.cache_type_v, needed=True),
        Given(name="--flash-attn", value="on" if setting.flash_attention else "off", needed=True),
    ]


def _placement(setting: Setting, devices: int) -> list[Given]:
    """Where what is computed; without layers to offload no device is used at all, not even for large batches."""
    is_on_cpu = setting.gpu_layers == 0
    split = "none" if is_on_cpu else setting.split_mode
    given = [
        Given(name="--fit", value="off"),
        Given(name="--gpu-layers", value=str(setting.gpu_layers), needed=True),
        Given(name="--split-mode", value=split, needed=True),
        Given(name="--main-gpu", value=str(setting.main_gpu), needed=True),
        Given(name="--kv-offload" if setting.kv_offload else "--no-kv-offload", needed=True),
        Given(name="--op-offload" if setting.op_offload else "--no-op-offload"),
        Given(name="--repack" if setting.repack else "--no-repack", needed=not setting.repack),
        Given(name="--load-mode", value="mmap" if setting.mmap else "none"),
        Given(name="--lazy-mode", value="off"),
        *(Given(name=f"--yarn-{part}", value="-1") for part in ("ext-factor", "attn-factor")),
        *(Given(name=f"--yarn-{part}", value="-1") for part in ("beta-slow", "beta-fast")),
        Given(name="--yarn-orig-ctx", value="0"),
    ]
    if is_on_cpu:
        given.append(Given(name="--device", value="none", needed=True))
    elif split == "layer" and devices > 1:
        # By default the layers are dealt out by free memory.
        given.append(Given(name="--tensor-split", value=",".join(["1"] * devices), needed=True))
    if setting.swa_full:
        given.append(Given(name="--swa-full", needed=True))
    return given


def _behaviour() -> list[Given]:
    """Everything that the server would do on its own account is off."""
    return [
        Given(name="--no-cache-prompt", needed=True),
        Given(name="--cache-reuse", value="0"),
        Given(name="--cache-ram", value="0"),
        Given(name="--no-cache-idle-slots"),
        Given(name="--ctx-checkpoints", value="0"),
        Given(name="--slot-prompt-similarity", value="0"),
        Given(name="--no-context-shift", needed=True),
        Given(name="--no-cont-batching"),
        Given(name="--spec-type", value="none"),
        Given(name="--no-warmup"),
        Given(name="--no-ui"),
        Given(name="--no-slots"),
        Given(name="--metrics", needed=True),
        Given(name="--offline"),
        # Before the template: without it, llama.cpp takes the names of a few templates only.
        Given(name="--jinja"),
        Given(name="--chat-template", value=CHAT_TEMPLATE),
        Given(name="--skip-chat-parsing"),
        Given(name="--reasoning", value="off"),
        Given(name="--reasoning-format", value="none"),
        Given(name="--reasoning-budget", value="-1"),
        # Tokens such as `<tool_call>` are part of an answer's text.
        Given(name="--special", needed=True),
    ]


def _sampling() -> list[Given]:
    """What every request says again: given here too, so that no file of weights can bring its own defaults."""
    return [Given(name=option, value=option_value(value)) for option, _, value in DEFAULTS]


def _looked_at(passed: Iterable[str]) -> set[str]:
    """What is passed, to one program or another, always or sometimes, and the other position of switches."""
    passed = {*passed, "--parallel", "--verbosity", *(one.name for one in (*_behaviour(), *_sampling()))}
    opposites = {
        name.replace("--no-", "--", 1) if name.startswith("--no-") else f"--no-{name[2:]}" for name in passed
    }
    return passed | opposites | {"--swa-full", "--device", "--port", "--api-key-file"}


def _refuse_unknown(options: Sequence[tuple[str, ...]], known: frozenset[str]) -> None:
    unknown = [names[-1] for names in options if known.isdisjoint(names)]
    if unknown:
        plural = (
            "an option that qlock does not know" if len(unknown) == 1 else "options that qlock does not know"
        )
        raise RefusedError(
            f"the build has {plural}: {listed(unknown, in_backticks=True)}",
            hint="use a build of llama.cpp that this version of qlock knows",
        )
