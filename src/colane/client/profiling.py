"""Profiles jobs on purpose through a running scheduler: one alone for some steps, or a set together.

The scheduler learns by itself from what runs (`perf.observe`); here jobs are only run so that it can. A job alone
keeps its GPU to itself and is stopped after `steps_limit` steps. The jobs of a set carry one `measurement_group` name,
which the core starts together on a free GPU; they are stopped as soon as each has made enough steps with the others.
"""

from __future__ import annotations

import math
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, NoReturn

from colane.api.jobs import JobObject, JobRequestObject
from colane.client.client import Client
from colane.client.errors import Refused
from colane.client.knowledge import read_measurements, read_profiles
from colane.model.hardware import DISTURBED_RATIO
from colane.model.job import ENDED
from colane.model.profile import Profile, ProfileKey, SetMeasurement
from colane.model.words import count

if TYPE_CHECKING:
    from colane.api.nodes import NodeObject

BY: Final = "colane profile"

ATTEMPTS: Final = 3
"""A job too fast to be seen twice within its steps is run again for more of them, at most this often in all."""

OPEN_END: Final = 1_000_000  # steps a built-in job is given where the user names none: it is stopped long before

TOGETHER_MAX_S: Final = 900.0
"""The jobs of a set end by themselves after about this long, should no client be left to stop them."""

ENDED_STATES: Final = frozenset(state.value for state in ENDED)

ADVICE: Final = (
    "add 'import colane.adaptor as colane; steps = colane.attach()' before its loop and 'steps.step()' at the end of "
    "every iteration"
)


class ProfileError(Exception):
    """A profile could not be taken; the message is one line that says why."""


