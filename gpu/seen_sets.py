"""Which sets a part has measured: in this call, in earlier ones, and on other machines, by the result they left."""

from __future__ import annotations

from collections.abc import Sequence

from gpu.harness import Object, Run

from colane.client.knowledge import (
    decode_measurement,
    decode_profile,
    encode_measurement,
    encode_profile,
    read_measurements,
)
from colane.client.profile_session import Session
from colane.client.profiling import Subject
from colane.model.profile import ProfileKey, SetMeasurement


def keys_of(subjects: Sequence[Subject]) -> tuple[ProfileKey, ...]:
    """What names a set of jobs, whatever their order."""
    return tuple(sorted(subject.key for subject in subjects))


def measured_keys(measurements: Sequence[SetMeasurement], sharing: str) -> set[tuple[ProfileKey, ...]]:
    """The sets that were measured with this way of sharing."""
    return {tuple(sorted(m.keys)) for m in measurements if m.sharing == sharing}


class SeenSets:
    """What this part has measured, in this call and in earlier ones, here or on another machine."""

    def __init__(self, run: Run, session: Session, subjects: Sequence[Subject], sharing: str) -> None:
        kept = run.kept()
        self._measured = [decode_measurement(body) for body in kept.get("measurements", ())]
        self._profiles = {p.key: p for p in map(decode_profile, kept.get("profiles", ()))}
        self._session, self._subjects, self._sharing = session, subjects, sharing

    def done(self) -> set[tuple[ProfileKey, ...]]:
        """The sets that need not be measured any more."""
        return measured_keys(self._every(), self._sharing)

    def of(self, sets: Sequence[tuple[Subject, ...]]) -> list[SetMeasurement]:
        """Measurements of these sets."""
        wanted = {keys_of(group) for group in sets}
        return [m for m in self._every() if m.sharing == self._sharing and tuple(sorted(m.keys)) in wanted]

    def body(self, sets: Sequence[tuple[Subject, ...]]) -> Object:
        """What is written down of these sets."""
        profiles = self._profiles | {p.key: p for p in self._session.profiles(self._subjects)}
        return {
            "measurements": [encode_measurement(m) for m in self.of(sets)],
            "profiles": [encode_profile(p) for p in profiles.values()],
        }

    def _every(self) -> list[SetMeasurement]:
        now = read_measurements(self._session.profiler.client)
        return list({(m.keys, m.sharing, m.at_s): m for m in (*self._measured, *now)}.values())
