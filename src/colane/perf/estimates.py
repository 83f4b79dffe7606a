"""What decisions ask about speed and memory: the contract of `perf.beliefs`.

A decision is understood by this page; what observations tell is in `perf.knowledge`. By which formulas the answers
are found is an idea of its own: `Beliefs`, and in simulations that are told the truth `simulate.beliefs.OracleBeliefs`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, final

from colane.model.job import JobSpec
from colane.model.profile import Memory, Profile, ProfileKey
from colane.perf.rate import Prediction, Rate, Situation

Kind = tuple[str, int | None]  # a family and a batch size


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
    """How much jobs on other GPUs of a socket slow each other (`perf.neighbours`)."""

    version: int  # grows with everything learnt

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


Unended = tuple[int, float]
"""Jobs of a family that have not ended: in which bin what they have had is, and when, before they came, all that had
ended came to count half."""


class Rest(NamedTuple):
    """What is left of a job whose length is learnt, in seconds of service."""

    index_s: float  # the Gittins quotient, by which it is ranked
    p10_s: float  # one of ten has less left
    p50_s: float  # half have
    p90_s: float  # nine of ten have


class LengthEstimates(ABC):
    """What is left of jobs whose owners tell no length, by those of their family that have ended (`perf.lengths`)."""

    @property
    @abstractmethod
    def version(self) -> int:
        """Grows whenever jobs of a family that was asked about are judged otherwise than when it was asked last."""

    @abstractmethod
    def tells(self, family: str) -> bool:
        """Whether any job of a family has ended: of others all that is told is what is true of all families."""

    @abstractmethod
    def left_s(self, family: str, had_s: float) -> float:
        """What is expected to be left of a job that has had so many seconds of service."""

    @abstractmethod
    def rest(self, family: str, had_s: float) -> Rest:
        """The same with its distribution."""

    @abstractmethod
    def outlasts(self, family: str, ended: Iterable[tuple[int, float]], unended: Mapping[int, float]) -> list[float]:
        """Which part of some of the jobs of a family has more than each bin ends with.

        Args:
            family: The family.
            ended: Of each bin of records, how many of these have ended in it.
            unended: Of each bin, how many of these have had so much and have not ended.
        """

    @abstractmethod
    def same_until_s(self, had_s: float) -> float:
        """Up to how many seconds of service as much is left as after so many, while jobs are judged as they are."""

    @abstractmethod
    def age_of(self, had_s: float) -> int:
        """The bin of what a job has had; -1 of one that is as new."""

    @abstractmethod
    def version_of(self, family: str) -> int:
        """The version since when all that was told of a family holds."""

    @abstractmethod
    def judged_since(self, version: int) -> Collection[str] | None:
        """The families of which what was told at that version holds no more; None where that may be all of them."""

    @abstractmethod
    def ends_before(self, family: str, had_s: float, other: str, other_had_s: float, times: float) -> float:
        """The probability that a job that has had so many seconds has less than so many times another's rest left."""

    @abstractmethod
    def ends_within(self, family: str, had_s: float, rest_s: float) -> float:
        """The probability that a job that has had so many seconds has less left than that."""

    @abstractmethod
    def ended(self, family: str) -> float:
        """How many jobs of a family have ended."""

    @abstractmethod
    def halved_before_s(self, family: str, since_s: float) -> float:
        """When, before that, those of a family that had ended came to count half last; minus infinity for never."""

    @abstractmethod
    def see_unended(self, families: Mapping[str, Mapping[Unended, int]], *, are_all: bool = False) -> None:
        """So many jobs of these families have not ended, each as much as one would that had ended as it came.

        Args:
            families: Those of which that has changed.
            are_all: No other has any.
        """


class Estimates(ABC):
    """Answers about speed and memory."""

    learns: bool = True  # whether what is not known yet will be once it was seen
    tells_each: bool = False  # whether `run_s` tells of any job
    in_seconds: frozenset[Kind] = frozenset()  # kinds of job whose step is a second of work
    terms_version: int  # grows where memory of some job may be believed otherwise, or whether its load is known
    updates: int  # grows with every profile and every measured set, for what was worked out from rates of jobs together

    @property
    @abstractmethod
    def speeds_version(self) -> int:
        """Grows with every profile: what was worked out may be kept while it stays, and what lengths tell beside it."""

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
    def profiles(self) -> Mapping[ProfileKey, Profile]:
        """All profiles."""

    @abstractmethod
    def taught(self, since: int) -> frozenset[Kind] | None:
        """The kinds of job that all observations after the first so many concern, and any job beside these.

        None where that may be all kinds.
        """

    @abstractmethod
    def terms(self, spec: JobSpec, gpu_type: str, gpus: int | None = None) -> Terms:
        """Key, memory and load of a job on a GPU type."""

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
    def speeds_together(
        self, specs: Sequence[JobSpec], keys: Sequence[ProfileKey], gpu_type: str, sharing: str
    ) -> tuple[float, ...]:
        """The `ratio` of `rate` of jobs of one GPU together on it, each in a lane of its own beside the others.

        Args:
            specs: Of these jobs.
            keys: What they are believed to be.
            gpu_type: Of the GPU.
            sharing: As in `Situation`.
        """

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
