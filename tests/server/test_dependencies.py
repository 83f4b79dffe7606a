"""Submitting jobs that start after others: which jobs are meant, what is refused, and what is told of them."""

from __future__ import annotations

import itertools

import pytest

from colane.client.told import in_force
from tests.server.harness import SLEEP, World, finished, launched, node, report, world
from tests.server.test_users import guest


async def end(w: World, job: int, code: int = 0) -> None:
    await w.good("POST", "/node/n1/report", report(launched(job, start_s=1.0)))
    await w.good("POST", "/finished_job", finished(job, exit_code=code))


async def after(w: World, job: int) -> str:
    return str(in_force(await w.good("GET", f"/job/{job}"), "after"))


async def test_it_waits_for_the_other_and_starts_then() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=2))
        first = await w.submit(user="ann")
        second = await w.submit(user="ann", after="ok:@")
        shown = await w.good("GET", f"/job/{second}")
        assert (shown["state"], shown["needs"]["after"], shown["suspended"]) == ("queued", "ok:@", False)
        assert shown["constraints"] == {"after": f"ok:{first}"}
        assert shown["holds"] == [{"kind": "after", "by": f"ok:{first}", "until_s": None, "after": f"ok:{first}"}]
        assert (await w.good("GET", f"/job/{second}/why"))["sentence"] == (
            f"Dependency: it starts once job {first} has succeeded"
        )
        await end(w, first)
        assert await w.state(second) == "assigned"


async def test_the_last_job_is_the_callers_and_elements_do_not_count() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=2))
        status, said = await w.refused("GET", "/last_job")
        assert (status, said[:12], said[-22:]) == (404, "@ is no job:", "0 that are still known")
        first, array = await w.submit(), await w.submit(array="1-3")
        others = await w.submit(user="ann")
        assert others > array
        await end(w, first)
        told = [await w.good("GET", f"/last_job?back={back}") for back in (0, 1)]
        assert told == [{"id": array}, {"id": first}]
        assert (await w.refused("GET", "/last_job?back=2"))[0] == 404


@pytest.mark.parametrize("ends", [*itertools.product((False, True), repeat=3)], ids=str)
@pytest.mark.parametrize("arrays", [(), (0,), (2,), (0, 1, 2)], ids=str)
async def test_the_last_job_is_the_one_submitted_last_ended_or_not(
    ends: tuple[bool, ...], arrays: tuple[int, ...]
) -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=8))
        ids = [await w.submit(**({"array": "1-2"} if place in arrays else {})) for place in range(3)]
        await w.submit(user="ann")
        for place, (job, has_ended) in enumerate(zip(ids, ends, strict=True)):
            for process in [job + 1, job + 2] if place in arrays else [job]:
                if has_ended or process == job + 1:  # of an array that goes on, one element has ended
                    await end(w, process)
        for back in range(3):
            assert (await w.good("GET", f"/last_job?back={back}"))["id"] == ids[2 - back]
        assert (await w.refused("GET", "/last_job?back=3"))[0] == 404
        batch = [{**SLEEP, "after": text} for text in ("any:@", "any:@~1,any:@", "any:@~4,any:@~3")]
        first, second, third = (await w.good("POST", "/jobs", batch))["ids"]
        assert [await after(w, job) for job in (first, second, third)] == [
            f"any:{ids[2]}", f"any:{ids[2]},any:{first}", f"any:{ids[0]},any:{ids[1]}",
        ]  # fmt: skip


async def test_a_condition_outlives_the_scheduler() -> None:
    async with world() as w:
        first, store = await w.submit(), w.service.store
        second = await w.submit(after=f"ok:{first}")
    async with world(store) as w:
        await w.good("POST", "/node", node(gpus=2))
        assert await w.state(second) == "queued"
        await end(w, first)
        assert await w.state(second) == "assigned"


