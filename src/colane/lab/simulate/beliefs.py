"""What a policy believes when a run starts, and the one exception: an oracle that is told the truth.

Nothing in the core knows of either: they are `Beliefs` like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import product
from math import inf

import numpy as np

from colane.lab.simulate.accuracy import true_speeds
from colane.lab.simulate.tables import somewhere
from colane.lab.simulate.world import RecordedWork, Running, Scope, World
from colane.lab.traces.clusters import Cluster
from colane.lab.traces.workload import TraceJob
from colane.model.job import JobSpec
from colane.model.profile import Memory, Profile, ProfileKey, SetMeasurement, Value, ValueSource
from colane.perf.beliefs import Beliefs
from colane.perf.estimates import profile_key
from colane.perf.neighbours import Beside, NeighbourBeliefs
from colane.perf.rate import Prediction, RateSource, Slowed
from colane.perf.speedup import OCCUPANCY_UNITS_PER_S, delta


class Belief(StrEnum):
    """What is known before a run."""

    NONE = "none"  # nothing: everything is learnt from what runs
    PROFILED = "profiled"  # every kind of job was profiled alone, with noise; sharing is learnt
    ORACLE = "oracle"  # the policy is told the truth


SENTENCES: Mapping[Belief, str] = {
    Belief.NONE: "beliefs start empty and learn from what runs",
    Belief.PROFILED: (
        "every kind of job is profiled alone beforehand; step time and occupancy are the truth times log-normal "
        "noise of sigma {noise:g}, memory is exact; sharing is learnt"
    ),
    Belief.ORACLE: "ORACLE: the policy is told the world's own speeds, of jobs alone and together",
}


def describe(belief: Belief, noise: float) -> str:
    """One clause for reports."""
    return SENTENCES[belief].format(noise=noise)


def make_beliefs(
    belief: Belief, world: World, jobs: Sequence[TraceJob], cluster: Cluster, *, noise: float, seed: int
) -> Beliefs:
    """Beliefs to start a run with.

    The noise is the sigma of a log-normal one; each kind of job has its own draw, whatever other kinds there are.
    """
    kinds = {} if belief is Belief.NONE else examples(jobs, cluster)
    if belief is Belief.ORACLE:
        beliefs: Beliefs = OracleBeliefs(world, kinds, jobs)
    else:
        profiles = [_profile(world, key, running) for key, running in kinds.items()]
        beliefs = Beliefs(profiles=[_noisy(profile, noise, seed) for profile in profiles])
    if isinstance(world, RecordedWork):
        beliefs.in_seconds = world.in_seconds
    return beliefs


def declare_lengths(
    jobs: Iterable[TraceJob], belief: Belief, *, noise: float, seed: int, world: World | None = None
) -> tuple[TraceJob, ...]:
    """Of jobs without steps, say how long they run as steps of their kind in the world, as their owners would.

    Without a world they are one-second steps.

    With no belief nothing is said; profiled lengths have log-normal noise, the oracle's have none. What a job really
    takes is its recorded duration all the same.
    """
    if belief is Belief.NONE:
        return tuple(jobs)
    rng = np.random.default_rng(seed)
    sigma = 0.0 if belief is Belief.ORACLE else noise
    return tuple(_with_length(job, float(rng.lognormal(0.0, sigma)), world) for job in jobs)


def examples(jobs: Iterable[TraceJob], cluster: Cluster) -> dict[ProfileKey, Running]:
    """One job of each kind on each GPU type of its pool, alone, at every size it can run on.

    On GPUs of one socket, but for sizes larger than any node of theirs: these on as few nodes as can be.
    """
    types = {pool: sorted({g.type for n in cluster.nodes if n.pool == pool for g in n.gpus}) for pool in cluster.pools}
    most: dict[tuple[str, str], int] = {}
    for node in cluster.nodes:
        for kind, count in Counter([gpu.type for gpu in node.gpus]).items():
            most[node.pool, kind] = max(count, most.get((node.pool, kind), 0))
    found: dict[ProfileKey, Running] = {}
    for job in jobs:
        for kind in types.get(job.spec.pool, ()):
            for gpus in job.spec.sizes or (job.spec.gpus,):
                key = profile_key(job.spec, kind, gpus)
                if key not in found:
                    found[key] = somewhere(job, kind, gpus, most[job.spec.pool, kind] if job.spec.multi_node else None)
    return found


MORE_THAN_ANY_BYTES = 1 << 50
"""Memory of a job that the world's table says does not fit a GPU type: how much it lacks was not measured."""


def _profile(world: World, key: ProfileKey, running: Running) -> Profile:
    """The truth about a kind of job alone."""
    speed, job = world.steps_per_s(running, ()), running.job
    if isinstance(world, RecordedWork) and not world.counts_steps and world.work_steps(job) > 0:
        speed *= world.told_steps(job) / world.work_steps(job)
    if speed <= 0:
        return Profile(key=key, persistent_bytes=_declared(MORE_THAN_ANY_BYTES), ephemeral_bytes=_declared(0))
    memory = world.memory(job, key.gpu_type)
    ratio = world.occupancy_ratio(job, key.gpu_type, running.cores)
    occupancy = None if ratio is None else ratio / speed * OCCUPANCY_UNITS_PER_S
    return Profile(
        key=key,
        step_s=_declared(1 / speed),
        step_median_s=_declared(1 / speed),
        persistent_bytes=None if memory is None else _declared(memory.persistent_bytes),
        ephemeral_bytes=None if memory is None else _declared(memory.ephemeral_bytes),
        occupancy=None if occupancy is None else _declared(occupancy),
    )


