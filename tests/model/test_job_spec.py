"""A job's description at another of its sizes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from colane.model.job import JobKind, JobSpec
from colane.model.job_spec import Category, CheckpointContract, CommPattern, CoreHint

OTHERWISE: dict[str, Any] = {
    "sizes": (1, 2, 4), "gpus": 4, "kind": JobKind.INFERENCE, "comm_pattern": CommPattern.RING,
    "labels": {"team": "a"}, "category": Category.NLP, "core_hints": (next(iter(CoreHint)),),
    "checkpoint": CheckpointContract("SIGUSR1", 30.0), "latency_s": 0.5, "time_limit_s": 60.0, "weight": 2.0,
    "utility_min": 0.5,
    "share": False, "preemptible": True, "abortable": True, "multi_node": True, "anti_collocation": True,
    "batch_per_gpu": True,
}  # fmt: skip
NUMBERS = (
    "gpu_memory_bytes", "cores", "host_memory_bytes", "host_bandwidth_bytes_per_s", "priority", "retries", "batch_size",
    "steps_total", "steps_limit", "measurement_group_size", "comm_weight",
)  # fmt: skip


def asked() -> JobSpec:
    """A description of which nothing is as it is by default."""
    given = {each.name: each.name for each in fields(JobSpec) if each.init}
    return JobSpec(**{**given, **dict.fromkeys(NUMBERS, 7), **OTHERWISE})


def test_at_another_size_all_else_is_as_asked() -> None:
    plain, whole, small = JobSpec(name="", family=""), asked(), asked().at(2)
    for each in fields(JobSpec):
        told = getattr(whole, each.name)
        assert told != getattr(plain, each.name), each.name
        if each.name not in {"gpus", "need"}:
            assert getattr(small, each.name) == told
    assert (small.gpus, small.need) == (2, whole.need._replace(gpus=2))


def test_at_its_own_size_it_is_itself() -> None:
    spec = asked()
    assert spec.at(4) is spec


def test_labels_are_each_ones_own() -> None:
    first, other = JobSpec(name="a", family="a"), JobSpec(name="b", family="b")
    assert first.labels == {}
    assert first.labels is not other.labels
