"""Options of llama.cpp's programs that need not be passed, and why.

Nothing but the command line can give an option here: the environment is built from nothing, and the files of options
that llama.cpp reads are kept away from it (``home``). So an option that is not passed is at its default, and those below
have one that depends neither on the machine nor on what was computed before.

Does not live here: the options that are passed (``options``).
"""

from __future__ import annotations

_DEFAULT_OFF = "off unless it is given, and only the command line can give it"
_EVERY_REQUEST = "a default of requests, and every request says its own value"
_NO_DRAFT = "for speculative decoding, which is off"
_EXITS = "prints something and exits"
_OTHER_USE = "for a use of the server that qlock makes none of"
_OTHER_SCORES = "for figures of llama-perplexity that qlock makes no use of"
_TIMING = "can change speed, not answers; its default does not depend on the machine"
_TALK = "says what is written where, or who may connect"

HARMLESS: dict[str, tuple[str, ...]] = {
    _EXITS: ("--help", "--version", "--cache-list", "--completion-bash", "--list-devices"),
    _DEFAULT_OFF: (
        *("--numa", "--override-tensor", "--cpu-moe", "--n-cpu-moe", "--n-cpu-ffn", "--no-host", "--rpc"),
        *("--override-kv", "--lora", "--lora-scaled", "--lora-init-without-apply", "--control-vector"),
        *(
            "--control-vector-scaled",
            "--control-vector-layer-range",
            "--check-tensors",
            "--lookup-cache-static",
        ),
        *("--lookup-cache-dynamic", "--kv-unified-per-slot", "--pooling", "--spm-infill"),
        *("--sleep-idle-seconds", "--slot-save-path", "--reverse-prompt", "--keep", "--log-prompts-dir"),
        *(
            "--rope-scaling",
            "--rope-scale",
            "--rope-freq-base",
            "--rope-freq-scale",
            "--tensor-split",
            "--escape",
        ),
        *(
            "--fit-target",
            "--fit-ctx",
            "--checkpoint-min-step",
            "--defrag-thold",
            "--attention",
            "--grp-attn-n",
        ),
        *("--grp-attn-w",),
    ),
    _EVERY_REQUEST: (
        *("--predict", "--ignore-eos", "--dry-sequence-breaker", "--adaptive-target", "--adaptive-decay"),
        *("--logit-bias", "--grammar", "--grammar-file", "--json-schema", "--json-schema-file"),
        *("--sampler-seq", "--backend-sampling"),
    ),
    _TIMING: (
        *("--cpu-mask", "--cpu-range", "--cpu-strict", "--prio", "--poll", "--cpu-mask-batch"),
        *("--cpu-range-batch", "--cpu-strict-batch", "--prio-batch", "--poll-batch", "--perf", "--no-perf"),
        *("--timeout", "--sse-ping-interval", "--mmap", "--mlock", "--direct-io"),
    ),
    _TALK: (
        *("--log-disable", "--log-file", "--log-jsonl", "--log-colors", "--verbose", "--log-prefix"),
        *(
            "--log-timestamps",
            "--api-key",
            "--ssl-key-file",
            "--ssl-cert-file",
            "--tags",
            "--path",
            "--reuse-port",
        ),
        *("--cors-origins", "--cors-methods", "--cors-headers", "--cors-credentials", "--api-prefix"),
        *("--ui-config", "--ui-config-file", "--ui-mcp-proxy", "--props"),
    ),
    _OTHER_USE: (
        *(
            "--model-url",
            "--docker-repo",
            "--hf-repo",
            "--hf-file",
            "--hf-token",
            "--hf-repo-v",
            "--hf-file-v",
        ),
        *("--mmproj", "--mmproj-url", "--mmproj-auto", "--mmproj-offload", "--mmproj-device"),
        *("--image-min-tokens", "--image-max-tokens", "--mtmd-batch-max-tokens", "--video-fps"),
        *(
            "--video-timestamp-interval",
            "--video-ffmpeg-dir",
            "--media-path",
            "--embd-normalize",
            "--embedding",
        ),
        *(
            "--reranking",
            "--tools",
            "--tools-runtime",
            "--mcp-servers-config",
            "--mcp-servers-json",
            "--agent",
        ),
        *("--models-dir", "--models-preset", "--models-max", "--models-autoload", "--chat-template-kwargs"),
        *("--chat-template-file", "--reasoning-effort", "--reasoning-budget-message", "--reasoning-preserve"),
        *("--prefill-assistant", "--embd-gemma-default", "--fim-qwen-1.5b-default", "--fim-qwen-3b-default"),
        *("--fim-qwen-7b-default", "--fim-qwen-7b-spec", "--fim-qwen-14b-spec", "--fim-qwen-30b-default"),
        *("--gpt-oss-20b-default", "--gpt-oss-120b-default", "--vision-gemma-4b-default"),
        *("--vision-gemma-12b-default", "--model-vocoder", "--tts-use-guide-tokens", "--tts-oute-default"),
    ),
    _OTHER_SCORES: (
        *("--prompt", "--binary-file", "--hellaswag", "--hellaswag-tasks", "--winogrande"),
        *(
            "--winogrande-tasks",
            "--multiple-choice",
            "--multiple-choice-tasks",
            "--kl-divergence",
            "--ppl-stride",
        ),
        *("--ppl-output-type", "--no-escape"),
    ),
    _NO_DRAFT: (
        *("--spec-draft-type-k", "--spec-draft-type-v", "--spec-draft-hf", "--spec-draft-threads"),
        *(
            "--spec-draft-threads-batch",
            "--spec-draft-cpu-mask",
            "--spec-draft-cpu-range",
            "--spec-draft-prio",
        ),
        *(
            "--spec-draft-cpu-strict",
            "--spec-draft-poll",
            "--spec-draft-cpu-mask-batch",
            "--spec-draft-poll-batch",
        ),
        *("--spec-draft-cpu-strict-batch", "--spec-draft-prio-batch", "--spec-draft-override-tensor"),
        *("--spec-draft-cpu-moe", "--spec-draft-n-cpu-moe", "--spec-draft-n-max", "--spec-draft-n-min"),
        *("--spec-synth-len", "--spec-synth-rates", "--spec-draft-p-split", "--spec-draft-p-min"),
        *(
            "--spec-draft-backend-sampling",
            "--spec-draft-sampling",
            "--spec-draft-device",
            "--spec-draft-ngl",
            "--spec-draft-model",
        ),
        *("--spec-ngram-mod-n-min", "--spec-ngram-mod-n-max", "--spec-ngram-mod-n-match"),
        *("--spec-ngram-simple-size-n", "--spec-ngram-simple-size-m", "--spec-ngram-simple-min-hits"),
        *("--spec-ngram-map-k-size-n", "--spec-ngram-map-k-size-m", "--spec-ngram-map-k-min-hits"),
        *("--spec-ngram-map-k4v-size-n", "--spec-ngram-map-k4v-size-m", "--spec-ngram-map-k4v-min-hits"),
        *("--spec-ngram-size-n", "--spec-ngram-size-m", "--spec-ngram-min-hits", "--spec-default"),
        *(
            "--draft",
            "--draft-min",
            "--model-draft",
            "--ctx-size-draft",
            "--device-draft",
            "--gpu-layers-draft",
        ),
        *("--threads-draft", "--threads-batch-draft", "--cache-type-k-draft", "--cache-type-v-draft"),
        *(
            "--override-tensor-draft",
            "--cpu-moe-draft",
            "--n-cpu-moe-draft",
            "--hf-repo-draft",
            "--draft-p-min",
        ),
        *("--draft-p-split", "--spec-replace"),
    ),
}
"""Why an option need not be passed, to the options (one name of each) that the reason holds for."""

NAMES = frozenset(name for names in HARMLESS.values() for name in names)
"""All of them."""
