"""Foreseeing beside a core: told of each outcome, it says when jobs start and end, and keeps what came of it.

The same in a simulation and live.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isnan, nan
from typing import Any, Final

from colane.core.cluster.co_runners import Pacing
from colane.core.cluster.draft import Draft
from colane.core.cluster.state import ClusterState
from colane.core.cluster.view import ClusterView
from colane.core.core import Core
from colane.core.policy import Policy
from colane.facts.job import LeftBy, left_of
from colane.facts.ran import attained_s, earlier_s, had_s, present_s
from colane.foresee.foreseer import Foreseer, SaidQuote
from colane.foresee.judged import Foretold, JudgedQuotes, judged, judged_rows
from colane.foresee.lengths import LearntLengths
from colane.foresee.rollout import FAR_S, middles_s, point_said_s
from colane.foresee.said import QuoteBounds, Shown, StartQuote, said_fault, unforeseen
from colane.foresee.scene import LEFT_MIN_S, PoolScene, PresentJob
from colane.foresee.widen import BURST_S
from colane.model.arrays import number_of
from colane.model.job import Job, JobId, JobKind, JobState
from colane.model.phases import DependsOn, Hold, HoldKind
from colane.scheduling.admissions.backfill import Backfill
from colane.scheduling.admissions.line import HeadOfLine
from colane.scheduling.engine.loop import Composed
from colane.scheduling.engine.times import Expected, kept_times
from colane.scheduling.engine.walks import in_line
from colane.scheduling.mechanisms.fairness.service import LeastAttained

POLICIES_KEPT: Final = 5  # so many policies' scores are

FORETOLD_KEPT: Final = 600  # so many quotes are kept over a restart

ELEMENTS_MAX: Final = 200  # of an array, so many elements stand in the line for all that wait

Pace = Callable[[JobId], Pacing]  # how fast a job goes that runs, where that is looked at: `Core.pacing`


@dataclass(slots=True)
class _LiveJob:
    """A live job: its pool, and whether it has ever started."""

    name: str
    has_started: bool = False


class Foresight:
    """What is said of starts and ends, pool by pool.

    Args:
        policy: Which order is played on; a user's own is taken for `fifo`.
        seed: Of what is drawn.
        keeps: So many quotes are kept with what came of them; None keeps all.

    Attributes:
        foretold: These, in order.
    """

    def __init__(self, policy: Policy, seed: int = 0, keeps: int | None = None) -> None:
        self.policy = policy
        self.foretold: dict[int, Foretold] = {}
        self._seed = seed
        self._keeps = keeps
        self._said = 0
        self._judged: dict[str, JudgedQuotes] | None = None
        self._past: dict[str, list[dict[str, Any]]] = {}
        self._lengths = LearntLengths()
        self._pools: dict[str, Foreseer] = {}
        self._live: dict[JobId, _LiveJob] = {}
        self._open: dict[JobId, list[int]] = {}

    def take(self, job: Job, now_s: float) -> bool:
        """Take what has become of a job; whether it is new."""
        if not is_foreseen(job):
            return False
        known = self._live.get(job.id)
        if known is not None and known.name != job.spec.pool:  # of several pools it waits in another by now
            self.of(self._live.pop(job.id).name).ended(job.id, None, now_s)
        foreseer, is_new = self.of(job.spec.pool), job.id not in self._live
        if is_new:
            self._live[job.id] = _LiveJob(job.spec.pool)
            foreseer.submitted(job.id, owner_of(job), job.spec.gpus, job.submit_s)
        if job.first_start_s is not None and job.array is None and not self._live[job.id].has_started:
            self._live[job.id].has_started = True
            foreseer.started(job.id, job.first_start_s)
            self._came(job.id, lambda one: one._replace(start_s=max(0.0, now_s - one.quote.at_s)))
        if job.has_ended:
            del self._live[job.id]
            tells = job.state is JobState.SUCCEEDED and job.array is None
            foreseer.ended(job.id, length_s(job) if tells else None, now_s)
            self._came(job.id, lambda one: one._replace(end_s=max(0.0, now_s - one.quote.at_s)))
            self._open.pop(job.id, None)
        return is_new

    def meet(self, state: ClusterState, now_s: float) -> list[Job]:
        """Take live jobs that it was not told of, as after a restart; all that are new to it."""
        jobs = [job for job in state.jobs.values() if job.id not in self._live or job.spec.pools]
        return [job for job in jobs if self.take(job, now_s)]

    def rank(self, state: ClusterState, job: Job, now_s: float) -> None:
        """Note the place in the order of a job that has come: later ones like it may pass."""
        draft = Draft(ClusterView(state, now_s, pools=[job.spec.pool]))
        self.of(job.spec.pool).ranked(present_of(self.policy, draft, job.spec.pool)(job), now_s)

    def say(self, state: ClusterState, jobs: Sequence[Job], now_s: float, pace: Pace | None = None) -> list[SaidQuote]:
        """Say of jobs that wait when they start and end; it is to be kept, and judged by what comes of it."""
        self.meet(state, now_s)
        found: list[SaidQuote] = []
        for pool in dict.fromkeys([job.spec.pool for job in jobs]):
            scene = scene_of(state, self.policy, pool, now_s, pace)
            found += self.of(pool).say(scene, {job.id for job in jobs if job.spec.pool == pool})
        return found

    def keep(self, said: Sequence[SaidQuote]) -> None:
        """Keep what was said of jobs that are live still."""
        for one in said:
            pool = self._live.get(JobId(one.quote.job))
            if pool is not None and not pool.has_started:
                self.of(pool.name).keep(one)
                self._keep(one.quote)

    def board(self, core: Core, now_s: float) -> dict[int, Shown]:
        """Return what is shown of every job that waits or runs; where that fails in a pool, of each of it why."""
        state, found = core.state, dict[int, Shown]()
        if problem := policy_problem(self.policy):
            return unforeseen_of(state, now_s, problem)
        for pool in state.queues:
            try:
                self.meet(state, now_s)
                found.update(self.of(pool).board(scene_of(state, self.policy, pool, now_s, core.pacing)))
            except Exception as error:  # noqa: BLE001 - whatever it is, jobs and plans go on
                found.update(unforeseen_of(state, now_s, said_fault(error), pool))
        return found

    def start_point_s(self, core: Core, jobs: Sequence[JobId], now_s: float) -> float | None:
        """Return in how many seconds the first of these jobs starts, if all take the middle of what is believed.

        Unlike those of `board`, they may be held until a time or for another job. None where that is not known.
        """
        waiting = [job for one in jobs if (job := core.state.jobs.get(one)) is not None and is_foreseen(job)]
        if policy_problem(self.policy):
            return None
        starts_s = list[float]()
        for pool in {job.effective.pool for job in waiting}:
            found = middles_s(scene_of(core.state, self.policy, pool, now_s, core.pacing, jobs))
            for job in waiting:
                if job.id in found:
                    frees_s = [_free_s(hold, found, now_s) for hold in job.holds]
                    starts_s.append(max([found[job.id][0], *frees_s]))
        return point_said_s(min(starts_s, default=0.0))

    def judged(self) -> dict[str, JudgedQuotes]:
        """How good quotes were that have come true or not, by method."""
        if self._judged is None:
            self._judged = judged(list(self.foretold.values()))
        return self._judged

    def judged_rows(self) -> list[dict[str, Any]]:
        """The same as it is told, and what was last told of other policies."""
        return [*judged_rows(self.policy.name, self.judged()), *[row for rows in self._past.values() for row in rows]]

    def bursts(self) -> int:
        """Bursts apart in which these were said."""
        return len({int(one.quote.at_s // BURST_S) for one in self.foretold.values() if not isnan(one.start_s)})

    def kept(self) -> dict[str, Any]:
        """Return what JSON keeps over a restart."""
        foretold = [
            [one.quote.job, one.quote.at_s, *map(list, one.quote.starts), list(one.quote.end), one.quote.is_told]
            + [None if isnan(came) else came for came in (one.start_s, one.end_s)]
            for one in list(self.foretold.values())[-FORETOLD_KEPT:]
        ]
        pools = {name: one.kept() for name, one in self._pools.items()}
        rows = {**self._past, self.policy.name: judged_rows(self.policy.name, self.judged())}
        return {
            "policy": self.policy.name, "lengths": self._lengths.kept(), "pools": pools, "foretold": foretold,
            "judged": dict(list(rows.items())[-POLICIES_KEPT:]),
        }  # fmt: skip

    def take_back(self, kept: dict[str, Any]) -> None:
        """Go on from what was kept; of another policy only lengths are of use.

        Raises:
            ValueError, KeyError, TypeError, IndexError: It is no such thing; what was taken of it is to be thrown away.
        """
        self._lengths.take_back(kept["lengths"])
        self._past = {name: list(rows) for name, rows in kept.get("judged", {}).items() if name != self.policy.name}
        if kept["policy"] != self.policy.name:
            return
        for name, one in kept["pools"].items():
            self.of(name).take_back(one)
        for job, at_s, *starts, end, is_told, start_s, end_s in kept["foretold"]:
            bounds = [QuoteBounds(*one) for one in (*starts, end)]
            quote = StartQuote(job, at_s, tuple(bounds[:-1]), bounds[-1], is_told)
            self._keep(quote)
            self.foretold[self._said - 1] = Foretold(
                quote, nan if start_s is None else start_s, nan if end_s is None else end_s
            )

    def forget(self, state: ClusterState, now_s: float) -> None:
        """What was quoted of jobs that are gone will not come."""
        for foreseer in self._pools.values():
            foreseer.forget(state.jobs.keys(), now_s)

    def turn(self, number: int) -> None:
        """Draw anew, for the so-manieth time."""
        for foreseer in self._pools.values():
            foreseer.turn(number)

    def of(self, pool: str) -> Foreseer:
        """Return who foresees a pool."""
        if pool not in self._pools:
            self._pools[pool] = Foreseer(self._lengths, seed=self._seed + 1)
        return self._pools[pool]

    def _keep(self, quote: StartQuote) -> None:
        self.foretold[self._said] = Foretold(quote, nan, nan)
        self._open.setdefault(JobId(quote.job), []).append(self._said)
        self._said += 1
        if self._keeps is not None and len(self.foretold) > self._keeps:
            del self.foretold[next(iter(self.foretold))]

    def _came(self, job: JobId, change: Callable[[Foretold], Foretold]) -> None:
        self._judged = None
        for number in self._open.get(job, ()):
            if number in self.foretold:
                self.foretold[number] = change(self.foretold[number])


def length_s(job: Job) -> float:
    """Return how long a job that has ended has run, over all its attempts where these went on from one another."""
    if job.start_s is None or job.end_s is None:
        return 0.0
    last_s = max(0.0, job.end_s - job.start_s - job.paused_s(job.end_s))
    return last_s + (earlier_s(job) if job.effective.preemptible else 0.0)


def owner_of(job: Job) -> str:
    """Return whose jobs are alike in length: one user's of one family."""
    return f"{job.spec.user}|{job.effective.family}"


