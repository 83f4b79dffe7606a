"""Suspending and resuming jobs over REST."""

from __future__ import annotations

from typing import Any

from tests.server.harness import GB, SLEEP, World, finished, launched, node, report, world

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
        await w.good("DELETE", f"/job/{job}")
        status, detail = await w.refused("POST", f"/job/{job}/suspend", {})
        assert status == 409
        assert "stopping; only a job that waits or runs" in detail
        for path in ("suspend", "resume"):
            assert await w.refused("POST", f"/job/99/{path}", {}) == (404, "there is no live job 99")
        await w.good("POST", "/finished_job", finished(job))
        for path in ("suspend", "resume"):
            status, detail = await w.refused("POST", f"/job/{job}/{path}", {})
            assert (status, detail) == (409, f"job {job} has already ended: cancelled")


async def test_one_that_is_launching_is_held_once_it_has_left() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        job = await w.submit()
        assert (await w.good("GET", f"/job/{job}"))["facts"]["word"] == "launching"
        await w.good("POST", f"/job/{job}/suspend", {})
        assert (await w.good("GET", f"/job/{job}"))["suspended"]
        await w.good("POST", "/finished_job", finished(job, exit_code=None, signal=15, outcome="signalled"))
        assert (await w.good("GET", f"/job/{job}"))["facts"]["word"] == "held"
        await w.good("POST", f"/job/{job}/resume", {})
        assert await w.state(job) == "assigned"


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


GPU = {"index": 0, "uuid": "GPU-0", "type": "H200", "memory_bytes": 140 * GB, "socket": 0, "cores": [0, 1]}


async def stepping_on_gpu(w: World, **fields: Any) -> int:
    """A job that runs on a real GPU and steps."""
    await w.good("POST", "/node", {**node(host_memory_bytes=500 * GB, **fields), "gpus": [GPU]})
    job = await w.submit()
    await w.good("POST", "/node/n1/report", report(launched(job, start_s=1.0, progress=SAMPLE)))
    return job


async def desired(w: World) -> dict[int, Any]:
    return {job["id"]: job for job in (await w.good("GET", "/node/n1"))["jobs"]}


async def test_gpu_memory_is_moved_to_the_host_and_comes_back_when_the_gpu_is_free() -> None:
    async with world() as w:
        job = await stepping_on_gpu(w)
        await w.good("POST", f"/job/{job}/suspend?by=ann", {"to_host": True})
        told = (await desired(w))[job]
        assert (told["run"], told["paused"], told["to_host"], told["on_host"]) == (True, True, True, False)
        moved = {**SAMPLE, "steps": 9, "on_host_bytes": 30 * GB}
        await w.good("POST", "/node/n1/report", report(launched(job, start_s=1.0, progress=moved)))
        shown = await w.good("GET", f"/job/{job}")
        assert (shown["state"], shown["suspended_via"], shown["on_host_bytes"]) == ("paused", "host", 30 * GB)
        other = await w.submit()
        assert await w.state(other) == "assigned"
        assert (await desired(w))[job]["on_host"] is True
        await w.good("POST", f"/job/{job}/resume?by=ann", {})
        assert "when n1/0, held by job 2, has room" in (await w.good("GET", f"/job/{job}/why"))["sentence"]
        assert (await desired(w))[job]["to_host"] is True
        store = w.service.store
    async with world(store) as w:
        await w.good("POST", "/finished_job", finished(other))
        assert await w.state(job) == "running"
        told = (await desired(w))[job]
        assert (told["paused"], told["to_host"], told["on_host"]) == (False, False, False)


async def test_what_the_agent_refuses_is_told_and_the_job_stays_suspended_on_its_gpu() -> None:
    async with world() as w:
        job = await stepping_on_gpu(w)
        await w.good("POST", f"/job/{job}/suspend", {"to_host": True})
        refused = {**SAMPLE, "steps": 9, "host_refusal": "2 processes of it use the GPU"}
        await w.good("POST", "/node/n1/report", report(launched(job, start_s=1.0, progress=refused)))
        shown = await w.good("GET", f"/job/{job}")
        assert (shown["state"], shown["suspended_via"], shown["on_host_bytes"]) == ("paused", "lane", None)
        assert shown["reason"].startswith("its GPU memory stays on the GPU: 2 processes of it use the GPU")
        assert (await desired(w))[job]["to_host"] is False


async def test_what_is_known_to_be_impossible_is_refused_with_the_reason() -> None:
    async with world() as w:
        job = await stepping_on_gpu(w, host_refusal="the driver is too old")
        status, detail = await w.refused("POST", f"/job/{job}/suspend", {"to_host": True})
        assert status == 409
        assert detail.endswith("cannot be moved to the host: the driver is too old; suspend it without --to-host")
        status, problems = await w.refused("POST", f"/job/{job}/suspend", {"to_host": "yes"})
        assert (status, problems[0]["field"]) == (422, "to_host")
        assert await w.state(job) in {"running", "running-protected"}
