"""Rendering in a child: the same text, and every way in which a template can go too far."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from qlock.core.template import CompiledTemplate, Rendered, RenderRequest, Template
from qlock.errors import AbsentError, InputError
from qlock.world import render as module
from qlock.world.process import LineChild
from qlock.world.render import Renderer, RenderLimits, serve

USER: dict[str, object] = {"role": "user", "content": "Grüß dich 👋\u2028\x00 {{ 7 * 7 }}"}


def asked(*messages: dict[str, object], **variables: object) -> RenderRequest:
    return RenderRequest(messages=messages, variables=variables, frozen_date="2026-01-02")


@pytest.fixture(scope="module")
def renderer() -> Iterator[Renderer]:
    with Renderer(RenderLimits(cpu_s=1)) as one:
        yield one


def fault_of(renderer: Renderer, source: str, *messages: dict[str, object]) -> str:
    with pytest.raises(InputError) as caught:
        renderer.render(Template(text=source), asked(*messages))
    return str(caught.value)


def child_pid(renderer: Renderer) -> int:
    assert renderer._child is not None
    return renderer._child.pid


def test_a_render_in_the_child_is_the_render_here(renderer: Renderer) -> None:
    template = Template(
        text="{{ bos_token }}{{ pad_token }}{{ messages | tojson }}{{ tools }}{{ thinking }}"
        "{{ big }}{{ strftime_now('%x') }}",
        bos_token="<s>",
        other_tokens={"pad_token": "ü"},
    )
    request = RenderRequest(
        messages=(USER, {"role": "tool", "content": [{"type": "text", "text": "\\"}, 1.5, None, True]}),
        tools=({"name": "f"},),
        thinking=False,
        variables={"big": 10**40},
        frozen_date="2026-01-02",
    )
    assert renderer.render(template, request) == CompiledTemplate(template).render(request)


def test_one_child_renders_many_prompts_of_several_templates(renderer: Renderer) -> None:
    first, second = Template(text="{{ n }}"), Template(text="{{ n }}{{ strftime_now('%Y') }}")
    renderer.render(first, asked(n=0))
    pid = child_pid(renderer)
    assert [renderer.render(first, asked(n=n)).text for n in range(300)] == [str(n) for n in range(300)]
    assert renderer.render(second, asked(n=1)) == Rendered(text="12026", uses_date=True)
    assert renderer.render(first, asked(n=2)) == Rendered(text="2", uses_date=False)
    assert child_pid(renderer) == pid


def test_faults_of_a_template_come_as_they_are_and_keep_the_child(renderer: Renderer) -> None:
    renderer.render(Template(text=""), asked())
    pid = child_pid(renderer)
    assert fault_of(renderer, "{{ raise_exception('no') }}") == (
        "the chat template refuses the conversation at line 1: no"
    )
    assert fault_of(renderer, "{{ 1 / 0 }}") == (
        "the chat template fails at line 1: ZeroDivisionError: division by zero"
    )
    unread = (
        "the chat template cannot be read at line 1: "
        "unexpected end of template, expected 'end of print statement'"
    )
    assert [fault_of(renderer, "{{ x"), fault_of(renderer, "{{ x")] == [unread, unread]
    assert child_pid(renderer) == pid
    assert renderer.render(Template(text="{{ x }}"), asked(x="well")).text == "well"


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10**9 }}",
        "{% for i in range(9) %}{% set x = [0] * 10**9 %}{% endfor %}",
        "{{ '{:1000000000}'.format('') }}",
        "{{ 'a' | center(10**9) }}",
        "{{ [7] | tojson(indent=10**9) }}",
        "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    ],
)
def test_a_template_that_eats_memory_ends_in_one_message(source: str, renderer: Renderer) -> None:
    assert fault_of(renderer, source) == "the chat template needs more than 512.0 MB"
    assert renderer.render(Template(text="{{ x }}"), asked(x="well")).text == "well"


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% set x = 7 ** (10 ** 8) %}",
    ],
)
def test_an_endless_template_ends_in_one_message(source: str, renderer: Renderer) -> None:
    assert fault_of(renderer, source) == "the chat template took longer than 1 s"
    assert renderer.render(Template(text="{{ x }}"), asked(x="well")).text == "well"


def test_time_is_counted_for_each_render_alone() -> None:
    some = "{% for i in range(40) %}{% for j in range(20000) %}{% endfor %}{% endfor %}done"
    with Renderer(RenderLimits(cpu_s=1)) as renderer:
        renderer.render(Template(text=some), asked())
        pid = child_pid(renderer)
        used_s = 0.0
        while used_s < 1.5:
            assert renderer.render(Template(text=some), asked()).text == "done"
            ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11]
            used_s = int(ticks) / os.sysconf("SC_CLK_TCK")
        assert child_pid(renderer) == pid


def test_a_child_that_stands_still_is_ended_by_the_clock() -> None:
    with Renderer(RenderLimits(wall_s=0.2)) as renderer:
        renderer.render(Template(text=""), asked())
        pid = child_pid(renderer)
        os.kill(pid, signal.SIGSTOP)
        assert fault_of(renderer, "") == "the chat template took longer than 0.2 s"
        assert not Path(f"/proc/{pid}").exists()


def test_a_child_that_is_killed_is_told_and_replaced() -> None:
    with Renderer() as renderer:
        renderer.render(Template(text=""), asked())
        os.kill(child_pid(renderer), signal.SIGKILL)
        assert fault_of(renderer, "") == (
            "the chat template broke the process that rendered it: signal SIGKILL"
        )
        assert renderer.render(Template(text="a"), asked()).text == "a"


def test_a_prompt_that_is_too_long(renderer: Renderer) -> None:
    assert fault_of(renderer, "{{ 'a' * 70000000 }}") == (
        "the chat template wrote a prompt of more than 64.0 MB"
    )


def test_a_conversation_that_is_too_long(renderer: Renderer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LINE_BYTES", 1000)
    assert fault_of(renderer, "x", {"role": "user", "content": "y" * 1000}) == (
        "a template or conversation is too long: got 1.2 kB, expected at most 1.0 kB"
    )
    assert renderer.render(Template(text="{{ x }}"), asked(x="well")).text == "well"


def test_an_interrupt_does_not_leave_an_answer_for_the_next_render(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_args: object) -> None:
        raise KeyboardInterrupt

    with Renderer() as renderer:
        renderer.render(Template(text="a"), asked())
        with monkeypatch.context() as patch:
            patch.setattr(LineChild, "read_line", interrupted)
            with pytest.raises(KeyboardInterrupt):
                renderer.render(Template(text="a"), asked())
        assert renderer.render(Template(text="b"), asked()).text == "b"


def test_an_interrupt_while_it_starts_leaves_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    pids = []

    def interrupted(child: LineChild, *_args: object) -> None:
        pids.append(child.pid)
        raise KeyboardInterrupt

    monkeypatch.setattr(LineChild, "read_line", interrupted)
    with Renderer() as renderer, pytest.raises(KeyboardInterrupt):
        renderer.render(Template(text="a"), asked())
    assert not Path(f"/proc/{pids[0]}").exists()


def test_the_child_gets_nothing_of_the_users_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    with Renderer() as renderer:
        renderer.render(Template(text=""), asked())
        variables = Path(f"/proc/{child_pid(renderer)}/environ").read_bytes().rstrip(b"\0").split(b"\0")
        assert sorted(line.partition(b"=")[0] for line in variables) == [
            b"PYTHONDONTWRITEBYTECODE",
            b"PYTHONHASHSEED",
            b"PYTHONPATH",
        ]
        assert Path(f"/proc/{child_pid(renderer)}/cwd").resolve() == Path("/")


def test_a_child_that_cannot_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_ROOT", tmp_path)
    monkeypatch.setattr(sys, "executable", os.path.realpath(sys.executable))
    with Renderer() as renderer, pytest.raises(AbsentError) as caught:
        renderer.render(Template(text=""), asked())
    assert str(caught.value) == "the process that renders chat templates did not start: exit code 1"
    assert caught.value.hint == f"run `{sys.executable} -m qlock.world.render` to see what it says"


def test_closing_twice_and_rendering_again() -> None:
    renderer = Renderer()
    renderer.close()
    assert renderer.render(Template(text="a"), asked()).text == "a"
    pid = child_pid(renderer)
    renderer.close()
    renderer.close()
    assert not Path(f"/proc/{pid}").exists()
    assert renderer.render(Template(text="b"), asked()).text == "b"
    renderer.close()


def test_what_was_spent_adds_up_over_children() -> None:
    renderer = Renderer()
    assert renderer.spent_s == 0.0
    renderer.render(Template(text="{% for _ in range(90000) %}{% endfor %}"), asked())
    renderer.render(Template(text="a"), asked())
    first_s = renderer.spent_s
    assert first_s > 0.0
    renderer.close()
    renderer.render(Template(text="a"), asked())
    assert renderer.spent_s > first_s
    renderer.close()


# --- the child's side, here ---------------------------------------------------------------------------------


def served(*orders: dict[str, object]) -> list[object]:
    lines = b"".join(json.dumps(order).encode() + b"\n" for order in ({"cpu_s": 1}, *orders))
    answers = io.BytesIO()
    serve(io.BytesIO(lines), answers)
    return [json.loads(line) for line in answers.getvalue().splitlines()]


@pytest.fixture
def processor_limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The limits that were set, which must not be those of the tests' own process."""
    kept: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda which, pair: kept.append(pair))
    monkeypatch.setattr("time.process_time", lambda: 6.5)
    return kept


