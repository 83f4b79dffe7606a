"""What decisions ask about speed and memory, and what observations tell: the contract of `perf.beliefs`.

A decision is understood by this page. By which formulas the answers are found is an idea of its own: `Beliefs`, and in
simulations that are told the truth `simulate.beliefs.OracleBeliefs`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, final

from colane.model.hardware import Gpu
from colane.model.job import JobSpec
from colane.model.lengths import FamilyLengths
from colane.model.profile import Memory, Profile, ProfileKey, SetMeasurement
from colane.perf.rate import Prediction, Rate, Situation

Kind = tuple[str, int | None]
"""A family and a batch size."""


class Load(NamedTuple):
    """C and M of a job; compared in this order (paper A, algorithm 2)."""

    occupancy: float
    bandwidth: float


@final
class BelievedLoad:
    """What is believed now of the load of one kind of job; bookings of such jobs refer to it.

    So an update that changes a load reaches all of them at once. Whether it is known never changes here: where
    that does, there is a new one, and the jobs are booked anew by it.

    Attributes:
        key: Of the profile.
        leans: Whether, while it is not known of so many GPUs, the nearest number that is known counts.
        value: The load.
    """

    __slots__ = ("key", "leans", "value")

    def __init__(self, key: ProfileKey, value: Load | None, *, leans: bool) -> None:
        self.key: Final = key
        self.leans: Final = leans
        self.value = value


class Terms(NamedTuple):
    """What decides a job's booking on a GPU type. `memory` is None while unknown, and so is `load`."""

    key: ProfileKey
    memory: Memory | None
    believed: BelievedLoad

    @property
    def load(self) -> Load | None:
        """As it is believed now."""
        return self.believed.value


def profile_key(spec: JobSpec, gpu_type: str, gpus: int | None = None) -> ProfileKey:
    """The key a job's profile is kept under on that GPU type, with so many GPUs, else as many as it asked for."""
    return ProfileKey(spec.family, spec.batch_size, spec.gpus if gpus is None else gpus, gpu_type)


class NeighbourEstimates(ABC):
    """How much jobs on other GPUs of a socket slow each other (`perf.neighbours`).

    Attributes:
        version: Grows with everything learnt.
    """

    version: int

    @abstractmethod
    def __len__(self) -> int:
        """How many pairs were measured."""

    @abstractmethod
    def knows(self, key: ProfileKey, other: ProfileKey) -> bool:
        """Whether the first was measured beside the second."""

    @abstractmethod
    def slowdown(self, key: ProfileKey, other: ProfileKey) -> float:
        """Of the first beside the second; 1 where it is not known."""

    @property
    @abstractmethod
    def worst(self) -> float:
        """Largest interference known: slowdown less 1."""


class LengthEstimates(ABC):
    """What is left of jobs whose owners tell no length, by those of their family that have ended (`perf.lengths`)."""

    @property
    @abstractmethod
    def version(self) -> int:
        """Grows whenever jobs are judged otherwise than before."""

    @property
    @abstractmethod
    def tells(self) -> bool:
        """Whether jobs are judged by any that have ended."""

    @abstractmethod
    def of_family(self, family: str) -> FamilyLengths | None:
        """What is known of a family."""

    @abstractmethod
    def left_s(self, family: str, had_s: float) -> float:
        """What is expected to be left of a job that has had so many seconds of service."""

    @abstractmethod
    def same_until_s(self, had_s: float) -> float:
        """Up to how many seconds of service as much is left as after so many, while jobs are judged as they are."""


