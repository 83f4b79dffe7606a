"""What is said and drawn of a mixed batch: only what was seen of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from colane.lab.report import style
from colane.lab.report.elastic_plots import mixed_timeline
from colane.lab.report.mixed import JobLook, MixedJob, MixedRole, MixedRun, mechanism_sentences, mixed_table, shared_s

DEVICE = ("vm/0",)


def job(name: str, role: MixedRole, start_s: float, end_s: float, *looks: JobLook, submit_s: float = 0.0) -> MixedJob:
    seen = looks or (JobLook(start_s, DEVICE, (0,), 1),)
    return MixedJob(name=name, role=role, submit_s=submit_s, start_s=start_s, end_s=end_s, looks=seen)


def run(name: str, *jobs: MixedJob, others_ratio: float | None = None, **more: object) -> MixedRun:
    found = {"devices": DEVICE, "cores": 2, **more}
    return MixedRun(name=name, jobs={one.name: one for one in jobs}, others_ratio=others_ratio, **found)  # type: ignore[arg-type]


SMALL = (job("small-1", MixedRole.SHARING, 0, 10), job("small-2", MixedRole.SHARING, 10, 20))
TOGETHER = (
    job("small-1", MixedRole.SHARING, 0, 12),
    job("small-2", MixedRole.SHARING, 2, 14, JobLook(2, DEVICE, (1,), 1)),
)


def test_side_by_side_is_time_in_which_two_were_on_a_device() -> None:
    assert shared_s(run("FIFO", *SMALL)) == 0
    assert shared_s(run("colane", *TOGETHER)) == 10
    parked = job(
        "small-2", MixedRole.SHARING, 2, 14, JobLook(2, DEVICE, (1,), 1), JobLook(5, DEVICE, (1,), 1, is_parked=True)
    )
    assert shared_s(run("colane", TOGETHER[0], parked)) == 3


def test_sharing_is_said_with_its_speed_up() -> None:
    said = mechanism_sentences(run("FIFO", *SMALL), run("colane", *TOGETHER, deltas={"a + b": 1.7}))[0]
    assert "13 s instead of 15 s (-13 %)" in said
    assert "side by side on a device for 10 s, with a measured speed-up of 1.70 (a + b)" in said


@pytest.mark.parametrize(
    ("others_ratio", "deltas", "cores", "said"),
    [
        (0.7, {}, 2, "as other work used 70 % of the devices"),
        (0.0, {"a + b": 0.8}, 2, "as sharing was measured not to pay (a + b: 0.80 times"),
        (0.0, {}, 1, "as each device is one core here"),
        (0.0, {}, 2, "no job ran beside another."),
    ],
)
def test_a_job_that_does_not_share_is_told_why(
    others_ratio: float, deltas: dict[str, float], cores: int, said: str
) -> None:
    after = run("colane", *SMALL, others_ratio=others_ratio, deltas=deltas, cores=cores)
    assert said in mechanism_sentences(run("FIFO", *SMALL), after)[0]


def loading(*cores: tuple[float, int, int]) -> MixedJob:
    looks = [JobLook(at_s, DEVICE, (0,), count, steps=steps, step_s=100 + at_s) for at_s, count, steps in cores]
    return job("loading", MixedRole.CORES, 0, 40, *looks)


def test_cores_are_said_with_the_speed_at_each() -> None:
    before = run("FIFO", loading((0, 1, 0), (10, 1, 50)))
    after = run("colane", loading((0, 1, 0), (10, 1, 50), (12, 2, 60), (22, 2, 160)))
    said = mechanism_sentences(before, after)[0]
    assert "it had 1, then 2 cores, under FIFO 1 core, and made 5.0 steps/s with 1 and 10.0 steps/s with 2." in said


def test_a_job_that_kept_its_cores_says_why() -> None:
    alone = run("FIFO", loading((0, 2, 0), (10, 2, 50)))
    assert "a device has no more than 2 cores here" in mechanism_sentences(alone, alone)[0]
    few = run("FIFO", loading((0, 1, 0)))
    assert "ended before a search" in mechanism_sentences(few, few)[0]


def test_one_device_leaves_an_elastic_job_nothing_to_grow_into() -> None:
    one = run("FIFO", job("elastic", MixedRole.ELASTIC, 0, 10))
    assert "nothing to gain here, as 2 cores make one device" in mechanism_sentences(one, one)[0]
    both = ("vm/0", "vm/1")
    grown = job("elastic", MixedRole.ELASTIC, 0, 8, JobLook(0, DEVICE, (0,), 2), JobLook(3, both, (0, 0), 4))
    said = mechanism_sentences(
        run("FIFO", job("elastic", MixedRole.ELASTIC, 0, 10), devices=both), run("c", grown, devices=both)
    )
    assert "8 s instead of 10 s (-20 %), on 1, then 2 devices." in said[0]


def test_a_job_that_waited_for_the_urgent_one_is_named() -> None:
    before = run("FIFO", job("urgent", MixedRole.URGENT, 30, 40, submit_s=10))
    parked = job(
        "loading",
        MixedRole.SHARING,
        0,
        40,
        JobLook(0, DEVICE, (0,), 1),
        JobLook(11, DEVICE, (0,), 1, is_parked=True),
        JobLook(21, DEVICE, (0,), 1),
    )
    after = run("colane", job("urgent", MixedRole.URGENT, 11, 21, submit_s=10), parked)
    said = mechanism_sentences(before, after)[-1]
    assert "waited 1 s instead of 20 s (-95 %)" in said
    assert "loading for 10 s waited at a step boundary" in said
    beside = run(
        "colane", job("urgent", MixedRole.URGENT, 11, 21, submit_s=10), job("loading", MixedRole.SHARING, 0, 40)
    )
    assert "it ran beside loading." in mechanism_sentences(before, beside)[-1]


def test_the_table_has_a_row_for_each_job_of_both_runs() -> None:
    table = mixed_table(run("FIFO", *SMALL), run("colane", *TOGETHER))
    assert table.texts()[1] == ["small-2", "shares a device", "10 s", "20 s", "2 s", "14 s", "-30 %"]


def test_the_timeline_has_a_row_for_each_lane_and_for_those_that_wait(tmp_path: Path) -> None:
    parked = job(
        "small-2", MixedRole.SHARING, 2, 14, JobLook(2, DEVICE, (1,), 1), JobLook(5, DEVICE, (1,), 1, is_parked=True)
    )
    cpu = job("cpu-only", MixedRole.WITHOUT_DEVICE, 0, 5, JobLook(0, (), (), 2))
    figure = mixed_timeline([run("FIFO", *SMALL), run("colane", TOGETHER[0], parked, cpu)])
    rows = [[label.get_text() for label in axes.get_yticklabels()] for axes in figure.axes]
    assert rows == [["vm/0 lane 0"], ["vm/0 lane 0", "vm/0 lane 1", "waits for vm/0", "no device"]]
    assert style.save(figure, tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")
