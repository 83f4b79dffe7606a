"""Arrays over the API: what is told of them and their elements, whatever has become of these, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from colane.client.told import in_force
from colane.model.choices import See
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
            f"it comes behind 1 element of array {array} yet to start"
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
            "3 elements: 2 succeeded, 1 failed, 0 cancelled"
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


async def test_jobs_wait_for_elements_and_for_arrays() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        array = await submit(w, "0-90:10%1", user="ann")
        one = await w.submit(user="ann", after=f"ok:{array}[0],any:{array}_20")
        whole = await w.submit(user="ann", after=f"any:{array}")
        by_id = await w.submit(user="ann", after=f"start:{array + 3}")
        shown = await w.good("GET", f"/job/{one}")
        assert in_force(shown, "after") == f"ok:{array}[0],any:{array}[20]"
        assert in_force(await w.good("GET", f"/job/{by_id}"), "after") == f"start:{array}[20]"
        assert (await w.good("GET", f"/job/{one}/why"))["sentence"] == (
            f"Dependency: it starts once job {array}[0] has succeeded and job {array}[20] has ended"
        )
        await end(w, array + 1)
        held = (await w.good("GET", f"/job/{one}"))["holds"]
        assert [hold["after"] for hold in held] == [f"any:{array}[20]"]
        await w.good("DELETE", f"/job/{array}?elements=20")
        assert (await w.good("GET", f"/job/{one}"))["holds"] == []
        assert (await w.good("GET", f"/job/{by_id}"))["holds"] == []
        several = await w.submit(user="ann", after="any:@~3[30,50-70:10]")
        assert in_force(await w.good("GET", f"/job/{several}"), "after") == (
            ",".join(f"any:{array}[{index}]" for index in (30, 50, 60, 70))
        )
        await w.good("DELETE", f"/job/{array}")
        await end(w, array + 2)
        assert (await w.good("GET", f"/job/{whole}"))["holds"] == []
        assert (await w.good("GET", f"/job/{several}"))["holds"] == []


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ("ok:{array}[4]", "array {array} has no element 4: it has 0-3"),
        ("ok:{array}[2-9]", "array {array} has no element 4: it has 0-3"),
        ("ok:{array}_4", "array {array} has no element 4: it has 0-3"),
        ("ok:{plain}[1]", "job {plain} is no array: name it without [1]"),
        ("ok:@[1]", "job {plain} is no array: name it without [1]"),
        ("ok:{array}[3-1]", "3-1 goes down: write 1-3"),
        ("ok:{array}[]", "must be indexes as 0-99"),
        ("ok:{array}[1", "must be ok:12"),
        ("ok:[1]", "must be ok:12"),
        ("ok:99[1]", "there is no job 99"),
        ("ok:{array}[0]", "job {array}[0] has ended as failed, so ok:{array}[0] can never come true"),
        ("any:{array}[3],ok:{array}[3]", "job {array}[3] has ended as cancelled, so ok:{array}[3] can never come true"),
        ("any:{array}[0-3],any:1[0-999999]", "must name at most 1000 jobs, got 1000004"),
    ],
)
async def test_elements_that_cannot_be_waited_for_are_refused(after: str, message: str) -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        array, plain_job = await submit(w, "0-3%1", user="ann"), await w.submit(user="ann")
        await end(w, array + 1, 1)
        await w.good("DELETE", f"/job/{array}?elements=3")
        names = {"array": array, "plain": plain_job}
        status, told = await w.refused("POST", "/job", {**SLEEP, "user": "ann", "after": after.format(**names)})
        assert (status, told[0]["field"]) == (422, "after")
        assert told[0]["message"].startswith(message.format(**names))


async def test_what_has_become_of_elements_counts_after_their_array_has_ended() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        array = await submit(w, "0-2%1", user="ann")
        await w.good("DELETE", f"/job/{array}?elements=2")
        await end(w, array + 1)
        await end(w, array + 2, 1)
        assert await w.state(array) == "failed"
        met = await w.submit(user="ann", after=f"ok:{array}[0],fail:{array}[1-2],fail:{array}")
        assert (await w.good("GET", f"/job/{met}"))["holds"] == []
        _, told = await w.refused("POST", "/job", {**SLEEP, "user": "ann", "after": f"ok:{array}[2]"})
        assert told[0]["message"] == (f"job {array}[2] has ended as cancelled, so ok:{array}[2] can never come true")


async def test_elements_of_a_hidden_array_do_not_exist() -> None:
    async with world(see=See.OWN) as w:
        array = await submit(w, "0-3", user="ann")
        bob = await guest(w, "b", user="bob")
        for after in (f"ok:{array}[1]", f"ok:{array + 2}", f"ok:{array}"):
            status, told = await bob.ask("POST", "/job", {"command": ["true"], "after": after})
            assert status == 422
            assert told["detail"][0]["message"].startswith("there is no job")
        for path in (f"/job/{array + 4}", f"/job/{array + 4}/why", f"/job/{array}"):
            assert (await bob.ask("GET", path))[0] == 404
        assert (await bob.ask("DELETE", f"/job/{array}?elements=3"))[0] == 404


async def test_an_element_is_submitted_again_alone_and_an_array_as_a_whole() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        array = await submit(w, "0-8:4%2", user="ann")
        ann = await guest(w, "a", user="ann")
        await end(w, array + 1)
        for job, text in ((array, "0-8:4%2"), (array + 1, "0"), (array + 2, "4")):
            status, again = await ann.ask("GET", f"/job/{job}/request")
            assert (status, again["array"], again["command"]) == (200, text, ["sleep", "5"])


async def test_an_array_has_no_log_and_counts_as_its_elements() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=1))
        array = await submit(w, "5-104", user="ann")
        status, told = await w.refused("GET", f"/job/{array}/log")
        assert (status, told) == (409, f"job {array} is an array: its elements have logs, as {array}[5]")
        health = await w.good("GET", "/health")
        assert (health["queued"], health["running"]) == (99, 1)
        (used,) = await w.good("GET", "/usage")
        assert (used["waiting"], used["running"], used["jobs"]) == (99, 1, 0)
        await w.good("DELETE", f"/job/{array}")
        await end(w, array + 1)
        (used,) = await w.good("GET", "/usage")
        assert (used["waiting"], used["running"]) == (0, 0)
