"""What would become of jobs: answered by copies of this process, in which nothing that happens counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from colane.api.job_request import JobRequest
from colane.api.plans import PlanAnswer, StartAnswer
from colane.api.states import LiveState, write
from colane.facts.job import expected_of
from colane.foresee.said import Shown, unforeseen
from colane.model.job import JobId
from colane.server.board.turn import Turn
from colane.server.ground.access import Caller
from colane.server.ground.problems import RefusedError
from colane.server.handlers.finder import JobFinder
from colane.server.handlers.submissions import Submissions
from colane.server.parts import Parts
from colane.server.planning.copies import Copies, CopyError
from colane.server.planning.least import LeastChange, least_changes
from colane.server.planning.otherwise import Forced, otherwise
from colane.server.planning.plans import PlanQuestion, same_outcome, start_text
from colane.server.submitting.lookup import Families

Planned = TypeVar("Planned")


@dataclass(slots=True)
class Forecasts:
    """Asks copies."""

    parts: Parts  # what the scheduler consists of
    submissions: Submissions  # judges jobs that would be submitted
    finder: JobFinder  # finds jobs that are no live ones, too
    copies: Copies = field(default_factory=Copies)  # of this process, which are asked

    async def plan(self, requests: list[JobRequest], caller: Caller) -> PlanAnswer:
        """Return what would become of jobs if they were submitted now; nothing changes.

        Raises RefusedError: what their submission would be refused with; 503, there is no answer in time.
        """
        families = await self.submissions.families(requests, caller)
        prepare = self.submissions.submit(requests, caller, families)
        question = self._question(requests, caller, families)
        async with self.copies.room:
            answering = await self.parts.driver.trial(prepare, lambda turn: self._copied(question(turn, None).answer))
            return await _planned(answering)

    def _copied(self, question: Callable[[], Planned]) -> asyncio.Future[Planned]:
        """Ask a copy of this process. Raises RefusedError: 503, the system has no room for one."""
        try:
            return self.copies.begin(question)
        except CopyError as error:
            raise RefusedError.because(503, f"no plan could be made: {error}") from error

    def _question(
        self, requests: list[JobRequest], caller: Caller, families: Families
    ) -> Callable[[Turn, str | None], PlanQuestion]:
        owned, sight = self.submissions.owned(requests, caller), self.parts.sight(caller)
        if not owned:
            raise RefusedError.because(422, "holds no job: there is nothing to plan", "jobs")

        def of(turn: Turn, expected: str | None) -> PlanQuestion:
            return PlanQuestion(
                self.parts.driver.core,
                turn,
                owned,
                sight,
                partial(self.submissions.submit, caller=caller, families=families),
                self.parts.driver.foresight,
                expected,
            )

        return of

    async def start_of(self, job_id: JobId, caller: Caller, *, changes: bool = True) -> StartAnswer:
        """Return when a live job would start, and if wanted with which changes of its needs at once.

        Raises RefusedError: 404; 409, it has ended.
        """
        job = await self.finder.any(job_id)
        self.parts.sight(caller).demand_sight(job_id, job.spec.user)
        if job.has_ended:
            raise RefusedError.because(409, f"job {job_id} has already ended: {job.state}")
        driver, least, said = self.parts.driver, list[LeastChange](), "it has its place"
        now_s, known, found = driver.now(), driver.shown.get(job_id), 0.0 if job.placement is not None else None
        shown = known

        def ask(turn: Turn) -> tuple[list[LeastChange], Shown | None, float | None]:
            core = driver.core
            least = least_changes(core, job_id, turn.now_s) if changes else []
            told = known or driver.foresight.board(core, turn.now_s).get(job_id)
            return least, told, driver.foresight.start_point_s(core, [job_id], turn.now_s)

        if job.placement is None:
            try:
                least, shown, found = await self.of_copy(ask)
            except RefusedError as error:  # what is shown already is told all the same
                shown = known or unforeseen(now_s, str(error), waits=True)
            if shown is not None and not shown.problem:
                driver.shown.setdefault(job_id, shown)  # until the next look it is told so on every screen
        start, end = expected_of(shown, now_s)
        if job.placement is not None:
            start = None
        else:
            said = start_text(start, found) or "it is not known when it would start"
            found = found if start is None or start["p50_s"] is None else start["p50_s"]
        return {
            "starts_in_s": found, "now_s": now_s, "sentence": said, "expected_start": start, "expected_end": end,
            "changes": [{"field": one.field, "value": one.value, "option": one.option} for one in least],
        }  # fmt: skip

    async def otherwise(self, job_id: JobId, caller: Caller, forced: Forced) -> list[str]:
        """Return by what a plan with something forced for a waiting job differs from the policy's own.

        Raises RefusedError: 404; 409, it does not wait; 422, it cannot be forced so; 503, no answer in time.
        """
        sight, jobs, driver = self.parts.sight(caller), self.parts.read_model.jobs, self.parts.driver
        job, other = await self.finder.any(job_id), None if forced.instead is None else jobs.get(forced.instead)
        sight.demand_sight(job_id, job.spec.user)
        if not job.is_waiting or job.spec.gpus < 1:
            raise RefusedError.because(409, f"job {job_id} does not wait for GPUs in the queue: {job.state}")
        if forced.on and forced.on.partition("/")[0] not in driver.core.state.nodes:
            raise RefusedError.because(422, f"there is no node {forced.on.partition('/')[0]!r}", "not_on")
        if forced.instead is not None:
            if other is None or not sight.has(other.spec.user):
                raise RefusedError.because(422, f"there is no live job {forced.instead}", "instead")
            if other.placement is None or not other.gpus_held:
                raise RefusedError.because(422, f"job {forced.instead} holds no GPU", "instead")

        def name(one: JobId) -> str:
            known = jobs.get(one)
            return f"job {one}" if known is not None and sight.has(known.spec.user) else "another user's job"

        return await self.of_copy(lambda turn: otherwise(driver.core, job_id, forced, turn.now_s, name))

    async def standing(self) -> bytes:
        """Return how all stands. Raises RefusedError: 503, there is no answer in time."""
        core = self.parts.driver.core

        def told(turn: Turn) -> bytes:
            core.state.forget_derived()  # the copy's own
            core.state.limits = None
            return write(LiveState(core.state, core.config.limits, turn.now_s))

        return await self.of_copy(told)

    async def of_copy(self, question: Callable[[Turn], Planned]) -> Planned:
        """Return what a copy answers that is in step with the board.

        Raises RefusedError: 503, there is no answer in time.
        """
        async with self.copies.room:
            return await _planned(
                await self.parts.driver.trial(lambda _turn: None, lambda turn: self._copied(partial(question, turn)))
            )

    def only_if(
        self, index: str, requests: list[JobRequest], caller: Caller, families: Families
    ) -> Callable[[Turn], Awaitable[None]]:
        """Return what demands of a turn that jobs submitted in it fare as they were planned to.

        Raises (from what is returned):
            RefusedError: 409, they would fare otherwise by now; 503, there is no answer in time.
        """
        question = self._question(requests, caller, families)

        async def demand(turn: Turn) -> None:
            if not turn.admitted:  # a request that was sent again, and is answered as it was
                return
            plan = await _planned(self._copied(question(turn, index).answer))
            if same_outcome(plan["index"], index):
                return
            fares = "; ".join(f"{job['name']} {job['sentence']}" for job in plan["jobs"][:3])
            text = f"plan {index} does not hold any more: by now {fares}. The new plan is {plan['index']}"
            raise RefusedError.because(409, text, "if_plan")

        return demand


async def _planned(answering: asyncio.Future[Planned]) -> Planned:
    """What a copy of this process makes. Raises RefusedError: 503, it does not."""
    try:
        return await answering
    except CopyError as error:
        raise RefusedError.because(503, f"no plan could be made: {error}") from error
