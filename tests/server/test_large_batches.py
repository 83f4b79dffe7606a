"""A large batch is judged before its turn, a few jobs at a time, and taken whole or not at all as ever."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from colane.api.job_request import JobRequest
from colane.core.core import Core
from colane.core.events import Event, Outcome, Submitted
from colane.model.limits import Limits, Quotas
from colane.server.store.memory import MemoryStore
from colane.server.store.store import LAUNCH_SPECS, META, StoreWriter, Transaction
from colane.server.submitting import admission
from colane.server.submitting.admission import SLICE, admit_all, judge_in_slices
from colane.server.submitting.hardware import Hardware
from colane.server.submitting.lookup import Families
from colane.server.submitting.slices import KEY, SLICE_JOBS_MAX, put_slice, read_slice, sliced
from tests.server.harness import SLEEP, Agents, node, world

MANY = 8 * SLICE + 1
BODY: list[Any] = [{**SLEEP, "name": f"j{number}"} for number in range(MANY)]


def requests(**fields: Any) -> list[JobRequest]:
    return [JobRequest.model_validate({**body, **fields}) for body in BODY]


async def test_others_go_on_while_a_batch_is_judged() -> None:
    went_on = 0

    async def go_on() -> None:
        nonlocal went_on
        while True:
            went_on += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(go_on())
    found = await judge_in_slices(requests(), Hardware(), "/srv", Families())
    other.cancel()
    assert found is not None
    assert found.admitted == admit_all(requests(), Hardware(), "/srv")
    assert went_on >= MANY // SLICE


async def test_what_depends_on_its_turn_or_is_wrong_is_left_to_it() -> None:
    assert await judge_in_slices(requests()[:SLICE], Hardware(), "/srv", Families()) is None
    assert await judge_in_slices(requests(begin="now+1h"), Hardware(), "/srv", Families()) is None
    assert await judge_in_slices([*requests(), *requests(workdir="here")], Hardware(), "/srv", Families()) is None


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

        async def judge_and_wait(*args: Any) -> admission.JudgedBatch | None:
            found = await judge_in_slices(*args)
            assert found is not None
            judged_early.set()
            await wait.wait()
            return found

        monkeypatch.setattr("colane.server.service.judge_in_slices", judge_and_wait)
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


class TestSlices:
    async def test_no_turn_takes_in_more_than_a_slice_and_others_get_in_between(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        came: list[list[int]] = []
        step = Core.step

        def counted(core: Core, events: list[Event], now_s: float, *, decides: bool = True) -> Outcome:
            came.append([event.job for event in events if isinstance(event, Submitted)])
            return step(core, events, now_s, decides=decides)

        monkeypatch.setattr(Core, "step", counted)
        async with world() as w:
            batch = asyncio.create_task(w.post("/jobs", BODY * 4))
            others = list[int]()
            while not batch.done():
                others.append(await w.submit(name="other"))
            ids = batch.result().json()["ids"]
            assert ids == list(range(ids[0], ids[0] + 4 * MANY))
            assert max(map(len, came)) == SLICE_JOBS_MAX
            of_batch = [jobs for jobs in came if ids[0] in jobs or set(ids) & set(jobs)]
            assert len(of_batch) == -(-4 * MANY // SLICE_JOBS_MAX)
            between = [each for each in others if each > ids[-1]]
            assert len(between) > 2, "submissions went on while the batch entered"
            assert [job["id"] for job in await w.good("GET", "/jobs")] == sorted([*ids, *others])

    @pytest.mark.parametrize("elements", [0, 3])
    async def test_a_crash_after_any_commit_leaves_all_or_none(self, elements: int) -> None:
        batch = [{**body, "array": f"1-{elements}"} for body in BODY[: SLICE_JOBS_MAX + 1]] if elements else BODY
        store = RememberingStore()
        async with world(store) as w:
            before = len(store.left)
            first = await w.post("/jobs", batch, **{"Idempotency-Key": "once"})
            assert first.status_code == 200, first.text
        ids = first.json()["ids"]
        every = range(1, 1 + (1 + elements) * len(batch))
        assert ids == [*every][:: 1 + elements]
        seen = set[int]()
        for moment in range(before - 1, len(store.left)):
            left = store.as_left(moment)
            entering = sum(map(is_slice, left._collections[META]))
            seen.add(entering)
            async with world(left) as w:
                again = await w.post("/jobs", batch, **{"Idempotency-Key": "once"})
                assert again.json() == {"ids": ids}, "the same ids: as they were given, or as the first to come"
                assert [job["id"] for job in await w.good("GET", "/jobs")] == [*every]
                assert left.count(LAUNCH_SPECS) == len(batch)
                assert not any(map(is_slice, left._collections[META]))
                assert await w.submit() > ids[-1]
        assert seen == set(range(len(list(sliced(1, batch_of(batch)))) + 1))

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
        async with world() as w:
            status, detail = await w.refused("POST", "/jobs", BODY)
            assert status == 500
            assert f"jobs {SLICE_JOBS_MAX + 1} to {2 * SLICE_JOBS_MAX} were left out" in str(detail)
            await until(lambda: not w.service.read_model.entering)
            left = [job["id"] for job in await w.good("GET", "/jobs")]
            assert left == [*range(1, SLICE_JOBS_MAX + 1), *range(2 * SLICE_JOBS_MAX + 1, MANY + 1)]
            assert await w.submit() == MANY + 1

    async def test_a_batch_is_decided_on_as_a_whole(self) -> None:
        """Where nothing else happens meanwhile: the last of it goes first."""
        async with world(agents=Agents(), tick_s=1_000.0) as w:
            await w.good("POST", "/node", node(gpus=1))
            ids = (await w.post("/jobs", [*BODY, {**SLEEP, "priority": 9}])).json()["ids"]
            running = [job["id"] for job in await w.good("GET", "/live_jobs") if job["state"] != "queued"]
            assert running == [ids[-1]]

    async def test_jobs_that_wait_for_others_enter_in_one_turn(self) -> None:
        async with world() as w:
            batch = [*BODY, {**SLEEP, "after": "ok:@"}]
            ids = (await w.post("/jobs", batch)).json().get("ids")
            assert ids == list(range(1, MANY + 2))
            assert "after" in str(await w.good("GET", f"/job/{ids[-1]}"))


def batch_of(bodies: list[Any]) -> list[admission.Admitted]:
    return admit_all([JobRequest.model_validate(body) for body in bodies], Hardware(), "/srv")


FIELDS: list[dict[str, Any]] = [{}, {"hold": True}, {"begin": "now+1h"}, {"array": "1-9%2"}, {"env": {"A": "b"}}]


@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_a_slice_is_read_as_it_was_written(fields: dict[str, Any]) -> None:
    jobs = batch_of([{**body, **fields} for body in BODY])
    slices = list(sliced(7, jobs))
    assert [read_slice(json.loads(json.dumps(put_slice(part).document))) for part in slices] == slices
    assert [job for part in slices for job in part.jobs] == jobs
    assert [part.is_last for part in slices] == [False] * (len(slices) - 1) + [True]