def policy_problem(policy: Policy) -> str:
    """Return why a policy of a user's own decides nothing now; empty while it does, and of all others."""
    return str(getattr(policy, "problem", ""))


def unforeseen_of(state: ClusterState, now_s: float, problem: str, pool: str | None = None) -> dict[int, Shown]:
    """Return what is shown of every job, or of those of a pool, where nothing is known of them."""
    return {
        job.id: unforeseen(now_s, problem, waits=job.is_waiting)
        for job in state.jobs.values()
        if is_foreseen(job) and pool in {None, job.effective.pool}
    }


def is_foreseen(job: Job) -> bool:
    """Return whether a start is foreseen: not of servers, and of what needs no GPU."""
    return job.spec.gpus > 0 and job.spec.kind is not JobKind.INFERENCE


def _free_s(hold: Hold, found: Mapping[int, tuple[float, float]], now_s: float) -> float:
    """In how many seconds a job is let go, where jobs start and end then."""
    if hold.until_s is not None:
        return hold.until_s - now_s
    if hold.after is not None and hold.after.on is not DependsOn.FAIL:
        return found.get(hold.after.job, (FAR_S, FAR_S))[hold.after.on is not DependsOn.START]
    return 0.0 if hold.kind is HoldKind.ARRAY else FAR_S


