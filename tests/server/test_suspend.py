"""Suspending and resuming jobs over REST."""

from __future__ import annotations

from tests.server.harness import SLEEP, World, finished, launched, node, report, world

SAMPLE = {"at_s": 2.0, "steps": 7, "first_step_s": 1.5, "last_step_s": 2.0}


async def stepping(w: World) -> int:
    """A job that runs on the only device and steps."""
    await w.good("POST", "/node", node())
    job = await w.submit()
    await w.good("POST", "/node/n1/report", report(launched(job, start_s=1.0, progress=SAMPLE)))
    await w.good("POST", "/node/n1/report", report(launched(job, start_s=1.0, progress={**SAMPLE, "steps": 9})))
    return job


async def test_a_running_job_is_paused_and_its_agent_is_told() -> None:
    async with world() as w:
        job = await stepping(w)
        assert await w.good("POST", f"/job/{job}/suspend?by=ann", {}) == {"id": job}
        (desired,) = (await w.good("GET", "/node/n1"))["jobs"]
        assert (desired["run"], desired["paused"]) == (True, True)
        shown = await w.good("GET", f"/job/{job}")
        assert (shown["state"], shown["suspended"], shown["gpus"]) == ("paused", True, ["n1/0"])
        assert shown["reason"] == "suspended by ann; it waits at a step boundary and keeps its GPU memory"
        assert await w.good("POST", f"/job/{job}/suspend?by=ann", {}) == {"id": job}
        assert await w.good("POST", f"/job/{job}/resume?by=ann", {}) == {"id": job}
        assert await w.state(job) == "running"
        (desired,) = (await w.good("GET", "/node/n1"))["jobs"]
        assert desired["paused"] is False


async def test_a_queued_job_is_held_and_says_so() -> None:
    async with world() as w:
        job = await w.submit()
        await w.good("POST", f"/job/{job}/suspend?by=ann", {})
        await w.good("POST", "/node", node())
        assert await w.state(job) == "queued"
        assert (await w.good("GET", f"/job/{job}/why"))["why"] == "held"
        await w.good("POST", f"/job/{job}/resume", {})
        assert await w.state(job) == "assigned"


async def test_a_suspension_outlives_the_scheduler() -> None:
    async with world() as w:
        job, store = await w.submit(), w.service.store
        await w.good("POST", f"/job/{job}/suspend", {})
    async with world(store) as w:
        await w.good("POST", "/node", node())
        assert await w.state(job) == "queued"
        assert (await w.good("GET", f"/job/{job}"))["suspended"] is True


async def test_what_cannot_be_suspended_is_refused_with_the_reason() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        job = await w.submit()
        status, detail = await w.refused("POST", f"/job/{job}/suspend", {})
        assert status == 409
        assert "assigned; only a job that waits or steps" in detail
        for path in ("suspend", "resume"):
            assert await w.refused("POST", f"/job/99/{path}", {}) == (404, "there is no live job 99")
        await w.good("POST", "/finished_job", finished(job))
        for path in ("suspend", "resume"):
            status, detail = await w.refused("POST", f"/job/{job}/{path}", {})
            assert (status, detail) == (409, f"job {job} has already ended: succeeded")


async def test_a_paused_job_can_be_cancelled() -> None:
    async with world() as w:
        job = await stepping(w)
        await w.good("POST", f"/job/{job}/suspend", {})
        await w.good("DELETE", f"/job/{job}")
        assert await w.state(job) == "stopping"
        other = await w.submit(**SLEEP)
        await w.good("POST", "/finished_job", finished(job, exit_code=None, signal=15, outcome="signalled"))
        assert await w.state(job) == "cancelled"
        assert await w.state(other) == "assigned"
