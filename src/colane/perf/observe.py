"""Learning from what ran: which jobs were on a GPU together, how fast, for how long.

An *epoch* of a GPU is a time in which its jobs do not change; it is learnt from in *windows*. A window ends once
every job has made its number of steps, or with the epoch; each is twice as long as the one before it, so that a job
that runs for long teaches soon and seldom. Alone, a job teaches its profile; together, how much each is slowed and
the set's speed-up (paper A, eq. 4.1). A window in which a job stood still for something else than its steps (an
evaluation, a checkpoint) teaches nothing, unless that goes on and on.

Where others use its GPU, a job of one GPU is learnt relative to what they left: the time of its steps, less the part of
the window that others had. Sets are over the like of each job alone there, so that what the part is off by cancels out,
and count beside others alone (`Gpu.way`); speeds alone are a guess until they are measured undisturbed. Others may take
what they need first, and leave the same to jobs that come, or want all of it, as processes on cores do, and give way.
Which is so is seen by what they use before and after jobs come and go: what drifts meanwhile cancels out, too.

Of a server the time of its steps is that of its answers, without the time between them; what 99 of 100 of them take is
learnt beside their mean. One that tells of no requests teaches nothing of its speed: it may have waited for them.

No job is faster with co-runners than alone. One that is has changed since it was measured alone: nothing that is said
of its speed alone holds any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from colane.model.hardware import BESIDE_OTHERS, DISTURBED_RATIO, GpuId
from colane.model.job import JobId
from colane.model.job_spec import Category
from colane.model.profile import BY_LEFT, CorePace, Profile, ProfileKey, SetMeasurement, Value, ValueSource
from colane.model.progress import Progress
from colane.perf.knowledge import Knowledge
from colane.perf.nearby import StepMark, step_mark
from colane.perf.speedup import OCCUPANCY_UNITS_PER_S, delta, delta_general

STILL_RATIO = 2.0  # a window this many times as long as its steps, by their median, was disturbed
DISTURBED_MAX = 3  # so many windows in a row in which a job stood still are no disturbance any more: it runs like that

OTHERS_WINDOW_S = 20.0  # beside others a window lasts so long: what they use is seen once a second, and comes in bursts
LEFT_MIN = 0.05  # of less than so much left by others nothing is learnt

ANSWERS_MIN = 100  # of fewer answers the longest would be what 99 of 100 take, and so the first, which warms up
ANSWERS_SEEN = 447  # a sample tells what so many of the last answers took (`adaptor.writer.ANSWERS_KEPT`)

OUTPACED_RATIO = 1.5
"""A job so many times as fast with co-runners as it was alone is not the job any more that was measured then."""


class EpochMember(NamedTuple):
    """A job in an epoch."""

    job: JobId  # which
    key: ProfileKey  # its profile
    user: str  # its owner
    lane: int  # of the GPU
    cores: int = 0  # booked for it
    category: Category = Category.UNKNOWN  # what it works on
    serves: bool = False  # whether it answers requests


@dataclass(slots=True)
class _EpochTrack:
    """One member's samples within an epoch."""

    first: StepMark | None = None  # where this window began
    last: StepMark | None = None  # how far it has come
    first_used: tuple[float, float] | None = None  # when this window began, and what others had had of its GPU by then
    last_used: tuple[float, float] | None = None  # the same now
    latest: Progress | None = None  # the last sample
    # answers that it may have given before the epoch; None before it was seen to step
    answers_before: int | None = None
    occupancies: list[float] = field(default_factory=list)  # of its GPU, by sample
    bandwidths: list[float] = field(default_factory=list)  # the same

    def add(self, progress: Progress, since_s: float) -> None:
        """Take a sample; what was done before the epoch began is none of it, be it a step that ended just then."""
        self.latest = progress
        mark = step_mark(progress)
        if mark is not None and progress.last_step_s is not None and progress.last_step_s >= since_s:
            used = None if progress.others_s is None else (progress.at_s, progress.others_s)
            if self.first is None:
                self.first, self.first_used = mark, used
            self.last, self.last_used = mark, used
            if self.answers_before is None:
                began_here = progress.first_step_s is not None and progress.first_step_s >= since_s
                self.answers_before = 0 if began_here else progress.answers or 0
        if self.steps and progress.occupancy_ratio is not None:
            self.occupancies.append(progress.occupancy_ratio)
        if self.steps and progress.bandwidth_ratio is not None:
            self.bandwidths.append(progress.bandwidth_ratio)

    @property
    def steps(self) -> int:
        return 0 if self.first is None or self.last is None else self.last.steps - self.first.steps

    @property
    def span_s(self) -> float:
        return 0.0 if self.first is None or self.last is None else self.last.busy_s - self.first.busy_s

    @property
    def step_s(self) -> float:
        return self.span_s / self.steps

    @property
    def left_ratio(self) -> float | None:
        """Part of this window that others left of its GPU; None where that is not told, as by an agent begun anew."""
        first, last = self.first_used, self.last_used
        if first is None or last is None or last[0] <= first[0] or last[1] < first[1]:
            return None
        return max(0.0, 1.0 - (last[1] - first[1]) / (last[0] - first[0]))

    @property
    def answer_p99_s(self) -> Value | None:
        """What 99 of 100 of its last answers took; None of few, and where some were given before this epoch."""
        latest = self.latest
        if latest is None or latest.answers is None or latest.latency_p99_s is None:
            return None
        count = min(latest.answers, ANSWERS_SEEN)
        is_of_epoch = latest.answers - (self.answers_before or 0) >= count
        if count < ANSWERS_MIN or not is_of_epoch:
            return None
        return Value(latest.latency_p99_s, ValueSource.MEASURED, count, "answers")

    def has_made(self, steps: int) -> bool:
        """Whether it has made so many steps in this window, and taken some time for them."""
        return self.steps >= steps and self.span_s > 0

    def stood_still(self, ratio: float) -> bool:
        """Whether its steps took less than half of so much of the time."""
        median_s = None if self.latest is None else self.latest.step_median_s
        return median_s is not None and self.span_s * ratio > STILL_RATIO * self.steps * median_s

    def restart(self) -> None:
        """Begin the next window where this one ends."""
        self.first, self.first_used = self.last, self.last_used
        self.occupancies.clear()
        self.bandwidths.clear()


