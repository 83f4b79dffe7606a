"""What is told of a job, and of all: state, reasons, cost of stopping it, how it was submitted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from colane.api.jobs import JobObject, JobRequestObject, WhyAnswer
from colane.api.seeing import ActCostObject
from colane.facts.job import job_facts
from colane.model.job import Job, JobId, JobKind, JobState
from colane.server.board import submission
from colane.server.board.submission import launch_key
from colane.server.ground.access import Caller
from colane.server.ground.sight import Sight, no_job
from colane.server.handlers.finder import JobFinder
from colane.server.parts import Parts
from colane.server.store.attempts import ATTEMPTS, attempt_objects, shown_attempts
from colane.server.store.store import LAUNCH_SPECS
from colane.server.store.unreadable import get_readable
from colane.server.views.jobs_and_nodes import finished_view, job_view, sizes_view, unmade_view
from colane.server.views.listing import NO_REASON, facts_of, may_of, view_of, why_live
from colane.server.views.look import span
from colane.server.views.overview import JOBS_TOLD_MAX, OverviewMaker
from colane.server.views.standing import at_other_sizes, deadline_said, drains_said, is_untaught, standing, untaught
from colane.server.writer.ledger import explain


@dataclass(slots=True)
class JobViews:
    """Tells of jobs."""

    parts: Parts  # what the scheduler consists of
    overviews: OverviewMaker  # the whole cluster in numbers
    finder: JobFinder  # finds jobs that are no live ones, too

    async def job(self, job_id: JobId, caller: Caller) -> JobObject:
        """Return a job, live or ended. Raises RefusedError: 404."""
        live = self.parts.read_model.jobs.get(job_id)
        if live is None:
            element = await self.finder.unmade(job_id)
            if element is None:
                return await self._shown(job_id, caller)
            self.parts.sight(caller).demand_sight(job_id, element.spec.user)
            return unmade_view(element, self.parts.policy, self.parts.driver.now())
        self.parts.sight(caller).demand_sight(job_id, live.spec.user)
        shown = view_of(self.parts.driver, live)
        shown["may"] = may_of(self.parts.driver, live, caller, self.parts.read_model.elements_of(job_id))
        shown["attempts"] = shown_attempts(live, self.parts.read_model.attempts.get(job_id, ()))
        if caller.owns(live.spec.user):
            kept = await asyncio.to_thread(get_readable, self.parts.store, LAUNCH_SPECS, launch_key(live))
            shown["command"], shown["workdir"], shown["output"] = submission.view(kept)
        return shown

    def live_jobs(
        self, caller: Caller, state: JobState | None = None, after: int = 0, limit: int | None = None
    ) -> Iterator[JobObject]:
        """Return live jobs in order of id, of one state or all, a page or all; rendered as they are asked for."""
        sight = self.parts.sight(caller)
        read_model, progress = self.parts.read_model, dict(self.parts.driver.progress)
        jobs = [job for job in read_model.jobs.values() if state in (None, job.state) and job.id > after]
        jobs = jobs if sight.is_whole else [job for job in jobs if sight.has(job.spec.user)]
        jobs.sort(key=lambda job: job.id)
        jobs = jobs[:limit]
        policy = self.parts.policy
        # Rendering goes on while the core changes, so what is asked of the core is asked now.
        pacings = {job.id: self.parts.driver.pacing(job.id) for job in jobs if job.placement}
        facts = {job.id: facts_of(self.parts.driver, job, pacings[job.id]) for job in jobs if job.placement}
        now_s, foreseen = self.parts.driver.now(), self.parts.driver.shown
        names = [read_model.model_of(job) for job in jobs]
        elements = {job.id: read_model.elements_of(job.id) for job in jobs if job.array is not None}
        return (
            job_view(job, name, policy, told, progress.get(job.id), pacings.get(job.id), parts)
            for job, name in zip(jobs, names, strict=True)
            for parts in [elements.get(job.id, ())]
            for told in [
                facts.get(job.id) or job_facts(job, None, None, now_s, elements=parts, shown=foreseen.get(job.id))
            ]
        )

    async def why(self, job_id: JobId, caller: Caller) -> WhyAnswer:
        """Return why a job is where it is. Raises RefusedError: 404; 503 while the store cannot be read."""
        is_live, job = job_id in self.parts.read_model.jobs, await self.finder.any(job_id)
        sight = self.parts.sight(caller)
        sight.demand_sight(job_id, job.spec.user)
        if is_live and job_id in self.parts.driver.core.state.jobs:
            sizes = self.parts.driver.core.speeds_at_sizes(job_id)
            due = deadline_said(job, self.parts.driver.now())
            now = [*due, *self._standing(job, sight), *at_other_sizes(job, sizes), *await self._untaught(job, sight)]
            return {**why_live(self.parts.driver, job), "now": now, "otherwise": [], "sizes": sizes_view(sizes)}
        return {**(explain(job.reason) if job.reason else NO_REASON), "now": [], "otherwise": [], "sizes": []}

    async def _untaught(self, job: Job, sight: Sight) -> list[str]:
        driver, jobs = self.parts.driver, self.parts.read_model.jobs
        if not is_untaught(job, driver.core.state.knowledge):
            return []
        family = job.effective.family
        others = [(jobs.get(other), sample) for other, sample in driver.progress.items() if other != job.id]
        running = [
            sample for other, sample in others
            if other is not None and other.effective.family == family and sight.has(other.spec.user)
        ]  # fmt: skip
        return await asyncio.to_thread(untaught, self.parts.store, sight, job, running)

    def _standing(self, job: Job, sight: Sight) -> list[str]:
        pacing, driver = self.parts.driver.pacing(job.id), self.parts.driver
        co_runners = pacing.co_runners if pacing else None
        said = standing(job, co_runners, self.parts.read_model.jobs, driver.progress, driver.turns, sight.has)
        known = driver.core.state.nodes
        here = job.placement.nodes if job.placement is not None else ()
        drains = drains_said(job, [known[name].node for name in here if name in known])
        idle = [one for one in self.overviews.idle(driver.now()) if one["job"] == job.id]
        kept = [f"it is not parked, as the rule for idle jobs asks: {one['problem']}" for one in idle if one["problem"]]
        return [
            *(f"idle for {span(one['idle_s'])}: no step was made and no kernel ran" for one in idle), *kept, *said,
            *drains,
        ]  # fmt: skip

    async def request_of(self, job_id: JobId, caller: Caller) -> JobRequestObject:
        """Return the request by which a job like this one is submitted, without an environment.

        Raises RefusedError: 403, another user's, also for operators: it would run as they; 404; 409, not all was kept.
        """
        live = self.parts.read_model.jobs.get(job_id)
        if live is None:
            ended, job = await self.finder.ended(job_id)
            kept = ended.get("submitted")
        else:
            job, kept = live, await asyncio.to_thread(get_readable, self.parts.store, LAUNCH_SPECS, launch_key(live))
        self.parts.sight(caller).demand_sight(job_id, job.spec.user)
        caller.demand_own(job_id, job.spec.user, "submit it again")
        again = submission.to_submit_again(kept)
        return again if job.element is None else {**again, "array": str(job.element.index)}

    def cost(self, job_id: JobId, caller: Caller) -> ActCostObject:
        """Return what stopping a live job costs, and which jobs wait for it by name.

        Raises RefusedError: 404, no such live job; 503 while the store cannot be read.
        """
        job = self.parts.read_model.jobs.get(job_id)
        if job is None:
            raise no_job(job_id, "live job")
        sight = self.parts.sight(caller)
        sight.demand_sight(job_id, job.spec.user)
        jobs, reasons = self.parts.read_model.jobs, self.overviews.waits().reasons
        waiting = [one for one, reason in reasons.items() if job_id in reason.jobs and one in jobs]
        helped = sorted(one for one in waiting if sight.has(jobs[one].spec.user))
        start_s = job.start_s if job.placement is not None else None
        saved_s = job.saved_s if start_s is not None and job.saved_s is not None and job.saved_s >= start_s else None
        since_s = start_s if saved_s is None else saved_s
        serves = job.spec.kind is JobKind.INFERENCE  # what it has answered is not asked again
        return {
            "id": job_id,
            "lost_s": 0.0 if since_s is None or serves else max(0.0, self.parts.driver.now() - since_s),
            "saved_s": saved_s,
            "gpus": len(job.gpus_held),
            "helps": [*helped[:JOBS_TOLD_MAX]],
            "helped": len(helped),
        }

    async def _shown(self, job_id: JobId, caller: Caller) -> JobObject:
        ended, job = await self.finder.ended(job_id)
        self.parts.sight(caller).demand_sight(job_id, job.spec.user)
        shown = finished_view(ended)
        shown["may"] = may_of(self.parts.driver, job, caller)
        shown["attempts"] = attempt_objects(ATTEMPTS.read(ended.get("attempts", ())))
        if caller.owns(job.spec.user):
            shown["command"], shown["workdir"], shown["output"] = submission.view(ended.get("submitted"))
        return shown
