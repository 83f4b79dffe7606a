"""What the routes ask of the service's parts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

import httpx

from colane.api.job_request import ChangeBody, JobRequest
from colane.api.jobs import JobIdAnswer, JobObject, JobRequestObject, WhyAnswer
from colane.api.nodes import ClusterObject, JobTokenObject, LaunchObject, NodeObject
from colane.api.plans import PlanAnswer, StartAnswer
from colane.api.records import AdoptedAnswer, HealthDetailObject, ServiceHealthObject
from colane.api.seeing import ActCostObject, CoRunnersAnswer, EfficiencyAnswer
from colane.api.wire_nodes import FinishedBody, NodeBody, ReportBody
from colane.facts.job import job_facts, told_steps
from colane.model.arrays import known_indexes, number_of
from colane.model.idle import IdleRule
from colane.model.job import Job, JobId, JobKind, JobState, SuspendVia
from colane.model.phases import is_in
from colane.model.problem import Problem
from colane.server.config import ServiceConfig
from colane.server.http import ownership
from colane.server.http.access import Caller, Role
from colane.server.http.feed import Feed
from colane.server.http.idempotency import expired
from colane.server.http.job_tokens import JobTokens
from colane.server.http.problems import RefusedError
from colane.server.http.sight import Sight, no_job
from colane.server.metrics.own import DeviceLabels
from colane.server.nodes import leases
from colane.server.nodes.behind import Ahead, BehindWatch
from colane.server.nodes.liveness import Liveness
from colane.server.notify.channels import unknown_channel
from colane.server.notify.outbox import NotifyOutbox
from colane.server.notify.teller import NotifyTeller
from colane.server.planning.copies import Copies, CopyError
from colane.server.planning.forecast import live_start_in_s, live_starts_in_s
from colane.server.planning.plans import PlanQuestion, same_outcome, start_text
from colane.server.samples import reports as sampling
from colane.server.samples.counts import COUNTED_EACH_S, WAITING_COUNTED_EACH_S, broken, counted
from colane.server.samples.idle import IdleWatch
from colane.server.samples.keeper import FLUSH_PERIOD_S, SampleKeeper
from colane.server.samples.marks import BROKEN, KEPT, DeviceMarks
from colane.server.store import documents
from colane.server.store.attempts import ATTEMPTS, attempt_objects, shown_attempts
from colane.server.store.identity import History, granted, new_cluster_id
from colane.server.store.launch_reads import LaunchReads
from colane.server.store.ledger import explain
from colane.server.store.retention import outdated
from colane.server.store.store import (
    FINISHED_JOBS,
    LAUNCH_SPECS,
    Document,
    Store,
    StoreError,
    StoreWriter,
    SupersededError,
    UnreadableError,
    job_key,
)
from colane.server.store.unreadable import NAMED_MAX, get_readable, public_names, read_one
from colane.server.submitting import changed_limits, submission
from colane.server.submitting.admission import admit_all, begin_hold, named_as_given
from colane.server.submitting.deadlines import promised_in_slices, with_promises
from colane.server.submitting.dependencies import Dependencies
from colane.server.submitting.judging import JudgedBatch, judge_in_slices
from colane.server.submitting.lengths import kind_of
from colane.server.submitting.lookup import Families, Lookup
from colane.server.submitting.objective import demand_possible
from colane.server.submitting.submission import launch_key
from colane.server.submitting.yielding import ITEMS_AT_ONCE, in_slices
from colane.server.views import timeline
from colane.server.views.arrays import element_ordinals, ended_array_with, launched_element, unmade
from colane.server.views.efficiency import efficiency
from colane.server.views.holders import holders_of
from colane.server.views.jobs_and_nodes import (
    bandwidth_view,
    closed,
    finished_view,
    job_view,
    node_view,
    sizes_view,
    unmade_view,
)
from colane.server.views.listing import NO_REASON, facts_of, may_of, view_of, why_live
from colane.server.views.logs import LogPlace, attempt_of
from colane.server.views.look import span
from colane.server.views.mechanisms import mechanisms_view
from colane.server.views.overview import JOBS_TOLD_MAX, OverviewMaker, kept_devices, waiting_by_user
from colane.server.views.sampled import Times, window_of
from colane.server.views.stacks import NodeOfJob
from colane.server.views.standing import at_other_sizes, deadline_said, drains_said, standing
from colane.server.writer import changes
from colane.server.writer.board import AgentDoor, NodeRecord, ReadModel
from colane.server.writer.driver import LiveDriver, ReadBack
from colane.server.writer.turn import Turn

SCRUBBING_PERIOD_S: Final = 60.0
"""So long at most what was deleted, as the environment of an ended job, can be read in the store's files."""

CLEANING_PERIOD_S: Final = 3600.0
"""How often answers to idempotency keys that will not be used again, and records of old jobs, are removed."""

IDLE_PERIOD_S: Final = 30.0
GRANT_RETRY_S: Final = 5.0
SAMPLES_PRUNED_EACH: Final = 60
"""After so many flushes what is too old is removed."""

UNREADABLE_SHOWN_MAX: Final = 100
"""Of the records that cannot be read, `/health` shows no more."""

log = logging.getLogger(__name__)


Planned = TypeVar("Planned")