def test_orders_and_answers(processor_limits: list[tuple[int, int]]) -> None:
    request = {"messages": [USER], "frozen_date": "2026-01-02"}
    assert served(
        {"template": {"text": "{{ messages[0].role }}"}},
        {"request": request},
        {"template": {"text": "{{"}},
        {"template": {"text": "{{ raise_exception('no') }}"}},
        {"request": request},
    ) == [
        {"ready": True},
        {"text": "", "uses_date": False, "cpu_s": 6.5},
        {"text": "user", "uses_date": False, "cpu_s": 6.5},
        {"refused": "the chat template cannot be read at line 1: unexpected 'end of template'"},
        {"text": "", "uses_date": False, "cpu_s": 6.5},
        {"refused": "the chat template refuses the conversation at line 1: no"},
    ]
    assert processor_limits == [(8, resource.RLIM_INFINITY)] * 5


def test_a_lack_of_memory_is_answered(
    processor_limits: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lack(_template: Template) -> None:
        raise MemoryError

    monkeypatch.setattr(module, "CompiledTemplate", lack)
    assert served({"template": {"text": ""}}) == [{"ready": True}, {"short_of": "memory"}]


def test_a_processor_limit_of_the_whole_job_is_not_raised(
    processor_limits: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (7, 7))
    served({"template": {"text": ""}})
    assert processor_limits == [(7, 7)]
