"""Learning from neighbours: which jobs ran on other GPUs of a job's sockets, and how fast it went (paper C, 4.2).

A *stay* is a time in which a job has its GPUs for itself and no job comes to its sockets or leaves them; like an epoch
(`perf.observe`) it is learnt from in windows, each twice as long as the one before it. With no neighbour it teaches the
step time in that place; beside others, how much slower the job went than alone in the same place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from colane.model.job import JobId
from colane.model.profile import PlacePace, Profile, ProfileKey, Slowdown, Value, ValueSource
from colane.model.progress import Progress
from colane.perf.estimates import NeighbourEstimates


class Near(NamedTuple):
    """A neighbour."""

    job: JobId
    attempt: int
    key: ProfileKey


class SocketNeighbours(NamedTuple):
    """Where a job runs, and which jobs are near it."""

    key: ProfileKey  # its profile
    distance: float  # sum of the shortest paths between its GPUs
    others: tuple[Near, ...]  # jobs on other GPUs of its sockets, by id; all of them step


class Stay(NamedTuple):
    """What was seen of a job with one set of neighbours."""

    neighbours: SocketNeighbours
    steps: int
    step_s: float


class StepMark(NamedTuple):
    """A job had made so many steps once it had been at work for so long."""

    steps: int  # how many
    # seconds by the clock of its last step, less those in which a server waited for requests: differences of it are the
    # time that steps took
    busy_s: float


def step_mark(progress: Progress) -> StepMark | None:
    """How far a job has come; None before its first step."""
    if progress.steps <= 0 or progress.last_step_s is None:
        return None
    return StepMark(progress.steps, progress.last_step_s - (progress.idle_s or 0.0))


@dataclass(slots=True)
class _StayTrack:
    """A stay that goes on."""

    version: int  # of the node when the neighbours were looked at
    neighbours: SocketNeighbours | None  # None while nothing can be learnt there
    window_steps: int  # steps of this window
    first: StepMark | None = None
    last: StepMark | None = None

    def add(self, progress: Progress) -> None:
        mark = step_mark(progress)
        if self.neighbours is not None and mark is not None:
            self.last = mark
            self.first = self.first or self.last

    def stay(self) -> Stay | None:
        if self.neighbours is None or self.first is None or self.last is None:
            return None
        steps, span_s = self.last.steps - self.first.steps, self.last.busy_s - self.first.busy_s
        return Stay(self.neighbours, steps, span_s / steps) if steps > 0 and span_s > 0 else None

    def window(self) -> Stay | None:
        """The stay so far, once it has so many steps; another window begins."""
        stay = self.stay()
        if stay is None or stay.steps < self.window_steps:
            return None
        self.first = self.last
        self.window_steps *= 2
        return stay


class Surroundings:
    """Keeps the running stay of every job."""

    def __init__(self) -> None:
        self._tracks: dict[JobId, _StayTrack] = {}

    def sample(
        self, job: JobId, version: int, look: Callable[[], SocketNeighbours | None], progress: Progress, steps_min: int
    ) -> Stay | None:
        """A job was seen at this point; the stay that has ended before, if its hood is another now, or a full window.

        Args:
            job: The job.
            version: Of its node: while it is the same, nothing there has changed.
            look: Asks for the neighbours, None where nothing can be learnt.
            progress: The sample.
            steps_min: Steps of the first window.
        """
        track, ended = self._tracks.get(job), None
        if track is None or track.version != version:
            neighbours = look()
            if track is None or track.neighbours != neighbours:
                ended = None if track is None else track.stay()
                track = self._tracks[job] = _StayTrack(version, neighbours, steps_min)
            track.version = version
        track.add(progress)
        return track.window() if ended is None else ended

    def end(self, job: JobId) -> Stay | None:
        """A job leaves its GPUs: its last stay."""
        track = self._tracks.pop(job, None)
        return None if track is None else track.stay()


def learn_from_stay(
    stay: Stay, profiles: Mapping[ProfileKey, Profile], neighbours: NeighbourEstimates, steps_min: int, at_s: float
) -> Profile | None:
    """What a stay teaches of a job's kind; None where that is nothing.

    Args:
        stay: What was seen.
        profiles: What is known of step times.
        neighbours: What is known of slowdowns.
        steps_min: Steps it takes.
        at_s: Now.
    """
    if stay.steps < steps_min:
        return None
    key, distance, others = stay.neighbours
    if not others:
        pace = PlacePace(distance, Value(stay.step_s, ValueSource.MEASURED, stay.steps, "steps"))
        return Profile(key=key, places=(pace,), updated_s=at_s)
    profile = profiles.get(key)
    alone_s = (
        next((pace.step_s.value for pace in profile.places if pace.distance == distance), None) if profile else None
    )
    if alone_s is None:
        return None
    slowdown = stay.step_s / alone_s
    by = _slowed_by(key, {near.key for near in others}, neighbours, slowdown)
    if by is None:
        return None
    value = Value(slowdown, ValueSource.MEASURED, stay.steps, "steps")
    return Profile(key=key, slowdowns=(Slowdown(by, distance, value),), updated_s=at_s)


def _slowed_by(
    key: ProfileKey, kinds: set[ProfileKey], neighbours: NeighbourEstimates, slowdown: float
) -> ProfileKey | None:
    """The neighbour that sets the pace: the worst (the execution model of the authors' code).

    Of one kind that is not known yet it is learnt, unless one that is known explains it all; of several it cannot be.
    """
    unknown = [kind for kind in kinds if not neighbours.knows(key, kind)]
    known = kinds.difference(unknown)
    worst = max(sorted(known, key=str), key=lambda kind: neighbours.slowdown(key, kind), default=None)
    if len(unknown) > 1:
        return None
    if not unknown:
        return worst
    explained = worst is not None and slowdown <= neighbours.slowdown(key, worst)
    return None if explained else unknown[0]
