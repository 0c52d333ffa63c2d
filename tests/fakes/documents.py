"""Small but complete documents that fit together: a spec, the lock it could become, the record of one of its jobs.

Every builder takes the fields that shall be otherwise as keywords. `lock_bytes` and `record_bytes` give the files.
What is not here: reading them (`qlock.core`), and documents that are broken on purpose (`tests/broken`).
"""

from __future__ import annotations

from typing import Any

import msgspec
import tomli_w

from qlock.core.digest import blake3_of, sha256_of
from qlock.core.exchange import Completed, Message
from qlock.core.facts import (
    Buffer,
    Canary,
    Device,
    Engine,
    EngineFile,
    Gpu,
    ModelFile,
    ProbeRow,
    ReadBack,
    Setting,
)
from qlock.core.lock import Lock, MissingPin, ModelPin, PointPin, PromptsPin, SuiteFile, SuitePin, write_lock
from qlock.core.plan import Job, jobs
from qlock.core.recipe import RecipeRow
from qlock.core.record import Closing, Header, Record, Row, Times, answers_digest, item_digest, line_bytes
from qlock.core.rules import NonInferior
from qlock.core.sbatch import Array, SlurmSpec
from qlock.core.spec import (
    AnchorSpec,
    CompareSpec,
    ModelSpec,
    PromptSpec,
    SamplingSpec,
    SettingSpec,
    Spec,
    SuiteSpec,
    spec_digest,
)

SPEC_PATH = "specs/ladder.toml"


def a_digest(of: str) -> str:
    """A digest that is told by a word."""
    return blake3_of(of.encode())


def a_sha256(of: str) -> str:
    """A sha256 that is told by a word."""
    return sha256_of(of.encode())


def a_spec(**changes: Any) -> Spec:
    """Two models under one setting, a text and an exam of one's own."""
    spec = Spec(
        spec_version=1,
        name="ladder",
        model=(
            ModelSpec(name="F16", source="file:models/f16.gguf"),
            ModelSpec(name="Q4_K_M", source="hub:owner/repo/q4.gguf", revision="v1"),
        ),
        setting=(SettingSpec(name="f16kv"),),
        suite=(
            SuiteSpec(
                name="wikitext",
                kind="perplexity",
                params={"text": "file:data/wiki.txt", "window_tokens": 512},
            ),
            SuiteSpec(
                name="orders",
                kind="tasks",
                repeats=2,
                limit=3,
                sampling=SamplingSpec(temperature=0.5, seed=7, stop=("\n\n",)),
                prompt=PromptSpec(
                    system="Answer in JSON.", few_shot=(Message(role="user", content="One?\nTwo?"),)
                ),
                params={"items": "file:tasks/orders.jsonl", "weights": {"bank": 0.25, "none": {}}},
            ),
        ),
        anchor=(
            AnchorSpec(
                model="F16",
                suite="wikitext",
                published=23.5,
                source="https://example.org/paper",
                tolerance=0.3,
            ),
        ),
        compare=CompareSpec(reference="F16@f16kv"),
        gate=(NonInferior(suite="orders", slice="bank", margin_share=0.005),),
        slurm=SlurmSpec(partition="gpu"),
    )
    return msgspec.structs.replace(spec, **changes)


def spec_bytes(spec: Spec) -> bytes:
    """The file that somebody could have written for this spec."""
    plain = msgspec.to_builtins(spec)
    for suite in plain["suite"]:
        suite.update(suite.pop("params"))
    return tomli_w.dumps(plain).encode()


def an_engine(**changes: Any) -> Engine:
    """An embedded engine with a file of each kind."""
    engine = Engine(
        name="embedded",
        kind="llama-cpp-python",
        label="b6000 (built with GCC 13)",
        system_info="CPU : SSE3 = 1 | AVX512 = 1 | REPACK = 1",
        environment={},
        file=(
            an_engine_file(name="libggml-cpu.so", code_digest=a_digest("code of libggml-cpu")),
            an_engine_file(name="libgomp.so.1", role="math"),
            an_engine_file(name="libc.so.6", role="system"),
        ),
    )
    return msgspec.structs.replace(engine, **changes)


