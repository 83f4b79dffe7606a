"""The whole cluster in numbers, for page, `colane top` and `/metrics`: devices, why jobs wait, what needs a look.

Reasons of the whole queue come of one plan that is not carried out. It is made when something has changed, and so
rarely that it takes no more than a tenth of the scheduler's time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from colane.api.seeing import (
    DeviceCountsObject,
    IdleObject,
    KeptDeviceObject,
    LookObject,
    OverviewAnswer,
    WaitingForObject,
)
from colane.core.cluster.co_runners import Pacing
from colane.core.core import QueueReasons
from colane.core.reducers import idling
from colane.facts.job import waiting
from colane.model.choices import IdleRule
from colane.model.hardware import GpuId, Node
from colane.model.inventory import Inventory
from colane.model.job import Job, JobId, JobKind, JobSpec, JobState, NeedClass
from colane.model.phases import STEPPING
from colane.model.reason import Reason, Why
from colane.model.sentences import sentence_of
from colane.model.words import count
from colane.server.board.read_model import ReadModel
from colane.server.ground.sight import Sight
from colane.server.parts import Parts
from colane.server.views import look
from colane.server.views.holders import Holders, holders_of
from colane.server.writer.driver import LiveDriver
from colane.settings.table import HEARTBEAT

AGE_MAX_S: Final = 1.0  # an answer is as old at most while nothing is slow

PACING_AGE_MAX_S: Final = 20.0
PACING_PHASES: Final = 16
COST_RATIO_MAX: Final = 0.1
JOBS_TOLD_MAX: Final = 5


@dataclass(slots=True)
class _NodesThere:
    """Nodes that take jobs, and which classes of need none of them could ever run."""

    nodes: list[Node]
    inventory: Inventory
    lacking: dict[NeedClass, bool] = field(default_factory=dict)

    def lacks(self, spec: JobSpec) -> bool:
        """Whether none could run it, in any size."""
        known = self.lacking.get(spec.need)
        if known is None:
            least = spec if spec.gpus == spec.gpus_min else replace(spec, gpus=spec.gpus_min)
            known = self.lacking[spec.need] = self.inventory.shortfall(least) is not None
        return known


@dataclass(slots=True)
class _KnownReasons:
    """Why all jobs wait, when that was found, and what finding it took."""

    version: int
    steady_s: float
    cost_s: float
    waits: QueueReasons


class _KnownPacing(NamedTuple):
    """How fast a job was believed to go, when, whether that needs a look, and what it depends on at once."""

    steady_s: float
    pacing: Pacing | None
    is_slow: bool
    stand: tuple[object, ...]


class _NodeFacts(NamedTuple):
    """What a description of a node says of its devices."""

    node: Node
    working: frozenset[int]
    broken: frozenset[int]
    odd: frozenset[int]


@dataclass(slots=True)
class OverviewMaker:
    """Makes the overview, and keeps what of it changes seldom."""

    parts: Parts  # of the scheduler that is told of
    shared_ratio_max: float = 0.01  # part of a core that overviews for screens take at most, however many look
    shared_max_s: float = 2.0  # such an overview is never older
    _known: _KnownReasons | None = field(default=None)
    _shared: tuple[float, int, OverviewAnswer] | None = field(default=None)
    _pacings: dict[JobId, _KnownPacing] = field(default_factory=dict)
    _facts: dict[str, _NodeFacts] = field(default_factory=dict)
    _there: _NodesThere | None = None

    def waits(self, cost_ratio_max: float = COST_RATIO_MAX) -> QueueReasons:
        """Why all jobs wait; found anew as rarely as takes no more than that part of the scheduler's time."""
        driver, known, now_s = self.parts.driver, self._known, time.monotonic()
        version = driver.core.state.version
        if known is not None:
            age_s = now_s - known.steady_s
            is_fresh = version == known.version and age_s < AGE_MAX_S
            if is_fresh or age_s < known.cost_s / cost_ratio_max:
                return known.waits
        waits = driver.core.waits(driver.now())
        self._known = _KnownReasons(version, now_s, time.monotonic() - now_s, waits)
        return waits

    def _nowhere(self, waiting: Iterable[Job]) -> list[JobId]:
        """Waiting jobs that no node which is there and takes jobs could ever run, were it empty."""
        nodes = [one.node for one in self.parts.read_model.nodes.values() if not one.lost and one.node.takes_jobs]
        there = self._there
        if there is None or there.nodes != nodes:
            there = self._there = _NodesThere(nodes, Inventory(nodes))
        return [job.id for job in waiting if job.is_waiting and not job.parked and there.lacks(job.effective)]

    def pacing(self, job: JobId) -> Pacing | None:
        """How fast a job is believed to go: it takes long for thousands of jobs.

        It is as of some seconds ago at most where the job has been where it is, with the same co-runners, since.
        """
        return self._paced(job, time.monotonic(), self._stand(job)).pacing

    def _stand(self, job: JobId) -> tuple[object, ...]:
        """What a job's pace depends on at once: where it is, and with which jobs in which lanes."""
        driver = self.parts.driver
        live = driver.core.state.jobs.get(job) if driver.is_ready else None
        if live is None:
            return ()
        loads = [driver.core.state.gpus[gpu] for gpu in live.gpus_held]
        return live.placement, tuple([(one.job, one.lane) for load in loads for one in load.bookings])

    def slow(self, placed: Iterable[Job]) -> set[JobId]:
        """Return which jobs are so slow beside others that they need a look."""
        steady_s, known, found = time.monotonic(), self._pacings, set[JobId]()
        for job in placed:
            if job.spec.gpus:
                one = known.get(job.id)
                if one is None or steady_s > one.steady_s + PACING_AGE_MAX_S:
                    one = self._paced(job.id, steady_s, self._stand(job.id))
                if one.is_slow:
                    found.add(job.id)
        return found

    def _paced(self, job: JobId, steady_s: float, stand: tuple[object, ...]) -> _KnownPacing:
        known = self._pacings.get(job)
        if known is None or steady_s > known.steady_s + PACING_AGE_MAX_S or known.stand != stand:
            early_s = job % PACING_PHASES / PACING_PHASES * PACING_AGE_MAX_S / 2  # so that not all are due at once
            pacing = self.parts.driver.pacing(job)
            is_slow = pacing is not None and look.beside_others(pacing) < look.SLOW_RATIO_MAX
            known = self._pacings[job] = _KnownPacing(steady_s - early_s, pacing, is_slow, stand)
        return known

    def facts(self, node: Node) -> _NodeFacts:
        """What a node's description says of its devices, found once for each description."""
        known = self._facts.get(node.name)
        if known is None or known.node is not node:
            broken = frozenset(gpu.index for gpu in node.gpus if not gpu.healthy)
            disturbed = frozenset(gpu.index for gpu in node.gpus if gpu.is_disturbed)
            known = self._facts[node.name] = _NodeFacts(
                node, frozenset(gpu.index for gpu in node.gpus) - broken, broken, broken | disturbed
            )
        return known

    def idle(self, now_s: float) -> list[IdleObject]:
        """Jobs that hold devices and have used none for long."""
        parts, jobs, after_s = self.parts, self.parts.read_model.jobs, self.parts.config.idle_after_s
        parts.idle.keep(jobs)
        for gone in self._pacings.keys() - jobs.keys():
            del self._pacings[gone]
        for name in self._facts.keys() - parts.read_model.nodes.keys():
            del self._facts[name]
        return [] if after_s is None else list(_idle(parts, after_s, now_s))

    def shared(self, sight: Sight) -> tuple[int, OverviewAnswer]:
        """Return the same for screens, of which there may be many, and the number of the event as of which it is.

        It is made anew as often as takes `shared_ratio_max` of a core. Raises RefusedError: 503 while the store cannot
        be read.
        """
        now_s, event, known = time.monotonic(), self.parts.feed.last_number, self._shared
        if not sight.is_whole:
            return event, self.make(sight)
        if known is None or now_s >= known[0]:
            made = self.make(sight)
            cost_s = time.monotonic() - now_s
            self._shared = known = now_s + min(self.shared_max_s, cost_s / self.shared_ratio_max), event, made
        return known[1:]

    def make(self, sight: Sight, held: Holders | None = None) -> OverviewAnswer:
        """Return what a caller may be told of the cluster; `held` are the holders of devices where they are known.

        Raises RefusedError: 503 while the store cannot be read.
        """
        driver, now_s, board = self.parts.driver, self.parts.driver.now(), self.parts.read_model
        live, waits = board.jobs, self.waits()
        holders = holders_of(board) if held is None else held
        placed, waiting = holders.placed, holders.waiting
        if not sight.is_whole:
            placed, waiting = ([job for job in jobs if sight.has(job.spec.user)] for jobs in (placed, waiting))
        seen = live.keys() if sight.is_whole else {job.id for jobs in (placed, waiting) for job in jobs}
        idle = [one for one in self.idle(now_s) if one["job"] in seen]
        kept = list(kept_devices(board, waits, holders))
        sharing, gain = _sharing(self, holders)
        by_reason = _why_waiting(driver, waiting, waits)
        return {
            "at_s": now_s,
            "devices": _devices(self, {one["gpu"] for one in kept}, holders),
            "running": len(placed),
            "waiting": sum(one["count"] for one in by_reason),
            "sharing_devices": sharing,
            "sharing_gain": gain,
            "why_waiting": by_reason,
            "kept": [one if one["job"] in seen else {**one, "job": None} for one in kept],
            "look": look.in_order(_look(self, placed, self._nowhere(waiting), idle, now_s)),
            "idle": idle,
        }


