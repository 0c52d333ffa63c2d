"""A llama-server that plays what a good build will not: it speaks the real command line, log and HTTP interface.

Its model is arithmetic over bytes: tokens 0 to 255 are bytes, 256 begins and 257 ends a text. ``build`` puts a program
`llama-server` into a folder, with the behaviour beside it; what it was asked lies there afterwards, one request a line.

The upper half of this file is imported by tests; the lower half runs as the program, with the standard library alone.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import socketserver
import struct
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

BOS, EOS, VOCAB_TOKENS = 256, 257, 258
TRAINED_TOKENS = 4096
REQUESTS = "requests.jsonl"
_BEHAVIOUR = "behaviour.json"


def build(folder: Path, **behaviour: object) -> Path:
    """A build folder whose server behaves so; `True` switches a misbehaviour on, some take a value."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _BEHAVIOUR).write_text(json.dumps(behaviour))
    program = folder / "llama-server"
    program.write_text(
        f"#!{sys.executable} -I\nimport runpy\n"
        f"runpy.run_path({__file__!r}, init_globals={{'FOLDER': {str(folder)!r}}}, run_name='__main__')\n"
    )
    program.chmod(0o755)
    return folder


def requests_of(folder: Path) -> list[dict[str, Any]]:
    """Bodies of the completions that the servers of a build were asked for, in order."""
    path = folder / REQUESTS
    return [json.loads(line) for line in path.read_text().split("\n") if line] if path.exists() else []


_SAMPLING: dict[str, tuple[str, float | str]] = {
    "--seed": ("seed", 4_294_967_295),
    "--temp": ("temperature", 0.8),
    "--top-k": ("top_k", 40),
    "--top-p": ("top_p", 0.95),
    "--min-p": ("min_p", 0.05),
    "--top-n-sigma": ("top_n_sigma", -1.0),
    "--xtc-probability": ("xtc_probability", 0.0),
    "--xtc-threshold": ("xtc_threshold", 0.1),
    "--typical": ("typical_p", 1.0),
    "--repeat-last-n": ("repeat_last_n", 64),
    "--repeat-penalty": ("repeat_penalty", 1.0),
    "--presence-penalty": ("presence_penalty", 0.0),
    "--frequency-penalty": ("frequency_penalty", 0.0),
    "--dry-multiplier": ("dry_multiplier", 0.0),
    "--dry-base": ("dry_base", 1.75),
    "--dry-allowed-length": ("dry_allowed_length", 2),
    "--dry-penalty-last-n": ("dry_penalty_last_n", -1),
    "--dynatemp-range": ("dynatemp_range", 0.0),
    "--dynatemp-exp": ("dynatemp_exponent", 1.0),
    "--mirostat": ("mirostat", 0),
    "--mirostat-lr": ("mirostat_eta", 0.1),
    "--mirostat-ent": ("mirostat_tau", 5.0),
}
"""Options, the names of what they set, and what holds without them."""

_HELP = Path(__file__).with_name("llama_server_help.txt")
"""What `--help` prints: the options that qlock needs of a build, and a few more."""


