"""What `why` says of jobs that run: co-runners, share, and which job goes before which and why."""

from __future__ import annotations

from typing import Any

import pytest

from colane.facts.job import stalled
from colane.model.job import Job, JobId, JobSpec, JobState, StateChange
from colane.model.progress import Progress, stall
from colane.model.reason import Reason, Why
from tests.server.harness import World, finished, launched, node, report, world
from tests.server.test_time import Machine

SMALL = {"gpu_memory": "300MB"}


async def run(w: World, *samples: dict[str, Any]) -> None:
    """Let jobs 1, 2, ... run with these samples."""
    told = [launched(number, progress={"at_s": 2.0, "first_step_s": 1.0, **s}) for number, s in enumerate(samples, 1)]
    await w.good("POST", "/node/n1/report", report(*told))


async def now(w: World, job: int) -> list[str]:
    found = (await w.good("GET", f"/job/{job}/why"))["now"]
    assert isinstance(found, list)
    return found


async def test_a_job_alone_says_so_and_a_waiting_one_nothing() -> None:
    async with world(policy="fifo") as w:
        await w.good("POST", "/node", node())
        await w.submit()
        await w.submit()
        assert await now(w, 1) == []
        await run(w, {"steps": 5})
        assert await now(w, 1) == ["on n1/0, with no other job on it"]
        assert await now(w, 2) == []
        await run(w, {"steps": 9, "others_ratio": 0.6})
        assert (await now(w, 1))[1:] == [
            "work that is not Colane's has used 60 % of its devices while it ran, which slows it"
        ]


async def test_shares_under_fair_turns() -> None:
    async with world(policy="fair") as w:
        await w.good("POST", "/node", node())
        for weight in (3, 1):
            await w.submit(**SMALL, weight=weight)
        await run(w, {"steps": 5, "turn": "running", "turn_share_ratio": 0.8}, {"steps": 5})
        had = "since its co-runners changed it has had the lane for 80 % of the time it wanted it"
        assert await now(w, 1) == [
            "on n1/0: takes turns with job 2 in lane 0",
            f"{had}; its share is 75 % while all want to run",
            "turns go to the job that has had least for its weight (fair): no job goes before it for long",
        ]


SHORT = {"steps": 100, "steps_total": 300, "step_mean_s": 0.1}
LONG = {"steps": 100, "steps_total": 1500, "step_mean_s": 0.1}
SILENT = {"steps": 100, "step_mean_s": 0.1}


@pytest.mark.parametrize(
    ("second", "expected_of_first", "expected_of_second"),
    [
        (SHORT, "job 2 (about 20 s left) before it (about 140 s left)", "it goes first (about 20 s left)"),
        (SILENT, "it goes first (about 140 s left)", "job 1 (about 140 s left) before it (time left unknown)"),
    ],
)
async def test_which_job_goes_before_which_by_time_left(
    second: dict[str, Any], expected_of_first: str, expected_of_second: str
) -> None:
    async with world(policy="salus-srtf") as w:
        await w.good("POST", "/node", node())
        for _ in range(2):
            await w.submit(**SMALL)
        await run(w, LONG, second)
        said = [(await now(w, job))[-1] for job in (1, 2)]
        assert all(each.startswith("turns go to the job with the least time left (srtf): ") for each in said)
        minutes = expected_of_first.replace("140 s", "2 min"), expected_of_second.replace("140 s", "2 min")
        assert minutes[0] in said[0]
        assert minutes[1] in said[1]
        unknown = "Nothing says how many steps job 2 will make (submit --steps-total says it), so it goes last"
        assert all((unknown in each) is (second is SILENT) for each in said)


async def test_steps_that_a_script_announces_reach_the_agent_for_the_turns() -> None:
    async with world(policy="salus-srtf") as w:
        await w.good("POST", "/node", node())
        await w.submit(**SMALL, steps_total=3000)
        await w.submit(**SMALL)
        await w.submit(**SMALL)
        await run(w, LONG, LONG, SILENT)
        told = (await w.good("GET", "/node/n1"))["jobs"]
        assert [job["steps_total"] for job in told] == [3000, 1500, None]


STEPS: dict[str, Any] = {"steps": 50, "step_mean_s": 0.07, "step_median_s": 0.06}


@pytest.mark.parametrize(
    ("sample", "no_step_s"),
    [
        ({"last_step_s": 100.0, "at_s": 142.0}, 42.0),
        ({"last_step_s": 100.0, "at_s": 105.0}, 5.0),
        ({"last_step_s": 100.0, "at_s": 104.9}, None),
        ({"last_step_s": 100.0, "at_s": 142.0, "step_median_s": None}, 42.0),
        ({"last_step_s": 100.0, "at_s": 142.0, "step_median_s": None, "step_mean_s": None}, None),
        ({"last_step_s": 100.0, "at_s": 142.0, "step_median_s": 4.3}, None),
        ({"last_step_s": 100.0, "at_s": 142.0, "step_median_s": 4.2}, 42.0),
        ({"last_step_s": None, "at_s": 142.0}, None),
        ({"last_step_s": 100.0, "at_s": 142.0, "turn": "running"}, None),
        ({"last_step_s": 100.0, "at_s": 160.0, "turn": "running"}, 60.0),
        ({"last_step_s": 100.0, "at_s": 160.0, "turn": "ungated"}, 60.0),
        ({"last_step_s": 100.0, "at_s": 900.0, "turn": "waiting"}, None),
        ({"last_step_s": 100.0, "at_s": 900.0, "turn": "paused"}, None),
        ({"last_step_s": 100.0, "at_s": 900.0, "turn": "kept"}, None),
    ],
)
def test_a_job_without_a_step_for_ten_times_its_step_time_has_stalled(
    sample: dict[str, Any], no_step_s: float | None
) -> None:
    found = stall(Progress(**{**STEPS, **sample}), since_s=50.0)
    assert (None if found is None else found.no_step_s) == no_step_s


