"""What is known of speed and memory, and how it is learnt: beyond what decisions ask (`perf.estimates`)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable

from colane.model.hardware import Gpu
from colane.model.job import JobSpec
from colane.model.lengths import FamilyLengths
from colane.model.profile import Memory, Profile, ProfileKey, SetMeasurement
from colane.perf.estimates import BelievedLoad, Estimates, LengthEstimates


class LengthKnowledge(LengthEstimates):
    """How long jobs of each family ran until they ended."""

    @abstractmethod
    def of_family(self, family: str) -> FamilyLengths | None:
        """What is known of a family."""


class Knowledge(Estimates):
    """All that is known, and what observations tell."""

    loads_learnt: dict[BelievedLoad, None]  # loads that have become others since they were last taken note of

    @property
    @abstractmethod
    def lengths(self) -> LengthKnowledge:
        """How long jobs of each family ran until they ended."""

    @property
    @abstractmethod
    def steps_min(self) -> int:
        """Steps a job must make next to its co-runners before it counts as measured."""

    @property
    @abstractmethod
    def total_factor(self) -> float:
        """Safety factor on the memory that a job was seen to need."""

    @abstractmethod
    def of_family(self, family: str) -> list[Profile]:
        """All profiles of a family."""

    @abstractmethod
    def profile(self, spec: JobSpec, gpu_type: str, gpus: int | None = None) -> Profile | None:
        """What is known of a job on a GPU type, with so many GPUs, else with as many as it asked for."""

    @abstractmethod
    def leaning(self, key: ProfileKey) -> Iterable[ProfileKey]:
        """Numbers of GPUs that jobs of a kind were given though they asked for others: their terms may rest on it."""

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
    def learn_length(self, family: str, service_s: float, now_s: float = 0.0) -> FamilyLengths:
        """A job of it has ended now whose length was not told, after so many seconds of service; the record with it."""

    @abstractmethod
    def note_length(self, family: str, service_s: float, now_s: float = 0.0) -> None:
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

        Raises KeyError: there is no such profile.
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
