"""Arrays over the API: what is told of them and their elements, whatever has become of these, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.harness import SLEEP, World, finished, launched, node, report, world
from tests.server.test_users import guest


async def submit(w: World, array: str, **fields: Any) -> int:
    return int((await w.good("POST", "/job", {**SLEEP, "array": array, **fields}))["id"])


async def end(w: World, job: int, code: int = 0) -> None:
    await w.good("POST", "/node/n1/report", report(launched(job, start_s=1.0)))
    await w.good("POST", "/finished_job", finished(job, exit_code=code))


async def numbers(w: World, array: int) -> dict[str, int]:
    told = (await w.good("GET", f"/job/{array}"))["elements"]
    return {name: told[name] for name in ("running", "waiting", "succeeded", "failed", "cancelled")}


async def test_ids_behind_an_array_are_its_elements() -> None:
    async with world() as w:
        first = await submit(w, "0-999999")
        batch = [{**SLEEP, "array": "0-3"}, SLEEP, {**SLEEP, "array": "5"}]
        ids = (await w.good("POST", "/jobs", batch))["ids"]
        assert ids == [first + 1_000_001, first + 1_000_006, first + 1_000_007]
        shown = await w.good("GET", f"/job/{ids[0] + 4}")
        assert (shown["array_id"], shown["array_index"], shown["elements"]) == (ids[0], 3, None)
        assert await w.submit() == ids[2] + 2


async def test_an_element_is_told_which_it_is_and_launched_as_its_array() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=2))
        array = await submit(w, "3,8-9", env={"A": "b"})
        told = await w.good("GET", f"/job/{array + 2}/launch")
        assert told["array"] == {"id": array, "index": 8, "count": 3, "min": 3, "max": 9}
        assert (told["command"], told["env"], told["id"]) == (["sleep", "5"], {"A": "b"}, array + 2)
        assert (await w.good("GET", f"/job/{array}"))["state"] == "running"
        assert "array" not in await w.good("GET", f"/job/{await plain(w)}/launch")


async def plain(w: World) -> int:
    await w.good("POST", "/node", node("n2", agent_id="a2", pool="other"))
    return await w.submit(pool="other")


async def test_a_list_has_one_line_for_an_array_in_whatever_state() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=2))
        over = await submit(w, "0-2")
        for element in (over + 1, over + 2, over + 3):
            await end(w, element)
        array, other = await submit(w, "0-99"), await w.submit()
        listed = await w.good("GET", "/listing?ended=true")
        assert [(job["id"], job["state"]) for job in listed["jobs"]] == [
            (over, "succeeded"), (array, "running"), (other, "queued"),
        ]  # fmt: skip
        assert listed["left_out"] == {"running": 0, "queued": 0, "ended": False}
        whole = await w.good("GET", "/listing?ended=true&elements=true")
        assert {over + 1, over + 3, array + 1, array + 32} <= {job["id"] for job in whole["jobs"]}
        assert [job["id"] for job in await w.good("GET", "/finished_jobs")] == [over, over + 1, over + 2, over + 3]


async def test_the_last_that_ended_are_found_behind_many_elements() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        before = await w.submit()
        await end(w, before)
        array = await submit(w, "0-9%1")
        for element in range(array + 1, array + 11):
            await end(w, element)
        after = await w.submit()
        await end(w, after)
        listed = await w.good("GET", "/listing?ended=true&limit=3")
        assert [job["id"] for job in listed["jobs"]] == [before, array, after]


async def test_elements_are_cancelled_by_their_indexes_and_are_told_of_ever_after() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        array = await submit(w, "0-99:10%1", user="ann")
        assert await w.good("DELETE", f"/job/{array}?elements=20,40-60:10&by=eve") == {"id": array}
        assert await numbers(w, array) == {"running": 1, "waiting": 5, "succeeded": 0, "failed": 0, "cancelled": 4}
        cut = await w.good("GET", f"/job/{array + 3}")
        assert (cut["state"], cut["array_index"], cut["reason"]) == ("cancelled", 20, "cancelled by eve")
        assert (await w.good("GET", f"/job/{array + 4}/why"))["sentence"] == (
            f"it comes behind 1 element of array {array} that have not started yet"
        )
        assert await w.good("DELETE", f"/job/{array + 4}") == {"id": array + 4}
        assert await w.good("DELETE", f"/job/{array + 3}") == {"id": array + 3}
        for element in (1, 2, 8, 9, 10):
            await end(w, array + element)
        assert await w.state(array) == "cancelled"
        assert (await w.good("GET", f"/job/{array + 3}"))["state"] == "cancelled"
        assert (await w.good("GET", f"/job/{array + 1}"))["state"] == "succeeded"
        assert (await w.refused("GET", f"/job/{array + 11}"))[0] == 404


async def test_an_array_outlives_the_scheduler_at_every_moment() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        array, store = await submit(w, "0-2%1"), w.service.store
    for element in (array + 1, array + 2, array + 3):
        async with world(store) as w:
            assert await w.state(element) == "assigned"
            assert [job["id"] for job in await w.good("GET", "/live_jobs") if job["state"] == "assigned"] == [element]
            await end(w, element, int(element == array + 2))
    async with world(store) as w:
        assert await w.state(array) == "failed"
        assert (await w.good("GET", f"/job/{array}/why"))["sentence"] == (
            "of 3 elements, 2 have succeeded, 1 have failed and 0 were cancelled"
        )
        assert await w.submit() == array + 4


async def test_a_held_array_is_released_with_its_elements() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=2))
        array = await submit(w, "0-9", hold=True)
        assert (await w.good("GET", f"/job/{array + 5}"))["suspended"] is True
        await w.good("POST", f"/job/{array + 5}/resume", {})
        assert await w.state(array + 5) == "assigned"
        assert await w.state(array + 1) == "queued"
        await w.good("POST", f"/job/{array}/resume", {})
        assert await w.state(array + 1) == "assigned"
        await w.good("POST", f"/job/{array}/suspend", {})
        assert await numbers(w, array) == {"running": 2, "waiting": 8, "succeeded": 0, "failed": 0, "cancelled": 0}
        assert (await w.good("GET", f"/job/{array + 2}"))["suspended"] is True
        assert (await w.refused("POST", f"/job/{array + 10}/requeue", {}))[0] == 409


@pytest.mark.parametrize(
    ("elements", "status", "message"),
    [
        ("10", 422, "has no element 10: it has 0-9"),
        ("8-12", 422, "has no element 10: it has 0-9"),
        ("3-1", 422, "3-1 goes down"),
        ("", 422, "must be indexes"),
        ("-1", 422, "must be indexes"),
    ],
)
async def test_elements_that_are_not_there_are_refused(elements: str, status: int, message: str) -> None:
    async with world() as w:
        array = await submit(w, "0-9")
        code, told = await w.refused("DELETE", f"/job/{array}?elements={elements}")
        assert (code, told[0]["field"]) == (status, "elements")
        assert message in told[0]["message"]
        plain_job = await w.submit()
        _, told = await w.refused("DELETE", f"/job/{plain_job}?elements=1")
        assert told[0]["message"] == f"job {plain_job} is no array: name it without elements"


async def test_what_is_no_array_is_refused_with_its_field() -> None:
    async with world() as w:
        code, told = await w.refused("POST", "/job", {**SLEEP, "array": "0-99%0"})
        assert (code, told[0]["field"]) == (422, "array")
        assert told[0]["message"] == "%0 lets no element run: give at least %1, or leave it out"
        code, told = await w.refused("POST", "/jobs", [{**SLEEP, "array": "0-9", "measurement_group": "g"}])
        assert (code, told[0]["field"]) == (422, "jobs[0].array")


async def test_all_that_wait_are_cancelled_and_what_runs_goes_on() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        array = await submit(w, "0-999999")
        assert (await w.good("DELETE", "/jobs"))["ids"] == [array]
        assert await numbers(w, array) == {
            "running": 1, "waiting": 0, "succeeded": 0, "failed": 0, "cancelled": 999_999,
        }  # fmt: skip
        await end(w, array + 1)
        assert await w.state(array) == "cancelled"


async def test_elements_of_others_are_hidden_and_not_touched() -> None:
    async with world() as w:
        array = await submit(w, "0-9", user="ann")
        bob = await guest(w, "b", user="bob")
        for job in (array, array + 9):
            assert (await bob.ask("DELETE", f"/job/{job}"))[0] == 403
