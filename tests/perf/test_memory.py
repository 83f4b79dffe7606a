"""What is booked of a GPU's memory, by who measured it."""

from __future__ import annotations

from dataclasses import replace

from colane.model.job_spec import JobSpec
from colane.model.profile import Memory, Profile, ProfileKey, Value, ValueSource
from colane.model.progress import Progress
from colane.perf.beliefs import Beliefs, declared
from colane.perf.config import PerfConfig
from colane.perf.estimates import Load
from colane.perf.observe import memory_seen

GPU = "H200"
PLAIN = PerfConfig(persistent_factor=1, total_factor=1)


def profile(family: str) -> Profile:
    return Profile(
        key=ProfileKey(family, None, 1, GPU),
        persistent_bytes=Value(1000.0, ValueSource.MEASURED),
        ephemeral_bytes=Value(500.0, ValueSource.MEASURED),
    )


def spec(family: str) -> JobSpec:
    return JobSpec(name=family, family=family)


def test_overhead_seen_on_a_gpu_type_is_booked_with_what_an_allocator_declared() -> None:
    """A context is on the device whoever counted the blocks; what was measured holds it already."""
    seen = replace(profile("seen"), overhead_bytes=Value(400.0, ValueSource.MEASURED))
    beliefs = Beliefs(PLAIN, [seen, declared(profile("told")), declared(replace(seen, key=profile("shared").key))])
    assert beliefs.memory(spec("seen"), GPU) == Memory(1000, 500)
    assert beliefs.memory(spec("told"), GPU) == Memory(1400, 500)
    assert beliefs.memory(spec("shared"), GPU) == Memory(1000, 500), "declared as a device saw it"
    assert beliefs.memory(spec("told"), "other GPU") is None


def test_terms_stay_while_only_speed_and_the_number_of_samples_change() -> None:
    known = replace(profile("a"), step_s=Value(1.0, ValueSource.MEASURED))
    beliefs = Beliefs(PLAIN, [known])
    before = beliefs.terms(spec("a"), GPU)
    beliefs.learn_profile(replace(known, step_s=Value(2.0, ValueSource.MEASURED)))
    assert beliefs.terms_version == 0
    assert beliefs.terms(spec("a"), GPU) is before
    beliefs.learn_profile(replace(known, persistent_bytes=Value(2000.0, ValueSource.MEASURED)))
    assert beliefs.terms_version == 1
    assert beliefs.terms(spec("a"), GPU).memory == Memory(2000, 500)
    beliefs.learn_profile(replace(known, occupancy=Value(0.5, ValueSource.MEASURED)))
    assert beliefs.terms_version == 2
    assert beliefs.terms(spec("a"), GPU).load == Load(0.5, 0.0)


def test_a_larger_overhead_that_is_learnt_later_is_booked_from_then_on() -> None:
    beliefs = Beliefs(PLAIN, [declared(profile("told"))])
    assert beliefs.memory(spec("told"), GPU) == Memory(1000, 500)
    progress = Progress(at_s=5.0, persistent_bytes=1000, peak_bytes=1500, memory_by="nvml", overhead_bytes=300)
    learnt = memory_seen(profile("new").key, progress, None)
    assert learnt is not None
    beliefs.learn_profile(learnt)
    assert beliefs.memory(spec("told"), GPU) == Memory(1300, 500)
