"""Pollux's measurements: step times by placement, lengths by validation curves, and its workloads replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from colane.cli import app
from colane.lab.simulate.gavel_speeds import PolluxSpeeds, with_lengths
from colane.lab.simulate.request import Request, inputs, load
from colane.lab.simulate.run import simulate
from colane.lab.simulate.world import Running
from colane.lab.traces import read
from colane.lab.traces.tables import pollux
from colane.model.hardware import GpuId
from colane.settings.input_file import InputFileError

HEAD = "name,time,application,num_replicas,batch_size"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    app = tmp_path / "net"
    app.mkdir()
    (app / "placements.csv").write_text(
        "placement,local_bsz,step_time,sync_time\n1,10,1.0,0.0\n1,20,1.5,0.0\n2,10,1.2,0.2\n21,10,1.8,0.6\n"
    )
    (app / "scalability.csv").write_text("num_nodes,num_replicas,local_bsz,step_time,sync_time\n6,6,10,2.5,1.0\n")
    (app / "validation-10.csv").write_text("progress,iteration,metric\n5.0,100,0.4\n10.0,200,0.5\n12.0,300,0.6\n")
    (app / "validation-30.csv").write_text("progress,iteration,metric\n5.0,40,0.4\n10.0,80,0.5\n")
    return tmp_path


@pytest.mark.parametrize(
    ("placement", "batch", "step_s"),
    [
        ((1,), 10, 1.0),
        ((1,), 15, 1.25),  # between two batches
        ((1,), 40, 3.0),  # two passes of 20
        ((2,), 20, 1.2),
        ((2,), 40, 2.2),  # two passes of 10 each, synchronising once
        ((1, 2), 30, 1.8),  # the order of nodes is all one
        ((1, 1, 1, 1, 1), 50, 2.5),  # six on six is nearer than three on two
        ((1,), 5, 1.0),  # no faster than the least batch measured
    ],
)
def test_step_times(folder: Path, placement: tuple[int, ...], batch: int, step_s: float) -> None:
    assert pollux.read(folder).applications["net"].step_s(placement, batch) == pytest.approx(step_s)


def test_a_job_ends_with_the_last_epoch_that_all_curves_have(folder: Path) -> None:
    application = pollux.read(folder).applications["net"]
    assert [application.steps(batch) for batch in (10, 20, 30, 60)] == [200, 140, 80, 80]


def test_jobs_get_the_length_of_their_curves_unless_they_say_one(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "workload.csv"
    path.write_text(f"{HEAD},steps\na,0,net,2,20,\nb,5,net,1,10,7\nc,9,other,1,10,\n")
    given = with_lengths(read.read(str(path)), pollux.read(folder))
    assert [job.steps for job in given.jobs] == [140, 7, None]
    assert [str(note) for note in given.notes] == [
        "1 job without a length given that of their application's validation curves"
    ]


def test_a_check_takes_lengths_from_tables_as_a_simulation_does(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLANE_DATA", raising=False)
    path = tmp_path / "workload.csv"
    path.write_text(f"{HEAD}\na,0,net,2,20\n")
    assert app.run(["trace", "check", str(path)]) == 1
    assert "no-length" in capsys.readouterr().out
    assert app.run(["trace", "check", str(path), "--tables", str(folder)]) == 0
    assert "1 job of 140 steps" in capsys.readouterr().out
    assert app.run(["trace", "check", str(path), "--tables", str(tmp_path / "none")]) == 2


def test_a_resized_job_keeps_its_batch(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "workload.csv"
    path.write_text(f"{HEAD}\na,0,net,2,20\n")
    one = read.read(str(path)).jobs[0]
    speeds = PolluxSpeeds(pollux.read(folder))
    gpus = (GpuId("n", 0), GpuId("n", 1))
    assert speeds.alone(Running(one, "t4", gpus)) == pytest.approx(1 / 1.2)
    assert speeds.alone(Running(one, "t4", gpus[:1])) == pytest.approx(1 / 1.5)
    assert speeds.alone(Running(one, "v100", gpus)) is None


def test_a_workload_is_replayed_by_its_curves(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "workload.csv"
    path.write_text(f"{HEAD}\na,0,net,2,20\nb,5,net,1,10\n")
    request = Request(cluster="pollux", trace=str(path), tables=folder)
    run = simulate(inputs(request, load(request, 0), "fifo", 0))
    ends = dict(zip(run.ledger.rows.id, run.ledger.rows.end_s, strict=True))
    assert ends == {1: pytest.approx(140 * 1.2), 2: pytest.approx(5 + 200 * 1.0)}


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("placements.csv", "placement,local_bsz,step_time,sync_time\n1,10,0,0\n", "must be more than 0"),
        ("placements.csv", "placement,local_bsz,step_time,sync_time\nx,10,1,0\n", "GPUs of each node as digits"),
        ("validation-30.csv", "progress,iteration,metric\n", "has no epoch"),
        ("validation-all.csv", "progress,iteration,metric\n1,1,1\n", "the total batch in its name"),
    ],
)
def test_bad_tables_are_named(folder: Path, name: str, text: str, problem: str) -> None:
    (folder / "net" / name).write_text(text)
    with pytest.raises(InputFileError, match=problem) as caught:
        pollux.read(folder)
    assert name in str(caught.value)


def test_the_published_curves_and_placements(data: Path) -> None:
    found = pollux.read(data / "traces/pollux-profiles/traces").applications
    assert sorted(found) == ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"]
    # cifar10 with 2048: the 100th epoch of its curve, as their simulator counts it.
    assert found["cifar10"].steps(2048) == 3178
    assert found["ncf"].steps(32768) == 1548
    assert found["cifar10"].noise[128][0].noise_scale == pytest.approx(128 * 5.066593295150894 / 8.947307535897329)
    assert {len(curve) for curve in found["cifar10"].noise.values()} == {100}
    assert found["cifar10"].step_s((1,), 32) == pytest.approx(0.0427886962890625)