async def test_jobs_are_counted_back_over_one_request_and_over_those_that_have_ended() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        ended = await w.submit(user="ann")
        await w.submit(user="bob")
        await end(w, ended)
        batch = [{**SLEEP, "user": "ann", "after": text} for text in ("any:@", "ok:@", "ok:@~1,any:@~2", "")]
        ids = (await w.good("POST", "/jobs", batch))["ids"]
        assert [await after(w, job) for job in ids] == [
            f"any:{ended}", f"ok:{ids[0]}", f"ok:{ids[0]},any:{ended}", "",
        ]  # fmt: skip
        assert (await w.good("GET", f"/job/{ids[0]}"))["holds"] == []
        assert await after(w, await w.submit(user="ann", after="afterany:@:@~1")) == f"any:{ids[3]},any:{ids[2]}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ok:99", "there is no job 99"),
        ("ok:5", "there is no job 5"),
        ("ok:@~7", "@~7 is no job: ann has submitted 3 that are still known"),
        ("ok:1", "job 1 has ended as failed, so ok:1 can never come true"),
        ("fail:2", "job 2 has ended as succeeded, so fail:2 can never come true"),
        ("ok:3,fail:3", "ok:3 and fail:3 can never both come true"),
        ("soon:3", "must be ok:12, fail:12, any:12 or start:12"),
        ("ok:-1", "must be ok:12"),
        ("ok:3?fail:3", "must be ok:12"),
        ("ok:", "must be ok:12"),
        ("0", "must be ok:12"),
        ("ok:٣", "must be ok:12"),
        ("any:3," * 3 + "any:@~99999", "too far back"),
    ],
)
async def test_what_can_never_be_met_is_refused_and_nothing_is_taken(text: str, message: str) -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        failed, succeeded = await w.submit(user="ann"), await w.submit(user="ann")
        await end(w, failed, 1)
        await end(w, succeeded)
        await w.submit(user="ann")
        status, said = await w.refused("POST", "/job", {**SLEEP, "user": "ann", "after": text})
        assert (status, said[0]["field"]) == (422, "after")
        assert message in said[0]["message"]
        batch = [{**SLEEP, "user": "ann"}, {**SLEEP, "user": "ann", "after": text}]
        status, said = await w.refused("POST", "/jobs", batch)
        assert (status, said[0]["field"]) == (422, "jobs[1].after")
        assert [job["id"] for job in await w.good("GET", "/live_jobs")] == [3]


async def test_a_singleton_waits_for_all_before_it_of_its_name() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=4))
        first = await w.submit(user="ann", name="train")
        await w.submit(user="ann", name="other")
        await w.submit(user="bob", name="train")
        second = await w.submit(user="ann", name="train", singleton=True)
        third = await w.submit(user="ann", name="train", after="singleton")
        assert (await after(w, second), await after(w, third)) == (f"any:{first}", f"any:{second},any:{first}")
        await end(w, first, 1)
        assert (await w.state(second), await w.state(third)) == ("assigned", "queued")


async def test_a_singleton_of_too_many_namesakes_is_refused() -> None:
    async with world() as w:
        same = [{**SLEEP, "user": "ann", "name": "train"}] * 1_001
        await w.good("POST", "/jobs", same)
        status, said = await w.refused("POST", "/job", {**same[0], "singleton": True})
        assert (status, said[0]["message"]) == (422, "would wait for 1001 jobs named 'train', and may for 1000")


async def test_a_job_of_which_the_user_is_not_told_does_not_exist() -> None:
    async with world(see="own") as w:
        await w.good("POST", "/node", node())
        hidden = await w.submit(user="bob")
        ann = await guest(w, "a", user="ann")
        status, said = await ann.ask("POST", "/job", {**SLEEP, "after": f"any:{hidden}"})
        assert (status, said["detail"][0]["message"]) == (422, f"there is no job {hidden}")


async def test_a_held_job_is_released_now_or_at_a_time() -> None:
    async with world(tick_s=0.01) as w:
        await w.good("POST", "/node", node(gpus=2))
        job, other = await w.submit(user="ann", hold=True), await w.submit(user="ann", hold=True)
        shown = await w.good("GET", f"/job/{job}")
        assert (shown["state"], shown["suspended"], shown["holds"][0]["by"]) == ("queued", True, "ann")
        await w.good("POST", f"/job/{job}/resume", {})
        assert await w.state(job) == "assigned"
        await w.good("POST", f"/job/{other}/resume", {"at": "now+1h"})
        assert (await w.good("GET", f"/job/{other}/why"))["why"] == "begins-later"
        status, said = await w.refused("POST", f"/job/{other}/resume", {"at": "soon"})
        assert (status, said[0]["field"]) == (422, "at")
        status, said = await w.refused("POST", f"/job/{job}/resume", {"at": "now+1h"})
        assert status == 409
        await w.good("POST", f"/job/{other}/resume", {})
        assert await w.state(other) == "assigned"


async def test_what_waits_for_others_is_not_released() -> None:
    async with world() as w:
        first = await w.submit()
        second = await w.submit(after=f"ok:{first}")
        status, said = await w.refused("POST", f"/job/{second}/resume", {})
        assert status == 409
        assert f"job {second} is not held by its owner: Dependency" in said