@dataclass(slots=True)
class Service:
    """All that routes ask for; made by `assembly.make_service`.

    Attributes:
        store: Where everything is kept.
        config: See `ServiceConfig`.
        http: Talks to agents.
        driver: The only writer.
        feed: Published changes.
        liveness: When nodes were heard of.
        stopping: Set when streams shall end.
        started_s: Unix time of the start.
        history: Whose records these are, and which starts there were.
        samples: How devices and jobs use what they have.
        leads: Whether it is the one that writes; a standby is not yet.
        behind: Whether its store lacks what agents have heard of.
        hands_over: Set when it shall end for a standby to lead.
        copies: Of this process, which are asked what would become of jobs.
        idle: Which jobs use nothing of it.
        idle_problems: Why jobs that are idle cannot be parked, where they shall be.
        marks: From when to when devices were broken, or kept for jobs.
        overviews: What is told of the whole cluster.
        device_labels: Labels of devices in `/metrics`.
        launches: What jobs are started with.
        granted_s: What nodes are granted in place of the configured lease, by a scheduler that ends.
    """

    store: Store
    config: ServiceConfig
    http: httpx.AsyncClient
    driver: LiveDriver
    feed: Feed
    liveness: Liveness
    started_s: float
    history: History
    samples: SampleKeeper
    idle: IdleWatch = field(default_factory=IdleWatch)
    idle_problems: dict[int, str] = field(default_factory=dict)
    marks: DeviceMarks = field(default_factory=DeviceMarks)
    overviews: OverviewMaker = field(default_factory=OverviewMaker)
    device_labels: DeviceLabels = field(default_factory=DeviceLabels)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    leads: bool = True
    hands_over: asyncio.Event = field(default_factory=asyncio.Event)
    behind: BehindWatch = field(default_factory=lambda: BehindWatch(time.monotonic))
    copies: Copies = field(default_factory=Copies)
    lookup: Lookup = field(default_factory=Lookup)
    launches: LaunchReads = field(init=False)
    granted_s: float | None = None
    _halting: set[str] = field(default_factory=set)
    _told: set[str] = field(default_factory=set)
    _told_of_grant: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.launches = LaunchReads(self.store)

    @property
    def policy(self) -> str:
        """Name of the policy that decides."""
        return self.driver.decider.name

    @property
    def job_tokens(self) -> JobTokens:
        """Tokens of jobs."""
        return JobTokens(self.config.job_key, lambda: self.read_model.jobs)

    @property
    def read_model(self) -> ReadModel:
        """What is durable now."""
        return self.driver.read_model

    def begin(self, history: History, found: ReadBack, now_s: float, *, hears: bool) -> None:
        """Lead from now on, from what was read; whether agents are heard before anything is changed."""
        self.history, self.started_s = history, now_s
        self.liveness.begin(self.held_longer_s)
        self.driver.take_over(found)
        self.driver.problem = None
        self.hear_first(None if hears else ())
        self.leads = True

    def hear_first(self, nodes: Iterable[str] | None = None) -> None:
        """Change nothing before the agents, of all nodes by default, have said how much they know."""
        known = [name for name, record in self.read_model.nodes.items() if not record.lost]
        self.behind.begin(known if nodes is None else nodes)
        self.driver.waits_for = lambda: self.behind.problem

    async def run(self) -> None:
        """Drive until `stop`, then let another scheduler lead; what comes out of it is a bug."""
        tending = (
            self._clean, self._scrub, self._keep_samples, self._count, self._notify, self._mind_idle, self._lower_grant,
        )  # fmt: skip
        cleaning = [asyncio.create_task(tend()) for tend in tending]
        self.driver.lead.keep()
        try:
            await self.driver.run()
            await self._release()
        finally:
            self.driver.lead.end()
            for task in cleaning:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await self.samples.flush(self.driver.now(), closing=True)
            await self.close()

    @property
    def held_longer_s(self) -> float:
        """By how much a lease that an agent may hold of a scheduler before is longer than the usual one of this one."""
        return max(0.0, self.history.granted_s - self.config.node_timeout_s)

    def _lease_s(self, name: str) -> float:
        """What a node is granted now: longer where its jobs would end, or a server not answer, for want of word."""
        is_usual = name in self._halting and not any(
            job.spec.kind is JobKind.INFERENCE for job in self.read_model.assigned(name)
        )
        return max(self.config.node_timeout_s if is_usual else self.config.lease_max_s, self.granted_s or 0.0)

    def _hear(self, name: str, now_s: float, body: ReportBody | None = None) -> None:
        """Note that an agent has spoken; one that knows of this start holds no lease of before but what it says."""
        current, left_s = self.history.current, None
        if body is not None and body.epoch is not None and body.epoch.id == current.id:
            left_s = body.lease_left_s
        self.liveness.hear(name, now_s, self._lease_s(name), left_s)

    async def _lower_grant(self) -> None:
        """Note that no longer leases are held than this scheduler grants, once those of before are over."""
        if self.history.granted_s <= self.config.lease_max_s:
            return
        await asyncio.sleep(self.history.granted_s * (1 + leases.DRIFT_RATIO) + (self.config.leader_lease_s or 0.0))
        while self.granted_s is None:
            with suppress(RefusedError):
                await self.driver.change(lambda turn: turn.puts.append(granted(self.config.lease_max_s)))
                return
            await asyncio.sleep(GRANT_RETRY_S)

    async def farewell(self) -> None:
        """Before this scheduler ends by order: let jobs run on until another answers, for `leases.FAREWELL_S`.

        What is granted is durable first, so that a scheduler that starts counts no node as lost sooner.
        """
        if not (self.leads and self.driver.is_ready) or self.hands_over.is_set():
            return
        nodes = [one for one in self.read_model.nodes.values() if self._runs_by_lease(one)]
        lease_s = max(leases.FAREWELL_S, self.config.lease_max_s)
        if not nodes:
            return
        try:
            await self.driver.change(lambda turn: turn.puts.append(granted(lease_s)))
        except RefusedError as error:
            log.warning("jobs are halted once their lease is over: %s", error)
            return
        self.granted_s = lease_s
        self.liveness.allow(lease_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(leases.FAREWELL_MAX_S):
                reached = await self.driver.notifier.reach(one.door for one in nodes)
                awaited = {one.node.name for one, is_there in zip(nodes, reached, strict=True) if is_there}
                while not awaited <= self._told:
                    self._told_of_grant.clear()
                    await self._told_of_grant.wait()

    def _runs_by_lease(self, record: NodeRecord) -> bool:
        name = record.node.name
        return (
            record.leased and not record.lost and self.liveness.is_heard(name) and any(self.read_model.assigned(name))
        )

    async def _release(self) -> None:
        try:
            await asyncio.to_thread(self.driver.lead.release)
        except (StoreError, SupersededError) as error:
            log.warning("another scheduler leads only once this one's lease has run out: %s", error)

    async def close(self) -> None:
        """Let go of what is open."""
        self.samples.close()
        self.copies.close()
        await self.driver.notifier.close()
        await self.http.aclose()

    def end_streams(self) -> None:
        """Let followers of logs and events go, so that their connections can close."""
        self.stopping.set()
        self.feed.close()

    def stop(self) -> None:
        """End `run` once what waits is done."""
        self.end_streams()
        self.driver.stop()

    async def _scrub(self) -> None:
        while True:
            await asyncio.sleep(SCRUBBING_PERIOD_S)
            try:
                await asyncio.to_thread(self.store.scrub)
            except StoreError as error:
                log.warning("what was deleted may still be readable in the store's files: %s", error)

    async def _keep_samples(self) -> None:
        flushes = 0
        while True:
            if flushes % SAMPLES_PRUNED_EACH == 0:
                await self.samples.prune(self.driver.now())
            flushes += 1
            await asyncio.sleep(FLUSH_PERIOD_S)
            await self.samples.flush(self.driver.now())

    async def _count(self) -> None:
        waited_s = self.driver.now()
        while True:
            now_s = self.driver.now()
            self.samples.take_cluster(now_s, counted(self.read_model, self.samples, now_s))
            self.marks.take(BROKEN, now_s, broken(self.read_model))
            if now_s >= waited_s + WAITING_COUNTED_EACH_S:
                waited_s = self._count_waiting(waited_s, now_s)
            await asyncio.sleep(COUNTED_EACH_S)

    def _count_waiting(self, before_s: float, now_s: float) -> float:
        """Count why jobs wait; nothing is known of a longer time in which that was not asked."""
        if now_s < before_s + 2 * WAITING_COUNTED_EACH_S and self.driver.is_ready:
            with suppress(RefusedError):
                waiting = waiting_by_user(self.driver, self.read_model.jobs.values(), self.overviews.waits(self.driver))
                self.samples.take_waiting(now_s, waiting, now_s - before_s)
                self.mark_kept(now_s)
        return now_s

    def mark_kept(self, now_s: float) -> None:
        """Note which devices are kept for which jobs now.

        Raises:
            RefusedError: 503 while the store cannot be read.
        """
        kept = kept_devices(self, self.overviews.waits(self.driver), holders_of(self.read_model))
        self.marks.take(KEPT, now_s, {one["gpu"]: one["job"] for one in kept})

    async def _mind_idle(self) -> None:
        acts = {IdleRule.PARK: self.park_idle, IdleRule.STOP: self.stop_idle}
        act = acts.get(self.config.idle_rule)
        while act is not None:
            await asyncio.sleep(IDLE_PERIOD_S)
            with suppress(RefusedError, StoreError):  # by the next time it can be written
                await act()

    async def stop_idle(self) -> None:
        """Cancel the jobs that are idle.

        Raises:
            RefusedError: 503, nothing can be written.
        """

        def prepare(turn: Turn) -> None:
            for one in self.overviews.idle(self, turn.now_s):
                changes.cancel(turn, JobId(one["job"]), f"the rule for idle jobs, after {span(one['idle_s'])}")

        if self.overviews.idle(self, self.driver.now()):
            await self.driver.change(prepare)

    async def park_idle(self) -> None:
        """Have the jobs that are idle give their devices up until they would step again, where they can.

        Raises:
            RefusedError: 503, nothing can be written.
        """

        def prepare(turn: Turn) -> None:
            for one in self.overviews.idle(self, turn.now_s):
                job = self.read_model.jobs[JobId(one["job"])]
                changes.park_idle(turn, self.driver.core.state, job, one["idle_s"])

        idle = self.overviews.idle(self, self.driver.now())
        kept = {one["job"]: one["problem"] for one in idle if one["problem"]}
        for job, problem in kept.items() - self.idle_problems.items():
            log.info("job %d is idle, and is not parked: %s", job, problem)
        self.idle_problems = kept
        if len(kept) < len(idle):
            await self.driver.change(prepare)

    async def _notify(self) -> None:
        if self.config.notify is not None:
            try:
                await NotifyTeller(self, self.config.notify, NotifyOutbox(self.config.outbox)).run()
            except Exception:  # jobs matter more than word of them
                log.exception("a fault: no more word is sent until the scheduler is started again")

    async def _clean(self) -> None:
        while True:
            try:
                for transaction in await asyncio.to_thread(expired, self.store, self.driver.now()):
                    await asyncio.to_thread(self.store.commit, transaction, StoreWriter(self.driver.epoch))
                await self.forget_old_jobs()
            except SupersededError:
                return  # the driver learns of it at its next turn, and ends
            except (StoreError, RefusedError) as error:
                log.warning("old idempotency keys and finished jobs were not all removed: %s", error)
            await asyncio.sleep(CLEANING_PERIOD_S)

    async def forget_old_jobs(self) -> None:
        """Remove records of finished jobs that need not be kept, in turns of the driver.

        Raises:
            StoreError: The store cannot be read.
            RefusedError: 503, it cannot be written.
        """
        keep = self.config.keep_finished
        batches = outdated(self.store, keep, self.driver.now())
        while records := await asyncio.to_thread(next, batches, None):
            await self.driver.change(partial(changes.forget, records=records, keep=keep))

    def sight(self, caller: Caller) -> Sight:
        """Return what a caller may be told."""
        return Sight(caller, self.config.see)

    # -- jobs

    async def families(self, requests: list[JobRequest], caller: Caller) -> Families:
        """Look up what the commands of jobs run.

        Raises:
            RefusedError: 403, another user's.
        """
        return await self.lookup.families(self._owned(requests, caller), self.config.workdir)

    async def judged(self, requests: list[JobRequest], caller: Caller) -> tuple[Families, JudgedBatch | None]:
        """Look up what the commands of jobs run, and judge a large batch before its turn: others go on meanwhile.

        Times to begin are counted from now.

        Raises:
            RefusedError: 403, another user's; 422, they are too many.
        """
        self._demand_few(requests)
        if len(requests) <= ITEMS_AT_ONCE:
            return await self.families(requests, caller), None
        owned, workdir, now_s = list[JobRequest](), self.config.workdir, self.driver.now()
        async for part in in_slices(requests):
            owned += [ownership.owned(request, caller) for request in part]
        families = await self.lookup.families(owned, workdir)
        return families, await self._judged(owned, now_s, families)

    async def _judged(self, owned: Sequence[JobRequest], now_s: float, families: Families) -> JudgedBatch:
        return await judge_in_slices(owned, self.read_model.hardware, self.config.workdir, now_s, families)

    def _demand_few(self, requests: Sequence[JobRequest]) -> None:
        most = self.config.batch_jobs_max
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
        owned = self._owned(requests, caller) if judged is None else judged.owned

        def prepare(turn: Turn) -> list[JobId]:
            self._demand_runnable(turn, owned)
            hardware = turn.read_model.hardware
            admitted = (
                judged.jobs()
                if judged is not None and judged.hardware is hardware
                else admit_all(owned, hardware, self.config.workdir, turn.now_s, families)
            )
            demand_possible(self.driver.core.state, [one.spec for one in admitted])
            waiting = Dependencies(turn, self.sight(caller)).given(admitted)
            return self.driver.keeper.submit(turn, with_promises(self.driver.core, turn, waiting))

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
            demand_possible(self.driver.core.state, [one.spec for one in admitted])
            waiting = await Dependencies(turn, self.sight(caller)).given_in_slices(admitted)
            promised = await promised_in_slices(self.driver.core, turn, waiting)
            return self.driver.keeper.submit(turn, promised, now.texts)

        async def prepare_in_their_words(turn: Turn) -> list[JobId]:
            try:
                return await prepare(turn)
            except RefusedError as refused:
                raise named_as_given(refused, requests) from refused

        return prepare_in_their_words

    async def cancel_many(self, queued: Sequence[JobId], by: str) -> Sequence[JobId]:
        """Cancel jobs that wait, some in each turn, and return the last of them, which are left for one more turn.

        Raises:
            RefusedError: 503, it cannot be written.
        """
        left = queued
        while not changes.fits_one_turn(self.read_model, left):
            left = left[await self.driver.change(partial(changes.cancel_queued, queued=left, by=by)) :]
        return left

    def _demand_runnable(self, turn: Turn, owned: Sequence[JobRequest]) -> None:
        self._demand_channels(owned)
        ownership.demand_runnable(owned, turn.read_model)

    def _owned(self, requests: list[JobRequest], caller: Caller) -> list[JobRequest]:
        return [ownership.owned(request, caller) for request in requests]

    def _demand_channels(self, requests: Sequence[JobRequest]) -> None:
        """Refuse jobs that name channels for word of them that are not there for their users."""
        found = [unknown_channel(self.config.notify, one.user, one.labels) for one in requests]
        problems = [Problem(f"jobs[{at}].labels.notify", said) for at, said in enumerate(found) if said]
        if problems:
            raise RefusedError(422, problems)

    async def plan(self, requests: list[JobRequest], caller: Caller) -> PlanAnswer:
        """Return what would become of jobs if they were submitted now; nothing changes.

        Raises:
            RefusedError: What their submission would be refused with; 503, there is no answer in time.
        """
        families = await self.families(requests, caller)
        prepare, question = self.submit(requests, caller, families), self._question(requests, caller, families)
        async with self.copies.room:
            answering = await self.driver.trial(prepare, lambda turn: self._copied(question(turn, None).answer))
            return await _planned(answering)

    def _copied(self, question: Callable[[], Planned]) -> asyncio.Future[Planned]:
        """Ask a copy of this process.

        Raises:
            RefusedError: 503, the system has no room for one.
        """
        try:
            return self.copies.begin(question)
        except CopyError as error:
            raise RefusedError.because(503, f"no plan could be made: {error}") from error

    def _question(
        self, requests: list[JobRequest], caller: Caller, families: Families
    ) -> Callable[[Turn, str | None], PlanQuestion]:
        owned, sight = self._owned(requests, caller), self.sight(caller)
        if not owned:
            raise RefusedError.because(422, "holds no job: there is nothing to plan", "jobs")

        def of(turn: Turn, expected: str | None) -> PlanQuestion:
            return PlanQuestion(
                self.driver.core, turn, owned, sight, partial(self.submit, caller=caller, families=families), expected
            )

        return of

    async def start_of(self, job_id: JobId, caller: Caller) -> StartAnswer:
        """Return when a live job would start.

        Raises:
            RefusedError: 404; 409, it has ended; 503, there is no answer in time.
        """
        job = self.read_model.jobs.get(job_id) or await self._unmade(job_id) or (await self._ended(job_id))[1]
        self.sight(caller).demand_sight(job_id, job.spec.user)
        if job.has_ended:
            raise RefusedError.because(409, f"job {job_id} has already ended: {job.state}")
        now_s = self.driver.now()
        if job.placement is not None:
            return {"starts_in_s": 0.0, "now_s": now_s, "sentence": "it has its place"}

        def ask(turn: Turn) -> asyncio.Future[float | None]:
            core, lengths = self.driver.core, self.read_model.lengths
            return self._copied(partial(live_start_in_s, core, job_id, turn.now_s, lengths))

        async with self.copies.room:
            found = await _planned(await self.driver.trial(lambda _turn: None, ask))
        said = "it is not known when it would start" if found is None else start_text(found)
        return {"starts_in_s": found, "now_s": now_s, "sentence": said}

    async def starts_within(self, jobs: Sequence[JobId], within_s: float) -> dict[JobId, float]:
        """Return which of these live jobs would start within so many seconds, and in how many.

        Raises:
            RefusedError: 503, there is no answer in time.
        """

        def ask(turn: Turn) -> asyncio.Future[dict[JobId, float]]:
            core, lengths = self.driver.core, self.read_model.lengths
            return self._copied(partial(live_starts_in_s, core, jobs, turn.now_s, lengths, within_s))

        async with self.copies.room:
            return await _planned(await self.driver.trial(lambda _turn: None, ask))

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

    def cancel(
        self, job_id: JobId, caller: Caller, by: str, elements: str | None = None
    ) -> Callable[[Turn], JobIdAnswer]:
        """Return the change that cancels a job, or elements of an array; a cancelled one stays so."""

        def prepare(turn: Turn) -> JobIdAnswer:
            ended = ownership.judge(turn, job_id, self.sight(caller), "cancel")
            if ended is None:
                changes.cancel(turn, job_id, by, element_ordinals(turn.read_model, job_id, elements))
            elif ended["job"]["state"] != JobState.CANCELLED:
                raise RefusedError.because(409, f"job {job_id} has already ended: {ended['job']['state']}")
            return {"id": job_id}

        return prepare

    def requeue(self, job_id: JobId, caller: Caller, by: str) -> Callable[[Turn], JobIdAnswer]:
        """Return the change that takes a running job off its GPUs, to wait anew."""

        def prepare(turn: Turn) -> JobIdAnswer:
            ownership.demand_live(turn, job_id, self.sight(caller), "requeue")
            changes.requeue(turn, job_id, by)
            return {"id": job_id}

        return prepare

    def change_limits(self, job_id: JobId, caller: Caller, by: str, body: ChangeBody) -> Callable[[Turn], JobIdAnswer]:
        """Return the change that gives a live job other limits."""

        def prepare(turn: Turn) -> JobIdAnswer:
            ownership.demand_live(turn, job_id, self.sight(caller), "change")
            changed_limits.change(turn, job_id, by, body)
            return {"id": job_id}

        return prepare

    def suspend(self, job_id: JobId, caller: Caller, by: str, via: SuspendVia) -> Callable[[Turn], JobIdAnswer]:
        """Return the change that suspends a live job."""

        def prepare(turn: Turn) -> JobIdAnswer:
            ownership.demand_live(turn, job_id, self.sight(caller), "suspend")
            changes.suspend(turn, self.driver.core.state, job_id, by, via)
            return {"id": job_id}

        return prepare

    def resume(self, job_id: JobId, caller: Caller, by: str, at: str | None = None) -> Callable[[Turn], JobIdAnswer]:
        """Return the change that lets a live job go on; one that waits not before a time, where one is given."""

        def prepare(turn: Turn) -> JobIdAnswer:
            ownership.demand_live(turn, job_id, self.sight(caller), "resume")
            begin = None if at is None else begin_hold(at, turn.now_s, "at")
            self.driver.keeper.resume(turn, job_id, by, begin)
            return {"id": job_id}

        return prepare

    async def job(self, job_id: JobId, caller: Caller) -> JobObject:
        """Return a job, live or ended.

        Raises:
            RefusedError: 404.
        """
        live = self.read_model.jobs.get(job_id)
        if live is None:
            element = await self._unmade(job_id)
            if element is None:
                return await self._shown(job_id, caller)
            self.sight(caller).demand_sight(job_id, element.spec.user)
            return unmade_view(element, self.policy, self.driver.now())
        self.sight(caller).demand_sight(job_id, live.spec.user)
        shown = view_of(self.driver, live)
        shown["may"] = may_of(self.driver, live, caller, self.read_model.elements_of(job_id))
        shown["attempts"] = shown_attempts(live, self.read_model.attempts.get(job_id, ()))
        if caller.owns(live.spec.user):
            kept = await asyncio.to_thread(get_readable, self.store, LAUNCH_SPECS, launch_key(live))
            shown["command"], shown["workdir"] = submission.view(kept)
        return shown

    def live_jobs(
        self, caller: Caller, state: JobState | None = None, after: int = 0, limit: int | None = None
    ) -> Iterator[JobObject]:
        """Return live jobs in order of id, of one state or all, a page or all; rendered as they are asked for."""
        sight = self.sight(caller)
        read_model, progress = self.read_model, dict(self.driver.progress)
        jobs = [job for job in read_model.jobs.values() if state in (None, job.state) and job.id > after]
        jobs = jobs if sight.is_whole else [job for job in jobs if sight.has(job.spec.user)]
        jobs.sort(key=lambda job: job.id)
        jobs = jobs[:limit]
        policy = self.policy
        # Rendering goes on while the core changes, so what is asked of the core is asked now.
        pacings = {job.id: self.driver.pacing(job.id) for job in jobs if job.placement}
        facts = {job.id: facts_of(self.driver, job, pacings[job.id]) for job in jobs if job.placement}
        now_s = self.driver.now()
        lengths = [read_model.lengths.get(kind_of(job.effective)) for job in jobs]
        names = [read_model.model_of(job) for job in jobs]
        elements = {job.id: read_model.elements_of(job.id) for job in jobs if job.array is not None}
        return (
            job_view(
                job, name, policy, told, progress.get(job.id), pacings.get(job.id), length, elements.get(job.id, ())
            )
            for job, name, length in zip(jobs, names, lengths, strict=True)
            for told in [facts.get(job.id) or job_facts(job, None, None, now_s, elements=elements.get(job.id, ()))]
        )

    async def why(self, job_id: JobId, caller: Caller) -> WhyAnswer:
        """Return why a job is where it is.

        Raises:
            RefusedError: 404; 503 while the store cannot be read.
        """
        job = self.read_model.jobs.get(job_id)
        is_live, job = job is not None, job or await self._unmade(job_id) or (await self._ended(job_id))[1]
        sight = self.sight(caller)
        sight.demand_sight(job_id, job.spec.user)
        if is_live and job_id in self.driver.core.state.jobs:
            sizes = self.driver.core.speeds_at_sizes(job_id)
            due = deadline_said(job, self.driver.now())
            now = [*due, *self._standing(job, sight), *at_other_sizes(job, sizes)]
            return {**why_live(self.driver, job), "now": now, "sizes": sizes_view(sizes)}
        return {**(explain(job.reason) if job.reason else NO_REASON), "now": [], "sizes": []}

    def _standing(self, job: Job, sight: Sight) -> list[str]:
        pacing, driver = self.driver.pacing(job.id), self.driver
        co_runners = pacing.co_runners if pacing else None
        said = standing(job, co_runners, self.read_model.jobs, driver.progress, driver.turns, sight.has)
        known = driver.core.state.nodes
        here = job.placement.nodes if job.placement is not None else ()
        drains = drains_said(job, [known[name].node for name in here if name in known])
        idle = [one for one in self.overviews.idle(self, driver.now()) if one["job"] == job.id]
        kept = [f"it is not parked, as the rule for idle jobs asks: {one['problem']}" for one in idle if one["problem"]]
        return [
            *(f"idle for {span(one['idle_s'])}: no step was made and no kernel ran" for one in idle), *kept, *said,
            *drains,
        ]  # fmt: skip

    async def launch(self, job_id: JobId, caller: Caller) -> LaunchObject:
        """Return what the agent needs to start a job.

        Raises:
            RefusedError: 403, neither its owner nor an agent it is placed with; 404, no such live job; 409, it runs
                nowhere; 410, its command cannot be read any more.
        """
        job = self.read_model.jobs.get(job_id)
        if job is not None:
            ownership.demand_launch(job, self.sight(caller))
        if job is None:
            raise RefusedError.because(404, f"there is no live job {job_id}")
        if job.placement is None:
            raise RefusedError.because(409, f"job {job_id} is queued and runs nowhere")
        secret = await self.launches.get(launch_key(job))
        if secret is None and job_id not in self.read_model.jobs:  # it has ended meanwhile
            raise RefusedError.because(404, f"there is no live job {job_id}")
        if secret is None:
            gone = "its command cannot be read from the scheduler's store any more: submit it again"
            raise RefusedError.because(410, gone)
        spec = job.spec
        own = None if caller.role is Role.USER else self.job_tokens.token_of(job)
        token: JobTokenObject = {} if own is None else {"token": own}
        return {
            "id": job_id,
            "attempt": job.attempt,
            "name": spec.name,
            "user": spec.user,
            "gpus": job.gpu_count,
            "gpu_memory_bytes": spec.gpu_memory_bytes,
            "labels": dict(spec.labels),
            **submission.to_launch(secret),
            **launched_element(job, self.read_model),
            **token,
        }

    async def request_of(self, job_id: JobId, caller: Caller) -> JobRequestObject:
        """Return the request by which a job like this one is submitted, without an environment.

        Raises:
            RefusedError: 403, another user's, also for operators: it would run as they; 404; 409, not all was kept.
        """
        live = self.read_model.jobs.get(job_id)
        if live is None:
            ended, job = await self._ended(job_id)
            kept = ended.get("submitted")
        else:
            job, kept = live, await asyncio.to_thread(get_readable, self.store, LAUNCH_SPECS, launch_key(live))
        self.sight(caller).demand_sight(job_id, job.spec.user)
        caller.demand_own(job_id, job.spec.user, "submit it again")
        again = submission.to_submit_again(kept)
        return again if job.element is None else {**again, "array": str(job.element.index)}

    async def locate_log(self, job_id: JobId, caller: Caller, number: int | None = None) -> LogPlace:
        """Return where the log of an attempt of a job lies: of its latest for None, of the first known of for 0.

        Raises:
            RefusedError: 403, another user's; 404.
        """
        live, known = self.read_model.jobs.get(job_id), self.read_model.attempts.get(job_id, ())
        job = live or await self._unmade(job_id)
        if job is None:
            ended, job = await self._ended(job_id)
            known = ATTEMPTS.read(ended.get("attempts", ()))
        self.sight(caller).demand_sight(job_id, job.spec.user)
        caller.demand_owner(job_id, job.spec.user, "read the log of")
        if job.array is not None:
            first = known_indexes(job.array.indexes).first
            raise RefusedError.because(409, f"job {job_id} is an array: its elements have logs, as {job_id}[{first}]")
        if number is None or (number == 0 and not known):
            number = job.attempt
        one = attempt_of(job, known, number or (known[0].number if known else 0))
        record = self.read_model.nodes.get(one.node)
        return LogPlace(
            job=job_id,
            attempt=one.number,
            node=one.node,
            door=record.door if record else AgentDoor("", ""),
            has_started=one.start_s is not None,
            is_over=one.end_s is not None,
            has_successor=one.number < job.attempt,
            has_job_ended=live is None,
            why=one.why,
        )

    async def locate_processes(self, job_id: JobId, caller: Caller) -> tuple[int, list[NodeOfJob]]:
        """Return the attempt of a job that runs, and the nodes on which it has processes.

        Raises:
            RefusedError: 403, another user's; 404; 409, it does not run.
        """
        job = self.read_model.jobs.get(job_id) or await self._unmade(job_id) or (await self._ended(job_id))[1]
        self.sight(caller).demand_sight(job_id, job.spec.user)
        caller.demand_owner(job_id, job.spec.user, "read the stacks of")
        if job.placement is None or job.has_ended:
            raise RefusedError.because(409, f"job {job_id} {is_in(job.state)}: only a job that runs has stacks")
        records = ((name, self.read_model.nodes.get(name)) for name in job.placement.nodes)
        return job.attempt, [NodeOfJob(name, record.door if record else AgentDoor("", "")) for name, record in records]

    async def _unmade(self, job_id: JobId) -> Job | None:
        """Return an element of an array that is no job of its own, as one; None where there is no such element."""
        owner = self.read_model.array_with(job_id)
        if owner is None and job_id not in self.read_model.jobs:
            owner = await asyncio.to_thread(ended_array_with, self.store, job_id)
        return None if owner is None else unmade(owner, job_id)

    async def _shown(self, job_id: JobId, caller: Caller) -> JobObject:
        ended, job = await self._ended(job_id)
        self.sight(caller).demand_sight(job_id, job.spec.user)
        shown = finished_view(ended)
        shown["may"] = may_of(self.driver, job, caller)
        shown["attempts"] = attempt_objects(ATTEMPTS.read(ended.get("attempts", ())))
        if caller.owns(job.spec.user):
            shown["command"], shown["workdir"] = submission.view(ended.get("submitted"))
        return shown

    async def _ended(self, job_id: JobId) -> tuple[Document, Job]:
        try:
            ended = await asyncio.to_thread(read_one, self.store, FINISHED_JOBS, job_key(job_id), _as_shown)
        except UnreadableError as error:
            raise RefusedError.because(500, f"the record of job {job_id} cannot be read: {error}") from error
        if ended is None:
            raise no_job(job_id)
        return ended

    # -- nodes

    def register(self, body: NodeBody) -> Callable[[Turn], None]:
        """Return the change that takes a node in."""

        def prepare(turn: Turn) -> None:
            changes.register(turn, body)
            self._hear(body.name, turn.now_s)

        return prepare

    async def report(self, name: str, body: ReportBody) -> NodeObject:
        """Take in an agent's report and return its node; one without news costs no turn.

        Raises:
            RefusedError: 404, unknown node; 409, another agent's; 503.
        """
        await self._refuse_while_behind(name, body)
        await self._set_apart_if_of_another_history(name, body)

        (self._halting.add if body.halts else self._halting.discard)(name)

        def prepare(turn: Turn) -> None:
            changes.report(turn, name, self._ours(name, body))
            changes.lease(turn, name, body.leased, may_be_endless=leases.stands_alone(self.read_model, name))
            self._hear(name, turn.now_s, body)

        if name in self.read_model.nodes and self.read_model.nodes[name].node.agent_id == body.agent_id:
            of_here = self.read_model.assigned(name)
            now_s, ours = self.driver.now(), self._ours(name, body)
            sampling.take(self.samples, name, now_s, ours, of_here)
            sampling.take_idle(self.idle, name, now_s, ours, of_here)
        trial = Turn(self.read_model, self.driver.now(), 0, self.driver.progress)
        has_news = changes.has_stepped(trial, name, self._ours(name, body))
        if not has_news:
            prepare(trial)
        is_losing = name in self.driver.losing
        if has_news or is_losing or trial.events or trial.messages or trial.audit or trial.leased:
            may_wait = has_news and not is_losing and changes.is_routine(trial, name, body)
            await self.driver.change(prepare, may_wait=may_wait)
        self._hear(name, self.driver.now(), body)  # what is granted may have changed with what runs there
        told = self.node(name)
        if self.granted_s is not None:
            self._told.add(name)
            self._told_of_grant.set()
        return told

    async def times_of(self, job_id: JobId, caller: Caller) -> Times:
        """Return when a job was at work.

        Raises:
            RefusedError: 404.
        """
        live = self.read_model.jobs.get(job_id)
        job = (await self._ended(job_id))[1] if live is None else live
        self.sight(caller).demand_sight(job_id, job.spec.user)
        return Times(job.first_start_s, job.end_s)

    async def efficiency(self, job_id: JobId, caller: Caller) -> EfficiencyAnswer:
        """Return how much of what it asked for a job has used: to those who are told of the job.

        Raises:
            RefusedError: 404; 503 while the store cannot be read.
        """
        live = self.read_model.jobs.get(job_id)
        if live is None:
            ended, job = await self._ended(job_id)
            attempts = ATTEMPTS.read(ended.get("attempts", ()))
        else:
            job, attempts = live, self.read_model.attempts.get(job_id, ())
        self.sight(caller).demand_sight(job_id, job.spec.user)
        now_s, pacing = self.driver.now(), self.driver.pacing(job_id)
        columns = await self.samples.job(job_id, window_of(now_s, Times(job.first_start_s, job.end_s)))
        useful = None if pacing is None else pacing.cores_useful
        return efficiency(job, attempts, columns, self.read_model.nodes, now_s, cores_useful=useful)

    async def co_runners(self, job_id: JobId, caller: Caller, limit: int) -> CoRunnersAnswer:
        """Return which jobs shared a job's devices, and when: to those who are told of the job.

        Raises:
            RefusedError: 404; 503 while the store cannot be read.
        """
        live, attempts = self.read_model.jobs.get(job_id), self.read_model.attempts.get(job_id, ())
        job = live or await self._unmade(job_id)
        if job is None:
            ended, job = await self._ended(job_id)
            attempts = ATTEMPTS.read(ended.get("attempts", ()))
        sight, now_s = self.sight(caller), self.driver.now()
        sight.demand_sight(job_id, job.spec.user)
        own = timeline.spans_of(attempts)
        return await asyncio.to_thread(
            timeline.co_runners, self.store, self.read_model, sight, job_id, own, now_s, limit
        )

    def cost(self, job_id: JobId, caller: Caller) -> ActCostObject:
        """Return what stopping a live job costs, and which jobs wait for it by name.

        Raises:
            RefusedError: 404, no such live job; 503 while the store cannot be read.
        """
        job = self.read_model.jobs.get(job_id)
        if job is None:
            raise no_job(job_id, "live job")
        sight = self.sight(caller)
        sight.demand_sight(job_id, job.spec.user)
        jobs, reasons = self.read_model.jobs, self.overviews.waits(self.driver).reasons
        waiting = [one for one, reason in reasons.items() if job_id in reason.jobs and one in jobs]
        helped = sorted(one for one in waiting if sight.has(jobs[one].spec.user))
        start_s = job.start_s if job.placement is not None else None
        saved_s = job.saved_s if start_s is not None and job.saved_s is not None and job.saved_s >= start_s else None
        since_s = start_s if saved_s is None else saved_s
        serves = job.spec.kind is JobKind.INFERENCE  # what it has answered is not asked again
        return {
            "id": job_id,
            "lost_s": 0.0 if since_s is None or serves else max(0.0, self.driver.now() - since_s),
            "saved_s": saved_s,
            "gpus": len(job.gpus_held),
            "helps": [*helped[:JOBS_TOLD_MAX]],
            "helped": len(helped),
        }

    async def _refuse_while_behind(self, name: str, body: ReportBody) -> None:
        """Say nothing of what shall run while it is not known to be so; what runs goes on.

        Raises:
            RefusedError: 503.
        """
        watch, record = self.behind, self.read_model.nodes.get(name)
        if self.config.leader_lease_s is None or watch.is_adopted:
            return
        was_hearing, was_lost = watch.is_hearing, watch.lost
        watch.awaited.discard(name)
        is_ours, lost = self._is_of_ours(name, body), self._lacked_of(name, body)
        if is_ours and not lost:
            watch.ahead.pop(name, None)
        else:  # where all events are known, so is what shall run there
            watch.ahead[name] = Ahead(name, lost, () if is_ours else tuple(job.id for job in body.jobs))
        if watch.lost != was_lost and watch.lost:
            log.error("%s", watch.problem)
        if was_hearing and not watch.is_hearing and not watch.lost:
            self.driver.notifier.nudge(known.door for known in self.read_model.nodes.values())
        if problem := watch.problem:
            self._hear(name, self.driver.now())
            refused = RefusedError.because(503, problem)
            if record is not None and name not in self.driver.losing:
                refused.lease_s = leases.lease_s(self.read_model, record, self._lease_s(name))
            raise refused

    def _lacked_of(self, name: str, body: ReportBody) -> int:
        """How many changes an agent has heard of that the store lacks."""
        events, epoch = body.events_seen or 0, body.epoch
        if body.cluster_id != self.cluster_of(name):
            return 0
        if epoch is None:
            return max(0, events - self.feed.last_number)
        version_now = self.driver.lead.version
        changes = self.history.lacks_changes(epoch.number, epoch.id, body.version_seen or 0, version_now)
        if changes or self.history.has(epoch.number, epoch.id, events, self.feed.last_number):
            return changes
        return self.history.lacks(epoch.number, epoch.id, events, self.feed.last_number)

    async def adopt(self, lost: int, caller: Caller) -> AdoptedAnswer:
        """Go on from a store that lacks what agents have heard of.

        Raises:
            RefusedError: 409, it is not known to be so, or lacks another number of changes; 503.
        """
        watch = self.behind
        if not watch.lost:
            raise RefusedError.because(409, "no agent is known to have heard of more than this store has")
        if lost != watch.lost:
            raise RefusedError.because(
                409, f"{watch.lost} changes are lost, as far as is known, not {lost}: look again"
            )
        found = self.lacked()
        watch.is_adopted = True

        def prepare(turn: Turn) -> None:
            turn.record("store-adopted", by=caller.name, **found)

        try:
            await self.driver.change(prepare)
        except RefusedError:
            watch.is_adopted = False
            raise
        nodes = ", ".join(found["nodes"])
        log.warning("%s has adopted the store without %d changes that %s have heard of", caller.name, lost, nodes)
        return found

    def lacked(self) -> AdoptedAnswer:
        """Return what the store is known to lack."""
        ahead = {} if self.behind.is_adopted else self.behind.ahead
        jobs = {job for one in ahead.values() for job in one.jobs}
        return {"lost": self.behind.lost, "nodes": sorted(ahead), "jobs": sorted(jobs)}

    async def _set_apart_if_of_another_history(self, name: str, body: ReportBody) -> None:
        """Tell an agent another cluster than the others where it has heard what this store never knew.

        A copy of the store was put back, so ids of jobs are given a second time: what this agent has under them is not
        of these jobs, and it ends that and begins anew, as under any other cluster. What an agent claims concerns its
        own node alone; others may know of nothing but what the copy has, and go on.

        Raises:
            SupersededError: It has followed a newer scheduler on this very store.
        """
        if self._is_of_ours(name, body):
            return
        made = new_cluster_id()

        def prepare(turn: Turn) -> bool:
            changes.agent_record(turn, name, body.agent_id)
            if self._is_of_ours(name, body) or name in turn.set_apart:  # another report of it has come first
                return False
            turn.set_apart[name] = made
            heard = {"epoch": body.epoch.number} if body.epoch is not None else {}
            turn.record("node-set-apart", node=name, **heard, events_seen=body.events_seen, cluster_id=made)
            return True

        if await self.driver.change(prepare):
            log.warning(
                "node %s has heard %s events of this cluster that this store does not know: an older copy of the store "
                "was put back. What runs on it is ended, and it begins anew", name, body.events_seen,
            )  # fmt: skip

    def _is_of_ours(self, name: str, body: ReportBody | FinishedBody) -> bool:
        """Whether what an agent has heard is of this store; of one that is of another cluster, that does not matter."""
        if body.cluster_id != self.cluster_of(name):
            return True
        events, now = body.events_seen or 0, self.feed.last_number
        if body.epoch is None:  # an older agent
            return events <= now
        return self.history.has(body.epoch.number, body.epoch.id, events, now)

    async def finished(self, bodies: Sequence[FinishedBody]) -> list[bool]:
        """Take in how attempts ended, all in one turn, and return which are believed; what is not costs no turn.

        Raises:
            RefusedError: See `finish`; 503.
        """
        prepares = [self.finish(body) for body in bodies]

        def prepare(turn: Turn) -> list[bool]:
            return [one(turn) for one in prepares]

        believed = prepare(Turn(self.read_model, self.driver.now(), 0, self.driver.progress))
        return await self.driver.change(prepare) if any(believed) else believed

    def finish(self, body: FinishedBody) -> Callable[[Turn], bool]:
        """Return the change that takes in how an attempt ended; one of another cluster is not believed.

        Raises:
            RefusedError: 409, of a history that this store does not know: were it answered, its agent would go on from
                there as from ours. By its next report it is set apart.
        """
        is_ours = body.cluster_id in {None, self.cluster_of(body.node)}
        if is_ours and not self._is_of_ours(body.node, body):
            raise RefusedError.because(409, f"{body.node} has heard what this store never knew: it has to report first")
        return lambda turn: is_ours and changes.finish(turn, body)

    def standing_of(self, name: str) -> ClusterObject:
        """What the agent of a node is told of this cluster, by which it knows a scheduler again."""
        current = self.history.current
        return {
            "cluster_id": self.cluster_of(name),
            "epoch": {"number": current.number, "id": current.id},
            "events": self.feed.last_number,
            "store_version": self.driver.version_told,
        }

    def cluster_of(self, name: str) -> str:
        """The cluster that the agent of a node is told to be of."""
        record = self.read_model.nodes.get(name)
        return (record.cluster_id if record is not None else "") or self.history.cluster_id

    def _ours(self, name: str, body: ReportBody) -> ReportBody:
        """A report without the jobs of another cluster: their ids mean other jobs here."""
        return body if body.cluster_id in {None, self.cluster_of(name)} else body.model_copy(update={"jobs": []})

    def node(self, name: str, caller: Caller | None = None) -> NodeObject:
        """Return a node object, to its own agent where no other caller is named.

        Raises:
            RefusedError: 404.
        """
        record = self.read_model.nodes.get(name)
        if record is None:
            raise RefusedError.because(404, f"there is no node {name!r}")
        jobs, seen_s = self.read_model.assigned(name), self.liveness.last_seen_s(name)
        memory, contention = self.driver.memory_of(name), self.driver.config.contention
        totals = {job.id: told_steps(job, self.driver.progress.get(job.id)) for job in jobs}
        view = node_view(record, seen_s, jobs, self.driver.turns, self.read_model.nodes, memory, totals, contention)
        if caller is not None and not (sight := self.sight(caller)).has_node(name):
            own = {job.id for job in jobs if sight.has(job.spec.user)}
            view["messages"] = closed(record.node)
            view["jobs"] = [job for job in view["jobs"] if job["id"] in own]
        if caller is not None:
            seen = self.driver.core.state.nodes.get(name) if self.driver.is_ready else None
            view["bandwidth_use"] = bandwidth_view(None if seen is None else seen.bandwidth, self.driver.now())
        return {
            **view,
            **self.standing_of(name),
            "leased": record.leased,
            "lease_s": leases.lease_s(self.read_model, record, self._lease_s(name)),
        }

    @property
    def _status(self) -> str:
        if self.driver.problem is not None or (self.leads and not self.driver.is_ready) or self.behind.lost:
            return "store-unavailable"
        return "degraded" if self._degraded_by() else "ok"

    def _degraded_by(self) -> str:
        """What goes on without something that it should have, in a sentence; empty where nothing does."""
        lost = public_names(self.store.unreadable())
        more = f" and {len(lost) - NAMED_MAX} more" if len(lost) > NAMED_MAX else ""
        names = f"{', '.join(lost[:NAMED_MAX])}{more}"
        records = f"records cannot be read and are left out: {names} (colane check names them)" if lost else ""
        durability = self.store.durability()
        return "; ".join(
            filter(None, [self.driver.policy_problem, records, str(durability) if durability.risks else ""])
        )

    def _mechanisms(self) -> dict[str, str]:
        seen = self.driver.core.state.nodes.values() if self.driver.is_ready else ()  # without its store it has none
        by = [node.bandwidth.by for node in seen if node.bandwidth is not None]
        here = [record.node for record in self.read_model.nodes.values()]
        return dict(mechanisms_view(self.driver.decider, self.driver.config, here, by))

    def health(self) -> ServiceHealthObject:
        """Return the service's state in numbers, and why it is not what it should be."""
        why = (
            self.driver.problem or self.behind.problem or "the store cannot be read"
            if self._status == "store-unavailable"
            else ""
        )
        why = why or self._degraded_by()
        live = self.read_model.jobs.values()
        arrays = [job.array for job in live if job.array is not None]
        queued = sum(job.placement is None and job.array is None for job in live)
        queued += sum(number_of(array.pending) for array in arrays)
        lost = sum(record.lost for record in self.read_model.nodes.values())
        detail: HealthDetailObject = {"detail": why} if why else {}
        kind, risks, unchecked = self.store.durability()
        return {
            "status": self._status,
            **detail,
            "role": "leader" if self.leads else "standby",
            "cluster_id": self.history.cluster_id,
            "epoch": self.history.current.number,
            "policy": self.policy,
            "mechanisms": self._mechanisms(),
            "queued": queued,
            "running": sum(job.placement is not None for job in live),
            "nodes": len(self.read_model.nodes) - lost,
            "lost_nodes": lost,
            "store": {"kind": kind, "risks": list(risks), "unchecked": list(unchecked)},
            "unreadable": public_names(self.store.unreadable())[:UNREADABLE_SHOWN_MAX],
            "faults": self.driver.faults.met,
            "state_version": self.read_model.counters.version,
            "events": self.feed.last_number,
            "started_s": self.started_s,
        }


async def _planned(answering: asyncio.Future[Planned]) -> Planned:
    """What a copy of this process makes.

    Raises:
        RefusedError: 503, it does not.
    """
    try:
        return await answering
    except CopyError as error:
        raise RefusedError.because(503, f"no plan could be made: {error}") from error


def _as_shown(ended: Document) -> tuple[Document, Job]:
    """A record of a finished job with all that its views need."""
    finished_view(ended)
    submission.view(ended.get("submitted"))
    ATTEMPTS.read(ended.get("attempts", ()))
    return ended, documents.decode_job(ended["job"])
