"""The house keeps its shape: floors, one library one file, small files and functions, a test for every module.

The rules are those of CONTRIBUTING.md, "The house". They are read from the source with `ast` alone,
so that a module that does not import still gets its findings.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

FLOORS = {
    "errors": 0,
    "core": 1,
    "suites": 2,
    "reports": 2,
    "exports": 2,
    "world": 2,
    "engines": 3,
    "flows": 4,
    "cli": 5,
    "__main__": 6,
}
PURE = ("core", "suites", "reports", "exports")
IMPURE_LIBRARIES = ("os", "pathlib", "subprocess", "socket", "time", "random", "logging")
PARTS_THAT_MEMBERS_SHARE = {
    "suites": ("interface",),
    "reports": ("interface",),
    "exports": ("interface",),
    # The engine of a build has the embedded one score tokens on the build's own libraries.
    "engines": ("interface", "llama_cpp_python"),
    "world": ("interface", "process", "files"),
}
# The one module that puts the parts of a folder together for the command line has to know them all.
ASSEMBLY = "world.real"
HOME_OF_LIBRARY = {
    "huggingface_hub": "world.hub",
    "pynvml": "world.nvml",
    "llama_cpp": "engines.llama_cpp_python",
    "blake3": "core.digest",
    "subprocess": "world.process",
    "scipy": "core.stats",
    "matplotlib": "reports.plots",
    "click": "cli",
    "rich": "cli",
    "jinja2": "core.template",
    "re2": "suites.tasks",
    "jsonschema": "suites.tasks",
}
HEAVY_LIBRARIES = ("huggingface_hub", "llama_cpp", "matplotlib", "numpy", "pynvml", "scipy", "transformers")
FILE_LINES = 400
FUNCTION_LINES = 50
PARAMETERS = 6
MODULES_WITHOUT_TEST = ("__init__", "__main__", "interface")


@dataclass(frozen=True, kw_only=True)
class Module:
    """One source file, by its dotted name inside qlock (`core.digest`; a package by its folder's name)."""

    name: str
    text: str
    is_package: bool = False

    @property
    def parts(self) -> list[str]:
        return self.name.split(".")

    @property
    def top(self) -> str:
        """The floor's folder, or the name of a file that lies beside the folders."""
        return self.parts[0]

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)


@dataclass(frozen=True, kw_only=True)
class Import:
    """One imported module: absolute, with the line where it stands."""

    name: str
    line: int

    @property
    def library(self) -> str:
        return self.name.partition(".")[0]

    @property
    def inside(self) -> str:
        """The dotted name inside qlock, empty for anything else."""
        return self.name.removeprefix("qlock.") if self.name.startswith("qlock.") else ""


def modules() -> list[Module]:
    found = []
    for path in sorted((ROOT / "qlock").rglob("*.py")):
        parts = path.relative_to(ROOT / "qlock").with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        found.append(
            Module(name=name or "__init__", text=path.read_text(encoding="utf-8"), is_package=is_package)
        )
    return found


def imports(module: Module, names: frozenset[str]) -> Iterator[Import]:
    """Every import, wherever it stands; `from x import y` counts as `x.y` where that is one of our modules."""
    here = ["qlock", *module.parts] if module.name != "__init__" else ["qlock"]
    package = here if module.is_package else here[:-1]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(name=alias.name, line=node.lineno)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                longer = f"{base}.{alias.name}"
                is_ours = longer.removeprefix("qlock.") in names
                yield Import(name=longer if is_ours else base, line=node.lineno)


def lies_in(name: str, home: str) -> bool:
    return name == home or name.startswith(f"{home}.")


def floor_findings(module: Module, names: frozenset[str]) -> Iterator[str]:
    """Arrows point down; folders on one floor do not know each other; engines do not know suites."""
    mine = FLOORS.get(module.top, 0)
    for used in imports(module, names):
        top = used.inside.partition(".")[0]
        if not top or top == module.top:
            continue
        if top not in FLOORS:
            yield f"{module.name}:{used.line} imports `{used.name}`, which lies on no floor"
        elif FLOORS[top] >= mine or (module.top == "engines" and top == "suites"):
            yield f"{module.name}:{used.line} imports `{used.name}`; {module.top} does not know {top}"


