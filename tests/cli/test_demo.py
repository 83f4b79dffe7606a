"""The demo in a tiny variant, with real training; its plan on machines with GPUs; its end by Ctrl-C."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from colane.cli.errors import MisuseError
from colane.lab.demo import command as demo_command
from colane.lab.demo import elsewhere
from colane.lab.demo import mixed as demo_mixed
from colane.lab.demo import plan as demo_plan
from colane.lab.demo.mixed import MixedPlan, make_mixed_plan
from colane.lab.demo.screen import PlainScreen
from colane.model.hardware import Gpu
from tests.cli.conftest import COLANE, START_MAX_S, Colane, environment, until_gone
from tests.needs import needs

torch_and_data = pytest.mark.usefixtures("trainer")


@pytest.fixture
def trainer() -> None:
    needs("torch", "the demo trains with PyTorch")
    needs("sklearn", "the demo trains on digits that ship with scikit-learn")


@pytest.mark.live
@torch_and_data
def test_a_tiny_demo_ends_with_a_report(colane: Colane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_plan, "MODELS", ("vgg11",))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    said = colane("demo", "--paper", "A", "--iters", "60", "--out", str(tmp_path / "out"), "--devices", "cpu:1")
    assert said.code == 0, said
    assert "run 1 of 2: FIFO" in said.out
    assert "run 2 of 2: co-location" in said.out
    assert "vgg11-2 has succeeded, 60/60 steps, loss" in said.out
    assert said.out.splitlines()[-1] == f"report: {tmp_path / 'out' / 'report.html'}"
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    fifo, together = summary["runs"]
    assert [fifo["name"], together["name"]] == ["FIFO", "co-location"]
    assert [fifo["policy"], together["policy"]] == ["fifo", "colocate"]
    assert fifo["finished"] == together["finished"] == demo_plan.COPIES
    # Under FIFO the second job waits for the first; what was learnt from it lets the two share at once.
    assert together["queue_s"]["mean"] < fifo["queue_s"]["mean"]
    for name in ("timeline", "makespan", "run_span_cdf", "queue_cdf", "jobs_over_time"):
        assert (tmp_path / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert not list((tmp_path / "tmp").glob("colane-demo-*"))


@pytest.mark.live
@torch_and_data
def test_a_tiny_mixed_demo_says_what_each_mechanism_brought(
    colane: Colane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = MixedPlan.jobs
    kept = {"loading", "cpu-only"}
    monkeypatch.setattr(MixedPlan, "jobs", lambda *of: [job for job in whole(*of) if job["name"] in kept])
    monkeypatch.setattr(demo_mixed, "LOADING_ITERS", 60)
    monkeypatch.setattr(demo_mixed, "SMALL_ITERS", 20)
    monkeypatch.setattr(demo_mixed, "CPU_SECONDS", 1)
    said = colane("demo", "--mixed", "--out", str(tmp_path / "out"), "--devices", "cpu:1")
    assert said.code == 0, said
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [job["job"] for job in summary["mixed"]] == ["loading", "cpu-only", "urgent"]
    for opening in ("Cores: the job", "The job without a device began", "Urgency: the urgent job waited"):
        assert any(sentence.startswith(opening) for sentence in summary["sentences"])
    assert (tmp_path / "out" / "timeline.png").read_bytes().startswith(b"\x89PNG")


def test_the_mixed_batch_has_one_urgent_job_in_the_middle(tmp_path: Path) -> None:
    plan = make_mixed_plan("cpu:1", tmp_path)
    phase = plan.phases[0]
    longest: Any = {"name": demo_mixed.LOADING, "steps": 249, "steps_total": 500, "end_s": None}
    assert not plan.arrivals(phase, [longest])
    (urgent,) = plan.arrivals(phase, [longest | {"steps": 250}])
    assert urgent["name"] == demo_mixed.URGENT
    assert urgent["priority"] > 0
    submitted: Any = urgent
    assert not plan.arrivals(phase, [longest | {"steps": 251}, submitted])
    assert plan.arrivals(phase, [longest | {"steps": None, "end_s": 5.0}])
    small: Any = {"name": "small-1", "steps": 249, "steps_total": 250, "end_s": None}
    without: Any = {"name": "cpu-only", "steps": 0, "steps_total": None, "end_s": 5.0}
    assert not plan.arrivals(phase, [longest | {"steps": 200}, small, without])
    assert plan.arrivals(phase, [longest | {"steps": 200}, small | {"steps": 250}, without])


def test_an_elastic_job_has_as_many_sizes_as_there_are_devices(tmp_path: Path) -> None:
    (one,) = (job for job in make_mixed_plan("cpu:1", tmp_path).jobs(demo_mixed.FIFO) if job["name"] == "elastic")
    assert "gpus" not in one
    plan = replace(make_mixed_plan("cpu:1", tmp_path), device_count=2)
    (two,) = (job for job in plan.jobs(demo_mixed.FIFO) if job["name"] == "elastic")
    assert two["gpus"] == [1, 2]


@pytest.mark.parametrize("more", [("--paper", "A"), ("--iters", "5")])
def test_one_batch_alone_is_asked_for_once(colane: Colane, tmp_path: Path, more: tuple[str, str]) -> None:
    said = colane("demo", "--mixed", *more, "--out", str(tmp_path / "out"))
    assert said.code == 2
    assert "--mixed" in said.err
    assert not (tmp_path / "out").exists()


@pytest.mark.live
@torch_and_data
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, number: int) -> None:
    (tmp_path / "tmp").mkdir()
    words = [*COLANE, "demo", "--out", str(tmp_path / "out"), "--devices", "cpu:1"]
    process = subprocess.Popen(
        words, env=environment(TMPDIR=str(tmp_path / "tmp")), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert any("is launching" in line for line in process.stdout)
    process.send_signal(number)
    _, said = process.communicate(timeout=START_MAX_S)
    assert process.returncode == 130
    assert "Traceback" not in said
    until_gone(tmp_path)
    assert not list((tmp_path / "tmp").glob("colane-demo-*"))


def test_a_directory_that_cannot_be_written_is_found_out_first(colane: Colane, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = colane("demo", "--out", str(tmp_path / "file" / "out"))
    assert said.code == 1
    assert "cannot be made" in said.err


def test_a_missing_trainer_is_named(colane: Colane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    said = colane("demo")
    assert said.code == 1
    assert "pip install 'colane[workloads]'" in said.err


class FakeDevices:
    """What NVML would show of a machine."""

    def __init__(self, *gpus: Gpu) -> None:
        self._gpus = gpus

    def observe(self) -> tuple[Gpu, ...]:
        return self._gpus


def gpu(index: int, *, healthy: bool = True) -> Gpu:
    return Gpu(index=index, uuid=f"GPU-{index}", type="NVIDIA H200", memory_bytes=10**11, healthy=healthy)


def plan_on(monkeypatch: pytest.MonkeyPatch, gpus: list[Gpu], *, mps: bool) -> demo_plan.DemoPlan:
    monkeypatch.setattr(demo_plan, "discover", lambda _: FakeDevices(*gpus))
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/it" if mps else None)
    return demo_plan.make_plan(None, Path("/nowhere"), None)


def test_on_gpus_it_has_the_papers_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_on(monkeypatch, [gpu(0), gpu(1, healthy=False), gpu(2), gpu(3)], mps=True)
    assert [phase.policy for phase in plan.phases] == ["fifo", "colocate", "colocate"]
    assert [phase.mps for phase in plan.phases] == ["off", "off", "on"]
    assert plan.agent_env == {"CUDA_VISIBLE_DEVICES": "GPU-0,GPU-2"}
    batch = plan.jobs(plan.phases[0])
    assert sorted(job["model_name"] for job in batch) == sorted([*demo_plan.MODELS] * 2)
    assert {(job["batch_size"], job["iters"], job["workers"]) for job in batch} == {(64, 1000, 2)}
    assert {job["dataset"] for job in batch} == {"digits"}
    assert "OMP_NUM_THREADS" not in batch[0]["env"]


def test_without_mps_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_on(monkeypatch, [gpu(0)], mps=False)
    assert len(plan.phases) == 2
    assert any("MPS is left out" in line for line in plan.words)


def test_cifar10_is_used_where_it_lies(tmp_path: Path) -> None:
    batches = tmp_path / "cifar-10-batches-bin"
    batches.mkdir()
    for name in [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]:
        (batches / name).write_bytes(b"\0" * 3073)
    plan = demo_plan.make_plan("cpu:1", tmp_path, 5)
    assert plan.job["dataset"] == "cifar10"
    assert plan.job["dataset_path"] == str(tmp_path)


def test_devices_that_are_not_there() -> None:
    with pytest.raises(MisuseError, match="cpu:9999"):
        demo_plan.make_plan("cpu:9999", Path(), None)


DAY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-05 07:01:55,4000,8,32000,6c71a0
2017-10-05 06:13:03,600,1,600,6c71a0
2017-10-05 06:13:03,600,1,600,11cb48
2017-10-06 06:13:03,600,1,600,6c71a0
"""


@pytest.mark.parametrize("is_at_hand", [True, False])
def test_after_the_live_part_the_same_policies_decide_on_more_machines(
    tmp_path: Path, is_at_hand: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(elsewhere, "V100_JOBS", "poisson:jobs=4,gap=300")
    monkeypatch.setattr(elsewhere, "V100_SEEDS", (0,))
    monkeypatch.setenv("COLANE_DATA", str(tmp_path))
    if is_at_hand:
        (tmp_path / "traces").mkdir()
        with gzip.open(tmp_path / "traces" / "philly.csv.gz", "wt") as file:
            file.write(DAY)
    v100s, day, costs = demo_command.simulate_elsewhere(tmp_path, PlainScreen())
    assert "4 jobs take" in v100s
    assert ("2 jobs take" if is_at_hand else "no folder with traces/philly.csv.gz") in day
    assert "under colane" in costs
    said = capsys.readouterr().out
    assert all(sentence in said for sentence in (v100s, day, costs))
    assert (tmp_path / "elsewhere.png").read_bytes().startswith(b"\x89PNG")