def test_what_was_before_it_ran_again_does_not_count() -> None:
    sample = Progress(**STEPS, last_step_s=100.0, at_s=900.0)
    assert stall(sample, since_s=896.0) is None
    assert stall(sample, since_s=890.0) == (10.0, 0.06)
    assert stall(None, since_s=0.0) is None


@pytest.mark.parametrize(
    ("fields", "is_told"), [({}, True), ({"kind": "inference"}, False), ({"gpus": 0, "cores": 1}, True)]
)
async def test_a_stalled_job_is_told_of_until_it_steps_again(fields: dict[str, Any], is_told: bool) -> None:
    machine = Machine()
    async with world(policy="fifo", clocks=machine.clocks(), node_timeout_s=1e6) as w:
        await w.good("POST", "/node", node())
        await w.submit(**fields)
        began_s = w.service.driver.now()

        async def step_at(last_step_s: float) -> tuple[Any, str]:
            """What is said of its stalling once its agent has told of this last step."""
            now_s = w.service.driver.now()
            sample = {**STEPS, "first_step_s": began_s, "last_step_s": last_step_s, "at_s": now_s}
            await w.good("POST", "/node/n1/report", report(launched(1, progress=sample), at_s=now_s))
            shown = await w.good("GET", "/job/1")
            return shown["stalled"], (await now(w, 1))[0]

        assert (await step_at(began_s))[0] is None
        machine.steady.skip(42.0)
        told, said = await step_at(began_s)
        assert (told is not None, said.startswith("no step for 42 s (usually 0.06 s)")) == (is_told, is_told)
        assert (await step_at(w.service.driver.now()))[0] is None
        machine.steady.skip(42.0)
        await step_at(began_s)
        await w.good("POST", "/finished_job", finished(1))
        assert (await w.good("GET", "/job/1"))["stalled"] is None


@pytest.mark.parametrize(
    ("states", "no_step_s"),
    [
        ((JobState.LAUNCHING, JobState.RUNNING_PROTECTED, JobState.RUNNING), 31.0),
        ((JobState.RUNNING_PROTECTED, JobState.RUNNING, JobState.RUNNING), 31.0),
        ((JobState.RUNNING_PROTECTED, JobState.PAUSED, JobState.RUNNING), None),
        ((JobState.RUNNING, JobState.RUNNING, JobState.PAUSED), None),
    ],
)
def test_the_end_of_its_protection_is_no_step(states: tuple[JobState, ...], no_step_s: float | None) -> None:
    story = tuple(
        StateChange(at_s, state, Reason(Why.EXITED)) for at_s, state in zip((100.0, 110.0, 140.0), states, strict=True)
    )
    job = Job(JobId(1), JobSpec(name="train", family="train"), 90.0, states[-1], 1, since_s=140.0, story=story)
    found = stalled(job, Progress(**STEPS, last_step_s=111.0, at_s=142.0))
    assert (None if found is None else found.no_step_s) == no_step_s


async def test_an_elastic_job_tells_its_speed_at_its_other_sizes() -> None:
    known = {"family": "vit", "gpu_type": "cpu"}
    async with world(policy="fifo") as w:
        await w.good("POST", "/node", node(gpus=2))
        await w.submit(family="vit", gpus="1,2,4", name="elastic")
        await w.submit(family="vit", gpus=1)
        before = await w.good("GET", "/job/1/why")
        assert [(one["gpus"], one["speedup"]) for one in before["sizes"]] == [(1, None), (2, None), (4, None)]
        assert "times as fast" not in "".join(before["now"])  # nothing is known, so nothing is said
        for gpus, step_s in ((1, 0.2), (2, 0.125)):
            await w.good("PUT", "/profiles", {"key": {**known, "gpus": gpus}, "step_s": step_s})
        await run(w, {"steps": 5})
        told = await w.good("GET", "/job/1/why")
        speeds = {one["gpus"]: (one["steps_per_s"], one["speedup"], one["source"]) for one in told["sizes"]}
        held = len((await w.good("GET", "/job/1"))["gpus"])
        assert held == 2
        assert speeds[1] == (pytest.approx(5), pytest.approx(0.125 / 0.2), "declared")
        assert speeds[2][:2] == (pytest.approx(8), 1)
        assert speeds[4][1] > 1
        assert told["now"][-1].startswith("alone it would be 0.62 times as fast with 1 GPU, ")
        assert (await w.good("GET", "/job/2/why"))["sizes"] == []
