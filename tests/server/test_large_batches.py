"""A large batch is judged before its turn, a few jobs at a time, and taken whole or not at all as ever."""

from __future__ import annotations

import asyncio
import copy
import gc
import itertools
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from colane.api.job_request import JobRequest
from colane.core.core import Core
from colane.core.events import Event, Outcome, Submitted
from colane.model.limits import Limits, Quotas
from colane.server.board.hardware import Hardware
from colane.server.board.read_model import ReadModel
from colane.server.board.slices import (
    ADMITTED,
    KEY,
    SLICE_JOBS_MAX,
    BatchSlice,
    jobs_text,
    put_slice,
    read_slice,
    sliced,
)
from colane.server.board.submission import Admitted
from colane.server.board.turn import Turn
from colane.server.ground.access import Caller, Role
from colane.server.ground.problems import PROBLEMS_MAX, RefusedError
from colane.server.ground.sight import Sight
from colane.server.ground.yielding import ITEMS_AT_ONCE
from colane.server.handlers.submissions import JudgedBatch, judge_in_slices
from colane.server.store.store import LAUNCH_SPECS, META, StoreWriter, Transaction
from colane.server.submitting.admission import admit_all
from colane.server.submitting.dependencies import Dependencies
from colane.server.submitting.lookup import Families
from tests.memory_store import MemoryStore
from tests.server.harness import SLEEP, Agents, World, beside, node, world

SLICE = ITEMS_AT_ONCE
MANY = 8 * SLICE + 1
BODY: list[Any] = [{**SLEEP, "name": f"j{number}"} for number in range(MANY)]


def requests(**fields: Any) -> list[JobRequest]:
    return [JobRequest.model_validate({**body, **fields}) for body in BODY]


async def test_others_go_on_while_a_batch_is_judged() -> None:
    found, went_on = await beside(judge_in_slices(requests(), Hardware(), "/srv", 0.0, Families()))
    assert found.admitted == admit_all(requests(), Hardware(), "/srv")
    assert went_on >= MANY // SLICE


async def test_times_to_begin_are_counted_from_one_moment() -> None:
    found = await judge_in_slices(requests(begin="now+1h"), Hardware(), "/srv", 100.0, Families())
    assert {hold.until_s for job in found.jobs() for hold in job.holds} == {3_700.0}


async def test_what_is_wrong_is_told_as_in_one_go() -> None:
    wrong = [*requests(), *requests(workdir="here"), *requests()]
    found = await judge_in_slices(wrong, Hardware(), "/srv", 0.0, Families())
    with pytest.raises(RefusedError) as told:
        found.jobs()
    with pytest.raises(RefusedError) as whole:
        admit_all(wrong, Hardware(), "/srv")
    assert told.value.problems == whole.value.problems
    assert len(told.value.problems) == PROBLEMS_MAX


async def test_one_bad_job_of_many_is_named_and_nothing_is_stored() -> None:
    async with world() as w:
        status, detail = await w.refused("POST", "/jobs", [*BODY, {**SLEEP, "workdir": "here"}])
        assert status == 422
        assert [each["field"] for each in detail] == [f"jobs[{MANY}].workdir"]
        assert await w.good("GET", "/jobs") == []


async def test_a_batch_judged_before_a_node_came_is_judged_anew(monkeypatch: Any) -> None:
    """Without nodes nothing is known of hardware; the node that comes has less memory than is asked for."""
    async with world(agents=Agents()) as w:
        judged_early = asyncio.Event()
        wait = asyncio.Event()

        async def judge_and_wait(*args: Any) -> JudgedBatch:
            found = await judge_in_slices(*args)
            judged_early.set()
            await wait.wait()
            return found

        monkeypatch.setattr("colane.server.handlers.submissions.judge_in_slices", judge_and_wait)
        posting = asyncio.create_task(w.post("/jobs", [{**body, "gpu_memory": "1TB"} for body in BODY]))
        await judged_early.wait()
        await w.good("POST", "/node", node())
        wait.set()
        answer = await posting
        assert answer.status_code == 422, answer.text
        assert "gpu_memory" in answer.text
        assert await w.good("GET", "/jobs") == []


async def test_a_large_batch_is_taken_and_given_once_for_a_key() -> None:
    async with world() as w:
        first = await w.post("/jobs", BODY, **{"Idempotency-Key": "once"})
        again = await w.post("/jobs", BODY, **{"Idempotency-Key": "once"})
        assert first.json() == again.json() == {"ids": list(range(1, MANY + 1))}


