"""When a job that waits would start: by the steps and limits of those that run, or it is not said."""

from __future__ import annotations

from typing import Any

import pytest

from colane.facts.job import NOT_KNOWN
from colane.model.choices import See
from colane.model.words import about
from tests.server.harness import World, launched, node, report, world
from tests.server.test_plan import everything, plan_of
from tests.server.test_users import guest

STEPS = {"at_s": 1.0, "steps": 40, "steps_total": 100, "first_step_s": 0.5, "last_step_s": 1.0, "step_mean_s": 2.0}


async def one_runs_and_one_waits(w: World, **waiting: Any) -> None:
    """Of the one that runs 60 steps of 2 s are left; the other may take an hour."""
    await w.good("POST", "/node", node())
    await w.submit(name="one", family="one")
    await w.good("POST", "/node/n1/report", report(launched(1, progress=STEPS)))
    await w.submit(time_limit="1h", **waiting)


@pytest.mark.parametrize("policy", ["fifo", "srtf"])
async def test_a_job_starts_once_those_before_it_are_through(policy: str) -> None:
    async with world(policy=policy) as w:
        await one_runs_and_one_waits(w)
        before = everything(w)
        for asked in ({}, {"after": "any:1"}, {"array": "0-9%2"}):
            plan = await plan_of(w, asked)
            assert 60 * 2 + 3600 - 2 < plan["starts_in_s"] <= 60 * 2 + 3600
            assert plan["jobs"][0]["sentence"].endswith("; it would start in about 62 min, as far as is known")
        assert everything(w) == before


async def test_one_that_begins_later_starts_then() -> None:
    async with world() as w:
        await one_runs_and_one_waits(w)
        assert (await plan_of(w, {"begin": "now+3h"}))["starts_in_s"] == pytest.approx(3 * 3600, abs=1)


async def test_jobs_end_as_others_of_their_kind_have() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        await w.good("PUT", "/profiles", {"key": {"family": "known", "gpu_type": "cpu"}, "step_s": 0.5})
        await w.submit(family="known", command=["train"])
        assert (await plan_of(w, {}))["starts_in_s"] is None
        for _ in range(200):
            w.service.driver.core.state.knowledge.note_length("known", 500.0)
        assert (await plan_of(w, {}))["starts_in_s"] == pytest.approx(500, rel=0.1)


@pytest.mark.parametrize(
    ("asked", "starts_in_s"),
    [
        ({"after": "start:2"}, 3720.0),
        ({"after": "ok:2", "time_limit": "1m"}, 3720.0),
        ({"after": "fail:2"}, None),
        ({"after": "ok:2", "hold": True}, None),
    ],
)
async def test_one_that_waits_for_another_starts_once_that_is_known_to(
    asked: dict[str, Any], starts_in_s: float | None
) -> None:
    async with world() as w:
        await one_runs_and_one_waits(w)
        found = (await plan_of(w, asked))["starts_in_s"]
        assert found == (None if starts_in_s is None else pytest.approx(starts_in_s, abs=1))


async def test_one_that_has_room_and_waits_is_told_no_time() -> None:
    """It waits for one of the types, which the order does not tell."""
    async with world() as w:
        await w.good("POST", "/node", node(gpus=2) | {"gpus": [
            {"index": 0, "uuid": "a", "type": "A100", "memory_bytes": 40 * 10**9},
            {"index": 1, "uuid": "v", "type": "V100", "memory_bytes": 16 * 10**9},
        ]})  # fmt: skip
        await w.submit(gpu_type="A100", time_limit="1h")
        plan = await plan_of(w, {"gpu_type": "A100"})
        assert (plan["jobs"][0]["state"], plan["starts_in_s"]) == ("waits", None)


@pytest.mark.parametrize("asked", [{"hold": True}, {}])
async def test_what_is_not_known_is_not_said(asked: dict[str, Any]) -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        await w.submit()
        plan = await plan_of(w, asked)
        assert plan["starts_in_s"] is None
        assert "in about" not in plan["jobs"][0]["sentence"]


async def test_what_starts_at_once_starts_in_no_time() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        assert (await plan_of(w, {"gpus": 1}, {"gpus": 1}))["starts_in_s"] == 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (40.4, "40 s"), (130, "2 min"), (3720, "62 min"), (3 * 3600, "3 h"), (5 * 86400, "5 days")],
)
def test_times_are_as_rough_as_they_are_known(seconds: float, text: str) -> None:
    assert about(seconds) == text


async def test_with_which_smaller_need_it_would_start_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colane.server.planning.plans.SOONER_S", 60.0)
    async with world() as w:
        await w.good("POST", "/node", node(gpus=4))
        for limit in ("1h", "10m", "10m", "2h"):
            await w.submit(time_limit=limit)
        before = everything(w)
        (job,) = (await plan_of(w, {"gpus": 4}))["jobs"]
        (change,) = job["changes"]
        assert (change["option"], change["starts"]) == ("--gpus 2", None)
        assert change["starts_in_s"] == pytest.approx(600, abs=5)
        assert job["sentence"].endswith(
            "; it would start in about 2 h, as far as is known; with --gpus 2 in about 10 min"
        )
        (job,) = (await plan_of(w, {"gpus": 2}))["jobs"]
        assert job["changes"] == [], "with one it would start no sooner"
        assert everything(w) == before


class TestOfALiveJob:
    async def test_it_is_told_when_it_would_start(self) -> None:
        async with world() as w:
            await one_runs_and_one_waits(w)
            third = await w.submit()
            array = await w.submit(array="0-99%1")
            before = everything(w)
            for job, wanted in ((2, 120.0), (third, 3720.0), (1, 0.0)):
                found = (await w.good("GET", f"/job/{job}/start"))["starts_in_s"]
                assert wanted - 2 < found <= wanted
            for job in (array, array + 1, array + 50):  # behind the third, of which nothing is known
                told = await w.good("GET", f"/job/{job}/start")
                said = f"when it starts is {NOT_KNOWN}" if job != array + 50 else "it is not known when it would start"
                assert (told["starts_in_s"], told["sentence"]) == (None, said)
            assert everything(w) == before

    async def test_of_one_that_is_not_there_or_has_ended_it_is_refused(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node())
            assert (await w.refused("GET", "/job/9/start"))[0] == 404
            job = await w.submit(hold=True)
            await w.good("DELETE", f"/job/{job}")
            assert await w.refused("GET", f"/job/{job}/start") == (409, f"job {job} has already ended: cancelled")

    async def test_a_job_that_a_user_does_not_see_is_not_there(self) -> None:
        async with world(see=See.OWN) as w:
            job = await w.submit(user="ann")
            bob = await guest(w, "b", user="bob")
            assert (await bob.ask("GET", f"/job/{job}/start"))[0] == 404
