"""A round of profiling: several jobs alone, several sets together; what fails is noted and the round goes on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from colane.client.errors import Refused
from colane.client.knowledge import read_profiles
from colane.client.profiling import AloneRun, OutOfTimeError, ProfileError, Profiler, SetRun, Subject, missing
from colane.model.hardware import CPU_DEVICE_TYPE
from colane.model.profile import Profile, ProfileKey, SetMeasurement

BOOKED_RATIO: Final = 1.1 * 1.05
"""The scheduler books at most this much more than was measured (the safety factors of `perf.config`)."""


@dataclass(slots=True)
class Session:
    """A round and what came of it."""

    profiler: Profiler  # runs the jobs
    runs: list[AloneRun] = field(default_factory=list)  # jobs run alone in this round
    sets: list[SetRun] = field(default_factory=list)  # sets run together in this round
    notes: list[str] = field(default_factory=list)  # what a reader must know, such as MPS that could not be started
    failures: list[str] = field(default_factory=list)  # what could not be measured, one line each

    @property
    def measurements(self) -> list[SetMeasurement]:
        """Sets measured in this round."""
        return [run.measurement for run in self.sets]

    @property
    def sampled_step_s(self) -> dict[ProfileKey, float]:
        """Mean step of the jobs run alone in this round."""
        return {run.profile.key: run.sampled_step_s for run in self.runs if run.sampled_step_s is not None}

    def profiles(self, subjects: Iterable[Subject]) -> list[Profile]:
        """Return the profiles of these subjects as the scheduler keeps them now."""
        known = read_profiles(self.profiler.client)
        keys = dict.fromkeys(subject.key for subject in subjects)
        return [known[key] for key in keys if key in known]

    def measure_alone(self, subjects: Iterable[Subject]) -> None:
        """Run each alone."""
        for subject in {subject.key: subject for subject in subjects}.values():
            try:
                self.runs.append(self.profiler.alone(subject))
            except OutOfTimeError as error:
                self.failures.append(str(error))
                return
            except (ProfileError, Refused) as error:
                self._fail(subject.name, error)

    def measure_sets(self, sets: Sequence[Sequence[Subject]], modes: Sequence[bool]) -> None:
        """Run each set together, first each of its jobs alone that has no profile.

        Args:
            sets: The sets.
            modes: Without MPS, with it, or both; all sets without come first, as a daemon stays once it is started.
        """
        everyone = [subject for group in sets for subject in group]
        self.measure_alone(missing(everyone, read_profiles(self.profiler.client)))
        for mps in modes:
            measurable = self._measurable(sets)
            if not mps or (measurable and self.start_mps(measurable[0][0])):
                self._measure_mode(measurable, mps=mps)

    def start_mps(self, subject: Subject) -> bool:
        """Have an MPS daemon run by running a job alone through it; whether there is one now.

        How a set shares its GPU is seen when its jobs are placed, so the daemon must be there before them.
        """
        try:
            self.profiler.alone(subject, mps=True)
        except (ProfileError, Refused) as error:
            self._fail(f"{subject.name} with MPS", error)
            return False
        nodes = self.profiler.client.nodes()
        if any(gpu["sharing"] == "mps" for node in nodes for gpu in node["gpus"]):
            return True
        self._note(message for node in nodes for message in node["messages"] if "MPS" in message)
        self._note(["no GPU is shared through MPS, so no set is measured with it"])
        return False

    def _measure_mode(self, sets: Iterable[Sequence[Subject]], *, mps: bool) -> None:
        for group in sets:
            try:
                run = self.profiler.together(group, mps=mps)
            except OutOfTimeError as error:
                self.failures.append(str(error))
                return
            except (ProfileError, Refused) as error:
                self._fail(set_name(group), error)
                continue
            self.sets.append(run)
            self._note(run.notes)

    def _measurable(self, sets: Sequence[Sequence[Subject]]) -> list[Sequence[Subject]]:
        """Leave out sets one of which has no profile, or which together exceed a GPU's memory."""
        profiles = read_profiles(self.profiler.client)
        gpus = [gpu for node in self.profiler.client.nodes() if not node["lost"] for gpu in node["gpus"]]
        room: dict[str, int] = {}
        for gpu in gpus:
            room[gpu["type"]] = max(room.get(gpu["type"], 0), gpu["memory_bytes"] - gpu["foreign_bytes"])
        room_bytes = room
        kept = []
        for group in sets:
            lacking = missing(group, profiles)
            measured_bytes = sum(profiles[s.key].memory_bytes or 0 for s in group if s.key in profiles)
            need_bytes = measured_bytes * BOOKED_RATIO
            have_bytes = room_bytes.get(group[0].key.gpu_type, 0)
            if lacking:
                self._note([f"{set_name(group)} is left out: {lacking[0].name} has no profile"])
            elif need_bytes > have_bytes:
                need = f"needs {need_bytes / 1e9:.3g} GB with a margin, a GPU has {have_bytes / 1e9:.3g} GB"
                self._note([f"{set_name(group)} is left out: {need}"])
            else:
                kept.append(group)
        return kept

    def _fail(self, name: str, error: Exception) -> None:
        text = str(error)
        self.failures.append(text if text.startswith(name) else f"{name}: {text}")

    def _note(self, notes: Iterable[str]) -> None:
        self.notes += [note for note in notes if note not in self.notes]


def sets_of(subjects: Sequence[Subject], size: int) -> list[tuple[Subject, ...]]:
    """Return all sets of that many different subjects, in order."""
    return list(combinations(subjects, size))


def modes_for(subjects: Iterable[Subject], *, mps: bool | None) -> tuple[bool, ...]:
    """Return whether to measure without MPS, with it, or both: both on GPUs where nothing is said."""
    if any(subject.key.gpu_type == CPU_DEVICE_TYPE for subject in subjects):
        return (False,)
    return (False, True) if mps is None else (mps,)


def set_name(group: Iterable[Subject]) -> str:
    """Return the names of a set's jobs, joined by +."""
    return " + ".join(subject.name for subject in group)