class Estimates(ABC):
    """Answers about speed and memory.

    Attributes:
        learns: Whether what is not known yet will be once it was seen.
        terms_version: Grows where memory of some job may be believed otherwise, or whether its load is known.
        updates: Grows with every profile and every measured set, for what was worked out from rates of jobs together.
        loads_learnt: Loads that have become others since they were last taken note of.
    """

    learns: bool = True
    terms_version: int
    updates: int
    loads_learnt: dict[BelievedLoad, None]

    @property
    @abstractmethod
    def version(self) -> int:
        """Grows with every profile and with what lengths tell: what was worked out may be kept while it stays."""

    @property
    @abstractmethod
    def neighbours(self) -> NeighbourEstimates:
        """How much jobs on other GPUs of a socket slow each other."""

    @property
    @abstractmethod
    def lengths(self) -> LengthEstimates:
        """How long jobs of each family ran until they ended."""

    @property
    @abstractmethod
    def steps_min(self) -> int:
        """Steps a job must make next to its co-runners before it counts as measured."""

    @property
    @abstractmethod
    def total_factor(self) -> float:
        """Safety factor on the memory that a job was seen to need."""

    @property
    @abstractmethod
    def profiles(self) -> Mapping[ProfileKey, Profile]:
        """All profiles."""

    @abstractmethod
    def of_family(self, family: str) -> list[Profile]:
        """All profiles of a family."""

    @abstractmethod
    def profile(self, spec: JobSpec, gpu_type: str, gpus: int | None = None) -> Profile | None:
        """What is known of a job on a GPU type, with so many GPUs, else with as many as it asked for."""

    @abstractmethod
    def taught(self, since: int) -> frozenset[Kind] | None:
        """The kinds of job that all observations after the first so many concern, and any job beside these.

        None where that may be all kinds.
        """

    @abstractmethod
    def terms(self, spec: JobSpec, gpu_type: str, gpus: int | None = None) -> Terms:
        """Key, memory and load of a job on a GPU type."""

    @abstractmethod
    def leaning(self, key: ProfileKey) -> Iterable[ProfileKey]:
        """Numbers of GPUs that jobs of a kind were given though they asked for others: their terms may rest on it."""

    @abstractmethod
    def memory(self, spec: JobSpec, gpu_type: str, gpus: int | None = None) -> Memory | None:
        """P and E to book on each GPU, in bytes; None where it was neither declared nor measured."""

    @abstractmethod
    def load(self, spec: JobSpec, gpu_type: str, gpus: int | None = None) -> Load | None:
        """C and M of a job, None when its occupancy is unknown. An unknown M counts as 0."""

    @abstractmethod
    def rate(self, spec: JobSpec, situation: Situation) -> Rate:
        """How fast a job runs in a situation: the one answer about speed."""

    @abstractmethod
    def run_s(self, spec: JobSpec, gpu_types: Sequence[str]) -> float | None:
        """How long all of a job takes alone on the fastest of these types, if that is known otherwise than by steps."""

    @abstractmethod
    def predict(self, keys: Sequence[ProfileKey], sharing: str = "") -> Prediction | None:
        """What running these together on one GPU does to each; None when too little is known.

        Args:
            keys: Of all jobs that would be together.
            sharing: How they would share: `mps`, `time-slice` or `cpu`; empty is the usual way of the GPU type.
        """

    # -- what observations tell

    @abstractmethod
    def see_devices(self, old: Iterable[Gpu], new: Iterable[Gpu]) -> tuple[str, ...]:
        """A node's GPUs are others than they were: types whose largest memory is another by that."""

    @abstractmethod
    def learn_profile(self, profile: Profile) -> Profile:
        """Merge new knowledge; the merged profile is returned and kept."""

    @abstractmethod
    def learn_set(self, measurement: SetMeasurement) -> None:
        """Fold a measured set into the mean of its kind; one whose times say nothing is left out."""

    @abstractmethod
    def learn_length(self, family: str, service_s: float) -> FamilyLengths:
        """A job of it has ended whose length was not told, after so many seconds of service; the record with it."""

    @abstractmethod
    def note_length(self, family: str, service_s: float) -> None:
        """The same where no caller keeps the record: it is added up once something is decided by it."""

    @abstractmethod
    def see_memory(self, key: ProfileKey, seen: Memory, growth_ratio: float) -> Profile | None:
        """A job of a kind holds so much: the profile, where that is so many times the most that was seen lately."""

    @abstractmethod
    def count_attempt(self, key: ProfileKey, user: str) -> Profile | None:
        """A user's attempt has ended of which memory was seen: the profile with one more of them in its window."""

    @abstractmethod
    def is_window_over(self, key: ProfileKey) -> bool:
        """Whether what was once needed of memory gives way to what was needed lately."""

    @abstractmethod
    def give_way(self, key: ProfileKey, held: Iterable[Memory], growth_ratio: float) -> Profile | None:
        """A window is over: another begins, and what is believed of memory is the most that was seen in this one.

        Args:
            key: The kind.
            held: What jobs of it hold now.
            growth_ratio: Below this, memory has not changed.

        Returns:
            The profile; None where no less is believed than before.
        """

    @abstractmethod
    def forget_speed(self, key: ProfileKey) -> Profile:
        """Its jobs have changed since they were measured alone: what is left of the profile is returned and kept.

        Raises:
            KeyError: There is no such profile.
        """

    @abstractmethod
    def forget(self, family: str, sharing: Collection[ProfileKey] = ()) -> list[Profile]:
        """Believe nothing of a family any more.

        Args:
            family: Whose profiles go.
            sharing: Kinds of it that share a GPU now: their co-runners rely on what is believed of memory, which stays.

        Returns:
            Profiles that have changed: of those kinds what stays, and of others that told how they go next to it what
            is left.
        """