async def test_conditions_of_many_are_cheap() -> None:
    """A chain of a thousand: what is looked at when one ends does not grow with it."""
    async with world() as w:
        await w.good("POST", "/node", node())
        chain = [{**SLEEP, "user": "ann", "after": "ok:@" if number else ""} for number in range(1_000)]
        ids = (await w.good("POST", "/jobs", chain))["ids"]
        assert await after(w, ids[-1]) == f"ok:{ids[-2]}"
        await end(w, ids[0])
        assert await w.state(ids[1]) == "assigned"
        state = w.service.driver.core.state
        assert {len(waiting) for waiting in state.dependents.values()} == {1}


# -- arrays, element by element


async def test_each_element_starts_with_the_success_of_its_own() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=3))
        first = await w.submit(user="ann", array="0-9")
        second = await w.submit(user="ann", array="1-3", after="each:@")
        assert await after(w, second) == f"each:{first}"
        shown = await w.good("GET", f"/job/{second + 2}")
        assert (shown["array_index"], shown["holds"][0]["after"]) == (2, f"ok:{first}[2]")
        assert (await w.good("GET", f"/job/{second + 2}/why"))["sentence"] == (
            f"Dependency: it starts once job {first}[2] has succeeded"
        )
        for index, code in ((0, 0), (1, 0), (2, 5)):
            await end(w, first + 1 + index, code)
        assert (await w.good("GET", f"/job/{second + 1}"))["holds"] == []
        ended = await w.good("GET", f"/job/{second + 2}")
        assert (ended["state"], ended["why"]) == ("cancelled", "after-never")
        assert (await w.good("GET", f"/job/{second + 3}"))["holds"][0]["after"] == f"ok:{first}[3]"
        counts = (await w.good("GET", f"/job/{second}"))["elements"]
        assert (counts["waiting"] + counts["running"], counts["cancelled"]) == (2, 1)


async def test_what_has_ended_by_then_is_waited_for_no_more_and_a_restart_changes_nothing() -> None:
    async def states(w: World, array: int) -> list[str]:
        return [await w.state(array + 1 + ordinal) for ordinal in range(3)]

    async with world() as w:
        store = w.service.store
        await w.good("POST", "/node", node(gpus=3))
        first = await w.submit(user="ann", array="0-2")
        await end(w, first + 1)
        second = await w.submit(user="ann", array="0-2%1", after=f"aftercorr:{first}", hold=True)
        holds = [(await w.good("GET", f"/job/{second + 1 + ordinal}"))["holds"] for ordinal in range(3)]
        assert [[hold["kind"] for hold in each] for each in holds] == [["user"], ["user", "after"], ["user", "after"]]
    async with world(store) as w:
        await w.good("POST", "/node", node(gpus=3))
        await w.good("POST", f"/job/{second}/resume", {})
        assert await states(w, second) == ["assigned", "queued", "queued"]
        for ordinal in (1, 2):
            await end(w, first + 1 + ordinal)
        assert await states(w, second) == ["assigned", "queued", "queued"], "one at once"
        await end(w, second + 1)
        assert await states(w, second) == ["succeeded", "assigned", "queued"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "each:1 is of two arrays, and this job is none: say ok:1"),
        ({"array": "0-3"}, "array 1 has no element 3: it has 0-2"),
        ({"array": "0-2", "after": "each:1[2]"}, "each:1[2] must name an array as a whole, as each:12"),
        ({"array": "0-2", "after": "each:5"}, "each:5 is of two arrays, and job 5 is none: say ok:5"),
        ({"array": "0-2", "after": "each:99"}, "there is no job 99"),
        ({"array": "0-1000", "after": "each:6"}, "each:6 is of at most 1000 elements, got 1001"),
        ({"array": "0-2", "after": "each:1,ok:5"}, ""),
    ],
)
async def test_what_cannot_be_waited_for_element_by_element_is_named(fields: dict[str, str], said: str) -> None:
    async with world() as w:
        assert await w.submit(user="ann", array="0-2") == 1
        assert await w.submit(user="ann") == 5
        assert await w.submit(user="ann", array="0-1000") == 6
        answer = await w.http.post("/job", json={**SLEEP, "user": "ann", "after": "each:1", **fields})
        told = "" if answer.status_code == 200 else answer.json()["detail"][0]["message"]
        assert told == said