def an_engine_file(**changes: Any) -> EngineFile:
    """A mapped file; its code is not told apart where nothing else is said."""
    name = changes.get("name", "libllama.so")
    file = EngineFile(
        name=name,
        role="build",
        size_bytes=1_234_567,
        sha256=a_sha256(name),
        blake3=a_digest(name),
        build_id=a_digest(name)[7:47],
    )
    return msgspec.structs.replace(file, **changes)


def a_device(**changes: Any) -> Device:
    """A machine without a GPU."""
    device = Device(
        name="cpu-amd-1a-02",
        kind="cpu",
        cpu_model="AMD EPYC 9555",
        cpu_family=26,
        cpu_model_number=2,
        cpu_stepping=1,
        instruction_sets=("avx2", "avx512f", "fma"),
        cores=2,
        driver_version="",
        gpu=(),
    )
    return msgspec.structs.replace(device, **changes)


def a_gpu_device(**changes: Any) -> Device:
    """A machine with two cards."""
    card = Gpu(
        gpu_name="NVIDIA L4",
        pci_device_id="10de:27b8",
        memory_bytes=24_152_899_584,
        compute_capability="8.9",
        sm_count=58,
        mig_profile="",
        ecc=True,
        cuda_version="12.4",
        power_limit_mw=72_000,
    )
    device = a_device(name="gpu-nvidia-l4-x2", kind="gpu", driver_version="550.54.15", gpu=(card, card))
    return msgspec.structs.replace(device, **changes)


def a_model(name: str = "Q4_K_M", **changes: Any) -> ModelPin:
    """A model of one file, seen down to its tensors."""
    model = ModelPin(
        name=name,
        requested=f"hub:owner/repo/{name}.gguf@v1",
        revision="0123456789abcdef0123456789abcdef01234567",
        trained=True,
        architecture="llama",
        parameters=134_515_008,
        bits_per_weight=4.85,
        expert_count=0,
        trained_context_tokens=2048,
        tensors_digest=a_digest(f"tensors of {name}"),
        tokenizer_digest=a_digest("tokenizer"),
        template_digest=a_digest("template"),
        metadata_digest=a_digest(f"metadata of {name}"),
        imatrix={"dataset": "calibration.txt", "chunks": 100},
        sampling={"temp": 0.6, "top_k": 20},
        warnings=("tokenizer.ggml.pre is missing",),
        recipe=(
            RecipeRow(type="F32", tensors=61, elements=35_136, bytes=140_544),
            RecipeRow(type="Q4_K", tensors=211, elements=134_479_872, bytes=75_644_928),
        ),
        file=(
            ModelFile(
                name=f"{name}.gguf",
                role="weights",
                size_bytes=105_454_432,
                sha256=a_sha256(name),
                blake3=a_digest(name),
            ),
        ),
    )
    return msgspec.structs.replace(model, **changes)


def a_setting(**changes: Any) -> Setting:
    """Every run-time choice, written out."""
    setting = Setting(
        name="f16kv",
        context_tokens=2048,
        slots=8,
        slots_requested=8,
        slots_why="",
        replicas=1,
        batch_tokens=2048,
        ubatch_tokens=512,
        threads=2,
        batch_threads=2,
        cache_type_k="f16",
        cache_type_v="f16",
        flash_attention=False,
        gpu_layers=0,
        split_mode="none",
        main_gpu=0,
        kv_offload=True,
        op_offload=False,
        swa_full=False,
        repack=True,
        mmap=True,
    )
    return msgspec.structs.replace(setting, **changes)