def is_slice(key: str) -> bool:
    return key.startswith(KEY)


async def until(is_so: Callable[[], bool]) -> None:
    """Let all others go on until something is so."""
    while not is_so():  # noqa: ASYNC110 - at each commit, of which nothing tells
        await asyncio.sleep(0)


class RememberingStore(MemoryStore):
    """Keeps what it held after each commit, as a crash at that moment leaves it."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[tuple[Any, Any, int]] = []

    def commit(self, transaction: Transaction, writer: StoreWriter | None = None) -> int:
        last = super().commit(transaction, writer)
        self.left.append((copy.deepcopy(self._collections), list(self._audit), self._version))
        return last

    def as_left(self, moment: int) -> MemoryStore:
        store = MemoryStore()
        store._collections, store._audit, store._version = copy.deepcopy(self.left[moment])
        return store


GB = 10**9
KINDS: dict[str, Callable[[int], dict[str, Any]]] = {
    "plain": lambda _place: {},
    "that begin later": lambda _place: {"begin": "now+2h"},
    "each after the one before": lambda place: {"after": "ok:@"} if place else {},
    "after the first": lambda place: {"after": f"any:@~{place - 1},start:@"} if place else {},
    "one of a name at a time": lambda place: {"singleton": True, "name": f"n{place // 4}"},
    "measured in sets": lambda place: {
        "measurement_group": f"s{place // 2}",
        "measurement_group_size": 2,
        "gpu_memory_bytes": GB // 2,
    },
    "with deadlines": lambda place: (
        {"deadline": "30d", "time_limit": "60s", "gpu_memory_bytes": GB} if place % 50 == 7 else {}
    ),
}


class TestSlices:
    @pytest.mark.parametrize("kind", KINDS)
    async def test_no_turn_takes_in_more_than_a_slice_and_others_get_in_between(
        self, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        came: list[list[int]] = []
        bodies = [{**body, **KINDS[kind](place)} for place, body in enumerate(BODY * 2)]
        step = Core.step

        def counted(core: Core, events: list[Event], now_s: float, *, decides: bool = True) -> Outcome:
            came.append([event.job for event in events if isinstance(event, Submitted)])
            return step(core, events, now_s, decides=decides)

        monkeypatch.setattr(Core, "step", counted)
        async with world(agents=Agents()) as w:
            await w.good("POST", "/node", node(gpus=2))
            batch = asyncio.create_task(w.post("/jobs", bodies))
            others = list[int]()
            while not batch.done():
                others.append(await w.submit(name="other", begin="now+1h"))
            ids = batch.result().json()["ids"]
            assert ids == list(range(ids[0], ids[0] + 2 * MANY))
            assert max(map(len, came)) == SLICE_JOBS_MAX
            of_batch = [jobs for jobs in came if ids[0] in jobs or set(ids) & set(jobs)]
            assert len(of_batch) == -(-2 * MANY // SLICE_JOBS_MAX)
            between = [each for each in others if each > ids[-1]]
            assert len(between) > 2, "submissions went on while the batch entered"
            assert [job["id"] for job in await w.good("GET", "/live_jobs")] == sorted([*ids, *others])

    @pytest.mark.parametrize("kind", [*KINDS, "arrays"])
    async def test_a_crash_after_any_commit_leaves_all_or_none(self, kind: str) -> None:
        elements, given = (3, None) if kind == "arrays" else (0, KINDS[kind])
        bodies = enumerate(BODY[: 2 * SLICE_JOBS_MAX + 1])
        batch = [{**body, **({"array": "1-3"} if given is None else given(place))} for place, body in bodies]
        store = RememberingStore()
        async with world(store, agents=Agents()) as w:
            await w.good("POST", "/node", node(gpus=2))
            before = len(store.left)
            first = await w.post("/jobs", batch, **{"Idempotency-Key": "once"})
            assert first.status_code == 200, first.text
            said = [job["needs"] for job in await w.good("GET", "/live_jobs")]
        ids = first.json()["ids"]
        every = range(1, 1 + (1 + elements) * len(batch))
        assert ids == [*every][:: 1 + elements]
        seen = set[int]()
        for moment in range(before - 1, len(store.left)):
            left = store.as_left(moment)
            entering = sum(map(is_slice, left._collections[META]))
            seen.add(entering)
            async with world(left, agents=Agents()) as w:
                again = await w.post("/jobs", batch, **{"Idempotency-Key": "once"})
                assert again.json() == {"ids": ids}, "the same ids: as they were given, or as the first to come"
                known = await w.good("GET", "/live_jobs")
                assert [job["id"] for job in known] == [*every]
                assert [job["needs"] for job in known] == said
                assert left.count(LAUNCH_SPECS) == len(batch)
                assert not any(map(is_slice, left._collections[META]))
                assert await w.submit() > ids[-1]
        assert seen == set(range(len(cut(1, batch_of(batch))) + 1))

    async def test_a_store_that_fails_in_between_keeps_what_was_taken(self) -> None:
        store = RememberingStore()
        async with world(store, tick_s=0.05) as w:
            batch = asyncio.create_task(w.post("/jobs", BODY))
            await until(lambda: any(map(is_slice, store._collections[META])))
            store.failure = "no room"
            answer = await batch
            assert answer.json() == {"ids": list(range(1, MANY + 1))}, "it is durable, and is not sent again"
            assert any(map(is_slice, store._collections[META]))
            store.failure = None
            await until(lambda: not w.service.read_model.entering)
            assert len(await w.good("GET", "/jobs")) == MANY
            assert await w.submit() == MANY + 1

    async def test_a_limit_counts_jobs_that_are_still_to_enter(self) -> None:
        quotas = Quotas(default=Limits(queued=MANY))
        async with world(quotas=quotas) as w:
            batch = asyncio.create_task(w.post("/jobs", BODY))
            await until(lambda: bool(w.service.read_model.entering))
            status, detail = await w.refused("POST", "/job", SLEEP)
            assert (status, f"and has {MANY}" in str(detail)) == (429, True)
            assert (await batch).status_code == 200

    async def test_a_slice_that_the_core_cannot_take_costs_itself_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        step = Core.step

        def faulty(core: Core, events: list[Event], now_s: float, *, decides: bool = True) -> Outcome:
            if any(isinstance(event, Submitted) and event.spec.name == "j300" for event in events):
                raise ZeroDivisionError
            return step(core, events, now_s, decides=decides)

        monkeypatch.setattr(Core, "step", faulty)
        first = 1 + 300 // SLICE_JOBS_MAX * SLICE_JOBS_MAX
        end = first + SLICE_JOBS_MAX
        async with world() as w:
            status, detail = await w.refused("POST", "/jobs", BODY)
            assert status == 500
            assert f"jobs {first} to {end - 1} were left out" in str(detail)
            await until(lambda: not w.service.read_model.entering)
            left = [job["id"] for job in await w.good("GET", "/jobs")]
            assert left == [*range(1, first), *range(end, MANY + 1)]
            assert await w.submit() == MANY + 1

    async def test_a_batch_is_decided_on_as_a_whole(self) -> None:
        """Where nothing else happens meanwhile: the last of it goes first."""
        async with world(agents=Agents(), tick_s=1_000.0) as w:
            await w.good("POST", "/node", node(gpus=1))
            ids = (await w.post("/jobs", [*BODY, {**SLEEP, "priority": 9}])).json()["ids"]
            running = [job["id"] for job in await w.good("GET", "/live_jobs") if job["state"] != "queued"]
            assert running == [ids[-1]]


def cut(first: int, jobs: list[Admitted]) -> list[BatchSlice]:
    parts = [jobs[begin : begin + SLICE_JOBS_MAX] for begin in range(0, len(jobs), SLICE_JOBS_MAX)]
    return list(sliced(first, jobs, [*map(jobs_text, parts)]))


def batch_of(bodies: list[Any]) -> list[Admitted]:
    return admit_all([JobRequest.model_validate(body) for body in bodies], Hardware(), "/srv")


FIELDS: list[dict[str, Any]] = [{}, {"hold": True}, {"begin": "now+1h"}, {"array": "1-9%2"}, {"env": {"A": "b"}}]


@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_a_slice_is_read_as_it_was_written(fields: dict[str, Any]) -> None:
    jobs = batch_of([{**body, **fields} for body in BODY])
    slices = cut(7, jobs)
    assert [read_slice(json.loads(json.dumps(put_slice(part).document))) for part in slices] == slices
    assert [job for part in slices for job in part.jobs] == jobs
    assert [part.is_last for part in slices] == [False] * (len(slices) - 1) + [True]
    older = {"first": 7, "jobs": [ADMITTED.write(job) for job in slices[0].jobs], "is_last": False}
    assert read_slice(json.loads(json.dumps(older))) == slices[0]


@pytest.mark.parametrize("text", ["", "!", "abcd", jobs_text([])[:-4]])
def test_a_slice_that_was_altered_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_slice({"first": 7, "jobs": text, "is_last": False})


def test_a_batch_takes_little_room_while_it_enters() -> None:
    env = {f"VARIABLE_{number}": "a value of some length" for number in range(20)}
    jobs = batch_of([{**body, "env": env} for body in BODY])
    written = sum(len(part.text) for part in cut(1, jobs))
    assert written < sum(len(json.dumps(ADMITTED.write(job))) for job in jobs) / 8


class TestWhatIsWaitedForEndsMeanwhile:
    """A job that a batch waits for ends once the batch is durable, before those that wait for it enter the queue."""

    @staticmethod
    async def entered_beside(w: World, batch: list[Any], act: Callable[[], Awaitable[object]]) -> list[dict[str, Any]]:
        """Submit a batch, do something while it enters, and return its jobs as they are then."""
        posting = asyncio.create_task(w.post("/jobs", batch))
        await until(lambda: bool(w.service.read_model.entering))
        await act()
        answer = await posting
        assert answer.status_code == 200, answer.text
        return [await w.good("GET", f"/job/{job_id}") for job_id in answer.json()["ids"]]

    @pytest.mark.parametrize(("condition", "state"), [("ok", "cancelled"), ("any", "queued"), ("fail", "queued")])
    async def test_jobs_fare_as_those_that_had_entered(self, condition: str, state: str) -> None:
        async with world() as w:
            other = await w.submit(name="other")
            batch = [{**body, "after": f"{condition}:{other}"} for body in BODY]
            jobs = await self.entered_beside(w, batch, lambda: w.good("DELETE", f"/job/{other}"))
            assert {job["state"] for job in jobs} == {state}
            assert len({job["why"] for job in jobs}) == 1

    async def test_or_are_held_where_their_owner_wants_that(self) -> None:
        async with world() as w:
            other = await w.submit(name="other")
            batch = [{**body, "after": f"ok:{other}", "if_never": "hold"} for body in BODY]
            jobs = await self.entered_beside(w, batch, lambda: w.good("DELETE", f"/job/{other}"))
            assert {job["why"] for job in jobs} == {"held"}

    async def test_elements_wait_for_elements(self) -> None:
        async with world() as w:
            other = await w.submit(name="other", array="1-4")
            batch = [*BODY, *[{**body, "array": "1-4", "after": f"each:{other}"} for body in BODY[:SLICE]]]
            jobs = await self.entered_beside(w, batch, lambda: w.good("DELETE", f"/job/{other}?elements=2"))
            arrays = [job["elements"] for job in jobs if job.get("elements") is not None]
            assert len(arrays) == SLICE
            assert {(array["cancelled"], array["waiting"]) for array in arrays} == {(1, 3)}

    async def test_where_no_record_is_left_its_owner_decides(self) -> None:
        async with world() as w:
            other = await w.submit(name="other")
            batch = [{**body, "after": f"any:{other}"} for body in BODY]

            async def forget() -> None:
                await w.good("DELETE", f"/job/{other}")
                await w.good("DELETE", "/finished_jobs")

            jobs = await self.entered_beside(w, batch, forget)
            assert {job["state"] for job in jobs} == {"queued"}
            [(kind, by)] = {(hold["kind"], hold["by"]) for job in jobs for hold in job["holds"]}
            assert (kind, f"whether any:{other} came true" in by) == ("user", True)
            await w.good("POST", f"/job/{jobs[-1]['id']}/resume", {})

    async def test_a_later_submission_may_wait_for_what_is_to_enter(self) -> None:
        async with world() as w:
            posting = asyncio.create_task(w.post("/jobs", BODY))
            await until(lambda: bool(w.service.read_model.entering))
            [later] = (await w.post("/jobs", [{**SLEEP, "name": f"j{MANY - 1}", "singleton": True}])).json()["ids"]
            assert w.service.read_model.entering
            assert (await posting).status_code == 200
            assert [hold["by"] for hold in (await w.good("GET", f"/job/{later}"))["holds"]] == [f"any:{MANY}"]
            await w.good("DELETE", f"/job/{MANY}")
            assert (await w.good("GET", f"/job/{later}"))["why"] == "after-met"


async def test_nothing_starts_on_promised_gpus_while_what_they_are_promised_to_enters() -> None:
    async with world(agents=Agents()) as w:
        await w.good("POST", "/node", node(gpus=1))
        whole = {"gpu_memory_bytes": GB, "share": False, "preemptible": False}
        batch = [*BODY, {**SLEEP, **whole, "deadline": "10m", "time_limit": "60s"}]
        batch = [{**body, "hold": True} if "deadline" not in body else body for body in batch]
        posting = asyncio.create_task(w.post("/jobs", batch))
        await until(lambda: bool(w.service.read_model.entering) or posting.done())
        between = await w.submit(name="between", **whole)
        assert w.service.read_model.entering
        assert await w.state(between) == "queued"
        ids = (await posting).json()["ids"]
        running = [job["id"] for job in await w.good("GET", "/live_jobs") if job["state"] != "queued"]
        assert running == [ids[-1]]


def calls_of(jobs: int, fields: dict[str, Any]) -> int:
    """How many calls it takes to find what each job of a batch waits for."""
    turn = Turn(ReadModel(), 0.0, 1, {})
    asked = [{**SLEEP, **fields, "after": ""}, *[{**SLEEP, **fields} for _ in range(jobs)]]
    batch = admit_all([JobRequest.model_validate_json(json.dumps(one)) for one in asked], Hardware(), "/srv")
    wanted, calls = Dependencies(turn, Sight(Caller("me", Role.OPERATOR))), 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        wanted.given(batch)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(
    "fields",
    [{"after": "start:@"}, {"array": "1-3", "after": "start:@[2]"}, {"array": "1-3", "after": "each:@"}],
    ids=str,
)
def test_what_a_batch_waits_for_is_found_in_as_many_steps_as_it_has_jobs(fields: dict[str, Any]) -> None:
    assert calls_of(512, fields) < 2.2 * calls_of(256, fields)


REFUSED: dict[str, Callable[[list[dict[str, Any]]], None]] = {
    "wrong": lambda jobs: jobs[-1].update(gpus=-1),
    "after none": lambda jobs: jobs[-1].update(after="999999"),
    "over a limit": lambda jobs: jobs.append(dict(jobs[-1])),
}
BLOCKS_LEFT_MAX = 2_000
"""Of memory: fewer than one for each job of one batch, each of dozens. The parser's cache, of 16,384 strings,
is full before."""


async def test_batches_that_are_refused_leave_no_memory_behind() -> None:
    """15 of 2,000 jobs, each for another cause than the one before."""

    def batch(number: int, kind: str) -> dict[str, Any]:
        of = [f"{number}-{each}" for each in range(2_000)]
        jobs = [
            {**SLEEP, "name": f"n{one}", "family": f"f{one}", "env": {"A": one}, "labels": {"b": one}} for one in of
        ]
        REFUSED[kind](jobs)
        return {"jobs": jobs}

    async with world(quotas=Quotas(Limits(queued=2_000))) as w:
        kinds = itertools.cycle(REFUSED)

        async def refused(numbers: range) -> int:
            for number in numbers:
                kind = next(kinds)
                status, _ = await w.refused("POST", "/jobs", batch(number, kind))
                assert status in {422, 429}, kind
            gc.collect()
            return sys.getallocatedblocks()

        before = await refused(range(6))
        assert await refused(range(6, 21)) < before + BLOCKS_LEFT_MAX
        assert await w.good("GET", "/jobs") == []


YOUNG_MAX = 10_000  # what one request and its turn make; a batch of so many jobs makes several times as much


async def test_no_step_looks_for_garbage_in_what_the_turns_before_it_made() -> None:
    known = gc.get_threshold()
    gc.collect()
    gc.set_threshold(2**30)
    try:
        async with world(quotas=Quotas(Limits(queued=2_000))) as w:
            await w.good("POST", "/jobs", [{**SLEEP, "name": f"j{number}"} for number in range(1_000)])
            await w.submit()
            assert len(gc.get_objects(0)) < YOUNG_MAX
    finally:
        gc.set_threshold(*known)