@dataclass(slots=True)
class _Epoch:
    members: tuple[EpochMember, ...]
    since_s: float
    window_steps: int
    tracks: dict[JobId, _EpochTrack] = field(default_factory=dict)
    all_step: bool = False
    others_came: bool = False
    is_spoilt: bool = False
    disturbed: int = 0

    def add(self, job: JobId, progress: Progress, *, others_use: bool = False, is_spoilt: bool = False) -> None:
        """Take a sample; counting starts when the last member has begun to step, or start-up would count."""
        self.others_came, self.is_spoilt = self.others_came or others_use, self.is_spoilt or is_spoilt
        self.tracks.setdefault(job, _EpochTrack()).add(progress, self.since_s)
        seen = len(self.tracks) == len(self.members)
        if not self.all_step and seen and all(track.last is not None for track in self.tracks.values()):
            self.all_step = True
            for track in self.tracks.values():
                track.restart()

    @property
    def is_beside_others(self) -> bool:
        """Whether others use the GPU, or have used that much of this window though that was not said yet."""
        lefts = [track.left_ratio for track in self.tracks.values()]
        return self.others_came or any(left is not None and left <= 1.0 - DISTURBED_RATIO for left in lefts)

    def is_full(self, steps: int) -> bool:
        """Whether every job has made so many steps in this window."""
        if len(self.tracks) < len(self.members):
            return False
        if self.is_beside_others and any(track.span_s < OTHERS_WINDOW_S for track in self.tracks.values()):
            return False
        return all(track.has_made(steps) for track in self.tracks.values())

    def is_disturbed(self) -> bool:
        """Whether others left too little or none knows how much, or a job stood still and that is not yet how it is."""
        stood_still = any(one.stood_still(self.left_ratio(one)) for one in self.tracks.values())
        self.disturbed = self.disturbed + 1 if stood_still else 0
        return self.is_spoilt or not self.is_told or 0 < self.disturbed < DISTURBED_MAX

    @property
    def is_told(self) -> bool:
        """Whether no others used the GPU, or all that is needed to learn beside them is known."""
        is_single = all(member.key.gpus == 1 and not member.serves for member in self.members)
        is_left = all(self.left_ratio(track) >= LEFT_MIN for track in self.tracks.values())
        return not self.is_beside_others or (is_single and is_left)

    def left_ratio(self, track: _EpochTrack) -> float:
        """Part of a job's time in this window that others left, 0 where that is not told."""
        return (track.left_ratio or 0.0) if self.is_beside_others else 1.0

    def undisturbed_s(self, job: JobId) -> float:
        """What a step of a job takes in this window, of the time that others left."""
        return self.tracks[job].step_s * self.left_ratio(self.tracks[job])

    @property
    def may_be_idle(self) -> bool:
        """Whether a server does not tell how long it waits for requests."""
        latest = [track.latest for track in self.tracks.values()]
        tells_none = {job for job, one in zip(self.tracks, latest, strict=True) if one is None or one.answers is None}
        return any(member.serves and member.job in tells_none for member in self.members)

    def next_window(self) -> None:
        """Begin another one, twice as long unless this one was disturbed."""
        if self.is_told and not self.is_spoilt and not 0 < self.disturbed < DISTURBED_MAX:
            self.window_steps *= 2
        self.others_came = self.is_spoilt = False
        for track in self.tracks.values():
            track.restart()