def a_read_back(**changes: Any) -> ReadBack:
    """What an engine under `a_setting` says of itself."""
    read_back = ReadBack(
        context_tokens=2048,
        slots=8,
        batch_tokens=2048,
        ubatch_tokens=512,
        threads=2,
        batch_threads=2,
        cache_type_k="f16",
        cache_type_v="f16",
        flash_attention=False,
        layers=31,
        layers_offloaded=0,
        weights_buffer=(
            Buffer(place="CPU_Mapped", use="model", size_bytes=94_906_614),
            Buffer(place="CPU_REPACK", use="model", size_bytes=10_622_075),
        ),
        cache_buffer=(Buffer(place="CPU", use="KV", size_bytes=377_487_360),),
        trained_context_tokens=2048,
        vocab_tokens=49_152,
        add_bos=False,
        add_eos=False,
        bos_token=1,
        eos_token=2,
        bos_text="<|im_start|>",
        eos_text="<|im_end|>",
        end_tokens=(0, 2),
        expert_count=0,
    )
    return msgspec.structs.replace(read_back, **changes)


def a_suite(name: str = "orders", **changes: Any) -> SuitePin:
    """The exam of one's own."""
    suite = SuitePin(
        name=name,
        kind="tasks",
        ask_version=1,
        grade_version=1,
        repeats=2,
        items_limit=3,
        items_all=False,
        points=("F16@f16kv", "Q4_K_M@f16kv"),
        reference="",
        params={"items": "file:tasks/orders.jsonl", "weights": {"bank": 0.25, "none": {}}},
        sampling=SamplingSpec(temperature=0.5, seed=7, stop=("\n\n",)),
        prompt=PromptSpec(system="Answer in JSON.", few_shot=(Message(role="user", content="One?\nTwo?"),)),
        file=(
            SuiteFile(
                key="items",
                name=f"{name}.jsonl",
                requested=f"file:tasks/{name}.jsonl",
                revision="",
                size_bytes=4_096,
                sha256=a_sha256(name),
                blake3=a_digest(name),
            ),
        ),
    )
    return msgspec.structs.replace(suite, **changes)


def a_text_suite(**changes: Any) -> SuitePin:
    """The perplexity of a text."""
    suite = a_suite(
        "wikitext",
        kind="perplexity",
        repeats=1,
        items_limit=40,
        items_all=True,
        params={"text": "file:data/wiki.txt", "window_tokens": 512},
        sampling=SamplingSpec(),
        prompt=PromptSpec(),
    )
    return msgspec.structs.replace(suite, **changes)


def a_kld_suite(**changes: Any) -> SuitePin:
    """A text on which the others are held against F16."""
    suite = a_text_suite(
        name="distance",
        kind="kld",
        reference="F16@f16kv",
        params={"text": "file:data/wiki.txt", "window_tokens": 512, "stored": False},
    )
    return msgspec.structs.replace(suite, **changes)


def with_kld(lock: Lock) -> Lock:
    """The lock with `a_kld_suite` in front of its suites."""
    asked = a_prompts("distance", items=40)
    points = tuple(
        msgspec.structs.replace(point, prompts=(asked, *(point.prompts or ()))) for point in lock.point
    )
    return msgspec.structs.replace(lock, suite=(a_kld_suite(), *lock.suite), point=points)


def a_kld_lock(**changes: Any) -> Lock:
    """The lock with `a_kld_suite` beside the others."""
    return msgspec.structs.replace(with_kld(a_lock()), **changes)


def a_point(model: str = "Q4_K_M", **changes: Any) -> PointPin:
    """A model under `a_setting`, proved on the engine and device."""
    point = PointPin(
        name=f"{model}@f16kv",
        model=model,
        setting="f16kv",
        engine="embedded",
        device="cpu-amd-1a-02",
        repeatable="bitwise",
        repeatable_why="",
        plain_text_nats=3.25,
        read_back=a_read_back(),
        canary=(
            Canary(
                name="long-prompt",
                tokens_digest=a_digest(f"tokens of {model}"),
                logits_digest=a_digest(f"logits of {model}"),
            ),
        ),
        prompts=(
            a_prompts("wikitext", items=40),
            a_prompts("orders", items=3, uses_date=True),
        ),
        probe=(
            ProbeRow(
                variation="permute",
                rows=8,
                rows_bitwise=8,
                rows_tokens=8,
                logit_difference_max=0.0,
                kl_nats_mean=0.0,
            ),
        ),
    )
    return msgspec.structs.replace(point, **changes)