def _idle(parts: Parts, after_s: float, now_s: float) -> Iterator[IdleObject]:
    rule = parts.config.idle_rule
    for job_id in sorted(parts.idle.resting):
        job = parts.read_model.jobs.get(JobId(job_id))
        if job is None or job.placement is None or job.state not in STEPPING or job.spec.kind is SERVES:
            continue
        since_s = parts.idle.since_s(job_id, job.placement.nodes, now_s) if job.gpus_held else None
        if since_s is not None and now_s >= since_s + after_s:
            problem = _no_parking(parts.driver, job) if rule is IdleRule.PARK else None
            yield {"job": job_id, "since_s": since_s, "idle_s": now_s - since_s, "problem": problem or ""}


def _no_parking(driver: LiveDriver, job: Job) -> str | None:
    return idling.refusal(driver.core.state, job, driver.progress.get(job.id))


SERVES: Final = JobKind.INFERENCE  # a job that serves requests waits for them by its nature


def reason_of(driver: LiveDriver, job: Job, waits: QueueReasons) -> Reason:
    """Return why a waiting job waits, of all that wait found at once."""
    told = waits.reasons.get(job.id)
    if told is None and job.id in driver.core.state.jobs:  # something holds it: that asks no policy
        told = driver.core.why_held(job.id)
    return told or job.reason or Reason(Why.SUBMITTED)