def _declared(value: float) -> Value:
    return Value(value, ValueSource.DECLARED, 1, "world")


def _noisy(profile: Profile, noise: float, seed: int) -> Profile:
    draws = np.random.default_rng([seed, *str(profile.key).encode()]).lognormal(0.0, noise, 2)
    step_s, occupancy = profile.step_s, profile.occupancy
    if step_s is not None:
        step_s = step_s._replace(value=step_s.value * float(draws[0]))
    if occupancy is not None:
        occupancy = occupancy._replace(value=occupancy.value * float(draws[1]))
    return replace(profile, step_s=step_s, step_median_s=step_s, occupancy=occupancy)


def _with_length(job: TraceJob, factor: float, world: World | None) -> TraceJob:
    if job.duration_s is None or job.steps is not None:
        return job
    steps = world.told_steps(job) if isinstance(world, RecordedWork) else job.duration_s
    return replace(job, spec=replace(job.spec, steps_total=max(1, round(steps * factor))), is_timed=True)


def true_neighbours(world: World, kinds: Mapping[ProfileKey, Running]) -> NeighbourBeliefs:
    """How much kinds of jobs slow each other on other GPUs of one socket, where the world knows of such neighbours."""
    if world.scope is not Scope.NODE:
        return NeighbourBeliefs()
    alone = {key: world.steps_per_s(running, ()) for key, running in kinds.items()}
    slowdowns: dict[Beside, float] = {}
    for (key, me), (other, beside) in product(kinds.items(), repeat=2):
        together = world.steps_per_s(me, [_next_to(me, beside)]) if key.gpu_type == other.gpu_type else 0.0
        if together > 0 and alone[key] > 0:
            slowdowns[Beside(key, other)] = alone[key] / together
    return NeighbourBeliefs(slowdowns)


def _next_to(me: Running, other: Running) -> Running:
    """The other on the next GPUs of the same socket."""
    last = me.gpus[-1]
    gpus = tuple(last._replace(number=last.number + 1 + place) for place in range(len(other.gpus)))
    return replace(other, gpus=gpus)


class OracleBeliefs(Beliefs):
    """The truth in the place of belief; nothing can be learnt.

    Of each kind that may be asked about there is one running job.
    """

    learns = False

    def __init__(self, world: World, kinds: Mapping[ProfileKey, Running], jobs: Sequence[TraceJob] = ()) -> None:
        profiles = [_profile(world, key, running) for key, running in kinds.items()]
        super().__init__(profiles=profiles, neighbours=true_neighbours(world, kinds))
        self._world = world
        self._kinds = kinds
        self._predictions: dict[tuple[ProfileKey, ...], Prediction | None] = {}
        self._recorded = _by_name([job for job in jobs if job.duration_s is not None])
        self.tells_each = bool(self._recorded)
        self._run_s: dict[tuple[str, str], float] = {}

    def run_s(self, spec: JobSpec, gpu_types: Sequence[str]) -> float | None:
        """Of a job with a recorded duration: no whole number of steps, and not at the speed of others of its kind."""
        job = self._recorded.get(spec.name)
        return None if job is None else min([self._true_s(job, kind) for kind in gpu_types], default=None)

    def _true_s(self, job: TraceJob, gpu_type: str) -> float:
        asked = job.spec.name, gpu_type
        if asked not in self._run_s:
            speed = self._world.steps_per_s(somewhere(job, gpu_type), ())
            self._run_s[asked] = self._world.work_steps(job) / speed if speed > 0 else inf
        return self._run_s[asked]

    def memory(self, spec: JobSpec, gpu_type: str, gpus: int | None = None) -> Memory | None:
        """Without the safety factors a measurement needs."""
        profile = self.profile(spec, gpu_type, gpus)
        if profile is None or profile.persistent_bytes is None or profile.ephemeral_bytes is None:
            return super().memory(spec, gpu_type, gpus)
        return Memory(int(profile.persistent_bytes.value), int(profile.ephemeral_bytes.value))

    def predict(self, keys: Sequence[ProfileKey], sharing: str = "") -> Prediction | None:  # noqa: ARG002
        """The world's own speed-up of this set."""
        asked = tuple(sorted(keys, key=str))
        if asked not in self._predictions:
            self._predictions[asked] = self._truth(asked)
        return self._predictions[asked]

    def learn_profile(self, profile: Profile) -> Profile:
        """It knows already."""
        return self._profiles.get(profile.key, profile)

    def learn_set(self, measurement: SetMeasurement) -> None:
        """It knows already."""

    def forget(self, family: str, sharing: Collection[ProfileKey] = ()) -> list[Profile]:  # noqa: ARG002
        """It was told, and has learnt nothing."""
        return []

    def _truth(self, keys: Sequence[ProfileKey]) -> Prediction | None:
        co_runners = [running for key in keys if (running := self._kinds.get(key)) is not None]
        speeds = true_speeds(self._world, co_runners) if len(co_runners) == len(keys) else None
        if speeds is None:
            return None
        jobs = [Slowed(key, alone / together) for key, (alone, together) in zip(keys, speeds, strict=True)]
        speedup = delta([1 / alone for alone, _ in speeds], [1 / together for _, together in speeds])
        return Prediction(speedup, "oracle", RateSource.ORACLE, jobs=tuple(jobs))


def _by_name(jobs: Iterable[TraceJob]) -> dict[str, TraceJob]:
    """Jobs whose name is theirs alone."""
    named: dict[str, list[TraceJob]] = {}
    for job in jobs:
        named.setdefault(job.spec.name, []).append(job)
    return {name: found[0] for name, found in named.items() if len(found) == 1}