def a_prompts(suite: str, **changes: Any) -> PromptsPin:
    """What a point is asked in a suite."""
    prompts = PromptsPin(
        suite=suite,
        items=3,
        items_digest=a_digest(f"items of {suite}"),
        text_digest=a_digest(f"text of {suite}"),
        tokens_digest=a_digest(f"tokens of {suite}"),
        uses_date=False,
    )
    return msgspec.structs.replace(prompts, **changes)


def a_lock(**changes: Any) -> Lock:
    """The lock of `a_spec` for `a_device`, proved; what it lists as missing can never be known."""
    spec = a_spec()
    lock = Lock(
        lock_version=1,
        spec_digest=spec_digest(spec),
        body_digest="",
        frozen_date="2026-01-01",
        name=spec.name,
        engine=(an_engine(),),
        device=(a_device(),),
        model=(a_model("F16"), a_model("Q4_K_M")),
        setting=(a_setting(),),
        suite=(a_text_suite(), a_suite()),
        point=(a_point("F16"), a_point("Q4_K_M")),
        anchor=spec.anchor,
        compare=spec.compare,
        gate=spec.gate,
        missing=tuple(
            MissingPin(pin=f"engine.embedded.file.{name}.code_digest", why="no ELF file", until="never")
            for name in ("libgomp.so.1", "libc.so.6")
        ),
    )
    return msgspec.structs.replace(lock, **changes)


def lock_bytes(lock: Lock | None = None, *, spec_path: str = SPEC_PATH) -> bytes:
    """The file of a lock."""
    return write_lock(lock or a_lock(), spec_path=spec_path)


def a_job(lock: Lock | None = None, *, name: str = "orders.Q4_K_M@f16kv.1") -> Job:
    """One job of a lock."""
    return next(job for job in jobs(lock or a_lock()) if job.name == name)


def a_row(item: str = "order-1", **changes: Any) -> Row:
    """One item, answered."""
    row = Row(
        item=item,
        item_digest=item_digest(item, {"bank": "north"}, {"question": item}),
        slices={"bank": "north"},
        replies=(
            Completed(text=f'{{"answer": "{item}"}}', tokens=(11, 12, 13), ending="eos", prompt_tokens=24),
        ),
        times=Times(prefill_s=0.125, decode_s=0.5),
        segment=0,
    )
    return msgspec.structs.replace(row, **changes)


def a_record(**changes: Any) -> Record:
    """The whole record of `a_job`; with other `rows` its header and closing line follow them."""
    job = a_job()
    rows: tuple[Row, ...] = changes.get("rows", tuple(a_row(f"order-{index}") for index in range(1, 4)))
    record = Record(
        header=Header(
            record_version=1,
            job=job.name,
            job_digest=job.digest,
            suite=job.suite,
            point=job.point,
            repeat=job.repeat,
            items=max(len(rows), 1),
        ),
        rows=rows,
        closing=Closing(items=len(rows), answers_digest=answers_digest(rows)),
        torn_bytes=0,
    )
    return msgspec.structs.replace(record, **changes)


def record_bytes(record: Record | None = None) -> bytes:
    """The file of a record."""
    record = record or a_record()
    closing = () if record.closing is None else (record.closing,)
    return b"".join(line_bytes(line) for line in (record.header, *record.rows, *closing))


def an_array() -> Array:
    """Two of three tasks, to be queued."""
    return Array(
        name="qlock-e4fba4aa",
        title="Written by qlock for a.toml, run e4fba4aa.",
        log="/runs/e4fba4aa/slurm/%A_%a.log",
        tasks={0: "F16@f16kv", 2: "Q4_K_M@f16kv"},
        command=("run", "/work folder/locks/a.toml"),
        program=("python", "-m", "qlock"),
        lock="/work folder/locks/a.toml",
        kept_lock="/runs/e4fba4aa/lock.toml",
    )
