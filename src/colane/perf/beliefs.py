"""What is believed about speed and memory, learnt from observations: the answers of `perf.estimates`."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from colane.model.hardware import Gpu, usual_sharing
from colane.model.job import JobSpec
from colane.model.lengths import FamilyLengths
from colane.model.profile import Memory, MemoryWindow, Profile, ProfileKey, SetMeasurement, Value, ValueSource
from colane.perf import factors
from colane.perf.composing import compose
from colane.perf.config import PerfConfig
from colane.perf.curves import Curve, Curves
from colane.perf.estimates import BelievedLoad, Kind, Load, Terms, profile_key
from colane.perf.knowledge import Knowledge
from colane.perf.learn import is_other, memory_alone, merge_profiles, without_speed
from colane.perf.lengths import Lengths
from colane.perf.neighbours import NeighbourBeliefs
from colane.perf.rate import Factors, LaneMate, Prediction, Rate, Situation, without_beside
from colane.perf.sharing_beliefs import SharingBeliefs, sort_key
from colane.perf.speedup import LinearFit, fit_line

RATES_MAX = 1 << 16  # rates remembered at most; then all are forgotten

TAUGHT_MAX = 256
"""Of so many observations it is kept which kinds of job they concern; a reader that missed more takes all."""

_Asked = tuple[str, int | None, int, str | None, int, float, Situation]


class Beliefs(Knowledge):
    """Profiles, measured sets and the model fitted to them; `neighbours` for jobs on other GPUs of a socket.

    What decisions ask of them, and what their versions mean, is said in `Estimates`.
    """

    def __init__(
        self,
        config: PerfConfig | None = None,
        profiles: Iterable[Profile] = (),
        measurements: Iterable[SetMeasurement] = (),
        neighbours: NeighbourBeliefs | None = None,
        lengths: Iterable[FamilyLengths] = (),
    ) -> None:
        self._version = 0
        self.terms_version = 0
        self.updates = 0
        self._taught: deque[frozenset[Kind] | None] = deque(maxlen=TAUGHT_MAX)
        self.config = config or PerfConfig()
        self._neighbours = NeighbourBeliefs() if neighbours is None else neighbours
        self._lengths = Lengths(lengths)
        self._profiles: dict[ProfileKey, Profile] = {profile.key: profile for profile in profiles}
        self._sharing_beliefs = SharingBeliefs(self.config, self._profiles)
        self._terms: dict[tuple[str, int | None, int, bool, int | None, str, int | None], Terms] = {}
        self.loads_learnt = {}
        self._loads: dict[tuple[str, int | None, str], dict[tuple[ProfileKey, bool], BelievedLoad]] = {}
        self._overheads: dict[str, float] = {}
        self._devices: dict[str, dict[int, int]] = {}
        self._curves = Curves(self._profiles.values())
        self._families: dict[str, dict[ProfileKey, None]] = {}
        self._rates: dict[_Asked, Rate] = {}
        self._rates_by = 0
        self._leaning: dict[tuple[str, int | None, str], dict[ProfileKey, None]] = {}
        for profile in self._profiles.values():
            self._families.setdefault(profile.key.family, {})[profile.key] = None
            self._neighbours.believe(profile)
            self._see_overhead(profile)
        for measurement in measurements:
            self.learn_set(measurement)

    @property
    def neighbours(self) -> NeighbourBeliefs:
        return self._neighbours

    @property
    def lengths(self) -> Lengths:
        return self._lengths

    @property
    def steps_min(self) -> int:
        return self.config.steps_min

    @property
    def total_factor(self) -> float:
        return self.config.total_factor

    @property
    def speeds_version(self) -> int:
        return self._version

    @property
    def profiles(self) -> Mapping[ProfileKey, Profile]:
        return self._profiles

    def of_family(self, family: str) -> list[Profile]:
        return [self._profiles[key] for key in self._families.get(family, ())]

    def profile(self, spec: JobSpec, gpu_type: str, gpus: int | None = None) -> Profile | None:
        return self._profiles.get(profile_key(spec, gpu_type, gpus))

    def curve(self, spec: JobSpec, gpu_type: str) -> Curve:
        """What is known of a job on a GPU type, by number of GPUs and how they are connected."""
        return self._curves.of(profile_key(spec, gpu_type))

    def taught(self, since: int) -> frozenset[Kind] | None:
        missed = self.updates - since
        found = frozenset[Kind]()
        for concerned in list(self._taught)[-missed:] if 0 < missed <= len(self._taught) else ():
            if concerned is None:
                return None
            found |= concerned
        return found if missed <= len(self._taught) else None

    def terms(self, spec: JobSpec, gpu_type: str, gpus: int | None = None) -> Terms:
        """Key, memory and load of a job on a GPU type, remembered until a profile changes.

        With another number of GPUs than it asked for, and of a job of several sizes, what was not seen with so many is
        taken from what is known of others.
        """
        asked = (spec.family, spec.batch_size, spec.gpus, bool(spec.sizes), spec.gpu_memory_bytes, gpu_type, gpus)
        terms = self._terms.get(asked)
        if terms is None:
            key = profile_key(spec, gpu_type, gpus)
            leans = _leans(spec, key)
            if leans:
                self._leaning.setdefault((key.family, key.batch_size, gpu_type), {})[key] = None
            terms = Terms(key, self.memory(spec, gpu_type, gpus), self._believed_load(key, leans=leans))
            self._terms[asked] = terms
        return terms

    def leaning(self, key: ProfileKey) -> Iterable[ProfileKey]:
        """Points of the key's curve that jobs were given though they asked for others: their terms may rest on it."""
        return self._leaning.get((key.family, key.batch_size, key.gpu_type), ())

    def memory(self, spec: JobSpec, gpu_type: str, gpus: int | None = None) -> Memory | None:
        """P and E to book on each GPU, None where it was neither declared nor measured.

        What the job's owner declared wins over what was measured of its kind, which other jobs may have spoilt: a job
        that was seen to need more than that has the larger need among its constraints (`core.reducers.memory`). What
        was measured is no more than a GPU of the type has, so that safety factors, too, keep no job off all of them.
        """
        declared = spec.gpu_memory_bytes
        key = profile_key(spec, gpu_type, gpus)
        known = self._known_memory(key, spec)
        if known is None:
            return None if declared is None else Memory.of_peak(declared)
        persistent = (known[0].value + self._overhead_beside(known[0], key)) * self.config.persistent_factor
        total = (persistent + known[1].value) * self.config.total_factor
        if known[0].source is not ValueSource.MEASURED:
            total = max(total, declared or 0)
        elif declared is not None:
            total = float(declared)
        elif (largest := max(self._devices.get(gpu_type, ()), default=None)) is not None:
            total = min(total, largest)
        persistent = min(persistent, total)
        return Memory(int(persistent), int(total) - int(persistent))

    def see_devices(self, old: Iterable[Gpu], new: Iterable[Gpu]) -> tuple[str, ...]:
        before = {gpu_type: max(sizes) for gpu_type, sizes in self._devices.items()}
        for gpu in new:
            sizes = self._devices.setdefault(gpu.type, {})
            sizes[gpu.memory_bytes] = sizes.get(gpu.memory_bytes, 0) + 1
        for gpu in old:
            sizes = self._devices[gpu.type]
            sizes[gpu.memory_bytes] -= 1
            if not sizes[gpu.memory_bytes]:
                del sizes[gpu.memory_bytes]
            if not sizes:
                del self._devices[gpu.type]
        after = {gpu_type: max(sizes) for gpu_type, sizes in self._devices.items()}
        changed = tuple([one for one in sorted({*before, *after}) if before.get(one) != after.get(one)])
        if changed:
            self.terms_version += 1
            self._terms.clear()
        return changed

    def _overhead_beside(self, persistent: Value, key: ProfileKey) -> float:
        """What to add to a P that was declared as an allocator counts it: the most that was seen on the GPU type."""
        profile = self._profiles.get(key)
        if persistent.source is not ValueSource.DECLARED or (profile and profile.overhead_bytes is not None):
            return 0.0
        return self._overheads.get(key.gpu_type, 0.0)

    def _known_memory(self, key: ProfileKey, spec: JobSpec) -> tuple[Value, Value] | None:
        if _leans(spec, key):
            return self._curves.of(key).memory(key.gpus)
        profile = self._profiles.get(key)
        if profile is None or profile.persistent_bytes is None or profile.ephemeral_bytes is None:
            return None
        return profile.persistent_bytes, profile.ephemeral_bytes

    def load(self, spec: JobSpec, gpu_type: str, gpus: int | None = None) -> Load | None:
        key = profile_key(spec, gpu_type, gpus)
        return self._load(key, leans=_leans(spec, key))

    def _load(self, key: ProfileKey, *, leans: bool) -> Load | None:
        profile = self._curves.of(key).with_load(key.gpus) if leans else self._profiles.get(key)
        if profile is None or profile.occupancy is None:
            return None
        return Load(profile.occupancy.value, profile.bandwidth.value if profile.bandwidth else 0.0)

    def _believed_load(self, key: ProfileKey, *, leans: bool) -> BelievedLoad:
        """The one that all bookings of such jobs refer to."""
        known = self._loads.setdefault((key.family, key.batch_size, key.gpu_type), {})
        believed = known.get((key, leans))
        if believed is None:
            believed = known[key, leans] = BelievedLoad(key, self._load(key, leans=leans), leans=leans)
        return believed

    def _learn_loads(self, key: ProfileKey) -> None:
        """A point has changed: loads that rest on it are others, or made anew if it is news whether they are known."""
        known = self._loads.get((key.family, key.batch_size, key.gpu_type), {})
        for asked, believed in list(known.items()):
            rests = believed.leans or believed.key == key
            load = self._load(believed.key, leans=believed.leans) if rests else believed.value
            if load == believed.value:
                continue
            if load is None or believed.value is None:
                del known[asked]
            else:
                believed.value = load
                self.loads_learnt[believed] = None

    def rate(self, spec: JobSpec, situation: Situation) -> Rate:
        """How fast a job runs in a situation: the one answer about speed, remembered until something is learnt."""
        asked = (spec.family, spec.batch_size, spec.gpus, spec.gpu_type, spec.cores, spec.weight, situation)
        if self._rates_by != self._neighbours.version or len(self._rates) >= RATES_MAX:
            self._rates.clear()
            self._rates_by = self._neighbours.version
        rate = self._rates.get(asked)
        if rate is None:
            rate = self._rates[asked] = self._rate(spec, situation)
        return rate

    def speeds_together(
        self, specs: Sequence[JobSpec], keys: Sequence[ProfileKey], gpu_type: str, sharing: str
    ) -> tuple[float, ...]:
        jobs = len(keys)
        for key in keys:
            if key.gpus != 1:  # of a gang one GPU is judged, beside others that are known by all of theirs
                return tuple([
                    self.rate(spec, Situation(gpu_type, 1, None, sharing, (*keys[:place], *keys[place + 1 :]))).ratio
                    for place, spec in enumerate(specs)
                ])  # fmt: skip
        alone = Situation(gpu_type, 1, None, sharing)
        together = self.predict(keys, sharing) if jobs > 1 else None
        speeds: list[float] = []
        for spec, key in zip(specs, keys, strict=True):
            size, cores, turns, bus, _ = self.rate(spec, alone).factors
            speeds.append(1 / Factors(size, cores, turns, bus, factors.of_gpu(key, jobs, together)).slowdown)
        return tuple(speeds)

    def run_s(self, spec: JobSpec, gpu_types: Sequence[str]) -> float | None:  # noqa: ARG002
        return None

    def predict(self, keys: Sequence[ProfileKey], sharing: str = "") -> Prediction | None:
        """What running these together on one GPU does to each; None when too little is known (`perf.co_runners`).

        Args:
            keys: Of all jobs that would be together.
            sharing: How they would share: `mps`, `time-slice` or `cpu`; empty is the usual way of the GPU type.
        """
        sharing = sharing or usual_sharing(keys[0].gpu_type)
        return self._sharing_beliefs.predict(tuple(sorted(keys, key=sort_key)), sharing)

    def line(self, gpu_type: str, sharing: str) -> LinearFit | None:
        """Delta over C and M, fitted for a GPU type and a way of sharing (paper A); None with too little data."""
        points = self.points(gpu_type, sharing)
        return fit_line(points) if len(points) >= self.config.sets_min else None

    def points(self, gpu_type: str, sharing: str) -> list[tuple[float, float, float]]:
        """(sum of C, sum of M, delta) of every set measured on a GPU type in one way of sharing, profiles known."""
        points = []
        for (mode, keys), belief in self._sharing_beliefs.sets.items():
            profiles = [self._profiles.get(key) for key in keys]
            known = [p for p in profiles if p is not None and p.occupancy is not None]
            if mode == sharing and keys[0].gpu_type == gpu_type and len(known) == len(keys):
                points.append((*_sums(known), belief.delta))
        return points

    def learn_profile(self, profile: Profile) -> Profile:
        old = self._profiles.get(profile.key)
        return self._believe(profile if old is None else merge_profiles(old, profile, self.config.samples_max))

    def see_memory(self, key: ProfileKey, seen: Memory, growth_ratio: float) -> Profile | None:
        profile = self._profiles.get(key)
        if profile is None or not self.learns:
            return None
        window = profile.memory_window
        if (
            window is not None
            and seen.persistent_bytes <= window.persistent_bytes * growth_ratio
            and seen.ephemeral_bytes <= window.ephemeral_bytes * growth_ratio
        ):
            return None
        return self._keep(replace(profile, memory_window=_with(window, seen)))

    def count_attempt(self, key: ProfileKey, user: str) -> Profile | None:
        profile = self._profiles.get(key)
        window = None if profile is None else profile.memory_window
        if profile is None or window is None or not self.learns:
            return None
        users = profile.users if user in {"", *profile.users} else tuple(sorted([*profile.users, user]))
        return self._keep(replace(profile, users=users, memory_window=window._replace(attempts=window.attempts + 1)))

    def _keep(self, profile: Profile) -> Profile:
        """Of a profile something has changed by which nothing is decided yet."""
        self._profiles[profile.key] = profile  # there was one before
        self._curves.put(profile)
        return profile

    def is_window_over(self, key: ProfileKey) -> bool:
        profile = self._profiles.get(key)
        window = None if profile is None else profile.memory_window
        return window is not None and window.attempts >= self.config.memory_attempts

    def give_way(self, key: ProfileKey, held: Iterable[Memory], growth_ratio: float) -> Profile | None:
        profile = self._profiles[key]
        window = profile.memory_window
        if window is None:
            return None
        fresh: MemoryWindow | None = None
        for memory in held:
            fresh = _with(fresh, memory)
            window = _with(window, memory)
        persistent = _given_way(profile.persistent_bytes, window.persistent_bytes, growth_ratio)
        ephemeral = _given_way(profile.ephemeral_bytes, window.ephemeral_bytes, growth_ratio)
        left = replace(profile, persistent_bytes=persistent, ephemeral_bytes=ephemeral, memory_window=fresh)
        if persistent is profile.persistent_bytes and ephemeral is profile.ephemeral_bytes:
            self._keep(left)
            return None
        return self._believe(left)

    def forget_speed(self, key: ProfileKey) -> Profile:
        left = self._believe(without_speed(self._profiles[key]))
        self._sharing_beliefs.forget_sets(key)
        return left

    def forget(self, family: str, sharing: Collection[ProfileKey] = ()) -> list[Profile]:
        old = self.of_family(family)
        for profile in old:
            del self._profiles[profile.key]
        self._families.pop(family, None)
        curves = {(key.batch_size, key.gpu_type) for key in sharing}
        kept = [memory_alone(one) for one in old if (one.key.batch_size, one.key.gpu_type) in curves]
        changed = [p for p in self._profiles.values() if any(one.beside.family == family for one in p.slowdowns)]
        changed = [
            replace(p, slowdowns=tuple([one for one in p.slowdowns if one.beside.family != family])) for p in changed
        ]
        changed += kept
        self._profiles.update({profile.key: profile for profile in changed})
        if kept:
            self._families[family] = {profile.key: None for profile in kept}
        self._curves = Curves(self._profiles.values())
        self._sharing_beliefs.drop(family)
        self._neighbours.drop(family)
        self._lengths.forget(family)
        for kind in [kind for kind in self._loads if kind[0] == family]:
            del self._loads[kind]
        for believed in [believed for believed in self.loads_learnt if believed.key.family == family]:
            del self.loads_learnt[believed]
        self._overheads.clear()
        for profile in self._profiles.values():
            self._see_overhead(profile)
        self._version += 1
        self.terms_version += 1
        self._terms.clear()
        self._rates.clear()
        self._note(None)
        return changed

    def _believe(self, merged: Profile) -> Profile:
        old = self._profiles.get(merged.key)
        self._profiles[merged.key] = merged
        if old is None:
            self._families.setdefault(merged.key.family, {})[merged.key] = None
        self._version += 1
        is_more = self._see_overhead(merged)
        self._note(None if is_more else frozenset([(merged.key.family, merged.key.batch_size)]))
        self._neighbours.believe(merged)
        self._curves.put(merged)
        self._sharing_beliefs.forget(merged.key)
        self._learn_loads(merged.key)
        if old is None or is_more or _is_booked_otherwise(old, merged):
            self.terms_version += 1
            self._terms.clear()
        self._rates.clear()
        return merged

    def _note(self, concerned: frozenset[Kind] | None) -> None:
        self.updates += 1
        self._taught.append(concerned)

    def _see_overhead(self, profile: Profile) -> bool:
        """Whether it is more than was known of the GPU type."""
        kind, seen = profile.key.gpu_type, profile.overhead_bytes
        if seen is None or seen.value <= self._overheads.get(kind, 0.0):
            return False
        self._overheads[kind] = seen.value
        return True

    def learn_length(self, family: str, service_s: float, now_s: float = 0.0) -> FamilyLengths:
        return self._lengths.learn(family, service_s, now_s)

    def note_length(self, family: str, service_s: float, now_s: float = 0.0) -> None:
        self._lengths.note(family, service_s, now_s)

    def learn_set(self, measurement: SetMeasurement) -> None:
        if self._sharing_beliefs.learn(measurement):
            kinds = frozenset([(key.family, key.batch_size) for key in measurement.keys])
            self._note(None if self._sharing_beliefs.is_telling else kinds)
            self._rates.clear()

    def _rate(self, spec: JobSpec, situation: Situation) -> Rate:
        if situation.beside:
            return self._rate_beside(spec, situation)
        fastest = spec.gpu_type or self._curves.fastest(spec.family, spec.batch_size, spec.gpus)
        gpu_type = situation.gpu_type or fastest
        gpus = spec.gpus if situation.gpus is None else situation.gpus
        key = ProfileKey(spec.family, spec.batch_size, gpus, gpu_type)
        reference = ProfileKey(spec.family, spec.batch_size, spec.gpus, fastest or gpu_type)
        place = self._curves.of(key).place(gpus, situation)
        size = self._curves.size(reference, key)
        known, mine = self._profiles.get(key), LaneMate(key, spec.weight)
        found = Factors(
            factors.times(size, place),
            factors.of_cores(() if known is None else known.core_paces, spec.cores, situation.cores),
            factors.of_turns(mine, situation.lane_mates, situation.rule, self._profiles),
            factors.of_bus(key, situation.near, self._neighbours, situation.bandwidth_pressure),
        )
        alone = self._curves.alone(reference, key, situation.distance, size)
        if alone is not None and situation.spans is not None:
            alone = alone._replace(value=alone.value * place.slowdown)
        return compose(alone, found, self.config.spreads)

    def _rate_beside(self, spec: JobSpec, situation: Situation) -> Rate:
        """That with nothing in other lanes of its GPU, and what the jobs there cost it."""
        beside, jobs = situation.beside, 1 + len(situation.beside)
        gpus = spec.gpus if situation.gpus is None else situation.gpus
        gpu_type = situation.gpu_type or spec.gpu_type
        if not gpu_type:
            gpu_type = self._curves.fastest(spec.family, spec.batch_size, spec.gpus)
        key = ProfileKey(spec.family, spec.batch_size, gpus, gpu_type)
        lane = self.rate(spec, without_beside(situation))
        together = self.predict([*beside, key], situation.sharing)
        size, cores, turns, bus, _ = lane.factors
        found = Factors(size, cores, turns, bus, factors.of_gpu(key, jobs, together))
        return compose(lane.alone, found, self.config.spreads, jobs, together)