def member_findings(module: Module, names: frozenset[str]) -> Iterator[str]:
    """Members of a folder build on its shared parts, never on each other."""
    shared = PARTS_THAT_MEMBERS_SHARE.get(module.top)
    if shared is None or module.name == ASSEMBLY:
        return
    member = module.parts[1] if len(module.parts) > 1 else ""
    for used in imports(module, names):
        if not lies_in(used.inside, module.top) or used.inside == module.top:
            continue
        other = used.inside.split(".")[1]
        if other != member and other not in shared:
            yield f"{module.name}:{used.line} imports `{used.name}`; members share {', '.join(shared)} alone"


def purity_findings(module: Module, names: frozenset[str]) -> Iterator[str]:
    if module.top in PURE:
        for used in imports(module, names):
            if used.library in IMPURE_LIBRARIES:
                yield f"{module.name}:{used.line} imports `{used.name}`; {module.top} is pure"


def library_findings(module: Module, names: frozenset[str]) -> Iterator[str]:
    for used in imports(module, names):
        home = HOME_OF_LIBRARY.get(used.library)
        if home is not None and not lies_in(module.name, home):
            yield f"{module.name}:{used.line} imports `{used.name}`, which lives in {home} alone"


def size_findings(module: Module, names: frozenset[str]) -> Iterator[str]:
    lines = len(module.text.splitlines())
    if lines > FILE_LINES:
        yield f"{module.name} has {lines} lines, at most {FILE_LINES}"
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > FUNCTION_LINES:
            yield f"{module.name}:{node.lineno} `{node.name}` has {length} lines, at most {FUNCTION_LINES}"
        arguments = node.args
        every = [
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            arguments.vararg,
            arguments.kwarg,
        ]
        count = len([one for one in every if one is not None and one.arg not in {"self", "cls"}])
        if count > PARAMETERS:
            yield f"{module.name}:{node.lineno} `{node.name}` has {count} parameters, at most {PARAMETERS}"


def mirror_finding(module: Module, tests: frozenset[str]) -> Iterator[str]:
    """Every module has its test file in the mirrored place."""
    if module.is_package or module.parts[-1] in MODULES_WITHOUT_TEST:
        return
    wanted = "/".join([*module.parts[:-1], f"test_{module.parts[-1]}.py"])
    if wanted not in tests:
        yield f"{module.name} has no tests/{wanted}"


MODULES = modules()
NAMES = frozenset(module.name for module in MODULES)
TESTS = frozenset(str(path.relative_to(ROOT / "tests")) for path in (ROOT / "tests").rglob("test_*.py"))


def demand_none(findings: Iterable[str]) -> None:
    """Fails with every finding on a line of its own; an assertion would shorten the list."""
    listed = "\n".join(findings)
    if listed:
        pytest.fail(listed, pytrace=False)


Rule = Callable[[Module, frozenset[str]], Iterator[str]]


@pytest.mark.parametrize(
    "rule", [floor_findings, member_findings, purity_findings, library_findings, size_findings]
)
def test_the_house_keeps_the_rule(rule: Rule) -> None:
    demand_none(finding for module in MODULES for finding in rule(module, NAMES))


def test_every_module_has_its_mirrored_test_file() -> None:
    demand_none(finding for module in MODULES for finding in mirror_finding(module, TESTS))


def test_the_command_line_loads_no_heavy_library_before_a_verb_needs_it() -> None:
    program = f"import sys, qlock.cli.main; print(*sorted(sys.modules.keys() & {set(HEAVY_LIBRARIES)}))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert (done.stdout, done.stderr) == ("\n", "")


OURS = frozenset(
    {"core.digest", "suites.bfcl", "suites.bfcl.parse", "suites.tasks", "suites.interface", "world.hub"}
)


def found(rule: Rule, name: str, text: str, *, is_package: bool = False) -> list[str]:
    return list(rule(Module(name=name, text=text, is_package=is_package), OURS))


def test_an_arrow_upwards_is_found() -> None:
    assert found(floor_findings, "core.plan", "from qlock.world import hub") == [
        "core.plan:1 imports `qlock.world.hub`; core does not know world"
    ]


def test_an_arrow_sideways_is_found() -> None:
    assert found(floor_findings, "world.files", "import qlock.suites.tasks") == [
        "world.files:1 imports `qlock.suites.tasks`; world does not know suites"
    ]


def test_an_engine_that_knows_suites_is_found() -> None:
    assert found(floor_findings, "engines.replay", "from qlock.suites.tasks import Params") == [
        "engines.replay:1 imports `qlock.suites.tasks`; engines does not know suites"
    ]


