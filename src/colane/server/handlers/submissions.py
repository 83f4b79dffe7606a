"""Jobs that are submitted: looked up, judged, taken in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from colane.api.job_request import JobRequest
from colane.api.jobs import JobIdAnswer
from colane.model.job import JobId
from colane.model.problem import Problem
from colane.server.board.hardware import Hardware
from colane.server.board.slices import SLICE_JOBS_MAX, jobs_text
from colane.server.board.submission import Admitted
from colane.server.board.turn import Turn
from colane.server.ground.access import Caller
from colane.server.ground.pools import PoolRules
from colane.server.ground.problems import PROBLEMS_MAX, RefusedError
from colane.server.ground.yielding import ITEMS_AT_ONCE, in_slices
from colane.server.handlers import ownership
from colane.server.notify.channels import unknown_channel
from colane.server.parts import Parts
from colane.server.submitting.admission import admit, admit_all, judged, named_as_given
from colane.server.submitting.deadlines import demand_possible, promised_in_slices, with_promises
from colane.server.submitting.dependencies import Dependencies
from colane.server.submitting.lookup import Families, Lookup

# -- Large batches are judged before their turn, a few jobs at a time, and written as far as that is known by then.


@dataclass(frozen=True, slots=True)
class JudgedBatch:
    """A batch that was judged before its turn."""

    hardware: Hardware  # the nodes it was judged for; for others it is judged anew
    owned: Sequence[JobRequest]  # its requests, each with its user
    admitted: list[Admitted]  # its jobs; fewer where it is refused
    texts: list[str]  # of each slice of them `slices.jobs_text`
    refused: RefusedError | None = None  # why none of them is taken

    def jobs(self) -> list[Admitted]:
        """Its jobs. Raises RefusedError: they are not taken."""
        if self.refused is not None:
            raise self.refused
        return self.admitted


async def judge_in_slices(
    requests: Sequence[JobRequest],
    hardware: Hardware,
    workdir: str,
    now_s: float,
    families: Families,
    pools: PoolRules | None = None,
) -> JudgedBatch:
    """Judge a large batch while others go on, as `admit_all` does in one go."""
    admitted, texts, problems = list[Admitted](), list[str](), list[Problem]()
    judge = partial(admit, hardware=hardware, workdir=workdir, now_s=now_s, families=families, pools=pools)
    first = 0
    async for part in in_slices(requests, SLICE_JOBS_MAX):
        jobs = judged(part, first, problems, judge)
        if len(problems) >= PROBLEMS_MAX:
            break
        admitted += jobs
        first += len(part)
        if not problems:
            texts.append(jobs_text(jobs))
    return JudgedBatch(hardware, requests, admitted, texts, RefusedError(422, problems) if problems else None)


@dataclass(slots=True)
class Submissions:
    """Makes changes that take jobs in."""

    parts: Parts  # what the scheduler consists of
    lookup: Lookup = field(default_factory=Lookup)  # finds what commands run

    async def families(self, requests: list[JobRequest], caller: Caller) -> Families:
        """Look up what the commands of jobs run. Raises RefusedError: 403, another user's."""
        return await self.lookup.families(self.owned(requests, caller), self.parts.config.workdir)

    async def judged(self, requests: list[JobRequest], caller: Caller) -> tuple[Families, JudgedBatch | None]:
        """Look up what the commands of jobs run, and judge a large batch before its turn: others go on meanwhile.

        Times to begin are counted from now. Raises RefusedError: 403, another user's; 422, they are too many.
        """
        self._demand_few(requests)
        if len(requests) <= ITEMS_AT_ONCE:
            return await self.families(requests, caller), None
        owned, workdir, now_s = list[JobRequest](), self.parts.config.workdir, self.parts.driver.now()
        async for part in in_slices(requests):
            owned += [ownership.owned(request, caller) for request in part]
        families = await self.lookup.families(owned, workdir)
        return families, await self._judged(owned, now_s, families)

    async def _judged(self, owned: Sequence[JobRequest], now_s: float, families: Families) -> JudgedBatch:
        config, hardware = self.parts.config, self.parts.read_model.hardware
        return await judge_in_slices(owned, hardware, config.workdir, now_s, families, config.pools)

    def _demand_few(self, requests: Sequence[JobRequest]) -> None:
        most = self.parts.config.batch_jobs_max
        if len(requests) > most:
            raise RefusedError.because(422, f"must be at most {most} at once, got {len(requests)}", "jobs")

    def submit(
        self,
        requests: list[JobRequest],
        caller: Caller,
        families: Families | None = None,
        judged: JudgedBatch | None = None,
    ) -> Callable[[Turn], list[JobId]]:
        """Return the change that judges and appends jobs, the caller's where they name no other user.

        Args:
            requests: The jobs.
            caller: Who submits them.
            families: What their commands run, as far as it was looked up.
            judged: They, where they were judged before.

        Raises:
            RefusedError: 403, another user's.
        """
        self._demand_few(requests)
        owned = self.owned(requests, caller) if judged is None else judged.owned

        config = self.parts.config

        def prepare(turn: Turn) -> list[JobId]:
            self._demand_runnable(turn, owned)
            hardware = turn.read_model.hardware
            admitted = (
                judged.jobs()
                if judged is not None and judged.hardware is hardware
                else admit_all(owned, hardware, config.workdir, turn.now_s, families, config.pools)
            )
            demand_possible(self.parts.driver.core.state, [one.spec for one in admitted])
            waiting = Dependencies(turn, self.parts.sight(caller)).given(admitted)
            core = self.parts.driver.core
            return self.parts.driver.keeper.submit(turn, with_promises(core, turn, waiting), core.limits)

        def prepare_in_their_words(turn: Turn) -> list[JobId]:
            try:
                return prepare(turn)
            except RefusedError as refused:
                raise named_as_given(refused, requests) from refused

        return prepare_in_their_words

    def submit_in_slices(
        self, requests: Sequence[JobRequest], caller: Caller, families: Families, judged: JudgedBatch
    ) -> Callable[[Turn], Awaitable[list[JobId]]]:
        """Return the same change of a large batch, whose jobs enter the queue after their turn: see `driver.entered`.

        Others go on while it is made; nothing else adds to its turn, or changes what it looks at, meanwhile.
        """

        async def prepare(turn: Turn) -> list[JobId]:
            self._demand_runnable(turn, judged.owned)
            is_so = judged.hardware is turn.read_model.hardware
            now = judged if is_so else await self._judged(judged.owned, turn.now_s, families)
            admitted = now.jobs()
            demand_possible(self.parts.driver.core.state, [one.spec for one in admitted])
            waiting = await Dependencies(turn, self.parts.sight(caller)).given_in_slices(admitted)
            promised = await promised_in_slices(self.parts.driver.core, turn, waiting)
            return self.parts.driver.keeper.submit(turn, promised, self.parts.driver.core.limits, now.texts)

        async def prepare_in_their_words(turn: Turn) -> list[JobId]:
            try:
                return await prepare(turn)
            except RefusedError as refused:
                raise named_as_given(refused, requests) from refused

        return prepare_in_their_words

    def submit_one(self, request: JobRequest, caller: Caller, families: Families) -> Callable[[Turn], JobIdAnswer]:
        """Return the change that judges and appends one job; problems name its fields alone."""
        prepare = self.submit([request], caller, families)

        def prepare_one(turn: Turn) -> JobIdAnswer:
            try:
                return {"id": prepare(turn)[0]}
            except RefusedError as refused:
                bare = [Problem(p.field.removeprefix("jobs[0]."), p.message) for p in refused.problems]
                raise RefusedError(refused.status, bare) from refused

        return prepare_one

    def _demand_runnable(self, turn: Turn, owned: Sequence[JobRequest]) -> None:
        found = [unknown_channel(self.parts.config.notify, one.user, one.labels) for one in owned]
        problems = [Problem(f"jobs[{at}].labels.notify", said) for at, said in enumerate(found) if said]
        if problems:
            raise RefusedError(422, problems)
        ownership.demand_runnable(owned, turn.read_model)

    def owned(self, requests: list[JobRequest], caller: Caller) -> list[JobRequest]:
        """Return requests that name their users. Raises RefusedError: 403, a user the caller may not submit as."""
        return [ownership.owned(request, caller) for request in requests]
