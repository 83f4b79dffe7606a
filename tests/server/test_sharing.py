"""What the API says of jobs that share a device, and which jobs may share."""

from __future__ import annotations

from colane.core.config import CoreConfig
from colane.model.job_spec import ShareBetween
from colane.model.placement import TurnRule
from tests.server.harness import node, world

SMALL = {"gpu_memory": "300MB"}


async def test_jobs_on_one_device_say_how_they_share_it() -> None:
    async with world(policy="fair") as w:
        await w.good("POST", "/node", node())
        first, second = await w.submit(**SMALL, weight=3), await w.submit(**SMALL)
        shown = await w.good("GET", f"/job/{first}")
        assert shown["sharing"] == {
            "lane_mates": [second],
            "others": [],
            "share_asked_ratio": 0.75,
            "slowdown_predicted": 1 / 0.75,
            "slowdown_measured": None,
        }
        assert [job["sharing"]["lane_mates"] for job in await w.good("GET", "/live_jobs")] == [[second], [first]]
        assert shown["rate"]["ratio"] == 0.75
        assert shown["rate"]["source"] == "given"
        turns = {"slowdown": 1 / 0.75, "source": "given", "samples": 0, "spread_ratio": None}
        assert shown["rate"]["factors"]["turns"] == turns
        assert shown["rate"]["steps_per_s"] is None, "its step time is not known"
        alone = await w.submit(share=False)
        assert (await w.good("GET", f"/job/{alone}"))["sharing"] is None


async def test_a_job_says_how_fast_it_is_believed_to_go() -> None:
    async with world(policy="fifo") as w:
        await w.good("POST", "/node", node())
        key = {"family": "net", "gpu_type": "cpu"}
        await w.good("PUT", "/profiles", {"key": key, "step_s": 0.5})
        gpus = len((await w.good("GET", "/node/n1"))["gpus"])
        placed, *_, waiting = [await w.submit(family="net") for _ in range(gpus + 1)]
        assert await w.state(waiting) == "queued"
        for number in (placed, waiting):
            shown = (await w.good("GET", f"/job/{number}"))["rate"]
            assert (shown["steps_per_s"], shown["ratio"], shown["sentence"]) == (
                2.0,
                1.0,
                "follows from the situation itself",
            )
        listed = {job["id"]: job["rate"] for job in await w.good("GET", "/live_jobs")}
        assert listed[waiting] is None
        assert listed[placed] is not None


async def test_jobs_of_another_user_wait_where_users_do_not_share() -> None:
    core = CoreConfig(share_between=ShareBetween.USER)
    async with world(policy="fair", core=core) as w:
        await w.good("POST", "/node", node())
        mine, theirs, also_mine = [await w.submit(**SMALL, user=user) for user in ("ann", "bob", "ann")]
        assert [await w.state(job) for job in (mine, theirs, also_mine)] == ["assigned", "queued", "assigned"]
        store = w.service.store
    async with world(store, policy="fair", core=core) as w:
        assert await w.state(theirs) == "queued"
        store = w.service.store
    async with world(store, policy="fair") as w:
        await w.good("POST", "/node", node())
        assert await w.state(theirs) == "assigned"


async def test_the_schedulers_turn_rule_goes_before_the_policys() -> None:
    async with world(policy="fair", core=CoreConfig(turn_rule=TurnRule.PRIORITY, quantum_s=0.5)) as w:
        await w.good("POST", "/node", node())
        assert (await w.good("GET", "/node/n1"))["turns"] == {"rule": "priority", "quantum_s": 0.5}
    async with world(policy="fair", core=CoreConfig(quantum_s=0.5)) as w:
        await w.good("POST", "/node", node())
        assert (await w.good("GET", "/node/n1"))["turns"] == {"rule": "fair", "quantum_s": 0.5}


async def test_jobs_are_told_to_give_cached_memory_back_only_where_not_all_of_it_fits() -> None:
    """P 200 MB and E 500 MB each: on 2 GB two may keep their caches, three in one lane may not."""
    async with world(policy="fair") as w:
        await w.good("POST", "/node", node())
        key = {"family": "net", "gpu_type": "cpu"}
        known = {"key": key, "persistent_bytes": 200_000_000, "ephemeral_bytes": 500_000_000}
        await w.good("PUT", "/profiles", known)
        jobs = [await w.submit(family="net") for _ in range(2)]
        assert [await w.state(job) for job in jobs] == ["assigned", "assigned"]
        assert [job["flush"] for job in (await w.good("GET", "/node/n1"))["jobs"]] == [False, False]
        assert await w.state(await w.submit(family="net")) == "assigned"
        told = (await w.good("GET", "/node/n1"))["jobs"]
        assert [job["flush"] for job in told] == [True, True, True]
        assert len({job["slots"][0]["lane"] for job in told}) < len(told)


async def test_safety_factors_on_measured_memory_are_a_setting() -> None:
    known = {"key": {"family": "net", "gpu_type": "cpu"}, "persistent_bytes": 900_000_000, "ephemeral_bytes": 0}
    for factors, together in (((1.0, 1.0), ["assigned", "assigned"]), ((1.2, 1.0), ["assigned", "queued"])):
        async with world(policy="fair", core=CoreConfig(memory_factors=factors)) as w:
            await w.good("POST", "/node", node())
            await w.good("PUT", "/profiles", known)
            jobs = [await w.submit(family="net") for _ in range(2)]
            assert [await w.state(job) for job in jobs] == together