def _why_waiting(driver: LiveDriver, jobs: Iterable[Job], waits: QueueReasons) -> list[WaitingForObject]:
    groups: dict[Why, WaitingForObject] = {}
    told = waits.reasons
    for job in jobs:
        size = waiting(job)
        if not size:
            continue
        reason = told.get(job.id) or reason_of(driver, job, waits)
        one = groups.get(reason.why)
        if one is None:
            sentence = sentence_of(reason)
            one = groups[reason.why] = {"why": reason.why.value, "count": 0, "jobs": [], "sentence": sentence}
        one["count"] += size
        if len(one["jobs"]) < JOBS_TOLD_MAX:
            one["jobs"].append(job.id)
    return sorted(groups.values(), key=lambda one: -one["count"])


def waiting_by_user(driver: LiveDriver, jobs: Iterable[Job], waits: QueueReasons) -> dict[tuple[str, str], int]:
    """Return how many jobs of each user wait for each reason."""
    found: dict[tuple[str, str], int] = {}
    for job in jobs:
        size = waiting(job)
        if size:
            key = job.spec.user, reason_of(driver, job, waits).why.value
            found[key] = found.get(key, 0) + size
    return found


def kept_devices(board: ReadModel, waits: QueueReasons, holders: Holders) -> Iterator[KeptDeviceObject]:
    """Yield the devices that are kept for jobs, in the order of nodes."""
    held = {gpu: (job, "preempting") for job, gpus in waits.holds.items() for gpu in gpus}
    reserved = waits.reserved
    returning: dict[GpuId, tuple[JobId, str]] = {}
    for job in holders.moving:
        if job.is_returning and job.placement is not None:
            returning |= dict.fromkeys(job.placement.gpus, (job.id, "returning"))
        elif job.resizes_to is not None:
            own = set(job.gpus_held)
            returning |= {gpu: (job.id, "resizing") for gpu in job.resizes_to.gpus if gpu not in own}
    if not (returning or held or reserved):
        return
    for name, record in board.nodes.items():
        for device in record.node.gpus if not record.lost else ():
            gpu = GpuId(name, device.index)
            kept = returning.get(gpu) or held.get(gpu)
            if kept is None and name in reserved and not holders.of(*gpu) and device.healthy:
                kept = reserved[name], "reserved"
            if kept is not None:
                yield {"gpu": str(gpu), "job": kept[0], "why": kept[1]}


