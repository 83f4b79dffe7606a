"""Dominant resource fairness: the user with the smallest dominant share goes next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colane.core import ClusterState, Core
from colane.core.events import Ended, NodeRegistered, Submitted
from colane.model.hardware import Node
from colane.model.job import Exit, JobId, JobSpec
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import preset
from tests.core.worlds import GIB, make_node


def spec(user: str, **needs: object) -> JobSpec:
    return JobSpec(name="j", family="f", user=user, **needs)  # type: ignore[arg-type]


def fill(node: Node, *specs: JobSpec) -> Core:
    """All jobs are there when the node comes."""
    core = Core(preset("drf"), ClusterState(Beliefs()))
    core.step([Submitted(JobId(k), each) for k, each in enumerate(specs, 1)], 0.0)
    core.step([NodeRegistered(node)], 1.0)
    return core


def running(core: Core) -> dict[str, int]:
    users = [job.spec.user for job in core.state.jobs.values() if job.placement is not None]
    return {user: users.count(user) for user in sorted(set(users))}


def test_the_example_of_the_paper() -> None:
    """Ghodsi et al., section 4.1: 9 CPUs and 18 GB; tasks of (1, 4 GB) and (3, 1 GB): three of A and two of B run.

    Every job holds a GPU as well here, of which there are plenty.
    """
    node = replace(make_node("n0", 18, cores=9), host_memory_bytes=18 * GIB)
    a = spec("a", cores=1, host_memory_bytes=4 * GIB)
    b = spec("b", cores=3, host_memory_bytes=1 * GIB)
    core = fill(node, *[a] * 10, *[b] * 10)
    assert running(core) == {"a": 3, "b": 2}


def test_gpus_are_shared_equally_whoever_came_first() -> None:
    assert running(fill(make_node("n0", 4), *[spec("a")] * 10, *[spec("b")] * 10)) == {"a": 2, "b": 2}


def test_a_user_who_wants_less_gets_it_and_the_others_share_the_rest() -> None:
    specs = [*[spec("a")] * 9, *[spec("b")] * 9, spec("c")]
    assert running(fill(make_node("n0", 7), *specs)) == {"a": 3, "b": 3, "c": 1}


def test_the_next_gpu_goes_to_the_user_with_least() -> None:
    core = fill(make_node("n0", 4), *[spec("a")] * 10)
    core.step([Submitted(JobId(11), spec("b")), Submitted(JobId(12), spec("b"))], 2.0)
    for done, expected in ((1, {"a": 3, "b": 1}), (2, {"a": 2, "b": 2}), (3, {"a": 2, "b": 2})):
        core.step([Ended(JobId(done), 1, "exited", Exit(0, None), 1.0, 2.0 + done)], 2.0 + done)
        assert running(core) == expected


def test_users_are_told_their_share() -> None:
    core = fill(make_node("n0", 4, cores=8), spec("a", cores=6), spec("a"))
    reason = core.why(JobId(2), 2.0)
    assert reason.why is Why.LEAST_SHARE
    assert sentence_of(reason) == "n0/1 is free, and a has the smallest dominant share (0.750 of cores)"


def test_a_class_that_does_not_fit_is_passed_and_within_a_user_priority_goes_first() -> None:
    core = fill(make_node("n0", 2), spec("a", gpus=3), spec("a"), spec("a", priority=1), spec("a"))
    assert [job.id for job in core.state.jobs.values() if job.placement] == [2, 3]
    assert core.why(JobId(1), 2.0).why is Why.NO_FREE_GPU


@pytest.mark.parametrize("gpus", [1, 2, 5])
def test_no_user_is_a_whole_job_behind_another(gpus: int) -> None:
    core = fill(make_node("n0", gpus), *[spec(user) for user in ("a", "b", "c") for _ in range(6)])
    counts = {"a": 0, "b": 0, "c": 0, **running(core)}
    assert sum(counts.values()) == gpus
    assert max(counts.values()) - min(counts.values()) <= 1