class Outdated(NamedTuple):
    """A job that goes faster with co-runners than it was ever seen to go alone."""

    job: JobId  # which
    key: ProfileKey  # the kind whose speed alone does not hold any more
    ratio: float  # so many times as fast as that


@dataclass(slots=True)
class _Giving:
    """How far others give way to jobs that come to a GPU, or take it all again, seen by windows before and after."""

    jobs: int = 0  # there in the last window
    used: float = 0.0  # part of it that others had
    along: float = 0.0  # sums over changes: of what they gave times what those would give that share evenly ...
    square: float = 0.0  # ... and of the latter squared

    def see(self, jobs: int, used: float) -> None:
        """Take a window."""
        if self.jobs not in {0, jobs}:
            pressure = self.jobs * self.used / (1.0 - self.used)
            evenly = pressure / (pressure + jobs) - self.used
            self.along, self.square = self.along + evenly * (used - self.used), self.square + evenly * evenly
        self.jobs, self.used = jobs, used

    def slower(self, jobs: int) -> float | None:
        """What slows so many jobs as these less than all of what others left shows; None while that is not known.

        Jobs that share evenly with others of a pressure N are alone (1 + N) times as long, together (jobs + N) times.
        """
        part = min(1.0, max(0.0, self.along / self.square)) if self.square > 0 else None
        return None if part is None else (1.0 + (jobs - 1) * self.used) ** part


class Learnt(NamedTuple):
    """What an epoch taught."""

    profiles: tuple[Profile, ...] = ()
    measurements: tuple[SetMeasurement, ...] = ()
    outdated: tuple[Outdated, ...] = ()


NOTHING = Learnt()