def scene_of(
    state: ClusterState, policy: Policy, pool: str, now_s: float, pace: Pace | None = None, held: Collection[JobId] = ()
) -> PoolScene:
    """Return what a pool is like now, and would be with some jobs that are held."""
    view = ClusterView(state, now_s, pools=[pool])
    tell = present_of(policy, Draft(view), pool, pace)
    there = {name: one.node for name, one in view.nodes.items() if one.node.pool == pool and name not in state.draining}
    gpus = sum([len(node.gpus) for node in there.values()])
    present: list[PresentJob] = []
    cleared = {job.preempted_for for job in view.jobs.values()}
    for job in view.jobs.values():
        if job.spec.kind is JobKind.INFERENCE and not job.effective.share:  # it does not end
            gpus -= sum([gpu.node in there for gpu in job.gpus_held])
        if job.effective.pool != pool or not is_foreseen(job):
            continue
        if job.array is not None:
            waits = job.id in held or all(hold.kind is HoldKind.ARRAY for hold in job.holds)
            present += [tell(job)] * min(ELEMENTS_MAX, number_of(job.array.pending) if waits else 0)
        elif job.placement is not None or job.is_waiting or job.id in held:
            present.append(tell(job))
    present.sort(key=lambda one: one.job)
    told = frozenset([one.job for one in present if one.job in cleared])
    return PoolScene(now_s, max(0, gpus), present, view.beliefs.lengths, told)


