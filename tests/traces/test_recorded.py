"""The real traces, read whole."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from colane.lab.traces import clusters
from colane.lab.traces.check import split
from colane.lab.traces.read import read
from colane.lab.traces.workload import Workload


@pytest.fixture(scope="module")
def philly(data: Path) -> Workload:
    return read(data / "traces" / "philly.csv.gz")


def test_philly_is_read_whole(philly: Workload) -> None:
    workload = philly
    assert (workload.format, workload.guessed) == ("philly-csv", True)
    assert len(workload.jobs) == 82_247
    assert [job.id for job in workload.jobs] == list(range(1, 82_248))
    submits = [job.submit_s for job in workload.jobs]
    assert submits == sorted(submits)
    assert submits[0] == 0
    assert workload.origin_s == 1504521041  # 2017-09-04 10:30:41
    assert Counter(job.spec.gpus for job in workload.jobs)[8] == 1643
    assert len({job.spec.pool for job in workload.jobs}) == 15


def test_a_philly_job_is_what_its_line_says(philly: Workload) -> None:
    workload = philly
    job = next(job for job in workload.jobs if job.line == 2)
    assert (job.spec.name, job.spec.pool, job.spec.gpus, job.duration_s) == ("row-1", "11cb48", 1, 66.0)
    assert job.submit_s + workload.origin_s == 1507532515  # 2017-10-09 07:01:55


def test_philly_preset_holds_all_but_the_unknown_pools_and_the_largest_jobs(philly: Workload) -> None:
    workload = philly
    held, rejected = split(workload, clusters.load("philly"))
    assert len(held) + len(rejected) == len(workload.jobs)
    pools = Counter(job.spec.pool for job, why in rejected if "pool" in why)
    assert pools == {"23dbec": 8, "51b7ef": 4, "925e2b": 3, "795a4c": 3}
    assert all(job.spec.gpus > 8 for job, why in rejected if "pool" not in why)
    assert len(rejected) == 18 + sum(job.spec.gpus > 8 for job in workload.jobs)


def test_gavel_traces(data: Path) -> None:
    many = read(data / "traces" / "gavel-1000.trace.gz")
    assert Counter(job.spec.gpus for job in many.jobs) == {1: 786, 4: 136, 2: 78}
    first = many.jobs[0]
    assert (first.model, first.batch_size, first.steps, first.duration_s) == ("Transformer", 128, 19605, None)
    assert many.jobs[1].batch_size is None  # A3C names none
    assert many.jobs[-1].submit_s == 935861
    single = read(data / "traces" / "gavel-1000s.trace.gz")
    assert len({(job.model, job.batch_size) for job in single.jobs}) == 26


def test_salus_list(data: Path) -> None:
    workload = read(data / "B" / "calibrated_trace_100.csv")
    assert len(workload.jobs) == 100
    first = workload.jobs[0]
    assert (first.spec.name, first.model, first.batch_size, first.steps, first.duration_s) == (
        "0", "overfeat", 50, 1032, 66.017,
    )  # fmt: skip


def test_topology_lists(data: Path) -> None:
    small = read(data / "C" / "workloads-5.json")
    assert [job.submit_s for job in small.jobs][:2] == [0.513093165250245, 15.039122037036615]
    assert [job.spec.gpus for job in small.jobs] == [1, 1, 1, 2, 2, 2]
    assert [job.spec.labels["minimal_utility"] for job in small.jobs] == ["0.3", "0.3", "0.3", "0.5", "0.5", "0.5"]
    assert small.jobs[2].line == 27
    assert len(read(data / "C" / "workloads-10000.json").jobs) == 10_000


def test_alibaba_pods(data: Path) -> None:
    workload = read(data / "traces" / "openb_pod_list_default.csv.gz")
    assert [str(note) for note in workload.notes] == [
        "1052 CPU-only jobs left out (--cpu-jobs keeps them)",
        "897 pods never scheduled, left out",
        "2573 pods with a part of a GPU (gpu_ratio)",
    ]
    assert len(workload.jobs) == 8152 - 1052 - 897
    first = workload.jobs[0]
    assert (first.spec.cores, first.spec.host_memory_bytes, first.duration_s) == (12, 16384 << 20, 12537496)
    everything = read(data / "traces" / "openb_pod_list_default.csv.gz", keep_cpu_only=True)
    assert sum(job.is_cpu_only for job in everything.jobs) == 1052


def test_pollux_workload(data: Path) -> None:
    workload = read(data / "traces" / "pollux-profiles" / "workloads" / "workload-1.csv")
    assert len(workload.jobs) == 160
    assert (workload.jobs[0].spec.gpus, workload.jobs[0].spec.labels["batch_size_total"]) == (6, "2048")
