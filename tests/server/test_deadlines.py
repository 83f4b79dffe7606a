"""Deadlines at submission: promised and kept, or refused with the field to give or the earliest that can be kept."""

from __future__ import annotations

import re

import pytest

from colane.model.limits import GroupQuota, Limits, Quotas
from tests.server.harness import SLEEP, launched, node, report, world

DUE = {**SLEEP, "deadline": "10m", "time_limit": "5m"}


async def test_a_deadline_is_promised_with_gpus_of_its_own() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=2))
        job = await w.submit(deadline="10m", time_limit="5m")
        shown = await w.good("GET", f"/job/{job}")
        assert shown["needs"]["deadline_s"] == 600.0
        assert shown["needs"]["share"] is False
        assert len(shown["constraints"]["promised"]["gpus"]) == 1
        assert "until it ends: within 600 s, and it starts 210 s before it must" in shown["reason"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"deadline": "10m"}, "not known how long the job takes: say --time-limit, or --steps-total"),
        (
            {"deadline": "10m", "steps_total": 99},
            "not known how long a step of the job takes: say --time-limit",
        ),
        ({"deadline": "6m", "time_limit": "5m"}, "the earliest that can is in 390s"),
        ({"deadline": "10m", "time_limit": "5m", "hold": True}, "leave out array, hold, begin, after, singleton"),
        ({"deadline": "10m", "time_limit": "5m", "multi_node": True}, "leave out multi_node"),
    ],
)
async def test_what_cannot_be_promised_is_refused_with_the_fix(said: dict[str, object], told: str) -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        status, detail = await w.refused("POST", "/jobs", [SLEEP, {**SLEEP, **said}])
        assert (status, detail[0]["field"]) == (422, "jobs[1].deadline")
        assert told in detail[0]["message"]
        assert await w.good("GET", "/jobs") == []


async def test_why_says_of_one_that_runs_how_much_time_is_to_spare() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        job = await w.submit(deadline="10m", time_limit="5m")
        [said, *_] = (await w.good("GET", f"/job/{job}/why"))["now"]
        assert re.fullmatch(r"it is to end within (\d+ min|\d+ s), \d+ (s|min) to spare", said)


async def test_a_user_is_promised_no_more_gpus_at_once_than_the_limits_say() -> None:
    lab = GroupQuota(Limits(deadline_gpus=2), frozenset({"ann", "bob"}))
    quotas = Quotas(Limits(deadline_gpus=3), {"ann": Limits(deadline_gpus=1)}, {"lab": lab})
    async with world(quotas=quotas) as w:
        await w.good("POST", "/node", node(gpus=4))
        for user in ("ann", "bob"):
            await w.good("POST", "/job", {**DUE, "user": user})
        for user, told in (("ann", "ann's limit of 1 GPU"), ("bob", "group lab's limit of 2 GPUs")):
            status, detail = await w.refused("POST", "/job", {**DUE, "user": user})
            assert status == 422
            assert f"cannot be promised now, as {told} for deadlines is reached" in detail[0]["message"]
        await w.good("POST", "/job", {**DUE, "user": "cem"})


async def test_jobs_of_one_batch_are_promised_one_after_another() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        status, detail = await w.refused("POST", "/jobs", [DUE, DUE])
        assert (status, detail[0]["field"]) == (422, "jobs[1].deadline")
        assert "in 13m, with 1 deadline promised before it" in detail[0]["message"]
        await w.good("POST", "/jobs", [DUE, {**DUE, "deadline": "13m"}])


async def test_jobs_that_save_their_state_make_room_once_they_are_protected_no_more() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        before = await w.submit(preemptible=True)
        now_s = w.service.driver.now()
        step = {"at_s": now_s, "steps": 1, "step_mean_s": 0.1, "first_step_s": now_s}
        told = launched(before, start_s=now_s - 20, progress=step)
        await w.good("POST", "/node/n1/report", {**report(told), "at_s": now_s})
        assert (await w.good("GET", f"/job/{before}"))["state"] == "running-protected"
        status, detail = await w.refused("POST", "/job", {**SLEEP, "deadline": "6m", "time_limit": "5m"})
        assert (status, "the earliest that can is in" in detail[0]["message"]) == (422, True)
        await w.submit(deadline="12m", time_limit="5m")


async def test_gpus_that_a_group_is_guaranteed_are_promised_to_no_other() -> None:
    quotas = Quotas(groups={"lab": GroupQuota(Limits(), frozenset({"ann"}), 1)})
    async with world(quotas=quotas) as w:
        await w.good("POST", "/node", node(gpus=2))
        await w.good("POST", "/job", {**DUE, "user": "cem"})
        told = "cannot be kept: the earliest that can is in 13m"
        for number in range(2):
            status, detail = await w.refused("POST", "/job", {**DUE, "user": "dan", "gpus": 1 + number})
            assert status == 422
            assert told in detail[0]["message"]
            told = "cannot be promised: 1 of 2 GPUs are guaranteed to groups, and of the others too few are left"
        await w.good("POST", "/job", {**DUE, "user": "dan", "deadline": "13m"})
        mine = (await w.good("POST", "/job", {**SLEEP, "user": "ann"}))["id"]
        assert (await w.good("GET", f"/job/{mine}"))["state"] == "assigned"


async def test_a_deadline_within_the_guarantee_of_its_group_is_promised_there() -> None:
    quotas = Quotas(groups={"lab": GroupQuota(Limits(), frozenset({"ann"}), 1)})
    async with world(quotas=quotas) as w:
        await w.good("POST", "/node", node(gpus=2))
        other = (await w.good("POST", "/job", {**SLEEP, "user": "cem", "share": False}))["id"]
        assert (await w.good("GET", f"/job/{other}"))["state"] == "assigned"
        await w.good("POST", "/job", {**DUE, "user": "ann"})
        _, detail = await w.refused("POST", "/job", {**DUE, "user": "ann"})
        assert (
            "cannot be promised: the GPUs that it could have are held by jobs that cannot be stopped"
            in (detail[0]["message"])
        )
