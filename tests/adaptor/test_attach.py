from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import colane.adaptor as colane
from colane.adaptor import memory, recorder, wire


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "steps"
    wire.create(made)
    monkeypatch.setenv(wire.STEPS_FILE_ENV, str(made))
    return made


def python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True, check=False
    )


def test_three_lines_report_steps(path: Path) -> None:
    steps = colane.attach(total_steps=3)
    for loss in (3.0, 2.0, 1.0):
        steps.step(loss=loss)
    seen = wire.read(path)
    assert seen is not None
    assert (seen.steps, seen.steps_total, seen.loss, seen.pid) == (3, 3, 1.0, os.getpid())
    assert seen.first_step_s is not None
    assert seen.last_step_s is not None
    assert seen.first_step_s <= seen.last_step_s
    assert len(seen.durations_s) == 3


def test_memory_of_a_cpu_job_is_its_resident_set(path: Path) -> None:
    colane.attach().step()
    seen = wire.read(path)
    assert seen is not None
    assert seen.persistent_bytes is not None
    assert seen.peak_bytes is not None
    assert 1_000_000 < seen.persistent_bytes <= seen.peak_bytes


def test_memory_of_a_cuda_job_is_what_torch_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimpleNamespace(is_initialized=lambda: True, device_count=lambda: 2)
    allocated = {0: {"current": 8, "peak": 8}, 1: {"current": 5, "peak": 9}}
    reserved = {0: {"current": 8, "peak": 10}, 1: {"current": 11, "peak": 12}}
    native = SimpleNamespace(
        _cuda_memoryStats=lambda gpu: {
            "allocated_bytes": {"all": allocated[gpu]},
            "reserved_bytes": {"all": reserved[gpu]},
        }
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, _C=native))
    seen = memory.sample()
    assert seen is not None
    held = (seen.persistent_bytes, seen.peak_bytes, seen.reserved_bytes, seen.on_gpu)
    assert held == (5, 12, 11, True), "of its busiest GPU, at its peak with the blocks that were held then"


def test_torch_without_cuda_in_use_counts_the_resident_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False)))
    monkeypatch.setattr(memory, "resident", lambda: memory.MemorySample(3, 4))
    seen = memory.sample()
    assert seen is not None
    assert (seen.persistent_bytes, seen.peak_bytes, seen.on_gpu) == (3, 4, False)


@pytest.mark.parametrize("text", ["", "VmRSS:\n", "VmRSS: x kB\nVmHWM: 3 kB\n"])
def test_memory_is_unknown_where_the_kernel_does_not_say(tmp_path: Path, text: str) -> None:
    status = tmp_path / "status"
    status.write_text(text)
    assert memory.resident(str(status)) is None
    assert memory.resident(str(tmp_path / "none")) is None


def test_memory_is_read_at_the_first_steps_and_then_now_and_then(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(memory, "sample", lambda: calls.append(1))
    monkeypatch.setattr(recorder, "MEMORY_GAP_S", 0.0)
    steps = colane.attach()
    for _ in range(2 * recorder.MEMORY_EVERY_STEPS):
        steps.step()
    assert len(calls) == recorder.MEMORY_FIRST_STEPS + 2
    assert wire.read(path) is not None


def test_outside_colane_it_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(wire.STEPS_FILE_ENV, raising=False)
    steps = colane.attach(total_steps=5)
    steps.step(loss=object())  # type: ignore[arg-type]


def test_a_bad_file_is_said_once_and_only_when_debugging(tmp_path: Path) -> None:
    code = "import colane.adaptor as c\ns = c.attach(2)\ns.step(1.0)\ns.step()\nprint('trained')"
    missing = {wire.STEPS_FILE_ENV: str(tmp_path / "none")}
    loud, quiet = python(code, COLANE_DEBUG="1", **missing), python(code, COLANE_DEBUG="", **missing)
    assert (loud.returncode, loud.stdout) == (quiet.returncode, quiet.stdout) == (0, "trained\n")
    assert loud.stderr.count("colane:") == 1
    assert "No such file" in loud.stderr
    assert quiet.stderr == ""


@pytest.mark.parametrize("total", ["-1", "1.5", "'many'", "10**30"])
def test_a_senseless_total_does_not_break_the_job(path: Path, total: str) -> None:
    ran = python(f"import colane.adaptor as c\nc.attach({total}).step()\nprint('trained')", COLANE_DEBUG="1")
    assert (ran.returncode, ran.stdout) == (0, "trained\n")
    assert ran.stderr.startswith("colane: steps are not reported")
    assert path.exists()


def test_a_loss_that_is_no_number_ends_reporting_not_the_job(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLANE_DEBUG", "1")
    steps = colane.attach()
    steps.step(loss=1.0)
    steps.step(loss="low")  # type: ignore[arg-type]
    steps.step(loss=2.0)
    seen = wire.read(path)
    assert seen is not None
    assert seen.steps == 1
    assert capsys.readouterr().err.count("no more steps are reported") == 1


def test_a_forked_child_does_not_report(path: Path) -> None:
    code = (
        "import os, colane.adaptor as c\ns = c.attach()\ns.step()\npid = os.fork()\n"
        "if pid == 0:\n    s.step()\n    os._exit(0)\n"
        "os.waitpid(pid, 0)\ns.step()"
    )
    assert python(code).returncode == 0
    seen = wire.read(path)
    assert seen is not None
    assert seen.steps == 2


def test_importing_it_brings_nothing_heavy() -> None:
    code = "import sys\nbefore = set(sys.modules)\nimport colane.adaptor\nprint(*set(sys.modules) - before)"
    heavy = {"dataclasses", "typing", "pathlib", "inspect", "numpy", "torch", "socket", "asyncio", "logging"}
    loaded = python(code).stdout.split()
    assert "colane.adaptor.writer" in loaded
    assert heavy.isdisjoint(loaded)