def _devices(overviews: OverviewMaker, kept: set[str], holders: Holders) -> DeviceCountsObject:
    counts: DeviceCountsObject = {
        "total": 0, "lost": 0, "broken": 0, "working": 0, "suspended": 0, "kept": 0, "closed": 0, "free": 0,
    }  # fmt: skip
    facts_of, paused, nothing = overviews.facts, JobState.PAUSED, dict[int, list[Job]]()
    kept_on: dict[str, set[int]] = {}
    for text in kept:
        name, _, number = text.rpartition("/")
        kept_on.setdefault(name, set()).add(int(number))
    for name, record in overviews.parts.read_model.nodes.items():
        facts, on = facts_of(record.node), holders.on.get(name, nothing)
        counts["total"] += len(record.node.gpus)
        if record.lost:
            counts["lost"] += len(record.node.gpus)
            continue
        held = suspended = 0
        for at, jobs in on.items():
            if at in facts.working:
                held += 1
                suspended += jobs[0].state is paused and all(job.state is paused for job in jobs)
        keeps = len((kept_on[name] & facts.working) - on.keys()) if name in kept_on else 0
        counts["suspended"] += suspended
        counts["working"] += held - suspended
        counts["kept"] += keeps
        counts["broken"] += len(facts.broken)
        counts["free" if record.node.takes_jobs else "closed"] += len(facts.working) - held - keeps
    return counts


def _sharing(overviews: OverviewMaker, holders: Holders) -> tuple[int, float | None]:
    """How many devices have several jobs, and what these get done there together, of what one alone would."""
    shared = [jobs for on in holders.on.values() for jobs in on.values() if len(jobs) > 1]
    speeds: dict[JobId, float | None] = {}
    for jobs in shared:
        for job in jobs:
            if job.id not in speeds:
                pacing = overviews.pacing(job.id)
                speeds[job.id] = None if pacing is None else pacing.rate.ratio
    sums = [sum(ratio for job in jobs if (ratio := speeds[job.id]) is not None) for jobs in shared]
    return len(shared), round(sum(sums) / len(sums), 4) if sums else None


def _look(
    overviews: OverviewMaker, placed: Iterable[Job], nowhere: list[JobId], idle: Iterable[IdleObject], now_s: float
) -> Iterator[LookObject]:
    driver = overviews.parts.driver
    if driver.problem is not None:
        yield look.look_item(look.BROKEN, "store", f"nothing can be written: {driver.problem}")
    if driver.policy_problem:
        yield look.look_item(look.BROKEN, "policy", driver.policy_problem)
    if lost := len(overviews.parts.store.unreadable()):
        yield look.look_item(look.LOOK, "records", f"{count(lost, 'record')} cannot be read: colane check says which")
    yield from _look_at_nodes(overviews, now_s)
    by_job = {one["job"]: one for one in idle}
    odd = overviews.slow(placed) | by_job.keys() | look.may_have_stalled(driver.progress)
    odd |= {job.id for job in placed if look.is_in_vain(job)}
    for job in placed if odd else ():
        if job.id in odd:
            pacing = overviews.pacing(job.id) if job.spec.gpus else None
            yield from look.of_job(driver, job, by_job.get(job.id), pacing)
    if nowhere:
        yield look.nowhere(nowhere)


def _look_at_nodes(overviews: OverviewMaker, now_s: float) -> Iterator[LookObject]:
    parts, samples = overviews.parts, overviews.parts.samples
    heartbeat_s = float(parts.config.agents.get(HEARTBEAT.name, 0.0))
    for name, record in parts.read_model.nodes.items():
        seen_s = parts.liveness.last_seen_s(name)
        if not record.lost and (passed_s := look.silent_s(seen_s, now_s, heartbeat_s)) is not None:
            yield look.silent_node(record, seen_s, passed_s)
        uses, odd = samples.devices_now(name, now_s), overviews.facts(record.node).odd
        if uses and (seen := samples.odd.get(name)):
            odd |= seen
        if odd or record.lost or not record.node.takes_jobs:
            yield from look.of_node(record, seen_s, uses, odd, now_s)
