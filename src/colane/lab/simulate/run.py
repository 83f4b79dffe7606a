"""One workload, one policy, one run: from inputs to everything that came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter
from typing import NamedTuple

from colane.api.states import LiveState, read, write
from colane.core import ClusterState, Core
from colane.core.cluster.limits import over
from colane.core.config import CoreConfig
from colane.core.events import CancelRequested, Ended, Event, NodeLost, NodeRegistered
from colane.core.policy import Policy
from colane.cpu.config import TuningConfig
from colane.cpu.contention import ContentionConfig
from colane.foresee.judged import Foretold
from colane.lab.simulate.accuracy import Accuracy, BeliefErrors
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.driver import STOPPED, Driver
from colane.lab.simulate.lacking import Truth, lacking
from colane.lab.simulate.ledger import Ledger, Refusal
from colane.lab.simulate.tables import somewhere
from colane.lab.simulate.watcher import Watcher
from colane.lab.simulate.watchers import QUOTES_MAX, Foresees
from colane.lab.simulate.world import World
from colane.lab.traces.check import offered_load, split
from colane.lab.traces.clusters import Cluster
from colane.lab.traces.tables.measured import DONE_S
from colane.lab.traces.workload import TraceJob, Workload, collector_held
from colane.model.job import Job, JobId
from colane.model.job_spec import under
from colane.model.limits import Quotas
from colane.model.phases import MOVABLE
from colane.model.profile import Profile, SetMeasurement
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.engine.contracts import GuardTally, SchedulingContext
from colane.scheduling.engine.live import ran_since_s
from colane.scheduling.engine.loop import Composed
from colane.scheduling.engine.walks import by_gain


class GuardCounts(NamedTuple):
    """How often guards decided."""

    ageing: int = 0  # jobs served as they had waited too long, out of turn or on GPUs kept for them, each time one was
    hysteresis: int = 0  # waiting jobs that would have taken a running one's place if no gain over it were asked for
    # waiting jobs that would have taken the place of a running one that was spared as it had hardly begun: it had not
    # run for the order's quantum, or was protected after its launch
    protection: int = 0


class GuardCounter:
    """Told of every plan, see `scheduling.engine.guard_tally`."""

    def __init__(self) -> None:
        self._aged = 0
        self._kept: set[JobId] = set()
        self._held: set[JobId] = set()
        self._spared: set[JobId] = set()

    @property
    def counts(self) -> GuardCounts:
        """So far."""
        return GuardCounts(self._aged, len(self._held), len(self._spared))

    def keeps(self, context: SchedulingContext, job: Job) -> None:
        """Others would have those GPUs where there are any that may pass it."""
        if context.skips_hopeless and any(other.id != job.id for other in _in_order(context)):
            self._kept.add(job.id)

    def asks_urgent(self, context: SchedulingContext, job: Job) -> bool:
        """It is where it is not the next by the order alone, or had GPUs kept for it."""
        if job.id in self._kept:
            return True
        first = next(_in_order(context), None)
        return first is not None and first.id != job.id

    def serves_urgent(self, job: Job) -> None:
        self._aged += 1
        self._kept.discard(job.id)

    def waits(self, context: SchedulingContext) -> None:
        """Look at the first that was left, once of each kind."""
        job = next(_in_order(context), None)
        if job is None or (job.id in self._held and job.id in self._spared):
            return
        queue, now_s = context.queue, context.draft.now_s
        rank = queue.rank(job)
        for other in _stoppable(context):
            theirs = queue.rank(other)
            if other.state not in MOVABLE or ran_since_s(other) + queue.quantum_s > now_s:
                if queue.displaces(rank, theirs):
                    self._spared.add(job.id)
            elif queue.gain_min > 1 and not queue.displaces(rank, theirs) and by_gain(1.0, rank, theirs):
                self._held.add(job.id)


def _in_order(context: SchedulingContext) -> Iterator[Job]:
    """Jobs in the order of the policy for which nothing is decided."""
    draft = context.draft
    classes = draft.view.queue(context.pool).classes
    for job in context.queue.walk(lambda: classes):
        if draft.is_undecided(job.id):
            yield job


def _stoppable(context: SchedulingContext) -> Iterator[Job]:
    """Jobs on GPUs of the pool that save their state, and for which nothing is decided."""
    view = context.draft.view
    for node in view.nodes.values():
        for job_id in node.jobs if node.node.pool == context.pool else ():
            job = view.jobs[job_id]
            may_go = job.effective.preemptible and not job.is_leaving and context.draft.is_undecided(job_id)
            if job.gpus_held and may_go:
                yield job


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a run is a pure function of."""

    cluster: Cluster  # machines
    workload: Workload  # jobs
    world: World  # the truth
    policy: Policy  # what decides
    beliefs: Beliefs = field(default_factory=Beliefs)  # what it starts from; they learn, so every run needs its own
    driver: DriverConfig = field(default_factory=DriverConfig)  # costs besides steps
    tuning: TuningConfig | None = None  # how cores of training jobs are tuned; None leaves them what they ask for
    # when jobs without GPUs are held back for training jobs beside them; None never does
    contention: ContentionConfig | None = None
    limits: Quotas = field(default_factory=Quotas)  # what users and groups may have running
    # jobs that co-runners slow by more than this over the prediction are separated, as life does; None leaves them, as
    # policies were published
    guard_margin_ratio: float | None = None
    guard_after_s: float = CoreConfig().guard_after_s  # for how long they must be
    foresees: bool = False  # whether starts and ends are foreseen, and judged by what came of them
    begun: bytes | None = None  # state that it goes on from, of a run that was cut (`Run.state`); None begins anew
    lasts_s: float = inf  # it is cut before what comes later, from when it begins or goes on


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What came of it."""

    policy: str  # its name
    ledger: Ledger  # jobs by column, the cluster over time, counts
    refused: tuple[Refusal, ...]  # jobs no node can hold or the world cannot move; they were not submitted
    jobs: int  # jobs submitted and refused
    submitted: int  # jobs handed to the core
    gpus: int  # GPUs of the cluster
    span_s: float  # from the first submission to the end of the run
    offered_load: float | None  # GPU-seconds asked for per GPU-second while jobs arrive; None without durations
    errors: BeliefErrors  # how wrong predictions were
    profiles: tuple[Profile, ...]  # what was believed in the end
    measurements: tuple[SetMeasurement, ...]  # sets that ran together and were learnt from
    wall_s: float  # wall time of the run
    # of how many jobs the policy does not know what it is defined by, by what that is (`lacking`)
    lacks: Mapping[str, int] = field(default_factory=dict)
    # of the jobs that still waited when nothing was left to happen, the first and why; empty where none did
    stuck: str = ""
    # how often guards decided; None of a policy as published, and of a user's own that is not composed
    guards: GuardCounts | None = None
    is_as_published: bool = False  # whether the policy is in the form in which it was published
    foretold: tuple[Foretold, ...] | None = None  # what was foreseen, and what came of it; None where nothing was to be
    state: bytes | None = None  # from which it goes on, where it was cut


class Prepared(NamedTuple):
    """A run that is ready to begin, or to go on."""

    policy: str  # that decides, or did when it was cut
    driver: Driver
    accuracy: Accuracy
    guards: GuardCounter | None
    foresight: Foresees | None

    @property
    def watchers(self) -> list[Watcher]:
        """Who looks on whatever is asked for."""
        own: list[Watcher] = [self.accuracy] if self.driver.world.counts_steps else []
        return own if self.foresight is None else [*own, self.foresight]


def admit(
    workload: Workload, cluster: Cluster, world: World, limits: Quotas | None = None
) -> tuple[tuple[TraceJob, ...], tuple[Refusal, ...]]:
    """Jobs that can run, and the others each with its reason."""
    held, rejected = split(workload, cluster)
    refused = [Refusal(job.id, job.spec.name, job.line, reason) for job, reason in rejected]
    types = {pool: _gpu_types(cluster, pool) for pool in cluster.pools}
    kept, limits = [], limits if limits is not None and limits.hold else None
    for job in held:
        reason = world.refusal(job, types[job.spec.pool]) or (None if limits is None else over(job.spec, limits))
        if reason is None:
            kept.append(job)
        else:
            refused.append(Refusal(job.id, job.spec.name, job.line, reason))
    return tuple(kept), tuple(sorted(refused))


def _gpu_types(cluster: Cluster, pool: str) -> tuple[str, ...]:
    return tuple(sorted({gpu.type for node in cluster.nodes if node.pool == pool for gpu in node.gpus}))


def prepare(
    inputs: Inputs, jobs: Sequence[TraceJob], watchers: Iterable[Watcher] = (), guards: GuardCounter | None = None,
    found: LiveState | None = None,
) -> Driver:  # fmt: skip
    """A driver that is ready to run these jobs, or to go on with them as they were found in a live cluster."""
    # Protection after launch is from being stopped: under a policy that spares jobs for longer, a job runs at once,
    # unless the policy decides by first steps.
    awaits = bool(getattr(inputs.policy, "awaits_first_steps", False))  # a user's own need not say
    protects = inputs.policy.protects if isinstance(inputs.policy, Composed) else True
    least_s = inputs.policy.min_runtime_before_preemption_s
    matters = awaits or (protects and least_s < inf and least_s < _protected_s(inputs, jobs))
    at_once = not (inputs.world.counts_steps and matters)
    config = CoreConfig(
        is_kept=False,
        runs_at_once=at_once,
        guard=inputs.guard_margin_ratio is not None,
        guard_margin_ratio=inputs.guard_margin_ratio or 0.0,
        guard_after_s=inputs.guard_after_s,
        families_agree=False,  # a trace is one owner's word, whatever its users
        black_holes=False,  # failures that were recorded are those of jobs
        tuning=inputs.tuning,
        contention=inputs.contention,
        limits=inputs.limits
        if found is None
        else replace(found.limits, users={**found.limits.users, **inputs.limits.users}),
    )
    core = Core(inputs.policy, ClusterState(inputs.beliefs) if found is None else found.state, config)
    core.state.derived(GuardTally).watch = guards
    if found is not None:
        return _taken_over(inputs, jobs, core, found.now_s, watchers)
    start_s = min(jobs[0].submit_s, 0.0) if jobs else 0.0
    core.step([NodeRegistered(node) for node in inputs.cluster.nodes], start_s)
    return Driver(core, jobs, inputs.world, inputs.driver, watchers)


def _taken_over(
    inputs: Inputs, jobs: Sequence[TraceJob], core: Core, now_s: float, watchers: Iterable[Watcher]
) -> Driver:
    """The nodes are those of the inputs; of jobs, those share that may, and what came meanwhile has not."""
    state, nodes, traced = core.state, {node.name: node for node in inputs.cluster.nodes}, {job.id: job for job in jobs}
    events: list[Event] = [NodeRegistered(node) for name, node in nodes.items() if name not in state.nodes]
    events += [NodeLost(name) for name in state.nodes if name not in nodes]
    for job in [job for job in state.jobs.values() if job.id not in traced]:
        at = job.placement.nodes if job.placement is not None else ()
        events.append(CancelRequested(job.id, "the simulation"))
        events += [Ended(job.id, job.attempt, "signalled", STOPPED, job.start_s, now_s, None, node) for node in at]
    core.step(events, now_s, decides=False)
    for job in [job for job in state.jobs.values() if job.spec.share and not traced[job.id].spec.share]:
        alone = job.copied()
        alone.spec = replace(job.spec, share=False)
        alone.effective = under(alone.spec, job.constraints)
        state.put_job(alone)
    driver = Driver(core, jobs, inputs.world, inputs.driver, watchers)
    done = {job.id: float(job.spec.labels.get(DONE_S, 0.0)) / max(job.duration_s or 0.0, 1.0) for job in jobs}
    driver.take_over(now_s, done)
    return driver


CO_RUNNER_SLOWDOWN_MAX = 10.0  # no first step takes longer than this many times its time alone, whatever runs beside it


def _protected_s(inputs: Inputs, jobs: Sequence[TraceJob]) -> float:
    """No job is protected for longer after its start."""
    world, launch_max_s = inputs.world, inputs.driver.launch_max_s
    types = {pool: _gpu_types(inputs.cluster, pool) for pool in inputs.cluster.pools}
    places = (somewhere(job, kind) for job in jobs for kind in types.get(job.spec.pool, ()))
    slowest = min((speed for place in places if (speed := world.steps_per_s(place, ())) > 0), default=inf)
    startup_s = max([world.startup(job).alone_s for job in jobs], default=0.0)
    launch_s = startup_s + launch_max_s + CO_RUNNER_SLOWDOWN_MAX / slowest
    return (1 + CoreConfig().protection_factor) * launch_s


def simulate(
    inputs: Inputs,
    *,
    watchers: Callable[[Core], Iterable[Watcher]] = lambda _: (),
    on_ready: Callable[[Driver], None] | None = None,
) -> Run:
    """Run to the end, or until `Driver.stop` is called.

    Watchers are made given the core; `on_ready` is handed the driver, to show progress or stop it.
    """
    start_s = perf_counter()
    types = {pool: _gpu_types(inputs.cluster, pool) for pool in inputs.cluster.pools}
    lacks = lacking(inputs.policy, inputs.workload.jobs, Truth(inputs.world, inputs.beliefs, types))
    with collector_held():  # millions of objects and hardly a cycle: it would walk them all again and again
        jobs, refused = admit(inputs.workload, inputs.cluster, inputs.world, inputs.limits)
        ready = _prepared(inputs, jobs)
        _, driver, accuracy, guards, foresight = ready
        driver.watch(*ready.watchers, *watchers(driver.core), alone=True)
        if on_ready is not None:
            on_ready(driver)
        states: list[bytes] = []

        def keep() -> None:
            driver.watch(alone=True)
            driver.on_progress = None
            states.append(write(ready, {"world": inputs.world, "policy": inputs.policy}))

        ledger = driver.run(driver.now_s + inputs.lasts_s, keep)
    waiting = () if ledger.interrupted else driver.core.state.jobs.values()  # for ever
    first = min(waiting, key=lambda job: (-job.spec.priority, job.id), default=None)
    return Run(
        policy=inputs.policy.name,
        ledger=ledger,
        refused=refused,
        jobs=len(inputs.workload.jobs),
        submitted=driver.submitted,
        gpus=inputs.cluster.gpus,
        span_s=driver.now_s - (jobs[0].submit_s if jobs else 0.0),
        offered_load=offered_load(jobs, inputs.cluster.gpus, inputs.workload.span_s)
        if any(job.duration_s is not None for job in jobs)
        else None,
        errors=accuracy.errors(),
        profiles=tuple(driver.core.state.beliefs.profiles.values()),
        measurements=tuple(accuracy.measurements),
        wall_s=perf_counter() - start_s,
        lacks=lacks,
        stuck="" if first is None else f"{first.spec.name}: {sentence_of(driver.core.why(first.id, driver.now_s))}",
        guards=None if guards is None else guards.counts,
        is_as_published=is_as_published(inputs.policy),
        foretold=None if foresight is None else foresight.foretold,
        state=states[0] if states else None,
    )


def _prepared(inputs: Inputs, jobs: Sequence[TraceJob]) -> Prepared:
    """Anew, or as it was cut; under another policy than before where that is another."""
    has_guards = isinstance(inputs.policy, Composed) and not inputs.policy.is_as_published
    guards = GuardCounter() if has_guards else None
    found = None if inputs.begun is None else read(inputs.begun, {"world": inputs.world, "policy": inputs.policy})
    if found is not None and not isinstance(found, LiveState):
        ready: Prepared = found
        if ready.policy == inputs.policy.name:
            return ready
        ready.driver.rule(inputs.policy)
        ready.driver.core.state.derived(GuardTally).watch = guards
        return ready._replace(policy=inputs.policy.name, guards=guards)
    driver = prepare(inputs, jobs, guards=guards, found=found)
    chance = min(1.0, QUOTES_MAX / max(1, len(jobs)))
    foresight = Foresees(driver.core, chance) if inputs.foresees else None
    driver.on_settled = None if foresight is None else foresight.settled
    return Prepared(inputs.policy.name, driver, Accuracy(driver.core.state.beliefs, driver.world), guards, foresight)


def is_as_published(policy: Policy) -> bool:
    """Whether a policy is in the form in which it was published, without guards of ours."""
    return isinstance(policy, Composed) and policy.is_as_published
