"""Profiles taken through a real scheduler and agent, with jobs that only sleep."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from colane.api.jobs import JobObject
from colane.client.client import Client
from colane.client.knowledge import (
    decode_measurement,
    decode_profile,
    encode_measurement,
    encode_profile,
    read_measurements,
    read_profiles,
)
from colane.client.profiling import ProfileError, Profiler, Rules, Subject, gpu_type_of, missing
from colane.engines.local import LocalConfig, LocalEngine
from colane.model.profile import ProfileKey

pytestmark = pytest.mark.live

STEPPER = textwrap.dedent("""
    import sys, time
    import colane.adaptor as colane
    steps = colane.attach()
    for _ in range(int(sys.argv[2])):
        time.sleep(float(sys.argv[1]))
        steps.step()
""")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    state = tmp_path_factory.mktemp("state")
    config = LocalConfig.of(state, "n", devices="cpu:1:8GB", heartbeat=0.1, policy="fifo")
    with LocalEngine(config) as stack, stack.client() as scheduler:
        yield scheduler


def rules(**settings: Any) -> Rules:
    """The agent of these tests reports every 0.1 s."""
    return Rules(**{"reports_s": 0.5, "look_every_s": 0.05, **settings})


def subject(family: str, step_s: float = 0.01, steps: int = 1_000_000, code: str = STEPPER) -> Subject:
    command = [sys.executable, "-c", code, str(step_s), str(steps)]
    request = {"command": command, "family": family, "name": family, "gpu_type": "cpu", "workdir": str(Path.cwd())}
    return Subject(key=ProfileKey(family, None, 1, "cpu"), request=request)


def test_alone_then_together(client: Client) -> None:
    seen: list[str] = []

    def tell(doing: str, jobs: Sequence[JobObject]) -> None:
        seen.append(doing)
        assert jobs

    profiler = Profiler(client, rules(steps=20), tell)
    a, b = subject("a"), subject("b", step_s=0.03)
    assert missing([a, b, a], read_profiles(client)) == [a, b]
    run = profiler.alone(a)
    assert run.profile.step_s is not None
    assert run.profile.step_s.samples >= 10
    assert 0.01 <= run.profile.step_s.value < 0.03
    assert run.sampled_step_s == pytest.approx(0.01, abs=0.01)
    assert client.job(run.job)["why"] == "steps-reached"
    with pytest.raises(ProfileError, match="b: has no profile yet"):
        profiler.together([a, b])
    profiler.alone(b)
    assert missing([a, b], read_profiles(client)) == []

    together = profiler.together([b, a])
    # Two jobs that sleep do not disturb one another: the sum of 10 and 30 ms against 30 ms.
    assert together.measurement.delta == pytest.approx(4 / 3, abs=0.25)
    assert [key.family for key in together.measurement.keys] == ["a", "b"]
    assert min(together.measurement.steps) >= 10
    assert together.measurement.sharing == "cpu"
    assert together.notes == ()
    assert [client.job(job)["state"] for job in together.jobs] == ["cancelled", "cancelled"]
    assert {"a alone", "b + a together"} <= set(seen)
    assert client.live_jobs() == []

    again = read_measurements(client)[-1]
    assert decode_measurement(encode_measurement(again)) == again
    profile = read_profiles(client)[a.key]
    assert decode_profile(encode_profile(profile)) == profile


def test_a_job_seen_once_is_run_again_for_more_steps(client: Client) -> None:
    """At a step a millisecond, the agent's first look finds 20 steps done; the second run is long enough."""
    run = Profiler(client, rules(steps=20)).alone(subject("fast", step_s=0.001))
    assert run.profile.step_s is not None
    assert run.profile.step_s.samples >= 10


def test_a_job_that_reports_no_step_is_told_so(client: Client) -> None:
    with pytest.raises(ProfileError, match=r"ended without reporting a step; add 'import colane\.adaptor"):
        Profiler(client, rules()).alone(subject("silent", code="pass"))
    with pytest.raises(ProfileError, match=r"reported no step in \d+ s; add"):
        Profiler(client, rules(first_step_max_s=0.3)).alone(subject("mute", code="import time; time.sleep(60)"))
    assert {job["state"] for job in client.live_jobs()} <= {"stopping"}


def test_a_job_that_ends_too_soon_or_fails_is_told_so(client: Client) -> None:
    with pytest.raises(ProfileError, match=r"short: job \d+ made 3 steps, too few"):
        Profiler(client, rules()).alone(subject("short", steps=3))
    with pytest.raises(ProfileError, match=r"bad: job \d+ ended as failed: exited with code 7"):
        Profiler(client, rules()).alone(subject("bad", code="raise SystemExit(7)"))


def test_a_set_one_of_which_fails_stops_the_others(client: Client) -> None:
    profiler = Profiler(client, rules(steps=10))
    good, bad = subject("good"), subject("breaks", step_s=0.02)
    profiler.alone(good)
    profiler.alone(bad)
    broken = Subject(key=bad.key, request={**bad.request, "command": [sys.executable, "-c", "raise SystemExit(3)"]})
    with pytest.raises(ProfileError, match="exited with code 3"):
        profiler.together([good, broken])
    assert client.live_jobs() == []


def test_nothing_goes_on_when_the_time_is_used_up(client: Client) -> None:
    profiler = Profiler(client, rules(steps=10_000, deadline_s=time.time() + 1))
    with pytest.raises(ProfileError, match="its time is used up"):
        profiler.alone(subject("late"))
    assert all(job["state"] in {"stopping", "queued"} for job in client.live_jobs())


def test_the_gpu_type_has_to_be_named_where_there_are_several() -> None:
    def node(*kinds: str, lost: bool = False) -> Any:
        return {"pool": "default", "lost": lost, "gpus": [{"type": kind} for kind in kinds]}

    assert gpu_type_of([node("A", "A"), node("B", lost=True)], None) == "A"
    assert gpu_type_of([node("A", "B")], "B") == "B"
    with pytest.raises(ProfileError, match="--gpu-type: A, B"):
        gpu_type_of([node("A"), node("B")], None)
    with pytest.raises(ProfileError, match="no node of pool default"):
        gpu_type_of([node("B", lost=True)], None)
