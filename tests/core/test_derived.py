"""An index is known by its question: one class may stand twice, with other parameters."""

from __future__ import annotations

from colane.core import ClusterState
from colane.core.cluster.state import DERIVED_MAX
from colane.model.job import Job, JobId, JobSpec
from colane.perf.beliefs import Beliefs

from .worlds import make_node


class Older:
    """Live jobs with at least this id, and how many nodes there are."""

    def __init__(self, least: int = 0) -> None:
        self.least = least
        self.jobs: set[JobId] = set()
        self.nodes: set[int] = set()

    def touched(self, node: int) -> None:
        self.nodes.add(node)

    def removed(self, node: int) -> None:
        self.nodes.discard(node)

    def moved(self, old: Job | None, new: Job | None) -> None:
        if old is not None:
            self.jobs.discard(old.id)
        if new is not None and new.id >= self.least:
            self.jobs.add(new.id)


def make_state() -> ClusterState:
    state = ClusterState(Beliefs())
    state.put_node(make_node("n0", 1))
    for number in range(1, 6):
        state.put_job(Job(JobId(number), JobSpec(name="a", family="a"), 0.0))
    return state


def test_one_class_stands_twice_with_other_parameters_and_each_is_told_of_changes() -> None:
    state = make_state()
    every, late = state.derived(Older), state.derived(Older, 4)
    assert state.derived(Older) is every
    assert state.derived(Older, 4) is late
    state.put_job(Job(JobId(6), JobSpec(name="a", family="a"), 0.0))
    state.put_node(make_node("n1", 1))
    assert (len(every.jobs), late.jobs, len(late.nodes)) == (6, {4, 5, 6}, 2)


def test_questions_not_asked_any_more_are_dropped_and_answered_anew_when_asked_again() -> None:
    state = make_state()
    first = state.derived(Older, 1)
    for least in range(2, DERIVED_MAX + 2):
        state.derived(Older, least)
    state.put_job(Job(JobId(6), JobSpec(name="a", family="a"), 0.0))
    again = state.derived(Older, 1)
    assert again is not first
    assert (len(first.jobs), len(again.jobs)) == (5, 6)
