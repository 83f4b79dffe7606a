"""A notebook's kernel says when no cell of it runs, so that its job can be parked as it stands."""

from __future__ import annotations

import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from colane.adaptor import notebook, recorder
from colane.adaptor.writer import RESTS, RESTS_WORD, create


class Shell:
    """The two events of IPython's shell."""

    def __init__(self) -> None:
        self.events = SimpleNamespace(register=lambda event, call: self.called[event].append(call))
        self.called: dict[str, list[Any]] = {"pre_run_cell": [], "post_run_cell": []}

    def tell(self, event: str) -> None:
        for call in self.called[event]:
            call(SimpleNamespace())


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    found, module = Shell(), ModuleType("IPython")
    module.get_ipython = lambda: found  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setattr(notebook, "_watched", None)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    create(tmp_path / "steps")
    return tmp_path / "steps"


def rests(path: Path) -> bool:
    return int(struct.unpack_from("=Q", path.read_bytes(), RESTS_WORD * 8)[0]) == RESTS


@contextmanager
def beside(**names: Any) -> Iterator[None]:
    """A thread that waits in code with these global names."""
    over, there = threading.Event(), threading.Event()
    scope = {**names, "over": over, "there": there}
    exec("def wait():\n    there.set()\n    over.wait()\n", scope)  # noqa: S102
    thread = threading.Thread(target=scope["wait"])
    thread.start()
    there.wait()
    yield
    over.set()
    thread.join()


def test_between_cells_it_rests(shell: Shell, path: Path) -> None:
    to = recorder.Recorder(str(path))
    for _ in range(2):
        to.register()
    assert [len(calls) for calls in shell.called.values()] == [1, 1]
    assert not rests(path), "it has registered within a cell"
    for _ in range(2):
        shell.tell("post_run_cell")
        assert rests(path)
        shell.tell("pre_run_cell")
        assert not rests(path)


def test_a_thread_that_may_use_a_device_goes_on_between_cells(
    shell: Shell, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder.Recorder(str(path)).register()
    cupy = ModuleType("cupy")
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    with beside(cp=cupy):
        shell.tell("post_run_cell")
        assert not rests(path)
    with beside():
        shell.tell("post_run_cell")
        assert rests(path)


def test_a_script_never_says_so(path: Path) -> None:
    recorder.Recorder(str(path)).register()
    assert not rests(path)