def declared(profile: Profile) -> Profile:
    """The same profile with every value marked as declared."""
    changes = {
        name: value._replace(source=ValueSource.DECLARED)
        for name in (
            "step_s",
            "step_median_s",
            "persistent_bytes",
            "ephemeral_bytes",
            "overhead_bytes",
            "occupancy",
            "bandwidth",
        )
        if (value := getattr(profile, name)) is not None
    }
    return replace(profile, **changes)


def _with(window: MemoryWindow | None, seen: Memory) -> MemoryWindow:
    """A window in which this was seen, too."""
    attempts, persistent, ephemeral = window or MemoryWindow(0, 0.0, 0.0)
    return MemoryWindow(attempts, max(persistent, seen.persistent_bytes), max(ephemeral, seen.ephemeral_bytes))


def _given_way(known: Value | None, seen_bytes: float, growth_ratio: float) -> Value | None:
    if known is None or known.source is not ValueSource.MEASURED or known.value <= seen_bytes * growth_ratio:
        return known
    return known._replace(value=seen_bytes)


def _is_booked_otherwise(old: Profile, new: Profile) -> bool:
    """Whether of the values that terms are made of one is another, or it is news whether the load is known."""
    return (
        is_other(old.persistent_bytes, new.persistent_bytes)
        or is_other(old.ephemeral_bytes, new.ephemeral_bytes)
        or (old.overhead_bytes is None) is not (new.overhead_bytes is None)
        or (old.occupancy is None) is not (new.occupancy is None)
    )


def _leans(spec: JobSpec, key: ProfileKey) -> bool:
    """Whether what was not seen at a point is taken from others of its curve."""
    return key.gpus != spec.gpus or bool(spec.sizes)


def _sums(profiles: Sequence[Profile]) -> tuple[float, float]:
    occupancy = sum(p.occupancy.value for p in profiles if p.occupancy is not None)
    bandwidth = sum(p.bandwidth.value for p in profiles if p.bandwidth is not None)
    return occupancy, bandwidth
