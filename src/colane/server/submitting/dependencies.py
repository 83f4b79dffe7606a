"""Conditions on other jobs, as they are submitted: which jobs are meant, and whether they can still come true."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from colane.model.arrays import each_of, element_id, element_of, has, known
from colane.model.job import Job, JobId, JobSpec, JobState
from colane.model.phases import Dependency, DependsOn, Hold, HoldKind
from colane.model.problem import Problem
from colane.server.board.arrays import ended_array_with, unmade
from colane.server.board.reads import NotReadError
from colane.server.board.submission import Admitted
from colane.server.board.turn import Turn
from colane.server.ground.problems import PROBLEMS_MAX, RefusedError
from colane.server.ground.sight import Sight
from colane.server.ground.yielding import in_slices
from colane.server.store import documents
from colane.server.store.store import FINISHED_JOBS, job_key
from colane.server.submitting.asked_conditions import CONDITIONS_MAX, AskedCondition, parse_asked
from colane.server.views.listing import last_of


class Dependencies:
    """Gives jobs of one request their conditions, in order: the later ones may name the earlier by `@`.

    Args:
        turn: Of their submission.
        sight: What the caller is told of: a job that is hidden does not exist.
    """

    def __init__(self, turn: Turn, sight: Sight) -> None:
        self._turn = turn
        self._sight = sight
        self._coming = _Coming(turn)
        self._found = list[Admitted]()
        self._problems = list[Problem]()

    def given(self, jobs: Sequence[Admitted], field: str = "jobs[{}].after") -> list[Admitted]:
        """Return the jobs, each held for what it waits for.

        Raises RefusedError: 422, a condition names no job, or can never come true; none of them is taken.
        """
        for position, job in enumerate(jobs):
            self._take(job, field.format(position))
            if len(self._problems) >= PROBLEMS_MAX:
                break
        return self._all()

    async def given_in_slices(self, jobs: Sequence[Admitted]) -> list[Admitted]:
        """Return the same of a large batch, while others go on: nothing else adds to the turn meanwhile.

        Raises RefusedError: see `given`.
        """
        if not any(job.spec.after or job.is_singleton for job in jobs):
            return list(jobs)
        await asyncio.to_thread(self._turn.reads.fetch, [one async for one in self._ended_named(jobs)])
        position = 0
        async for part in in_slices(jobs):
            for job in part:
                await self._read_and_take(job, f"jobs[{position}].after")
                position += 1
            if len(self._problems) >= PROBLEMS_MAX:
                break
        return self._all()

    async def _ended_named(self, jobs: Sequence[Admitted]) -> AsyncIterator[tuple[str, str]]:
        """The records that conditions name by their ids, each once."""
        live, named = self._turn.read_model.jobs, dict[JobId, None]()
        async for part in in_slices([job.spec.after for job in jobs if job.spec.after]):
            for text in part:
                with suppress(ValueError):  # it is told what is wrong in its turn
                    named |= {JobId(each.job): None for each in parse_asked(text)[0] if each.back is None}
        for job_id in named:
            if job_id not in live:
                yield FINISHED_JOBS, job_key(job_id)

    async def _read_and_take(self, job: Admitted, field: str) -> None:
        while True:
            try:
                self._take(job, field)
            except NotReadError as wanted:
                await asyncio.to_thread(wanted.read)
            else:
                return

    def _take(self, job: Admitted, field: str) -> None:
        try:
            self._found.append(self._held(job))
        except ValueError as error:
            self._problems.append(Problem(field, str(error)))
        self._coming.add(job)

    def _all(self) -> list[Admitted]:
        if self._problems:
            raise RefusedError(422, self._problems[:PROBLEMS_MAX])
        return self._found

    def _held(self, job: Admitted) -> Admitted:
        if not job.spec.after and not job.is_singleton:
            return job
        asked, is_singleton = parse_asked(job.spec.after) if job.spec.after else ([], False)
        whole = [each for each in asked if not each.is_each]
        wanted = {one: None for each in whole for one in self._dependencies(each, job.spec.user)}
        if is_singleton or job.is_singleton:
            wanted |= {Dependency(DependsOn.ANY, each): None for each in self._namesakes(job.spec)}
            if len(wanted) > CONDITIONS_MAX:
                raise ValueError(
                    f"would wait for {len(wanted)} jobs named {job.spec.name!r}, and may for {CONDITIONS_MAX}"
                )
        holds = [Hold(HoldKind.AFTER, str(each), None, each) for each in wanted if self._is_open(each)]
        _demand_possible(wanted)
        each_of_other = {JobId(self._meant(each, job.spec.user)): None for each in asked if each.is_each}
        told = [*map(str, wanted), *(f"each:{other}" for other in each_of_other)]
        elements = self._by_element(job, list(each_of_other))
        return replace(job, after=",".join(told), holds=(*job.holds, *holds), elements=elements)

    def _by_element(self, job: Admitted, others: Sequence[JobId]) -> tuple[tuple[int, tuple[Hold, ...]], ...]:
        """What each element of an array waits for of others: that the one with its index has succeeded.

        Raises ValueError: it is no array, or one of the others is none, or lacks an index, or one has failed already.
        """
        found: dict[int, list[Hold]] = {}
        for other in others:
            owner = self._array(other)
            if job.array is None or owner.array is None:
                lacks = "this job" if job.array is None else f"job {other}"
                raise ValueError(f"each:{other} is of two arrays, and {lacks} is none: say ok:{other}")
            if job.array.size > CONDITIONS_MAX:
                raise ValueError(f"each:{other} is of at most {CONDITIONS_MAX} elements, got {job.array.size}")
            mine, theirs = known(job.array), known(owner.array)
            for ordinal in range(mine.size):
                index = mine.index_of(ordinal)
                place = theirs.ordinal_of(index)
                if place is None:
                    raise ValueError(f"array {other} has no element {index}: it has {owner.array.indexes}")
                element = element_id(other, place)
                wanted = Dependency(DependsOn.OK, element, element_of(other, owner.array, element))
                if self._is_open(wanted):
                    found.setdefault(ordinal, []).append(Hold(HoldKind.AFTER, str(wanted), None, wanted))
        return tuple((ordinal, tuple(holds)) for ordinal, holds in sorted(found.items()))

    def _dependencies(self, asked: AskedCondition, user: str) -> Iterable[Dependency]:
        """The jobs that are meant, each with its condition: elements of an array have ids of their own.

        Raises ValueError: there is no such job, or no such element.
        """
        job_id = JobId(self._meant(asked, user))
        if asked.elements is None:
            owner = self._array_with(job_id)
            element = None if owner is None or owner.array is None else element_of(owner.id, owner.array, job_id)
            yield Dependency(asked.on, job_id, element)
            return
        owner = self._array(job_id)
        if owner.array is None:
            raise ValueError(f"job {job_id} is no array: name it without [{asked.elements}]")
        found, missing = known(owner.array).ordinals_of(asked.elements)
        if missing is not None:
            raise ValueError(f"array {job_id} has no element {missing}: it has {owner.array.indexes}")
        for ordinal in each_of(found):
            other = element_id(job_id, ordinal)
            yield Dependency(asked.on, other, element_of(job_id, owner.array, other))

    def _array(self, job_id: JobId) -> Job:
        """The job with an id, also one of this request or this turn, of which only its array is told.

        Raises ValueError: there is none.
        """
        admitted = self._coming.get(job_id)
        if admitted is not None:
            return Job(job_id, admitted.spec, self._turn.now_s, array=admitted.array)
        live = self._turn.read_model.jobs.get(job_id)
        document = self._turn.reads.get(FINISHED_JOBS, job_key(job_id)) if live is None else None
        job = live if document is None else documents.decode_job(document["job"])
        if job is None or not self._sight.has(job.spec.user):
            raise ValueError(f"there is no job {job_id}")
        return job

    def _array_with(self, job_id: JobId) -> Job | None:
        """The array one of whose elements has an id, also one of this request or this turn."""
        if (live := self._turn.read_model.jobs.get(job_id)) is not None and live.element is None:
            return None
        if (coming := self._coming.array_with(job_id)) is not None:
            array_id, admitted = coming
            return Job(array_id, admitted.spec, self._turn.now_s, array=admitted.array)
        if self._coming.get(job_id) is not None:
            return None
        owner = self._turn.read_model.array_with(job_id) or ended_array_with(self._turn.reads, job_id)
        return owner if owner is not None and self._sight.has(owner.spec.user) else None

    def _meant(self, asked: AskedCondition, user: str) -> int:
        """The id of the job that is meant."""
        if asked.back is None:
            return asked.job
        ids, live = self._coming.ids_of(user), self._turn.read_model.jobs
        known = bisect_left(ids, True, key=lambda job: job not in live)
        coming = len(ids) - known  # newer than any that has ended
        if asked.back < coming:
            return ids[-1 - asked.back]
        return last_of(user, ids[:known], self._turn.reads, asked.back - coming)

    def _namesakes(self, spec: JobSpec) -> Iterable[JobId]:
        """Live jobs of the user with the same name: all, as one of them may be cancelled while it waits for others."""
        return reversed(self._coming.namesakes(spec.user, spec.name))

    def _spec_of(self, job_id: JobId) -> JobSpec | None:
        if (admitted := self._coming.get(job_id)) is not None:
            return admitted.spec
        job = self._turn.read_model.jobs.get(job_id)
        return None if job is None else job.spec

    def _is_open(self, wanted: Dependency) -> bool:
        """Whether a condition is still to come true. Raises ValueError: there is no such job, or it never can."""
        job_id = JobId(wanted.job)
        spec = self._spec_of(job_id)
        live = self._turn.read_model.jobs.get(job_id)
        if live is None and wanted.element is not None and (element := self._unmade(job_id)) is not None:
            spec, live = element.spec, element
        if spec is not None and self._sight.has(spec.user) and not (live is not None and live.has_ended):
            return live is None or wanted.holds_for(live.state, has_started=live.has_started) is None
        state = self._ended_as(wanted, live)
        if wanted.holds_for(state, has_started=True) is False:
            raise ValueError(
                f"job {wanted.element or wanted.job} has ended as {state.value}, so {wanted} can never come true"
            )
        return False

    def _ended_as(self, wanted: Dependency, element: Job | None) -> JobState:
        """How a job has ended, or an element that was cancelled before it was one."""
        if element is not None and self._sight.has(element.spec.user):
            return element.state
        document = self._turn.reads.get(FINISHED_JOBS, job_key(wanted.job)) if element is None else None
        if document is None or not self._sight.has(document["job"]["spec"]["user"]):
            raise ValueError(f"there is no job {wanted.element or wanted.job}")
        return JobState(document["job"]["state"])

    def _unmade(self, job_id: JobId) -> Job | None:
        """An element that is no job of its own."""
        owner = self._array_with(job_id)
        return None if owner is None else unmade(owner, job_id)


class _Coming:
    """Jobs that are to enter the queue: of batches that others submitted, of this turn, and of this request so far.

    Ids ascend in that order, and those of an array's elements stand behind its own.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._jobs: dict[JobId, Admitted] = {}
        self._arrays: list[JobId] = []
        self._next = turn.next_job_id
        self._has_others = False
        self._live: dict[str, list[JobId]] | None = None
        self._named: dict[tuple[str, str], list[JobId]] = {}

    def get(self, job_id: JobId) -> Admitted | None:
        """Return a job by its id."""
        return self._all().get(job_id)

    def add(self, job: Admitted) -> None:
        """Take the next job of this request."""
        job_id = JobId(self._next)
        self._next += job.ids
        self._put(job_id, job)
        if self._live is not None:
            self._index(self._live, job_id, job.spec)

    def array_with(self, job_id: int) -> tuple[JobId, Admitted] | None:
        """Return the array one of whose elements has an id."""
        jobs, place = self._all(), bisect_left(self._arrays, job_id) - 1
        if place < 0:
            return None
        array_id = self._arrays[place]
        admitted = jobs[array_id]
        return (array_id, admitted) if admitted.array is not None and has(array_id, admitted.array, job_id) else None

    def ids_of(self, user: str) -> list[JobId]:
        """Jobs of a user that are no elements, those that are live included, ascending."""
        return self._indexed().get(user, [])

    def namesakes(self, user: str, name: str) -> list[JobId]:
        """Return those of them with a name."""
        self._indexed()
        return self._named.get((user, name), [])

    def _all(self) -> dict[JobId, Admitted]:
        """They by id; most requests ask for none, so those of others are gathered when it is first asked for."""
        if not self._has_others:
            self._has_others = True
            for part in (*self._turn.read_model.entering.values(), *self._turn.slices):
                for job_id, job in part.by_id:
                    self._put(job_id, job)
            for job_id, job in self._turn.admitted.items():
                self._put(job_id, job)
            self._arrays.sort()
        return self._jobs

    def _put(self, job_id: JobId, job: Admitted) -> None:
        self._jobs[job_id] = job
        if job.array is not None:
            self._arrays.append(job_id)

    def _indexed(self) -> dict[str, list[JobId]]:
        """All by their users; made when it is first asked for."""
        if self._live is None:
            self._live = {}
            specs = {job.id: job.spec for job in self._turn.read_model.jobs.values() if job.element is None}
            specs |= {job_id: job.spec for job_id, job in self._all().items()}
            for job_id in sorted(specs):
                self._index(self._live, job_id, specs[job_id])
        return self._live

    def _index(self, live: dict[str, list[JobId]], job_id: JobId, spec: JobSpec) -> None:
        live.setdefault(spec.user, []).append(job_id)
        self._named.setdefault((spec.user, spec.name), []).append(job_id)


def _demand_possible(wanted: Iterable[Dependency]) -> None:
    """A job cannot both succeed and fail."""
    succeed = {each.job for each in wanted if each.on is DependsOn.OK}
    both = sorted(succeed & {each.job for each in wanted if each.on is DependsOn.FAIL})
    if both:
        raise ValueError(f"ok:{both[0]} and fail:{both[0]} can never both come true")