class Play:
    """One server as its command line and its behaviour have it."""

    def __init__(self, folder: Path, argv: list[str]) -> None:
        self.folder = folder
        self.behaviour: dict[str, Any] = json.loads((folder / _BEHAVIOUR).read_text())
        self.argv = argv
        self.ready = threading.Event()
        self.lock = threading.Lock()
        self.items = 0
        self.texts = 0
        self.decodes = 0

    def is_on(self, name: str) -> bool:
        return bool(self.behaviour.get(name))

    def value(self, option: str, default: str = "") -> str:
        return self.argv[self.argv.index(option) + 1] if option in self.argv else default

    def number(self, option: str) -> int:
        return int(self.value(option, "0"))

    @property
    def slots(self) -> int:
        return 2 if self.is_on("slots_divide") else 1

    @property
    def context(self) -> int:
        padded = -(-self.number("--ctx-size") // 256) * 256
        return padded // self.slots

    @property
    def alias(self) -> str:
        return "somebody-else" if self.is_on("swap_model") else self.value("--alias")

    def log_start(self) -> None:
        """The log of a start, as far as qlock reads it."""
        layers, threads, batch = (
            self.number(f"--{name}") for name in ("gpu-layers", "threads", "threads-batch")
        )
        k, v = self.value("--cache-type-k"), self.value("--cache-type-v")
        lines = [
            f"system_info: n_threads = {threads} (n_threads_batch = {batch}) / 8 | CPU : STUB = 1 | ",
            f"print_info: n_ctx_train           = {TRAINED_TOKENS}",
            "print_info: n_layer               = 2",
            "print_info: n_expert              = 0",
            f"print_info: n_vocab               = {VOCAB_TOKENS}",
            f"print_info: BOS token             = {BOS} '<s>'",
            f"print_info: EOS token             = {EOS} '</s>'",
            f"print_info: EOG token             = {EOS} '</s>'",
            f"load_tensors:   {self.memory('weights') or 'CPU_Mapped'} model buffer size =     0.22 MiB",
            f"llama_context: n_seq_max             = {self.slots}",
            f"llama_context: n_ctx_seq             = {self.context}",
            f"llama_context: n_batch               = {self.number('--batch-size')}",
            f"llama_context: n_ubatch              = {self.number('--ubatch-size')}",
            f"llama_context: flash_attn            = {'enabled' if self.value('--flash-attn') == 'on' else 'disabled'}",
            f"llama_context: kv_unified            = {str(self.is_on('kv_unified')).lower()}",
            f"llama_kv_cache:      {self.memory('cache') or 'CPU'} KV buffer size =     0.12 MiB",
            f"llama_kv_cache: size =    0.12 MiB (512 cells), K ({k}):    0.06 MiB, V ({v}):    0.06 MiB",
        ]
        if layers and self.is_on("cpu_fallback"):
            lines.insert(0, "warning: no usable GPU found, --gpu-layers option will be ignored")
        elif layers:
            kept = int(self.behaviour.get("layers_left", 0))
            lines.append(f"load_tensors: offloaded {min(layers, 3) - kept}/3 layers to GPU")
        for number, card in enumerate(self.behaviour.get("uses", ())):
            place = str(card).replace("PID", f"{os.getpid() % 256:02x}")
            said = f"using device CUDA{number} (a card) ({place}) - 80947 MiB free"
            lines.insert(0, f"llama_prepare_model_devices: {said}")
        silent = self.behaviour.get("log_lacks", "")
        told = [line for line in lines if not silent or silent not in line]
        late_s = float(self.behaviour.get("log_late_s", 0.0))
        threading.Timer(late_s, log, [told]).start() if late_s else log(told)

    def memory(self, what: str) -> str:
        """Where weights or cache lie: on the first card, where layers are put on one; empty for the CPU."""
        played = str(self.behaviour.get(f"{what}_on", ""))
        return played or ("CUDA0" if self.number("--gpu-layers") and not self.is_on("cpu_fallback") else "")

    def defaults(self) -> object:
        """What holds where a request says nothing."""
        if self.is_on("no_defaults"):
            return None
        told: dict[str, object] = {"samplers": self.value("--samplers", "top_k;temperature").split(";")}
        for option, (name, default) in _SAMPLING.items():
            value = self.value(option, str(default))
            told[name] = _single(float(value)) if isinstance(default, float) else int(value)
        told |= {"n_predict": -1, "max_tokens": -1, "n_probs": 0, "ignore_eos": False, "stream": False}
        told |= {"chat_format": "Content-only", "speculative.types": "none"}
        told |= self.behaviour.get("default_is", {})
        told.pop(str(self.behaviour.get("default_lacks", "")), None)
        return told

    def probabilities(self, tokens: list[int]) -> list[float]:
        """Log-probabilities of all tokens after these; one is far likelier than the others."""
        told = f"{tokens}{self.threads_told()}"
        seed = hashlib.sha256(told.encode()).digest()
        best = 97 + seed[0] % 26
        if self.is_on("loop"):
            best = 97
        weights = [1.0 + (seed[token % 32] ^ token % 251) / 255 for token in range(VOCAB_TOKENS)]
        weights[best] = 1.5 * VOCAB_TOKENS
        if self.is_on("gibberish") or (self.is_on("gibberish_long") and len(tokens) > 256):
            weights = [1.0 + (seed[token % 32] ^ token % 251) / 2550 for token in range(VOCAB_TOKENS)]
        elif len(tokens) % 8 == 0 and self.is_on("ends"):
            weights[EOS] = 100.0 * VOCAB_TOKENS
        total = math.fsum(weights)
        return [math.log(weight / total) for weight in weights]

    def threads_told(self) -> str:
        """A part of the model's state that depends on what it should not, where that is played."""
        name = str(self.behaviour.get("leaks", ""))
        return {"threads": self.value("--threads"), "process": str(os.getpid())}.get(name, "")

    def props(self) -> tuple[int, object]:
        if self.is_on("props_404"):
            return 404, {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}
        if self.is_on("props_empty"):
            return 200, {}
        if self.is_on("props_router"):
            return 200, {"role": "router", "max_instances": 4, "model_alias": self.alias}
        told: dict[str, object] = {
            "default_generation_settings": {"params": self.defaults(), "n_ctx": self.context},
            "total_slots": self.slots,
            "model_alias": self.alias,
            "model_path": self.behaviour.get("other_path", self.value("--model")),
            "bos_token": "<s>",
            "eos_token": "</s>",
            "chat_template": self.value("--chat-template"),
            "build_info": "b9333-35c9b1f39",
            "modalities": {"vision": False, "audio": False},
        }
        told |= self.behaviour.get("props_say", {})
        told.pop(str(self.behaviour.get("props_lacks", "")), None)
        if self.is_on("props_types"):
            told["total_slots"] = "one"
        return 200, told

    def completion(self, asked: dict[str, Any]) -> tuple[int, object]:
        with self.lock:
            self.items += 1
            say("x" * int(self.behaviour.get("chatty", 0)))
            with (self.folder / REQUESTS).open("a") as file:
                file.write(json.dumps(asked) + "\n")
            text, number = self.behaviour.get("die_on_text", ("", 0))
            if text and text in bytes(token for token in asked["prompt"] if token < 256).decode(
                errors="replace"
            ):
                self.texts += 1
            if self.items == self.behaviour.get("die_on_item") or (text and self.texts == number):
                say("GGML_ASSERT(n_tokens <= n_batch) failed")
                os.abort()
            if self.is_on("wedge"):
                time.sleep(10_000)
            for _ in range(int(self.behaviour.get("slow", 0))):
                time.sleep(0.2)
                self.decodes += 1
            self.decodes += 1
            return self.answer(asked)

    def answer(self, asked: dict[str, Any]) -> tuple[int, object]:
        prompt = list(asked["prompt"])
        if self.is_on("ctx400") or len(prompt) >= self.context:
            fault = {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": len(prompt)}
            return 400, {"error": {**fault, "message": "too long", "n_ctx": self.context}}
        made, steps, stop_type, stopped = self.generate(asked, prompt)
        text = bytes(token for token in made if token < 256)
        content = text.decode(errors="replace") + "</s>" * (stop_type == "eos")
        if stopped:
            content = content[: content.index(stopped)]
        said = {
            "index": 0,
            "content": content,
            "tokens": made,
            "stop": True,
            "model": "swapped" if self.is_on("swap_later") and self.items > 1 else self.alias,
            "tokens_predicted": len(made),
            "tokens_evaluated": len(prompt) - int(self.behaviour.get("evaluates_fewer", 0)),
            "generation_settings": self.echo(asked),
            "truncated": stop_type == "limit" and len(prompt) + len(made) >= self.context,
            "stop_type": self.behaviour.get("stop_type", stop_type),
            "stopping_word": self.behaviour.get("stopping_word", stopped),
            "timings": {
                "cache_n": int(self.behaviour.get("cached", 0)),
                "prompt_n": len(prompt),
                "prompt_ms": 1.5,
                "predicted_ms": 2.5,
            },
        }
        if asked["n_probs"]:
            said["completion_probabilities"] = steps
        said.pop(str(self.behaviour.get("answer_lacks", "")), None)
        return int(self.behaviour.get("status", 200)), said

    def generate(self, asked: dict[str, Any], prompt: list[int]) -> tuple[list[int], list[object], str, str]:
        made: list[int] = []
        steps: list[object] = []
        canned = str(self.behaviour.get("says", "")).encode()
        budget = min(
            asked["n_predict"], self.context - len(prompt), int(self.behaviour.get("stops_at", 10**9))
        )
        while len(made) < max(1, budget):
            logprobs = self.probabilities(prompt + made)
            forced = [entry[0] for entry in asked["logit_bias"]]
            best = max(range(VOCAB_TOKENS), key=lambda token: (logprobs[token], -token))
            token = forced[0] if forced else canned[len(made)] if len(made) < len(canned) else best
            listed = sorted(range(VOCAB_TOKENS), key=lambda one: (-logprobs[one], one))[: asked["n_probs"]]
            top = [{"id": one, "token": "", "bytes": [], "logprob": _single(logprobs[one])} for one in listed]
            steps.append(
                {
                    "id": token,
                    "token": "",
                    "bytes": [],
                    "logprob": _single(logprobs[token]),
                    "top_logprobs": top,
                }
            )
            made.append(token)
            if token == EOS and not asked["ignore_eos"]:
                return made, steps, "eos", ""
            text = bytes(one for one in made if one < 256).decode(errors="replace")
            for stop in asked["stop"]:
                if stop in text:
                    return made, steps, "word", stop
        return made, steps, "limit", ""

    def echo(self, asked: dict[str, Any]) -> dict[str, Any]:
        unasked = {"prompt", "cache_prompt", "id_slot", "return_tokens", "logit_bias"}
        echoed = {
            name: _single(value) if isinstance(value, float) else value
            for name, value in asked.items()
            if name not in unasked
        }
        biased = [entry[0] for entry in asked["logit_bias"]] + [EOS] * asked["ignore_eos"]
        echoed |= {
            "max_tokens": asked["n_predict"],
            "logit_bias": [{"bias": None, "token": token} for token in biased],
            "chat_format": "Content-only",
            "reasoning_format": "none",
            "speculative.types": "none,none",
        }
        echoed |= self.behaviour.get("echoes", {})
        echoed.pop(str(self.behaviour.get("echo_lacks", "")), None)
        return echoed


def log(lines: list[str]) -> None:
    """Lines as llama.cpp's logger writes them."""
    for line in lines:
        say(f"0.00.001.969 I {line}")


def say(text: str) -> None:
    """To stderr, at once."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _single(number: float) -> float:
    (nearest,) = struct.unpack("f", struct.pack("f", number))
    return float(nearest)


class Handler(BaseHTTPRequestHandler):
    """The HTTP interface."""

    protocol_version = "HTTP/1.1"

    play: Play

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        pass

    def send(self, status: int, body: object) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        play = self.play
        if self.path == "/health":
            loading = play.is_on("health_503")
            fault = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
            self.send(503 if loading else 200, fault if loading else {"status": "ok"})
        elif self.path == "/props":
            self.send(*play.props())
        elif self.path == "/metrics":
            counters = f"# HELP x\nllamacpp:n_decode_total {play.decodes}\nllamacpp:requests_processing 1\n"
            self.send(200, counters.encode())
        else:
            self.send(404, {"error": {"code": 404, "message": "File Not Found"}})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        play = self.play
        if self.path == "/tokenize":
            head = [BOS] if asked["add_special"] else []
            text = asked["content"]
            text = (
                text.replace(" ", str(play.behaviour["tokenize_adds"]))
                if "tokenize_adds" in play.behaviour and head
                else text
            )
            told = {"tokens": head + list(text.encode())}
            status = int(play.behaviour.get("tokenize_status", 200))
            self.send(status, b"[]" if play.is_on("tokenize_nonsense") else told)
        elif self.path == "/detokenize":
            text = bytes(token for token in asked["tokens"] if token < 256).decode(errors="replace")
            self.send(200, {"content": text + "</s>" * (EOS in asked["tokens"])})
        elif self.path == "/completion":
            status, said = play.completion(asked)
            raw = play.behaviour.get("answers")
            self.send(status, raw.encode() if isinstance(raw, str) else said)
        else:
            self.send(404, {"error": {"code": 404, "message": "File Not Found"}})


class UnixServer(socketserver.ThreadingUnixStreamServer):
    """Over a socket."""

    daemon_threads = True


class PortServer(socketserver.ThreadingTCPServer):
    """Over a port that the kernel picks."""

    daemon_threads = True


def main(folder: Path, argv: list[str]) -> int:
    """The program."""
    play = Play(folder, argv)
    if "--version" in argv:
        say(play.behaviour.get("version", "version: 9333 (35c9b1f39)\nbuilt with GNU 12.2.0"))
        return 0
    if "--help" in argv:
        lacking, more = (
            str(play.behaviour.get("lacks_option", "")),
            str(play.behaviour.get("unknown_option", "")),
        )
        lines = [line for line in _HELP.read_text().split("\n") if not lacking or lacking not in line]
        say("" if play.is_on("no_help") else "\n".join([*lines, more]))
        return 0
    if "--list-devices" in argv:
        names = play.behaviour.get("devices", [])
        listed = [f"  {name}: a card (81559 MiB, 80947 MiB free)" for name in names]
        say("\n".join(["Available devices:", *(listed or ["  (none)"])]))
        return 0
    if "bad_flag" in play.behaviour:
        say(f"error: invalid argument: {play.behaviour['bad_flag']}")
        return 1
    if play.is_on("ignores_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while play.is_on("floods"):
        say("x" * 10_000)
    if play.is_on("mute"):
        time.sleep(10_000)
    if play.is_on("replaces_model"):
        Path(play.value("--model")).write_bytes(b"other weights")
    play.log_start()
    host = play.value("--host")
    handler = type("Handler", (Handler,), {"play": play})
    if host.endswith(".sock"):
        server: socketserver.BaseServer = UnixServer(host, handler)
    else:
        server = PortServer((host, 0), handler)
        if play.is_on("forwards") and os.fork() == 0:
            server.serve_forever()
        if play.is_on("forwards"):
            # The child answers; this process no longer holds the socket, but says that it listens.
            port = server.server_address[1]
            server.socket.close()
            say(f"0.00.002.000 I srv  llama_server: listening on http://127.0.0.1:{port}")
            time.sleep(10_000)
        port = play.behaviour.get("port_taken", server.server_address[1])
        say(f"0.00.002.000 I srv  llama_server: listening on http://127.0.0.1:{port}")
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(globals()["FOLDER"]), sys.argv[1:]))