class Observer:
    """Keeps the running epoch of every GPU. `Beliefs` are changed only by the caller."""

    def __init__(self) -> None:
        self._epochs: dict[GpuId, _Epoch] = {}
        self._since_s: dict[GpuId, float] = {}
        self._alone_left_s: dict[ProfileKey, float] = {}  # a step alone, of the time that others left, as last seen
        self._giving: dict[GpuId, _Giving] = {}

    def sample(
        self,
        gpu: GpuId,
        co_runners: Callable[[], Iterable[EpochMember]],
        job: JobId,
        progress: Progress,
        steps_min: int,
        *,
        others_use: bool = False,
        is_spoilt: bool = False,
    ) -> bool:
        """A job on this GPU was seen at this point: whether a window is full; see `window`.

        Args:
            gpu: Which.
            co_runners: Asked for with an epoch's first sample.
            job: The job.
            progress: The sample.
            steps_min: Steps of the first window.
            others_use: Others use the GPU, too.
            is_spoilt: Something else slows the job, so that its pace says nothing.
        """
        epoch = self._epochs.get(gpu)
        if epoch is None:
            since_s = self._since_s.get(gpu, 0.0)
            epoch = self._epochs[gpu] = _Epoch(tuple(co_runners()), since_s, steps_min)
        if any(member.job == job for member in epoch.members):
            epoch.add(job, progress, others_use=others_use, is_spoilt=is_spoilt)
        return epoch.is_full(epoch.window_steps)

    def window(self, gpu: GpuId, sharing: str, beliefs: Knowledge, at_s: float) -> Learnt:
        """What the window that is full taught; another begins."""
        epoch = self._epochs[gpu]
        learnt = self._learnt(gpu, epoch, sharing, beliefs, at_s)
        epoch.next_window()
        return learnt

    def changes_unseen(self, gpu: GpuId, at_s: float) -> bool:
        """The jobs on a GPU have changed: whether none was seen there since they last did, so that there is no more."""
        self._since_s[gpu] = at_s
        return gpu not in self._epochs

    def change(self, gpu: GpuId, sharing: str, beliefs: Knowledge, at_s: float) -> Learnt:
        """The jobs on a GPU have changed; what the last window before it taught is returned.

        `sharing` is how the GPU is shared now, at that epoch's end: MPS may have come up only after its start.
        """
        self._since_s[gpu] = at_s
        old = self._epochs.pop(gpu, None)
        if old is None:
            return NOTHING
        taught = self._learnt(gpu, old, sharing, beliefs, at_s)
        if taught.outdated:
            return NOTHING  # a window with the new co-runners will tell
        return _loads_alone(old, beliefs, at_s) if taught is NOTHING else taught

    def _learnt(self, gpu: GpuId, epoch: _Epoch, sharing: str, beliefs: Knowledge, at_s: float) -> Learnt:
        if not epoch.is_full(beliefs.steps_min) or epoch.is_disturbed() or epoch.may_be_idle:
            return NOTHING
        jobs, slower = len(epoch.members), 1.0
        if epoch.is_beside_others:
            giving = self._giving.setdefault(gpu, _Giving())
            giving.see(jobs, 1.0 - epoch.left_ratio(epoch.tracks[epoch.members[0].job]))
            slower = giving.slower(jobs) or 0.0
        if jobs == 1:
            member = epoch.members[0]
            if epoch.is_beside_others:
                self._alone_left_s[member.key] = epoch.undisturbed_s(member.job)
            return Learnt(profiles=(_profile(member, epoch, at_s),))
        outdated = () if epoch.is_beside_others else tuple(_outdated(epoch, beliefs))
        if outdated:
            return Learnt(outdated=outdated)
        if len({member.lane for member in epoch.members}) < jobs:
            return NOTHING  # some took turns: their step times say nothing of jobs that run at once
        if slower == 0.0:
            return NOTHING  # whether others gave way is not known
        measurement = _measure(epoch, sharing, beliefs.profiles, self._alone_left_s, slower, at_s)
        return NOTHING if measurement is None else Learnt(measurements=(measurement,))


def _outdated(epoch: _Epoch, beliefs: Knowledge) -> Iterator[Outdated]:
    for member in epoch.members:
        alone_s = _alone_s(beliefs.profiles.get(member.key), member.cores)
        ratio = 0.0 if alone_s is None else alone_s / epoch.tracks[member.job].step_s
        if ratio > OUTPACED_RATIO:
            yield Outdated(member.job, member.key, ratio)


def _alone_s(profile: Profile | None, cores: int) -> float | None:
    """Its shortest step time alone; None where that was with fewer cores alone, or nothing is known."""
    if profile is None or profile.step_s is None:
        return None
    paces = profile.core_paces if cores else ()
    alike = [pace.step_s.value for pace in paces if pace.cores >= cores]
    return min(alike, default=None) if paces else profile.step_s.value


def _loads_alone(epoch: _Epoch, beliefs: Knowledge, at_s: float) -> Learnt:
    """C and M of a job alone whose last window was too short, where its step time is known and they are not."""
    member = epoch.members[0]
    known, track = beliefs.profiles.get(member.key), epoch.tracks.get(member.job)
    if len(epoch.members) > 1 or track is None or track.latest is None or known is None or known.step_s is None:
        return NOTHING
    if epoch.is_beside_others or epoch.is_spoilt or known.occupancy is not None or not track.occupancies:
        return NOTHING
    by, step_s = track.latest.occupancy_by, known.step_s.value
    occupancy, bandwidth = _weighted(track.occupancies, step_s, by), _weighted(track.bandwidths, step_s, by)
    return Learnt(profiles=(Profile(key=member.key, occupancy=occupancy, bandwidth=bandwidth, updated_s=at_s),))