def test_a_folder_beside_the_floors_is_found() -> None:
    assert found(floor_findings, "flows.run", "def f():\n    import qlock.helpers") == [
        "flows.run:2 imports `qlock.helpers`, which lies on no floor"
    ]


def test_arrows_downwards_are_free() -> None:
    text = "import msgspec\nfrom qlock.core import digest\nfrom qlock.errors import InputError\nfrom . import resolve\n"
    assert found(floor_findings, "flows.run", text) == []


@pytest.mark.parametrize(
    "text",
    [
        "from . import tasks",
        "from .tasks import Params",
        "from qlock.suites import tasks",
        "import qlock.suites.tasks",
    ],
)
def test_a_member_that_imports_another_is_found_however_it_is_written(text: str) -> None:
    assert found(member_findings, "suites.choice", text) == [
        "suites.choice:1 imports `qlock.suites.tasks`; members share interface alone"
    ]


def test_a_part_of_a_member_that_imports_another_member_is_found() -> None:
    assert found(member_findings, "suites.bfcl.parse", "from ..tasks import Params") == [
        "suites.bfcl.parse:1 imports `qlock.suites.tasks`; members share interface alone"
    ]


def test_a_member_may_import_its_own_parts_and_the_interface() -> None:
    text = "from qlock.suites.bfcl.parse import calls\nfrom qlock.suites.interface import Play\n"
    assert found(member_findings, "suites.bfcl", text, is_package=True) == []


def test_the_world_builds_on_its_processes_and_files_alone() -> None:
    text = "from qlock.world import process\nfrom qlock.world.files import read\nfrom qlock.world.hub import Hub\n"
    assert found(member_findings, "world.sandbox", text) == [
        "world.sandbox:3 imports `qlock.world.hub`; members share interface, process, files alone"
    ]


def test_the_one_assembly_may_know_every_part() -> None:
    assert found(member_findings, "world.real", "from qlock.world import hub") == []
    assert found(floor_findings, "world.real", "from qlock.suites import tasks") == [
        "world.real:1 imports `qlock.suites.tasks`; world does not know suites"
    ]


def test_findings_are_shown_whole() -> None:
    with pytest.raises(pytest.fail.Exception) as caught:
        demand_none(["one", "two"])
    assert str(caught.value) == "one\ntwo"
    demand_none([])


@pytest.mark.parametrize("library", IMPURE_LIBRARIES)
@pytest.mark.parametrize("folder", PURE)
def test_a_pure_floor_that_touches_the_machine_is_found(folder: str, library: str) -> None:
    assert found(purity_findings, f"{folder}.x", f"def f():\n    import {library}") == [
        f"{folder}.x:2 imports `{library}`; {folder} is pure"
    ]


@pytest.mark.parametrize("library, home", HOME_OF_LIBRARY.items())
def test_a_library_outside_its_home_is_found(library: str, home: str) -> None:
    assert found(library_findings, "flows.run", f"from {library}.part import x") == [
        f"flows.run:1 imports `{library}.part`, which lives in {home} alone"
    ]
    assert found(library_findings, home, f"import {library}") == []
    assert found(library_findings, f"{home}.part", f"import {library}") == []


def test_a_long_file_and_a_long_function_are_found() -> None:
    at_most = "def f():\n" + "    pass\n" * 49
    assert found(size_findings, "core.x", at_most + "x = 0\n" * 350) == []
    assert found(size_findings, "core.x", at_most + "    pass\n" + "x = 0\n" * 350) == [
        "core.x has 401 lines, at most 400",
        "core.x:1 `f` has 51 lines, at most 50",
    ]


def test_too_many_parameters_are_found_and_self_does_not_count() -> None:
    assert found(size_findings, "core.x", "class A:\n    def f(self, a, b, /, *c, d, e, **f): ...") == []
    assert found(size_findings, "core.x", "async def f(a, b, /, g, *c, d, e, **f): ...") == [
        "core.x:1 `f` has 7 parameters, at most 6"
    ]


def test_a_module_without_a_test_is_found() -> None:
    tests = frozenset({"core/test_digest.py", "suites/bfcl/test_parse.py", "test_errors.py"})
    names = ("core.digest", "suites.bfcl.parse", "errors", "suites.interface", "__main__", "core.plan")
    findings = [one for name in names for one in mirror_finding(Module(name=name, text=""), tests)]
    assert findings == ["core.plan has no tests/core/test_plan.py"]
    assert list(mirror_finding(Module(name="core", text="", is_package=True), tests)) == []
