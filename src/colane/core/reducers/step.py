"""One step of the core: the state with what has changed in this step."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from math import inf
from typing import Final, NamedTuple

from colane.core.cluster.bookings import nodes_booked
from colane.core.cluster.contended import is_contended
from colane.core.cluster.load import Booking
from colane.core.cluster.state import ClusterState
from colane.core.cluster.surroundings import no_neighbours, socket_neighbours_of
from colane.core.cluster.untold import is_untold
from colane.core.cluster.useful_cores import start_cores_of
from colane.core.config import CoreConfig
from colane.core.eligibility import held_until_resumed, kept_off, with_hold
from colane.core.events import Decision, Event, Outcome, RejectedPlan
from colane.core.lifecycle import QUEUED, ending_as, move, moves, without_halted
from colane.core.reducers.saved import lost_part, steps_kept
from colane.core.reducers.suspicions import QUICK_S, Suspicions
from colane.core.reducers.timers import TimerKind, Timers
from colane.model.hardware import GpuId
from colane.model.job import Exit, Job, JobId, JobKind, JobState, Leaving, Served
from colane.model.job_spec import Constraints, under
from colane.model.lengths import FamilyLengths
from colane.model.phases import LEAVING, MOVABLE, Hold, HoldKind
from colane.model.profile import Profile, ProfileKey, SetMeasurement
from colane.model.progress import Progress
from colane.model.reason import Reason
from colane.perf.learn import is_news
from colane.perf.nearby import Stay, Surroundings, learn_from_stay
from colane.perf.observe import NOTHING, EpochMember, Learnt, Observer, Outdated
from colane.perf.pace import Paces

REQUEUED_S: Final = 15.0
REQUEUED_MAX_S: Final = 3600.0
"""The second time in a row that it has not run for long it waits so long, then each time twice, at most so long."""

_Hold = tuple[JobState | None, JobState | None, bool, bool, bool, bool, str] | None


def _hold(job: Job | None) -> _Hold:
    """How firmly a job sits on GPUs: whether a plan may take them, whether they come free, and how it ends then."""
    if job is None or job.placement is None:
        return None
    allowed = job.effective.preemptible
    may_leave = job.state in MOVABLE and (allowed or job.first_step_s is not None)
    state = job.state if may_leave or job.state in LEAVING else None
    return state, job.ending, allowed, job.parked, job.suspended, job.is_on_host, job.run.host_refusal


class Watchers(NamedTuple):
    """Those that remember what was seen of running jobs, from step to step."""

    observer: Observer
    guard: Paces
    surroundings: Surroundings
    suspicions: Suspicions


class Step:
    """Collects changes while events are applied."""

    __slots__ = (
        "_held", "_jobs", "_lengths", "_nodes", "_profiles", "config", "decisions", "elements_made", "elements_moved",
        "forgotten", "grown", "guard", "lost_nodes", "measurements", "moved_on", "now_s", "observer", "outdated",
        "rejected", "stale", "state", "surroundings", "suspicions", "timers", "updates",
    )  # fmt: skip

    def __init__(
        self, state: ClusterState, watchers: Watchers, timers: Timers, config: CoreConfig, now_s: float
    ) -> None:
        self.state = state
        self.observer, self.guard, self.surroundings, self.suspicions = watchers
        self.timers = timers
        self.config = config
        self.now_s = now_s
        self.updates = 0
        self.forgotten: dict[str, None] = {}
        self.grown: list[ProfileKey] = []
        self.outdated: list[Outdated] = []
        self.decisions: list[Decision] = []
        self.measurements: list[SetMeasurement] = []
        self.stale: list[tuple[Event, str]] = []
        self.lost_nodes: list[str] = []
        self.moved_on: list[Job] = []
        self.elements_made = 0
        self.elements_moved: list[Job] = []
        self.rejected: RejectedPlan | None = None
        self._held: dict[JobId, Job] = {}
        self._lengths: dict[str, FamilyLengths] = {}
        self._jobs: dict[JobId, Job] = {}
        self._nodes: dict[str, None] = {}
        self._profiles: dict[ProfileKey, Profile] = {}
        if state.usage.charged:
            state.usage.charged.clear()

    def put(self, job: Job) -> None:
        """Take a job's new value; its node learns of it, and a policy that waits for GPUs if it may take other ones."""
        self._jobs[job.id] = job
        if self.state.dependents and job.id in self.state.dependents:
            self._note_dependents(job)
        if job.element is not None and self._has_moved_on(job):
            self.elements_moved.append(job)
        if job.placement is not None:
            for node in job.placement.nodes:
                self._nodes[node] = None
        if self.timers.replans and self.timers.replan(job.spec.pool).after_moves:
            self._note_hold(job)
        before = self.state.jobs.get(job.id) if self.state.halted else None
        self.state.put_job(job)
        if before is not None:
            self._end_halted(before, job)

    def _end_halted(self, before: Job, job: Job) -> None:
        """What stands halted ends once its job, or another on its GPUs, is started: its agents are told."""
        if before.halted is not None and before.halted is not job.halted:
            for node in before.halted.placement.nodes:
                self.touch(node)
        to = job.resizes_to
        has = {*job.gpus_held, *(() if to is None else to.gpus)}
        taken = has - set(before.gpus_held) if job.placement is not None else set[GpuId]()
        for other in [self.state.jobs[one] for one in self.state.halted] if taken else ():
            if other.id != job.id and other.halted is not None and not taken.isdisjoint(other.halted.placement.gpus):
                self.put(without_halted(other))

    def _note_hold(self, job: Job) -> None:
        """That other jobs may have its GPUs by now, or may no more."""
        before = self.state.jobs.get(job.id)
        if _hold(before) != _hold(job):
            self.state.changed_pools.on(job.spec.pool, (*job.gpus_held, *(before.gpus_held if before else ())))

    def _note_dependents(self, job: Job) -> None:
        """That a job for which others wait has started or ended."""
        if self._has_moved_on(job):
            self.moved_on.append(job)

    def _has_moved_on(self, job: Job) -> bool:
        """Whether a job has started or ended with this value of it."""
        before = self.state.jobs.get(job.id)
        return job.has_ended or (job.has_started and (before is None or not before.has_started))

    def look_at_dependents(self, job_id: int) -> None:
        """Judge anew what waits for a job that has started already, or has ended in this step."""
        job = self._jobs.get(JobId(job_id)) or self.state.jobs.get(JobId(job_id))
        if job is not None and (job.has_ended or job.has_started):
            self.moved_on.append(job)

    def hold(self, job: Job) -> None:
        """Take a waiting job whose holds alone have changed, for as long as this step lasts (`settle_holds`)."""
        self._held.setdefault(job.id, self.state.jobs[job.id])
        self.state.put_job(job)

    def roam(self, job: Job, pool: str) -> None:
        """Have a waiting job of several pools wait in another, which its outcome tells once it starts there."""
        moved = job.in_pool(pool)
        self.state.put_job(moved)
        if job.id in self._jobs:
            self._jobs[job.id] = moved

    def settle_holds(self) -> None:
        """Of jobs that are held or let go otherwise than before this step, the outcome tells."""
        for job_id, before in self._held.items():
            now = self.state.jobs.get(job_id)
            if now is not None and (job_id in self._jobs or now.holds != before.holds):
                self._jobs[job_id] = now
        self._held.clear()

    def rebook(self, job: Job) -> None:
        """Take the new value of a placed job that books other things than before."""
        old = self.state.jobs[job.id]
        self.state.release(old)
        for node in nodes_booked(old):
            self.touch(node)
        self.put(job)

    def touch(self, node: str) -> None:
        """What this node shall do, or has, changed."""
        self._nodes[node] = None

    def leave(
        self, job: Job, to: JobState, reason: Reason, end_s: float | None = None, exit: Exit | None = None, *,
        is_loss: bool = False,
    ) -> None:  # fmt: skip
        """Move a job off its GPUs, back to the queue or to an end.

        Args:
            job: The job.
            to: Where it goes.
            reason: Why.
            end_s: When its processes ended; now if not given.
            exit: How its last process ended, if told.
            is_loss: Whether it leaves because it has lost the hardware it ran on.
        """
        suspension, leaves = job.suspension, job
        if to is QUEUED and suspension is not None and not suspension.until_step:
            leaves = held_until_resumed(job, suspension.by)
        elif to is QUEUED and job.leaving is not None and job.leaving.is_requeued and job.totals.requeued > 1:
            leaves = self._held_back(job)
        placement, left = job.placement, moves(leaves, self.now_s, ((to, reason),))
        left.throttle = None
        left.turn = ""
        lost = is_loss or (job.leaving is not None and job.leaving.is_loss)
        if lost and (to is QUEUED or to is JobState.FAILED):
            left.totals = left.totals._replace(losses=left.totals.losses + 1)
        if exit is not None:
            left.run = left.run.ended(exit)
        if to is QUEUED:
            self._wait_anew(job, left, is_loss=lost)
        else:
            left.end_s = self.now_s if end_s is None else end_s
        if placement is not None:
            self.state.usage.charge(job, self.now_s)
            self.state.release(self.state.jobs[job.id])
            for node in placement.nodes:
                self.touch(node)
        self.put(left)
        if placement is not None:
            self.co_runners_changed(placement.gpus)
        self.state.progress.pop(job.id, None)
        self.guard.forget(job.id)
        self._learn_stay(self.surroundings.end(job.id))

    def _held_back(self, job: Job) -> Job:
        """One asked to wait anew, again before it had run for long, does so for a while, each time for longer."""
        times = job.totals.requeued
        wait_s = min(REQUEUED_S * 2.0 ** min(times - 2, 16), REQUEUED_MAX_S)
        so_often = f"{times} times in a row within {QUICK_S:g} s of a start"
        by = f"it has waited {wait_s:g} s, as it was queued again {so_often}"
        self.timers.set(self.now_s + wait_s, TimerKind.HOLD_OVER, job.id, job.attempt)
        return job.with_holds(with_hold(job, Hold(HoldKind.BEGIN, by, self.now_s + wait_s)))

    def _wait_anew(self, job: Job, left: Job, *, is_loss: bool) -> None:
        """What a job that is queued again keeps of its last attempt; that saved all that was not lost with its node."""
        left.placement = None
        constraints = job.constraints
        if job.leaving is not None and job.leaving.isolates:
            constraints = constraints._replace(isolated=True)
        if job.start_s is not None:  # what was promised was one run
            constraints = constraints._replace(promised=None)
        if self.config.tuning is not None:
            constraints = constraints._replace(
                cores=start_cores_of(self.state, job.spec, is_need=self.config.tuning.is_need)
            )
        constraints = self.kept_off(left, constraints)
        if constraints != job.constraints:
            left.constraints, left.effective = constraints, under(job.spec, constraints)
        progress = self.state.progress.get(job.id)
        kept = steps_kept(job, progress, is_loss=is_loss)
        left.totals = left.totals._replace(steps_kept=kept)
        if job.start_s is not None:
            run_s, lost = self._run_s(job), lost_part(job, progress, kept)
            is_untold = is_loss and (progress is None or progress.steps <= 0)
            worked_s = 0.0 if is_untold else (1.0 - lost) * self._worked_s(job)
            served = self.served(job, idle_s=run_s - worked_s)
            left.totals = left.totals._replace(served=served, lost_s=job.totals.lost_s + lost * run_s)

    def kept_off(self, job: Job, constraints: Constraints) -> Constraints:
        """What a job is held to, with the nodes reserved for others but for those it is on, or was promised GPUs of."""
        if not self.state.reserved and not constraints.away:
            return constraints
        nodes = [known.node for name in self.state.reserved if (known := self.state.nodes.get(name)) is not None]
        away, again_s = kept_off(under(job.spec, constraints), nodes, self.now_s)
        if again_s < inf:
            self.timers.set(again_s, TimerKind.RESERVED, job.id, job.attempt)
        own = {gpu.node for gpu in constraints.promised.gpus} if constraints.promised is not None else set[str]()
        own.update(job.placement.nodes if job.placement is not None else ())
        return constraints._replace(away=tuple([name for name in away if name not in own]))

    def look_at_reservations(self, job: Job) -> None:
        """Keep a job off nodes that are reserved by now, or let it use them again."""
        constraints = self.kept_off(job, job.constraints)
        if constraints != job.constraints:
            self.put(job.under(constraints))

    def stop(
        self, job: Job, ending: JobState, reason: Reason, *,
        for_job: JobId | None = None, isolates: bool = False, is_loss: bool = False, has_failed: bool = False,
    ) -> None:  # fmt: skip
        """Ask for the end of a job's process; it keeps its GPUs until the process is gone."""
        if job.state is JobState.STOPPING:
            return
        for_job = for_job or job.preempted_for
        leaving = Leaving(ending, None, for_job, isolates=isolates, is_loss=is_loss, has_failed=has_failed)
        if job.leaving is not None:  # it was saving its state, and what that was for is not forgotten
            leaving = job.leaving._replace(ending=ending, is_loss=is_loss)
        stopping = move(job, JobState.STOPPING, self.now_s, reason)
        stopping.leaving = leaving
        self.put(stopping)

    def limit_due_s(self, job: Job) -> float | None:
        """When its time limit ends it: its lead before that limit where it has one, so that its state is saved by then.

        A lead takes at most half of the limit.
        """
        at_limit_s, limit_s, contract = self.at_limit_s(job), job.effective.time_limit_s, job.effective.checkpoint
        if at_limit_s is None or limit_s is None or contract is None:
            return at_limit_s
        return at_limit_s - min(contract.lead_s, limit_s / 2)

    def at_limit_s(self, job: Job) -> float | None:
        """When its time limit is reached; time in which it was suspended does not count, as with Slurm."""
        limit_s, start_s = job.effective.time_limit_s, job.run.start_s
        return None if limit_s is None or start_s is None else start_s + limit_s + job.paused_s(self.now_s)

    def set_limit_timer(self, job: Job) -> None:
        """Have it end when its time is over."""
        due_s = None if job.effective.time_limit_s is None else self.limit_due_s(job)
        if due_s is not None:
            self.timers.set(due_s, TimerKind.TIME_LIMIT, job.id, job.attempt)

    def gone_from(self, job: Job, node: str) -> Job:
        """A job that spans several nodes has no process on this one any more: it books there what it is to have."""
        if job.placement is None or len(job.placement.nodes) == 1:
            return job
        self.state.release_from(job, node)
        self.touch(node)
        job = job.of_run(job.run._replace(ended_on=(*job.run.ended_on, node)))
        self.put(job)
        return job

    @staticmethod
    def is_on_one_node(job: Job) -> bool:
        """Whether it spans no nodes."""
        return job.placement is None or len(job.placement.nodes) <= 1

    @staticmethod
    def is_gone(job: Job) -> bool:
        """Whether no node has a process of it, given that the one just heard of has none."""
        nodes = job.placement.nodes if job.placement is not None else ()
        return len(nodes) <= 1 or set(nodes) <= set(job.run.ended_on)

    def finish(self, job: Job, to: JobState, reason: Reason, end_s: float, *, is_loss: bool = False) -> None:
        """End a job or queue it again; a gang that still has processes on other nodes is stopped there first."""
        if self.is_gone(job):
            self.leave(job, to, reason, end_s, is_loss=is_loss)
        elif job.state is JobState.STOPPING:
            self.put(ending_as(job, to))
        else:
            self.stop(job, to, reason, is_loss=is_loss, has_failed=not is_loss)

    def cut(self, job: Job) -> None:
        """What is seen of a job from now on is seen of another size: what it has used so far is charged."""
        self.state.usage.charge(job, self.now_s)
        self.guard.forget(job.id)
        self._learn_stay(self.surroundings.end(job.id))

    def served(self, job: Job, idle_s: float = 0.0) -> tuple[Served, ...]:
        """What a job has had, with what ends now, of which so much has left no work behind."""
        served = {(one.gpu_type, one.gpus or job.effective.gpus): one for one in job.totals.served}
        gpus = job.placement.gpus if job.placement is not None else ()
        load = self.state.gpus.get(gpus[0]) if gpus else None
        if load is not None:
            kind = load.gpu.type, len(gpus)
            before = served.get(kind, Served(load.gpu.type, 0.0, len(gpus)))
            served[kind] = before._replace(run_s=before.run_s + self._run_s(job), idle_s=before.idle_s + idle_s)
        return tuple([served[kind]._replace(gpus=kind[1]) for kind in sorted(served)])

    def _worked_s(self, job: Job) -> float:
        """How long its present attempt has made steps: not before its first, and not since it was told to stop."""
        until_s = job.since_s if job.state is JobState.STOPPING and job.since_s is not None else self.now_s
        return 0.0 if job.began_s is None else max(0.0, until_s - job.began_s - job.paused_s(until_s))

    def _run_s(self, job: Job) -> float:
        """How long its present attempt has run."""
        start_s = self.now_s if job.run.start_s is None else job.run.start_s
        return max(0.0, self.now_s - start_s - job.paused_s(self.now_s))

    def learn_length(self, job: Job) -> None:
        """A job has come to its end by itself: it tells how long those of its family run that tell no length."""
        spec, gpus = job.effective, job.gpu_count
        if not is_untold(job, self.state.progress.get(job.id)):
            return
        if job.totals.served and spec.preemptible:
            service_s = sum([one.run_s * one.gpus / gpus for one in self.served(job)])
        else:
            held = job.placement.gpus if job.placement is not None else ()
            service_s = self._run_s(job) * len(held) / gpus if held and held[0] in self.state.gpus else 0.0
        if self.config.is_kept:
            self._lengths[spec.family] = self.state.knowledge.learn_length(spec.family, service_s, self.now_s)
        else:
            self.state.knowledge.note_length(spec.family, service_s, self.now_s)

    def co_runners_changed(self, gpus: Iterable[GpuId]) -> None:
        """Jobs joined or left these GPUs: close their epochs and learn from them."""
        observer, now_s = self.observer, self.now_s
        for gpu in gpus:
            if observer.changes_unseen(gpu, now_s):
                continue
            learnt = self.observer.change(gpu, self._sharing(gpu), self.state.knowledge, self.now_s)
            if learnt is not NOTHING:
                self._learn_co_runners(learnt)

    def observe(self, job: Job, progress: Progress) -> None:
        """A sample of a job goes into the epochs of its GPUs; what a window that is full taught is learnt."""
        beliefs, contention = self.state.knowledge, self.config.contention
        for gpu in job.gpus_held:
            contended = is_contended(self.state, gpu.node, contention, self.now_s)
            members, others_use = partial(self._members, gpu), self.state.gpus[gpu].gpu.is_disturbed
            full = self.observer.sample(
                gpu, members, job.id, progress, beliefs.steps_min, others_use=others_use, is_spoilt=contended
            )
            if full:
                self._learn_co_runners(self.observer.window(gpu, self._sharing(gpu), beliefs, self.now_s))
        node = None if job.placement is None else self.state.nodes.get(job.placement.node)
        if node is not None and len(node.node.gpus) > 1:
            contended = is_contended(self.state, node.node.name, contention, self.now_s)
            look = no_neighbours if contended else partial(socket_neighbours_of, self.state, job.id)
            self._learn_stay(self.surroundings.sample(job.id, node.generation, look, progress, beliefs.steps_min))

    def _sharing(self, gpu: GpuId) -> str:
        load = self.state.gpus.get(gpu)
        return load.gpu.sharing if load else ""

    def _learn_co_runners(self, learnt: Learnt) -> None:
        for profile in learnt.profiles:
            self.learn(profile)
        for outdated in learnt.outdated:
            if outdated.key in self.state.beliefs.profiles:
                self.relearnt(self.state.knowledge.forget_speed(outdated.key))
        self.outdated.extend(learnt.outdated)
        for measurement in learnt.measurements:
            self.updates += 1
            self.state.knowledge.learn_set(measurement)
            self.measurements.append(measurement)
            self.state.changed_pools.update(self.state.queues)

    def _learn_stay(self, stay: Stay | None) -> None:
        """Learn from a time in which no job came near a job or went."""
        if stay is None:
            return
        beliefs = self.state.knowledge
        learnt = learn_from_stay(stay, beliefs.profiles, beliefs.neighbours, beliefs.steps_min, self.now_s)
        if learnt is not None:
            self.learn(learnt)

    def _members(self, gpu: GpuId) -> list[EpochMember]:
        return [self._member(booking) for booking in self.state.gpus[gpu].bookings]

    def _member(self, booking: Booking) -> EpochMember:
        job = self.state.jobs[booking.job]
        cores = 0 if job.placement is None else job.placement.cores_booked
        return EpochMember(
            booking.job,
            booking.key,
            booking.user,
            booking.lane,
            cores,
            job.spec.category,
            job.spec.kind is JobKind.INFERENCE,
        )

    def learn(self, profile: Profile) -> None:
        """Believe a profile and re-book the jobs it concerns; waiting jobs of any pool may be judged by it."""
        self.relearnt(self.state.knowledge.learn_profile(profile))

    def forget(self, family: str) -> None:
        """Believe nothing of a family any more but the memory of its jobs that share a GPU, and re-book its jobs."""
        state = self.state
        for known in (self._profiles, state.decided_by):
            for key in [key for key in known if key.family == family]:
                del known[key]
        self._lengths.pop(family, None)
        self.measurements = [one for one in self.measurements if all(key.family != family for key in one.keys)]
        used = [(key, gpus) for key, gpus in state.keys_in_use.items() if key.family == family]
        sharing = [key for key, gpus in used if any(len(state.gpus[gpu].bookings) > 1 for gpu in gpus)]
        for profile in state.knowledge.forget(family, sharing):
            self._profiles[profile.key] = profile
        self.forgotten[family] = None
        for key in sorted([key for key, _ in used], key=str):
            state.refresh_bookings(key)
        self.updates += 1
        state.changed_pools.update(state.queues)

    def note(self, profile: Profile) -> None:
        """Keep a profile by which nothing is decided otherwise than before."""
        self._profiles[profile.key] = profile

    def relearnt(self, merged: Profile) -> None:
        """Re-book the jobs that a profile concerns, which is believed by now.

        Policies are asked again where it says more than a little else than it did when they last were.
        """
        state = self.state
        self._profiles[merged.key] = merged
        news = is_news(state.decided_by.get(merged.key), merged)
        state.believe_bookings(merged.key, is_news=news)
        if news:
            self.updates += 1
            state.decided_by[merged.key] = merged
            state.changed_pools.update(state.queues)

    def outcome(self) -> Outcome:
        """Everything that changed; the version grows if anything durable did."""
        state, jobs = self.state, self._jobs
        if jobs or self._nodes or self._profiles or self.measurements or self.lost_nodes or self.forgotten:
            state.version += 1
        known = state.nodes
        nodes = tuple(self._nodes)
        if len(nodes) > 1 or (nodes and nodes[0] not in known):
            nodes = tuple(sorted(known.keys() & self._nodes))
        for name in nodes:
            known[name].generation = state.version
        return Outcome(
            state.version,
            tuple([jobs[job] for job in sorted(jobs)] if len(jobs) > 1 else jobs.values()),
            nodes,
            tuple(self.lost_nodes) if self.lost_nodes else (),
            tuple(self._profiles.values()) if self._profiles else (),
            tuple(self.measurements) if self.measurements else (),
            tuple(self.decisions) if self.decisions else (),
            self.rejected,
            tuple(self.stale) if self.stale else (),
            self.timers.next_s,
            tuple(state.usage.charged.values()) if state.usage.charged else (),
            tuple(self.forgotten) if self.forgotten else (),
            tuple(self._lengths.values()) if self._lengths else (),
        )