class OutOfTimeError(ProfileError):
    """The deadline has passed; what was running is stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A kind of job to be profiled."""

    key: ProfileKey  # what its profile is kept under
    request: Mapping[str, Any]  # the job request; names family, batch size and GPU type as the key does

    @property
    def name(self) -> str:
        """Family and batch size, and of several GPUs their number."""
        batch = "" if self.key.batch_size is None else f" b{self.key.batch_size}"
        return self.key.family + batch + (f" x{self.key.gpus}" if self.key.gpus > 1 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class AloneRun:
    """What came of a job run alone."""

    profile: Profile  # as the scheduler keeps it now, earlier runs included
    sampled_step_s: float | None  # mean of the steps of this run
    steps: int  # steps it made
    job: int  # its id


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRun:
    """What came of a set run together."""

    measurement: SetMeasurement  # as the scheduler keeps it
    jobs: tuple[int, ...]  # their ids
    notes: tuple[str, ...] = ()  # what the reader must know, such as MPS that could not be started


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How profiles are taken."""

    steps: int = 30  # steps each job makes
    first_step_max_s: float = 180.0  # a process that reports no step for this long is taken to report none
    deadline_s: float | None = None  # Unix time at which everything is stopped; None never
    reports_s: float = 2.5  # a running job is surely reported within this time (agents report every 2 s)
    look_every_s: float = 0.5  # far below the agents' period, so that no sample is missed; rare enough to cost nothing


Tell = Callable[[str, Sequence[JobObject]], None]
"""Called at every look with what is being done and the jobs as they stand."""


@dataclass(slots=True)
class Profiler:
    """Runs subjects through one scheduler.

    Every method raises `ProfileError` when nothing can be learnt, `Refused` when the scheduler refuses a job. Whatever
    happens, no job it submitted goes on.
    """

    client: Client
    rules: Rules = field(default_factory=Rules)
    tell: Tell = lambda _doing, _jobs: None

    def alone(self, subject: Subject, *, mps: bool = False) -> AloneRun:
        """Run a job with a GPU to itself until its profile is measured, C with it where its device tells C at all."""
        before = read_profiles(self.client)
        limit = self.rules.steps + _steps_within(self.rules.reports_s, _step_guess(subject.key, before.values()))
        found: AloneRun | None = None
        for _ in range(ATTEMPTS):
            job = self._run_alone(subject, limit, mps=mps)
            found = self._learnt(subject, job, before.get(subject.key)) or found
            if found and (found.profile.occupancy or _occupancy_ratio(job) is None):
                return found
            if not _made_all(job):
                break
            limit = self.rules.steps + _steps_within(2 * self.rules.reports_s, _step_mean_s(job))
        return found or self._refuse_unlearnt(subject, job)

    def _learnt(self, subject: Subject, job: JobObject, known: Profile | None) -> AloneRun | None:
        """What a run taught; None where the step time is what it was before."""
        profile = read_profiles(self.client).get(subject.key)
        if profile is None or profile.step_s is None or (known is not None and profile.step_s == known.step_s):
            return None
        sampled_s = _step_mean_s(job)
        return AloneRun(profile=profile, sampled_step_s=sampled_s, steps=job["steps"], job=job["id"])

    def _refuse_unlearnt(self, subject: Subject, job: JobObject) -> NoReturn:
        if _made_all(job):
            raise ProfileError(f"{subject.name}: no profile was learnt in {ATTEMPTS} runs; {self._hint()}")
        raise ProfileError(
            f"{subject.name}: job {job['id']} made {count(job['steps'], 'step')}, too few between two reports to "
            f"learn from; give it more work"
        )

    def _hint(self) -> str:
        """What may have kept a job from teaching its profile."""
        gpus = [gpu for node in self.client.nodes() for gpu in node["gpus"]]
        if any(gpu["others_ratio"] >= DISTURBED_RATIO for gpu in gpus):
            return "other work uses the devices (colane nodes), and beside it nothing is learnt: wait until it is done"
        return "is its agent reporting?"

    def together(self, subjects: Sequence[Subject], *, mps: bool = False) -> SetRun:
        """Run subjects, each of which has a profile, at once on one GPU until their set is measured."""
        alone_s = self._steps_alone(subjects)
        name = " + ".join(subject.name for subject in subjects)
        measurement_group = {
            "measurement_group": f"{BY} {uuid.uuid4().hex}",
            "measurement_group_size": len(subjects),
            "share": True,
            "mps": mps,
        }
        before = len(read_measurements(self.client))
        limits = [self.rules.steps + math.ceil(TOGETHER_MAX_S / step_s) for step_s in alone_s]
        requests = [
            _request(subject, {**measurement_group, "steps_limit": limit}, limit)
            for subject, limit in zip(subjects, limits, strict=True)
        ]
        with self._submitted(requests) as ids:
            self._follow(f"{name} together{' with MPS' if mps else ''}", ids, _Enough(self.rules.steps))
            self._cancel(ids)
            ended = self._follow(f"{name}: stopping", ids)
        keys = Counter(subject.key for subject in subjects)
        found = [m for m in read_measurements(self.client)[before:] if Counter(m.keys) == keys]
        if not found:
            raise ProfileError(f"{name}: {_why_no_set(ended)}")
        return SetRun(measurement=found[-1], jobs=tuple(ids), notes=self._mps_notes(found[-1], mps=mps))

    def _run_alone(self, subject: Subject, limit: int, *, mps: bool) -> JobObject:
        only = {"measurement_group": None, "measurement_group_size": 1, "share": False}
        request = _request(subject, {**only, "steps_limit": limit, "mps": mps}, limit)
        with self._submitted([request]) as ids:
            (job,) = self._follow(f"{subject.name} alone", ids)
        if job["state"] != "succeeded":
            raise ProfileError(f"{subject.name}: {_ending(job)}")
        if not job["steps"]:
            raise ProfileError(f"{subject.name}: job {job['id']} ended without reporting a step; {ADVICE}")
        return job

    def _steps_alone(self, subjects: Sequence[Subject]) -> list[float]:
        profiles = read_profiles(self.client)
        known = [profiles.get(subject.key) for subject in subjects]
        step_s = [profile.step_s.value for profile in known if profile is not None and profile.step_s is not None]
        if len(step_s) < len(subjects):
            missing = next(s.name for s, p in zip(subjects, known, strict=True) if p is None or p.step_s is None)
            raise ProfileError(f"{missing}: has no profile yet; profile it alone first")
        return step_s

    @contextmanager
    def _submitted(self, requests: Sequence[JobRequestObject]) -> Iterator[list[int]]:
        """Submit jobs and see to it that none outlives the block."""
        self._refuse_late(" + ".join(request["name"] for request in requests))
        ids = self.client.submit_batch(requests)
        try:
            yield ids
        except BaseException:
            self._cancel(ids)
            raise

    def _follow(
        self, doing: str, ids: Sequence[int], enough: Callable[[Sequence[JobObject]], bool] = lambda _: False
    ) -> list[JobObject]:
        """Look at jobs until all have ended, or one of a set has, or it is enough."""
        while True:
            jobs = [self.client.job(job_id) for job_id in ids]
            self.tell(doing, jobs)
            if all(job["state"] in ENDED_STATES for job in jobs) or enough(jobs):
                return jobs
            for job in jobs:
                self._refuse_stepless(job)
            self._refuse_late(doing)
            time.sleep(self.rules.look_every_s)

    def _refuse_late(self, doing: str) -> None:
        if self.rules.deadline_s is not None and time.time() > self.rules.deadline_s:
            raise OutOfTimeError(f"{doing}: its time is used up")

    def _refuse_stepless(self, job: JobObject) -> None:
        if job["start_s"] is None or job["steps"] or job["state"] in ENDED_STATES:
            return
        waited_s = time.time() - job["start_s"]
        if waited_s > self.rules.first_step_max_s:
            raise ProfileError(f"{job['name']}: job {job['id']} reported no step in {waited_s:.0f} s; {ADVICE}")

    def _cancel(self, ids: Iterable[int]) -> None:
        for job_id in ids:
            with suppress(Refused):  # it has ended
                self.client.cancel(job_id, by=BY)

    def _mps_notes(self, measurement: SetMeasurement, *, mps: bool) -> tuple[str, ...]:
        if mps == (measurement.sharing == "mps"):
            return ()
        said = [message for node in self.client.nodes() for message in node.get("messages", ()) if "MPS" in message]
        asked = "with MPS" if mps else "without MPS"
        return (f"asked for {asked}, measured as {measurement.sharing}", *said)


class _Enough:
    """Whether every job of a set has made enough steps since the last of them began to step, or one has ended."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._base: list[int] | None = None

    def __call__(self, jobs: Sequence[JobObject]) -> bool:
        if any(job["state"] in ENDED_STATES for job in jobs):
            return True
        steps = [job["steps"] for job in jobs]
        if self._base is None and all(steps):
            self._base = steps
        return self._base is not None and all(
            now - then >= self._steps for now, then in zip(steps, self._base, strict=True)
        )


def missing(subjects: Iterable[Subject], profiles: Mapping[ProfileKey, Profile]) -> list[Subject]:
    """Return, each once, the subjects whose step time alone was never measured."""
    first = {subject.key: subject for subject in subjects}
    return [s for key, s in first.items() if key not in profiles or profiles[key].step_s is None]


def gpu_type_of(nodes: Iterable[NodeObject], wanted: str | None, pool: str = "default") -> str:
    """Return the GPU type to profile on: the one wanted, else the only one there is.

    Raises ProfileError: there is no node, or there are several types and none is wanted.
    """
    if wanted is not None:
        return wanted
    kinds = sorted({gpu["type"] for n in nodes if n["pool"] == pool and not n["lost"] for gpu in n["gpus"]})
    if not kinds:
        raise ProfileError(f"no node of pool {pool} has registered; start one with 'colane up' or 'colane agent'")
    if len(kinds) > 1:
        raise ProfileError(f"there are GPUs of several types; name one with --gpu-type: {', '.join(kinds)}")
    return str(kinds[0])


def _request(subject: Subject, changes: Mapping[str, Any], limit: int) -> JobRequestObject:
    """The subject's request made a profile run; a built-in job gets steps enough to be stopped in the middle."""
    request = {**subject.request, **changes, "retries": 0}
    if "model_name" in request:
        request.setdefault("iters", max(OPEN_END, 2 * limit))
    request.setdefault("name", PurePosixPath(subject.key.family.split(" ", maxsplit=1)[0].partition("@")[0]).name)
    request["labels"] = {
        **request.get("labels", {}),
        "profile": "together" if changes["measurement_group"] else "alone",
    }
    return request


def _step_guess(key: ProfileKey, profiles: Iterable[Profile]) -> float | None:
    """The shortest step known of the family on this GPU type: with it a run is never too short to be seen."""
    same = (p for p in profiles if (p.key.family, p.key.gpu_type) == (key.family, key.gpu_type))
    return min((profile.step_s.value for profile in same if profile.step_s is not None), default=None)


def _steps_within(seconds: float, step_s: float | None) -> int:
    return math.ceil(seconds / step_s) if step_s else 0


def _occupancy_ratio(job: JobObject) -> float | None:
    sample = job["progress"]
    return sample.get("occupancy_ratio") if sample else None


def _made_all(job: JobObject) -> bool:
    """Whether it was stopped at its limit of steps, and had not done all its work before."""
    limit = job["needs"]["steps_limit"]
    return limit is not None and job["steps"] >= limit


def _step_mean_s(job: JobObject) -> float | None:
    sample = job["progress"]
    return sample.get("step_mean_s") if sample else None


def _ending(job: JobObject) -> str:
    return f"job {job['id']} ended as {job['state']}: {job['reason']} (colane logs {job['id']})"


def _why_no_set(ended: Sequence[JobObject]) -> str:
    failed = next((job for job in ended if job["state"] not in ("succeeded", "cancelled")), None)
    if failed is not None:
        return _ending(failed)
    least = min(ended, key=lambda job: job["steps"])
    if not least["steps"]:
        return f"job {least['id']} reported no step; {ADVICE}"
    return f"too few steps were made together (job {least['id']}: {least['steps']}); give the jobs more work"
