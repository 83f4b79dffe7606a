"""Other limits for jobs that were submitted: while they wait, while they run, of arrays and their elements."""

from __future__ import annotations

from typing import Any

import pytest

from colane.client.told import in_force
from tests.server.harness import World, finished, launched, node, report, world


async def limit(w: World, job: int) -> float | None:
    limit_s: float | None = in_force(await w.good("GET", f"/job/{job}"), "time_limit_s")
    return limit_s


async def test_a_job_that_waits_has_its_new_limit_when_it_runs() -> None:
    async with world() as w:
        job = await w.submit(user="ann", time_limit_s=60, hold=True)
        assert await w.good("POST", f"/job/{job}/change?by=ann", {"time_limit": "2h"}) == {"id": job}
        assert await limit(w, job) == 7200
        shown = await w.good("GET", f"/job/{job}")
        assert shown["story"][-1]["sentence"] == "from now on time limit 7200 s, by ann"
        assert shown["suspended"]
        await w.good("POST", f"/job/{job}/change", {"time_limit": None})
        assert await limit(w, job) is None


async def test_one_that_has_run_longer_is_stopped_now() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        job = await w.submit(user="ann", time_limit="1h")
        await w.good("POST", "/node/n1/report", report(launched(job, start_s=1.0)))
        await w.good("POST", f"/job/{job}/change", {"time_limit_s": 1e-6})
        assert (await w.state(job), (await w.good("GET", f"/job/{job}"))["why"]) == ("stopping", "time-limit")
        await w.good("POST", "/finished_job", finished(job))
        assert await w.state(job) == "timed-out"
        assert (await w.refused("POST", f"/job/{job}/change", {"time_limit": "1h"}))[0] == 409


async def test_an_array_has_other_limits_for_all_its_elements() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=4))
        array = await w.submit(user="ann", array="0-9%2", time_limit_s=60)
        assert (await w.good("GET", f"/job/{array}"))["elements"]["running"] == 2
        await w.good("POST", f"/job/{array}/change", {"at_once": 3, "time_limit": "1h"})
        shown = await w.good("GET", f"/job/{array}")
        assert (shown["elements"]["running"], shown["elements"]["throttle"]) == (3, 3)
        assert [await limit(w, array + 1 + ordinal) for ordinal in (0, 2, 9)] == [3600, 3600, 3600]
        await w.good("POST", f"/job/{array + 10}/change", {"time_limit_s": 5})
        assert [await limit(w, array + 1 + ordinal) for ordinal in (8, 9)] == [3600, 5]
        await w.good("POST", f"/job/{array}/change", {"at_once": 1})
        assert (await w.good("GET", f"/job/{array}"))["elements"]["running"] == 3, "those that run go on"
        for ordinal in range(3):
            await w.good("POST", "/finished_job", finished(array + 1 + ordinal, exit_code=0))
        assert (await w.good("GET", f"/job/{array}"))["elements"]["running"] == 1
        await w.good("POST", f"/job/{array}/change", {"at_once": None})
        assert (await w.good("GET", f"/job/{array}"))["elements"]["running"] == 4


@pytest.mark.parametrize(
    ("body", "field", "said"),
    [
        ({}, "time_limit", "give time_limit, or at_once for an array"),
        ({"time_limit": "1h", "time_limit_s": 5}, "time_limit", "give time_limit or time_limit_s, not both"),
        ({"at_once": 2}, "at_once", "is of arrays, and job 1 is none"),
        ({"at_once": 0}, "at_once", "must be at least 1"),
        ({"time_limit_s": 0}, "time_limit_s", "must be more than 0"),
        ({"time_limit": "soon"}, "time_limit", "must be a duration"),
        ({"gpus": 2}, "gpus", "is not a known field"),
    ],
)
async def test_what_cannot_be_is_named(body: dict[str, Any], field: str, said: str) -> None:
    async with world() as w:
        assert await w.submit(user="ann") == 1
        answer = await w.http.post("/job/1/change", json=body)
        assert answer.status_code == 422
        (problem,) = answer.json()["detail"]
        assert problem["field"] == field
        assert said in problem["message"]


async def test_a_debug_job_stays_short() -> None:
    async with world() as w:
        job = await w.submit(user="ann", qos="debug")
        for limit_said, got in (("31m", "31m"), (None, "none")):
            status, said = await w.refused("POST", f"/job/{job}/change", {"time_limit": limit_said})
            assert (status, said) == (
                422,
                [{"field": "time_limit", "message": f"must be at most 30m of qos debug, got {got}"}],
            )
        await w.good("POST", f"/job/{job}/change", {"time_limit": "20m"})


async def test_an_element_of_a_held_array_is_held_with_it() -> None:
    async with world() as w:
        array = await w.submit(user="ann", array="0-9", hold=True)
        status, said = await w.refused("POST", f"/job/{array + 4}/change", {"time_limit": "1h"})
        assert (status, said) == (409, f"array {array} is held, and its elements with it: change {array}")
        await w.good("POST", f"/job/{array}/resume", {})
        await w.good("POST", f"/job/{array + 4}/change", {"time_limit": "1h"})
        assert await limit(w, array + 4) == 3600


async def test_an_unknown_job_is_none() -> None:
    async with world() as w:
        assert (await w.refused("POST", "/job/9/change", {"time_limit": "1h"}))[0] == 404