def _profile(member: EpochMember, epoch: _Epoch, at_s: float) -> Profile:
    """Its speed and load; what was seen beside others is a guess, which gives way to what was seen without."""
    track = epoch.tracks[member.job]
    latest, others = track.latest, epoch.is_beside_others
    source = ValueSource.PREDICTED if others else ValueSource.MEASURED
    step_s = Value(epoch.undisturbed_s(member.job), source, track.steps, BY_LEFT if others else "steps")
    median_s = latest.step_median_s if latest and not others else None
    by = latest.occupancy_by if latest else ""
    occupancy, bandwidth = _weighted(track.occupancies, track.step_s, by), _weighted(track.bandwidths, track.step_s, by)
    return Profile(
        key=member.key,
        step_s=step_s,
        step_median_s=None if median_s is None else Value(median_s, ValueSource.MEASURED, track.steps, "steps"),
        occupancy=None if occupancy is None else occupancy._replace(source=source),
        bandwidth=None if bandwidth is None else bandwidth._replace(source=source),
        updated_s=at_s,
        users=(member.user,) if member.user else (),
        core_paces=(CorePace(member.cores, step_s),) if member.cores and not others else (),
        category=member.category,
        answer_p99_s=track.answer_p99_s,
    )


MEMORY_GROWTH_RATIO = 1.02
"""Growth below this is left to the safety factors, so that a slowly growing process is not written every second."""


def memory_seen(
    key: ProfileKey, progress: Progress, known: Profile | None, growth_ratio: float = MEMORY_GROWTH_RATIO
) -> Profile | None:
    """A profile of P and E alone, if this sample shows so many times more memory than is known; None otherwise.

    Memory is learnt at once, with any co-runners: waiting for an epoch's end could let a job join where there is
    no room any more.
    """
    if progress.peak_bytes is None or progress.persistent_bytes is None:
        return None
    ephemeral = max(0, progress.peak_bytes - progress.persistent_bytes)
    persistent_known = known.persistent_bytes if known else None
    ephemeral_known = known.ephemeral_bytes if known else None
    if not any(
        _grew(known_value, seen_bytes, growth_ratio)
        for known_value, seen_bytes in ((persistent_known, progress.persistent_bytes), (ephemeral_known, ephemeral))
    ):
        return None
    return Profile(
        key=key,
        persistent_bytes=Value(float(progress.persistent_bytes), ValueSource.MEASURED),
        ephemeral_bytes=Value(float(ephemeral), ValueSource.MEASURED),
        overhead_bytes=_overhead(progress),
        updated_s=progress.at_s,
    )


def _overhead(progress: Progress) -> Value | None:
    return None if progress.overhead_bytes is None else Value(float(progress.overhead_bytes), ValueSource.MEASURED)


def _grew(known: Value | None, seen_bytes: int, growth_ratio: float) -> bool:
    if known is None or known.source is not ValueSource.MEASURED:
        return True
    return seen_bytes > known.value * growth_ratio


def _weighted(ratios: list[float], step_s: float, by: str) -> Value | None:
    """C or M of eqs. 4.2 and 4.3: mean ratio x step time, in percent x us over two steps."""
    if not ratios:
        return None
    mean = sum(ratios) / len(ratios)
    return Value(mean * step_s * OCCUPANCY_UNITS_PER_S, ValueSource.MEASURED, len(ratios), by)


def _measure(
    epoch: _Epoch,
    sharing: str,
    profiles: Mapping[ProfileKey, Profile],
    left_s: Mapping[ProfileKey, float],
    slower: float,
    at_s: float,
) -> SetMeasurement | None:
    """How a set went; beside others over `left_s`, steps alone there, where known, and over what those gave way."""
    members = sorted(epoch.members, key=lambda m: (m.key.family, m.key.batch_size or 0, m.job))
    alone = [p.step_s for m in members if (p := profiles.get(m.key)) is not None and p.step_s is not None]
    if len(alone) < len(members):
        return None
    alone_s = tuple(value.value for value in alone)
    pairs = list(zip(members, alone_s, strict=True))
    scales = [usual_s / left_s.get(m.key, usual_s) if epoch.is_beside_others else 1.0 for m, usual_s in pairs]
    together_s = tuple(epoch.undisturbed_s(m.job) * scale / slower for m, scale in zip(members, scales, strict=True))
    tracks = [epoch.tracks[member.job] for member in members]
    steps = tuple(track.steps for track in tracks)
    span_s = max(s * track.span_s / track.step_s for s, track in zip(together_s, tracks, strict=True))
    return SetMeasurement(
        keys=tuple(member.key for member in members),
        sharing=sharing + BESIDE_OTHERS if epoch.is_beside_others else sharing,
        step_alone_s=alone_s,
        step_together_s=together_s,
        steps=steps,
        delta=delta(alone_s, together_s),
        delta_general=delta_general(steps, alone_s, span_s),
        at_s=at_s,
    )
