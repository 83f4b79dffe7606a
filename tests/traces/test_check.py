"""What is found before a run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from colane.cli import app
from colane.lab.traces.check import Level, check_trace, offered_load, split, why_not
from colane.lab.traces.clusters import Cluster, load
from colane.lab.traces.read import read
from colane.lab.traces.workload import TraceJob, Workload, only_outcomes
from colane.model.inventory import Inventory
from colane.model.job import JobId, JobSpec


def job(number: int, submit_s: float = 0, duration_s: float | None = 10, **needs: object) -> TraceJob:
    spec = JobSpec(**({"name": f"j{number}", "family": "f"} | needs))  # type: ignore[arg-type]
    return TraceJob(id=JobId(number), submit_s=submit_s, spec=spec, duration_s=duration_s)


def workload(*jobs: TraceJob) -> Workload:
    return Workload(name="w", jobs=jobs)


def codes(work: Workload, cluster: Cluster | None = None) -> dict[str, int]:
    return {finding.code: finding.count for finding in check_trace(work, cluster)}


def test_an_empty_workload() -> None:
    (finding,) = check_trace(workload())
    assert (finding.level, finding.code) == (Level.ERROR, "empty")


def test_bad_times_are_found_and_errors_come_first() -> None:
    work = workload(
        job(1, -1), job(2, math.nan), job(3, 1, -5), job(4, 2, math.nan), job(5, 3, None), job(6, 4, 0),
        job(7, 5, None, steps_total=3), job(8, 6, gpus=0), job(9, 7, name="j8"),
    )  # fmt: skip
    assert codes(work) == {
        "bad-submit": 2, "bad-duration": 2, "no-length": 1, "no-time": 1, "duplicate-name": 1, "steps-only": 1,
        "cpu-only": 1, "span": 0, "gpus": 0, "durations": 0, "steps": 0, "kinds": 0,
    }  # fmt: skip
    levels = [finding.level for finding in check_trace(work)]
    assert levels == sorted(levels, key=list(Level).index)


def test_findings_name_a_few_jobs() -> None:
    finding, *_ = check_trace(workload(*(job(n, n, 0) for n in range(1, 6))))
    assert finding.message == "5 jobs run for 0 s (j1, j2, j3 and 2 more)"


def test_bad_rows_of_a_file_are_findings(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("submit_s,duration_s\n0,1\nx,1\n1,nan\n")
    findings = check_trace(read(path, skip_bad_rows=True))
    assert (findings[0].level, findings[0].code, findings[0].count) == (Level.ERROR, "bad-rows", 2)
    assert "t.csv:3: column 'submit_s': expected a number" in findings[0].message
    assert "t.csv:4: column 'duration_s'" in findings[0].message


def messages(work: Workload) -> dict[str, str]:
    return {finding.code: finding.message for finding in check_trace(work)}


def test_what_a_trace_holds_is_said_in_numbers() -> None:
    done = [replace(job(n, n, 60.0 * n, gpus=n % 2 + 1, steps_total=n), outcome="COMPLETED") for n in (1, 2, 3)]
    work = replace(workload(*done, replace(job(4, 4, 86_400 * 30, gpus=4), outcome="FAILED")), times="milliseconds")
    said = messages(work)
    assert said["times"] == "times are read as milliseconds"
    assert said["gpus"] == "GPUs asked for (by so many jobs): 1 (1), 2 (2), 4 (1)"
    assert said["durations"] == "4 jobs run for 60 s to 30 days, half of them 2.5 min or less; 2.88e+03 GPU-hours"
    assert said["steps"] == "3 jobs of 1 to 3 steps, half of them 2 or less"
    assert said["outcomes"] == "ended as COMPLETED 75 % (3), FAILED 25 % (1)"
    assert said["kinds"] == "1 pool, 1 user, 1 pair of model and batch"
    assert "odd-unit" not in said


def test_jobs_that_ended_so_are_taken_alone_and_the_others_are_counted() -> None:
    ends = {1: "Pass", 2: "Killed", 3: "Pass", 4: "", 5: "Failed"}
    work = workload(*(replace(job(n, n, 60.0), outcome=end) for n, end in ends.items()))
    kept = only_outcomes(work, ["Pass", "Failed"])
    assert [job.id for job in kept.jobs] == [1, 3, 5]
    assert [(note.many, note.what) for note in kept.notes] == [
        (1, "that ended as not recorded left out, as asked"), (1, "that ended as Killed left out, as asked"),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="ended as 'pass'; jobs ended as Failed, Killed, Pass"):
        only_outcomes(work, ["pass"])
    with pytest.raises(ValueError, match="records none"):
        only_outcomes(workload(job(1, 1, 60.0)), ["Pass"])


def test_outcomes_are_chosen_by_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, done = tmp_path / "log.csv", tmp_path / "done.csv"
    row = "{},u,vc,{},1,8,1,2020-04-01 10:00:00,2020-04-01 10:00:00,2020-04-01 10:01:00,60,0"
    head = "job_id,user,vc,state,gpu_num,cpu_num,node_num,submit_time,start_time,end_time,duration,queue"
    trace.write_text("\n".join([head, *(row.format(n, end) for n, end in enumerate(["COMPLETED", "FAILED"]))]) + "\n")
    assert app.run(["trace", "check", str(trace), "--outcome", "COMPLETED"]) == 0
    assert app.run(["trace", "convert", str(trace), str(done), "--outcome", "FAILED"]) == 0
    assert len(read(done).jobs) == 1
    capsys.readouterr()
    assert app.run(["trace", "check", str(trace), "--outcome", "OK"]) == 2
    assert "--outcome: no job of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("factor", "said"), [(1e5, "347 days or longer: their duration may be in a smaller"), (1e-3, "0.3 s or less")]
)
def test_a_duration_of_another_unit_is_seen(factor: float, said: str) -> None:
    work = workload(*(job(n, n, 300 * factor) for n in range(3)))
    assert said in messages(work)["odd-unit"]
    assert check_trace(work)[0].level is Level.WARNING


def test_submissions_of_another_unit_are_seen() -> None:
    seconds, read_as_seconds = (workload(*(job(n, n * gap, 300) for n in range(1, 13))) for gap in (60, 60_000))
    assert "odd-unit" not in messages(seconds)
    assert messages(read_as_seconds)["odd-unit"] == (
        "12 jobs keep 0.0055 GPUs busy over 7.6 days, and the largest asks for 1: "
        "the times of submission may be in a smaller unit, or durations in a larger unit"
    )


@pytest.mark.parametrize(
    ("needs", "reason"),
    [
        ({"gpus": 8}, None),
        ({"gpus": 9}, "needs 9 GPUs on one node, the largest has 8"),
        ({"gpu_type": "H100"}, "needs GPU type H100, there are GTX-1080Ti"),
        ({"gpu_memory_bytes": 12 * 10**9}, "needs 12000000000 bytes of GPU memory, the largest GPU has 11000000000"),
        ({"cores": 29}, "needs 29 cores on one node, the largest has 28"),
        ({"host_memory_bytes": 10**12}, "needs 1000000000000 bytes of host memory"),
        ({"pool": "other"}, "no node is in pool 'other'; with any pool taken (--any-pool) it may run"),
        ({"gpus": 0, "cores": 28}, None),
    ],
)
def test_why_a_job_can_never_run(needs: dict[str, object], reason: str | None) -> None:
    why = why_not(job(1, **needs).spec, Inventory(load("paper-d").nodes))  # type: ignore[arg-type]
    assert why is None if reason is None else why is not None and why.startswith(reason)


def test_no_node_has_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("groups: [{gpus: 1, gpu_type: A, gpu_memory: 1GB}, {name: b, gpus: 0, cores: 9}]")
    inventory = Inventory(load(path).nodes)
    assert why_not(job(1, cores=9).spec, inventory) == "no single node has all of the GPUs, cores and memory it needs"


def test_jobs_that_never_fit_are_split_off_with_reasons() -> None:
    work = workload(job(1), job(2, 1, gpus=9), job(3, 2, gpus=9), job(4, 3, pool="p"))
    held, rejected = split(work, load("paper-d"))
    assert [one.id for one in held] == [1]
    assert [one.id for one, _ in rejected] == [2, 3, 4]
    findings = [finding for finding in check_trace(work, load("paper-d")) if finding.code == "never-fits"]
    assert [finding.count for finding in findings] == [2, 1]
    assert findings[0].message == (
        "2 jobs can never run on paper-d: needs 9 GPUs on one node, the largest has 8 (j2, j3)"
    )


def test_jobs_that_name_several_gpu_types_are_counted_where_there_are_others(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    groups = (f"{{name: {name}, gpus: 1, gpu_type: {name}, gpu_memory: 1GB}}" for name in "AB")
    path.write_text(f"groups: [{', '.join(groups)}]")
    named = {1: "A|B", 2: "A|C", 3: "B|C", 4: "C|D"}
    work = workload(job(5), *(job(number, number, labels={"gpu_spec": types}) for number, types in named.items()))
    (finding,) = (one for one in check_trace(work, load(path)) if one.code == "other-gpu-types")
    said = "name several GPU types and may be put on others that c has, as one type alone can be required"
    assert (finding.level, finding.message) == (Level.WARNING, f"3 jobs {said} (j2, j3, j4)")
    assert "other-gpu-types" not in codes(workload(job(1, labels={"gpu_spec": "A|B"})), load(path))
    assert "other-gpu-types" not in codes(work)


def test_offered_load_is_asked_over_available() -> None:
    jobs = (job(1, 0, 100, gpus=2), job(2, 50, 100, gpus=1))
    assert offered_load(jobs, 4, 50) == pytest.approx(300 / 200)
    assert offered_load(jobs, 4, 0) is None
    assert offered_load(jobs, 0, 50) is None


def test_half_a_gpu_counts_half() -> None:
    half = TraceJob(id=JobId(1), submit_s=0, spec=JobSpec(name="h", family="f"), duration_s=10, gpu_ratio=0.5)
    assert offered_load([half], 1, 10) == pytest.approx(0.5)


@pytest.mark.parametrize(("length_s", "level"), [(1, Level.INFO), (1000, Level.WARNING)])
def test_a_load_above_one_is_a_warning(length_s: float, level: Level) -> None:
    work = workload(job(1, 0, length_s), job(2, 10, length_s))
    found = {finding.code: finding for finding in check_trace(work, load("paper-b"))}
    assert found["offered-load"].level is level


def test_each_pool_has_its_load() -> None:
    make: Callable[[int, str], TraceJob] = lambda number, pool: job(number, number, 5, pool=pool)  # noqa: E731
    findings = check_trace(workload(make(1, "6214e9"), make(2, "7f04ca")), load("philly"))
    assert sum(finding.code == "offered-load" for finding in findings) == 12


def test_one_job_is_spoken_of_as_one() -> None:
    said = {finding.code: finding.message for finding in check_trace(workload(job(1, 0, None), job(2, 1, 600, gpus=0)))}
    assert said["no-length"] == "1 job has neither duration nor steps, so it cannot be said when it ends (j1)"
    assert said["cpu-only"] == "1 job asks for no GPU (j2)"
    assert said["durations"] == "1 job runs for 10 min; 0 GPU-hours"
