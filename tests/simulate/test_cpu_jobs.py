"""Jobs without GPUs in virtual time: they run for their duration beside training, and no GPU is theirs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.cli import app
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.factors import FactorsWorld
from colane.lab.simulate.run import admit
from colane.lab.simulate.world import NeutralWorld
from colane.lab.traces import clusters
from colane.lab.traces.check import check_trace
from colane.lab.traces.read import read
from colane.model.job import JobState
from colane.scheduling import registry
from tests.examples import examples
from tests.simulate.scenes import cluster, job, random_jobs, run, workload


def test_they_run_for_their_duration_and_wait_for_cores() -> None:
    jobs = [job(1, 0, 10), job(2, 0, 20, gpus=0, cores=6), job(3, 1, 5, gpus=0, cores=4), job(4, 2, 3, gpus=0)]
    result = run(jobs, cluster(1), registry.create("fifo"), NeutralWorld())
    rows = result.ledger.rows
    ends = dict(zip(rows.id, rows.end_s, strict=True))
    assert ends == {1: 10, 2: 20, 3: 25, 4: 5}
    assert dict(zip(rows.id, rows.gpu_s, strict=True)) == {1: 10, 2: 0, 3: 0, 4: 0}
    assert [stay.job for stay in result.ledger.stays] == [1]
    assert max(result.ledger.curve.stranded_gpus) == 0  # no GPU is idle because of them
    assert max(result.ledger.curve.waiting) == 1


@pytest.mark.parametrize("policy", sorted(registry.POLICIES))
@examples(15)
@given(seed=st.integers(0, 10_000))
def test_every_policy_ends_them_all(policy: str, seed: int) -> None:
    trained = random_jobs(seed, most_gpus=2, with_steps=True)
    beside = [job(100 + n, one.submit_s, one.duration_s, gpus=0, cores=1 + n % 5) for n, one in enumerate(trained)]
    jobs = sorted([*trained, *beside], key=lambda one: (one.submit_s, one.id))
    result = run(jobs, cluster(2, 3), registry.create(policy), FactorsWorld(), DriverConfig(launch_s=2.0, stop_s=1.0))
    kept, _ = admit(workload(*jobs), cluster(2, 3), FactorsWorld())
    assert result.ledger.rows.count(JobState.SUCCEEDED) == len(kept) == len(jobs)
    assert result.ledger.flaws == []


def test_pods_without_gpus_are_kept_when_asked_for(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = str(data / "traces" / "openb_pod_list_default.csv.gz")
    everything = read(trace, keep_cpu_only=True)
    kept, _ = admit(everything, clusters.load("dgx-a100"), NeutralWorld())
    assert sum(one.is_cpu_only for one in kept) > 1000
    assert [one.count for one in check_trace(everything) if one.code == "cpu-only"] == [1052]
    with gzip.open(trace, "rt") as pods:
        some = "".join([next(pods) for _ in range(2001)])
    part = tmp_path / "openb_pod_list_part.csv"
    part.write_text(some)
    words = ["simulate", "-c", "dgx-a100", "-t", str(part), "-p", "fifo", "--time-scale", "0.01", "--json"]
    words += ["--world", "neutral"]
    finished = []
    for more in ([], ["--cpu-jobs"]):
        assert app.run([*words, *more]) == 0
        finished.append(json.loads(capsys.readouterr().out)["runs"][0]["finished"])
    assert finished[1] > finished[0] + 200
