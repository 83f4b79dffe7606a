"""What is told of how a job ran: logs, processes, use of its devices, and the jobs beside it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from colane.api.seeing import CoRunnersAnswer, EfficiencyAnswer
from colane.model.arrays import known_indexes
from colane.model.job import JobId
from colane.model.phases import is_in
from colane.server.board.read_model import AgentDoor
from colane.server.ground.access import Caller
from colane.server.ground.problems import RefusedError
from colane.server.handlers.finder import JobFinder
from colane.server.parts import Parts
from colane.server.store.attempts import ATTEMPTS
from colane.server.views import timeline
from colane.server.views.efficiency import efficiency
from colane.server.views.logs import LogPlace, attempt_of
from colane.server.views.sampled import Times, window_of
from colane.server.views.stacks import NodeOfJob


@dataclass(slots=True)
class Attempts:
    """Tells of attempts of jobs."""

    parts: Parts  # what the scheduler consists of
    finder: JobFinder  # finds jobs that are no live ones, too

    async def locate_log(self, job_id: JobId, caller: Caller, number: int | None = None) -> LogPlace:
        """Return where the log of an attempt of a job lies: of its latest for None, of the first known of for 0.

        Raises RefusedError: 403, another user's; 404.
        """
        is_live = job_id in self.parts.read_model.jobs
        job, known = await self.finder.with_attempts(job_id)
        self.parts.sight(caller).demand_sight(job_id, job.spec.user)
        caller.demand_owner(job_id, job.spec.user, "read the log of")
        if job.array is not None:
            first = known_indexes(job.array.indexes).first
            raise RefusedError.because(409, f"job {job_id} is an array: its elements have logs, as {job_id}[{first}]")
        if number is None or (number == 0 and not known):
            number = job.attempt
        one = attempt_of(job, known, number or (known[0].number if known else 0))
        record = self.parts.read_model.nodes.get(one.node)
        return LogPlace(
            job=job_id,
            attempt=one.number,
            node=one.node,
            door=record.door if record else AgentDoor("", ""),
            has_started=one.start_s is not None,
            is_over=one.end_s is not None,
            has_successor=one.number < job.attempt,
            has_job_ended=not is_live,
            why=one.why,
        )

    async def locate_terminal(self, job_id: JobId, caller: Caller, number: int | None) -> LogPlace:
        """Return where the terminal of an attempt of a job is: of its latest for None.

        Raises RefusedError: 403, another user's, also for operators: what is typed is done as that user; 404.
        """
        job = await self.finder.any(job_id)
        self.parts.sight(caller).demand_sight(job_id, job.spec.user)
        caller.demand_own(job_id, job.spec.user, "type at its terminal")
        return await self.locate_log(job_id, caller, number)

    async def locate_processes(self, job_id: JobId, caller: Caller) -> tuple[int, list[NodeOfJob]]:
        """Return the attempt of a job that runs, and the nodes on which it has processes.

        Raises RefusedError: 403, another user's; 404; 409, it does not run.
        """
        job = await self.finder.any(job_id)
        self.parts.sight(caller).demand_sight(job_id, job.spec.user)
        caller.demand_owner(job_id, job.spec.user, "read the stacks of")
        if job.placement is None or job.has_ended:
            raise RefusedError.because(409, f"job {job_id} {is_in(job.state)}: only a job that runs has stacks")
        records = ((name, self.parts.read_model.nodes.get(name)) for name in job.placement.nodes)
        return job.attempt, [NodeOfJob(name, record.door if record else AgentDoor("", "")) for name, record in records]

    async def times_of(self, job_id: JobId, caller: Caller) -> Times:
        """Return when a job was at work. Raises RefusedError: 404."""
        live = self.parts.read_model.jobs.get(job_id)
        job = (await self.finder.ended(job_id))[1] if live is None else live
        self.parts.sight(caller).demand_sight(job_id, job.spec.user)
        return Times(job.first_start_s, job.end_s)

    async def efficiency(self, job_id: JobId, caller: Caller) -> EfficiencyAnswer:
        """Return how much of what it asked for a job has used: to those who are told of the job.

        Raises RefusedError: 404; 503 while the store cannot be read.
        """
        live = self.parts.read_model.jobs.get(job_id)
        if live is None:
            ended, job = await self.finder.ended(job_id)
            attempts = ATTEMPTS.read(ended.get("attempts", ()))
        else:
            job, attempts = live, self.parts.read_model.attempts.get(job_id, ())
        self.parts.sight(caller).demand_sight(job_id, job.spec.user)
        now_s, pacing = self.parts.driver.now(), self.parts.driver.pacing(job_id)
        columns = await self.parts.samples.job(job_id, window_of(now_s, Times(job.first_start_s, job.end_s)))
        useful = None if pacing is None else pacing.cores_useful
        return efficiency(job, attempts, columns, self.parts.read_model.nodes, now_s, cores_useful=useful)

    async def co_runners(self, job_id: JobId, caller: Caller, limit: int) -> CoRunnersAnswer:
        """Return which jobs shared a job's devices, and when: to those who are told of the job.

        Raises RefusedError: 404; 503 while the store cannot be read.
        """
        job, attempts = await self.finder.with_attempts(job_id)
        sight, now_s = self.parts.sight(caller), self.parts.driver.now()
        sight.demand_sight(job_id, job.spec.user)
        own = timeline.spans_of(attempts)
        return await asyncio.to_thread(
            timeline.co_runners, self.parts.store, self.parts.read_model, sight, job_id, own, now_s, limit
        )
