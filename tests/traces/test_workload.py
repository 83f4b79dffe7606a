"""Cutting, compressing and pooling workloads."""

from __future__ import annotations

import pytest

from colane.lab.traces.check import check_trace, offered_load
from colane.lab.traces.clusters import load
from colane.lab.traces.generate import heavy_load
from colane.lab.traces.read import sample
from colane.lab.traces.workload import compress, merge_pools, only_pools


def test_the_sample_is_clean_and_keeps_one_machine_busy() -> None:
    workload = sample()
    assert len(workload.jobs) == 60
    findings = check_trace(workload, load("dgx1"))
    assert {finding.code for finding in findings} == {
        "span",
        "offered-load",
        "times",
        "gpus",
        "durations",
        "steps",
        "kinds",
    }
    load_there = offered_load(workload.jobs, 8, workload.span_s)
    assert load_there is not None
    assert 0.8 < load_there < 1


def test_compressing_time_multiplies_the_load() -> None:
    workload = sample()
    twice = compress(workload, 2)
    assert twice.span_s == pytest.approx(workload.span_s / 2)
    with pytest.raises(ValueError, match="time scale must be above 0"):
        compress(workload, 0)


def test_pools_can_be_chosen_or_merged() -> None:
    workload = heavy_load(jobs=5, gpus=8, seed=0)
    assert not only_pools(workload, {"other"}).jobs
    assert (
        str(only_pools(workload, {"other"}).notes[-1])
        == "5 jobs of pool default left out: the cluster has no such pool"
    )
    assert {job.spec.pool for job in merge_pools(workload, "p").jobs} == {"p"}
