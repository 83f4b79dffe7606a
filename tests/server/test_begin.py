"""Jobs that are not to start before a time."""

from __future__ import annotations

import time

import pytest

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import NodeRegistered, ResumeRequested, Submitted
from colane.model.job import JobId, JobSpec
from colane.model.phases import Hold, HoldKind
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create
from colane.server.submitting.asked_conditions import begin_time_s
from tests.core.worlds import make_node
from tests.server.harness import SLEEP, node, world

ONE = JobId(1)
LATER = Hold(HoldKind.BEGIN, "noon", 100.0)


def make_core(state: ClusterState | None = None) -> Core:
    core = Core(create("fifo"), state or ClusterState(Beliefs()), CoreConfig(runs_at_once=True))
    core.step([NodeRegistered(make_node("n", 1))], 0.0)
    return core


def test_it_starts_when_its_time_has_come_also_after_a_restart() -> None:
    core = make_core()
    outcome = core.step([Submitted(ONE, JobSpec(name="a", family="f"), (LATER,))], 1.0)
    assert (outcome.decisions, outcome.wake_s) == ((), 100.0)
    assert sentence_of(core.why(ONE, 1.0)) == ("BeginTime: not before noon; colane release lets it start at once")
    again = make_core(ClusterState.restore([], core.state.jobs.values(), Beliefs()))
    assert again.step([], 99.0).decisions == ()
    outcome = again.step([], 100.0)
    assert [decision.action.job for decision in outcome.decisions] == [ONE]
    assert Why.BEGIN_REACHED in [line.reason.why for line in outcome.jobs[0].story]


def test_resuming_it_lets_it_start_at_once() -> None:
    core = make_core()
    core.step([Submitted(ONE, JobSpec(name="a", family="f"), (LATER,))], 1.0)
    assert core.step([ResumeRequested(ONE, "ann")], 2.0).decisions
    assert not core.step([], 100.0).jobs


NOON_S = time.mktime((2030, 6, 1, 12, 0, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("text", "at_s"),
    [
        ("tomorrow", NOON_S + 12 * 3600), ("midnight", NOON_S + 12 * 3600), ("teatime", NOON_S + 4 * 3600),
        ("now", NOON_S), ("now+2h", NOON_S + 7200), ("now + 90s", NOON_S + 90), ("16:00", NOON_S + 4 * 3600),
        ("12:00:30", NOON_S + 30), ("11:00", NOON_S + 23 * 3600), ("2030-06-01T13:00", NOON_S + 3600),
        ("2030-06-01T12:00:00+00:00", 1906545600.0),
    ],
)  # fmt: skip
def test_times_are_read_as_people_write_them(text: str, at_s: float) -> None:
    assert begin_time_s(text, NOON_S) == at_s


@pytest.mark.parametrize("text", ["", "soon", "now-2h", "now+", "25:00", "2030-13-01", "1e9", "12:00:00:00"])
def test_what_is_no_time_is_refused_with_what_would_be(text: str) -> None:
    with pytest.raises(ValueError, match=r"now\+2h|time|duration"):
        begin_time_s(text, NOON_S)


async def test_a_job_object_says_what_holds_it_and_a_bad_time_is_refused() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        job = await w.submit(user="ann", begin="now+1h")
        shown = await w.good("GET", f"/job/{job}")
        assert [(hold["kind"], shown["suspended"]) for hold in shown["holds"]] == [("begin", False)]
        assert (await w.good("GET", f"/job/{job}/why"))["why"] == "begins-later"
        status, said = await w.refused("POST", "/job", {**SLEEP, "begin": "soon"})
        assert (status, said[0]["field"]) == (422, "begin")
