"""The engine's libraries, looked at once more when everything was asked."""

from __future__ import annotations

import contextlib

from qlock.core.lock import read_lock
from qlock.engines.interface import Load
from qlock.flows.libraries import Libraries
from tests.fakes.project import Project


def test_libraries_are_those_that_were_first_seen(project: Project) -> None:
    lock = read_lock(project.lock_path.read_bytes(), name="lock")
    libraries = Libraries(project.world, lock.engine[0])
    library = project.script.folder / "libllama.so"
    with contextlib.closing(project.script.open_engine(lib_folder=None)) as engine:
        engine.load(Load(weights=(str(project.path / "models/a.gguf"),), setting=lock.setting[0]))
        libraries.note(engine)
        assert libraries.again(engine) == []
        assert libraries.files
        data = library.read_bytes()
        library.write_bytes(data)
        libraries.note(engine)
        assert [finding.where for finding in libraries.again(engine)] == [
            f"engine.{lock.engine[0].name}.file.libllama.so.touched"
        ]
        library.write_bytes(b"other")
        assert {finding.rule for finding in libraries.again(engine)} == {"after-the-run"}
