"""Taking running jobs off their GPUs at their owners' word: every phase, with and without a way to save."""

from __future__ import annotations

import pytest

from tests.server.harness import World, finished, launched, node, report, world
from tests.server.test_job_tokens import token_of
from tests.server.test_users import Guest

SAMPLE = {"at_s": 2.0, "steps": 7, "first_step_s": 1.5, "last_step_s": 2.0}


async def brought_to(w: World, phase: str, **fields: str) -> int:
    await w.good("POST", "/node", node())
    job = await w.submit(user="ann", **fields)
    if phase != "assigned":
        progress = SAMPLE if phase in {"running", "paused"} else None
        for steps in (7, 9):
            told = launched(job, start_s=1.0, progress=progress and {**progress, "steps": steps})
            await w.good("POST", "/node/n1/report", report(told))
    if phase == "paused":
        await w.good("POST", f"/job/{job}/suspend", {})
    assert (await w.state(job)).removesuffix("-protected") == phase
    return job


@pytest.mark.parametrize("phase", ["assigned", "launching", "running", "paused"])
@pytest.mark.parametrize("checkpoint", [None, "plain"])
async def test_it_leaves_and_waits_anew_whatever_it_did(phase: str, checkpoint: str | None) -> None:
    async with world() as w:
        job = await brought_to(w, phase, **({} if checkpoint is None else {"checkpoint": checkpoint}))
        assert await w.good("POST", f"/job/{job}/requeue?by=ann", {}) == {"id": job}
        saves = checkpoint is not None and phase in {"running", "paused"}
        shown = await w.good("GET", f"/job/{job}")
        assert (shown["state"], shown["why"]) == ("checkpointing" if saves else "stopping", "requeued")
        (desired,) = (await w.good("GET", "/node/n1"))["jobs"]
        assert (desired["run"], desired["save"] is not None) == (saves, saves)
        await w.good("POST", f"/job/{job}/requeue", {})  # told twice, it is asked once
        await w.good("POST", "/finished_job", finished(job, exit_code=75 if saves else 0))
        again = await w.good("GET", f"/job/{job}")
        assert (again["attempt"], again["failures"]) == ((1, 0) if phase == "paused" else (2, 0))
        assert again["state"] == ("queued" if phase == "paused" else "assigned")
        assert again["suspended"] is (phase == "paused")


@pytest.mark.parametrize("is_own", [True, False])
async def test_a_job_that_asks_by_its_own_token_comes_back_though_it_ends_first(*, is_own: bool) -> None:
    async with world() as w:
        job = await brought_to(w, "running")
        token = await token_of(w, job)
        assert token is not None
        asks = Guest(w, token).ask if is_own else None
        if asks is not None:
            assert await asks("POST", f"/job/{job}/requeue", {}) == (200, {"id": job})
        else:
            await w.good("POST", f"/job/{job}/requeue", {})
        await w.good("POST", "/finished_job", {**finished(job, exit_code=0), "was_stopped": False})
        shown = await w.good("GET", f"/job/{job}")
        assert (shown["state"], shown["attempt"]) == (("assigned", 2) if is_own else ("succeeded", 1))


async def test_one_that_is_on_its_way_out_is_refused() -> None:
    async with world() as w:
        job = await brought_to(w, "running")
        await w.good("DELETE", f"/job/{job}")
        status, said = await w.refused("POST", f"/job/{job}/requeue", {})
        assert (status, said) == (
            409, f"job {job} is on its way out, as cancelled: 'colane again' submits it once more",
        )  # fmt: skip


async def test_what_waits_or_has_ended_is_not_queued_again() -> None:
    async with world() as w:
        job = await w.submit()
        status, said = await w.refused("POST", f"/job/{job}/requeue", {})
        assert (status, said) == (409, f"job {job} is queued: only a job that runs can be queued again")
        await w.good("DELETE", f"/job/{job}")
        status, said = await w.refused("POST", f"/job/{job}/requeue", {})
        assert status == 409
        assert (await w.refused("POST", "/job/99/requeue", {}))[0] == 404