def present_of(policy: Policy, draft: Draft, pool: str, pace: Pace | None = None) -> Callable[[Job], PresentJob]:
    """Return what tells of a live job of a pool what is known of it now; a user's own policy is taken for `fifo`."""
    order = policy.bind(draft, pool) if isinstance(policy, Composed) else in_line(draft, pool)
    expected, times = Expected(draft, pool), kept_times(draft, pool)
    stops, now_s = policy.min_runtime_before_preemption_s < inf, draft.now_s
    las = policy.order if isinstance(policy, Composed) and isinstance(policy.order, LeastAttained) else None
    queues_gpu_s = [] if las is None else sorted(las.queues_gpu_s)
    admits = policy.admits if isinstance(policy, Composed) else [HeadOfLine()]
    blocks = any(isinstance(one, Backfill) or (isinstance(one, HeadOfLine) and one.strict) for one in admits)

    def present(job: Job) -> PresentJob:
        spec, gpus = job.effective, job.gpu_count
        runs = job.placement is not None and not job.is_waiting
        left_s, speed = expected.left_s(job) if times.predicted_s(spec) is not None else None, 1.0
        if runs and pace is not None:
            pacing = pace(job.id)
            sample, speed = draft.view.progress(job.id), pacing.rate.ratio or 1.0
            told = left_of(job, sample, pacing, now_s)
            if told.by is LeftBy.STEPS and told.p50_s is not None:  # since these were counted it has made more
                uncounted_s = inf if sample is None else max(0.0, now_s - sample.at_s)
                left_s = max(0.0, told.p50_s - min(uncounted_s, present_s(job, now_s)))
            elif left_s is not None:
                left_s /= speed
        attained_gpu_s = attained_s(job, now_s) * gpus if queues_gpu_s else 0.0
        rank = order.rank(job) if las is None else order.rank(job)[:2]  # among equals the first to come anyhow
        return PresentJob(
            job.id,
            owner_of(job),
            gpus,
            had_s(job, now_s),
            left_s,
            None if spec.time_limit_s is None else max(LEFT_MIN_S, spec.time_limit_s - present_s(job, now_s)),
            next(((one - attained_gpu_s) / gpus for one in queues_gpu_s if one > attained_gpu_s), None),
            runs,
            runs and not (stops and spec.preemptible and not job.is_leaving),
            rank,
            min(spec.sizes, default=0),
            None if blocks else rank if stops else (),
            speed,
        )

    return present
