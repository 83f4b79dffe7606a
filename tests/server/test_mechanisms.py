"""Which mechanisms a scheduler says are on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

import pytest

from colane.core.cluster.state import ClusterState
from colane.core.config import CoreConfig
from colane.core.core import Core
from colane.core.events import Launched, NodeRegistered, Progressed, Submitted, Tick
from colane.cpu.config import TuningConfig
from colane.cpu.contention import ContentionConfig
from colane.model import topologies
from colane.model.hardware import GpuId, Node
from colane.model.job import JobId, JobKind, JobSpec, JobState
from colane.model.job_spec import CheckpointContract
from colane.model.limits import GroupQuota, Limits, Quotas
from colane.model.placement import Placement
from colane.model.plan import Park, Resize, Start, Stop
from colane.model.progress import BY_CPU_TIME, BY_RESCTRL, Progress
from colane.perf.beliefs import Beliefs
from colane.policyfiles.guard import guarded
from colane.scheduling import registry
from colane.server.views.mechanisms import mechanisms_view
from tests.core.worlds import make_node, make_profile
from tests.server.harness import node, world
from tests.simulate.scenes import node as machine

COLOCATES = {"co-location": "on", "preemption": "on", "lanes": "on: beside servers"}
COLANE = {**COLOCATES, "topology": "on", "elastic sizes": "on"}
OF_POLICY = ("co-location", "lanes", "topology", "preemption", "arrays", "elastic sizes")


@pytest.mark.parametrize(
    ("policy", "on"),
    [
        ("fifo", {}),
        ("srtf", {"preemption": "on"}),
        ("colocate", COLOCATES),
        ("pack", {"co-location": "on: in lanes", "lanes": "on", "preemption": "on"}),
        ("pack:take_turns=no", {"co-location": "on: in lanes", "lanes": "on: without turns", "preemption": "on"}),
        ("pack:share_when=never", {"preemption": "on"}),
        ("fair", {"lanes": "on", "preemption": "on"}),
        ("max-min", {"preemption": "on"}),
        ("max-min-packed", COLOCATES),
        ("topo-aware-p", {"topology": "on", "preemption": "on"}),
        (
            "topo-aware-share",
            {"topology": "on", "preemption": "on", "co-location": "on", "lanes": "on: beside servers"},
        ),
        ("f-sched", {"elastic sizes": "on", "preemption": "on"}),
        ("colane", COLANE),
        ("colane:arrays=yes", {**COLANE, "arrays": "on"}),
        ("coda", {"arrays": "on", "preemption": "on"}),
        ("fifo:preempts=priority", {"preemption": "on"}),
        ("colane:preempts=never", COLANE),
        ("colane:lanes=own", {**COLANE, "lanes": "on"}),
        ("colane:nodes=arrays", {**COLANE, "arrays": "on: of GPUs"}),
        ("fifo:nodes=arrays", {"arrays": "on: of GPUs"}),
    ],
)
def test_a_policys_parts_say_what_is_on(policy: str, on: dict[str, str]) -> None:
    told = mechanisms_view(registry.create(policy), CoreConfig(), [], [])
    assert {name: told[name] for name in OF_POLICY if told[name].startswith("on")} == on
    assert all(told[name].startswith("off: ") for name in OF_POLICY if name not in on)
    takes_turns = "off: jobs on one GPU take turns in one lane"
    assert (told["co-location"] == takes_turns) is (policy == "fair")


def by_mps(node: Node, gpus: int) -> Node:
    return replace(node, gpus=tuple(replace(gpu, sharing="mps") if gpu.index < gpus else gpu for gpu in node.gpus))


def test_what_machines_and_settings_have_is_said() -> None:
    policy = registry.create("colane")
    bare = mechanisms_view(policy, CoreConfig(), [], [])
    assert bare["mps"] == "off: no GPU"
    assert (bare["cores"], bare["bandwidth"]) == ("off: --core-tuner is off", "off: --contention is off")
    config = CoreConfig(tuning=TuningConfig(), contention=ContentionConfig.of(10.0))
    full = mechanisms_view(policy, config, [by_mps(machine("a", 4), 3)], [BY_RESCTRL])
    assert (full["mps"], full["cores"], full["bandwidth"]) == ("on: 3 of 4 GPUs", "on", "on")
    assert mechanisms_view(policy, config, [machine("a", 4)], [])["mps"].startswith("off: no GPU is shared by MPS")
    assert mechanisms_view(policy, config, [], [BY_CPU_TIME])["bandwidth"] == "on: estimated"


@pytest.mark.parametrize(
    ("guaranteed", "told"),
    [
        ({}, None),
        ({"lab": 3, "sim": 1}, "on: 4 of 4 GPUs"),
        (
            {"lab": 5},
            "on: 5 to group lab are more than the 4 GPUs there: lower guaranteed_gpus (--limits) or",
        ),
        ({"lab": 3, "sim": 2}, "on: 3 to group lab and 2 to group sim are more than the 4 GPUs there"),
    ],
)
def test_what_groups_are_guaranteed_is_held_against_what_is_there(guaranteed: dict[str, int], told: str | None) -> None:
    groups = {name: GroupQuota(Limits(), frozenset({name}), gpus) for name, gpus in guaranteed.items()}
    config = CoreConfig(limits=Quotas(groups=groups))
    found = mechanisms_view(registry.create("colane"), config, [machine("a", 4)], []).get("guarantees")
    assert found is None if told is None else (found or "").startswith(told)


def test_how_to_have_arrays_is_said_where_a_policy_may_have_them() -> None:
    told = {name: mechanisms_view(registry.create(name), CoreConfig(), [], [])["arrays"] for name in ("fifo", "colane")}
    assert "arrays=yes" in told["colane"]
    assert "arrays=yes" not in told["fifo"]


def test_of_a_users_own_policy_nothing_is_claimed() -> None:
    own = guarded("docs/examples/fewest_running.py:FewestRunning")
    told = mechanisms_view(own, CoreConfig(), [], [])
    assert {told[name] for name in OF_POLICY} == {f"as policy {own.name} has it"}


async def test_health_says_it() -> None:
    async with world(policy="pack") as w:
        await w.good("POST", "/node", node(gpus=1))
        told = (await w.good("GET", "/health"))["mechanisms"]
        assert told["lanes"] == "on"
        assert told["cores"] == "off: --core-tuner is off"


NUMBERS = ("jobs_per_gpu_max=1", "jobs_per_gpu_max=3")
"""Numbers that say what a policy does, where it has them."""


def refusal(text: str) -> str:
    """Why there is no such policy; empty where there is one."""
    try:
        registry.create(text)
    except registry.UnknownPolicyError as error:
        return str(error)
    return ""


def asked(name: str) -> Iterator[str]:
    """Every option of a policy with every value that is a word, as its refusals list them."""
    known = refusal(f"{name}:zzz=1").partition("; it has ")[2].split(", ")
    for option in known:
        wanted = refusal(f"{name}:{option}=?").partition(" must be ")[2].partition(", got ")[0]
        words = ["yes", "no"] if "yes or no" in wanted else ["none"] if wanted.endswith("or none") else []
        words += wanted.partition("one of ")[2].split(", ") if "one of " in wanted else []
        yield from [f"{option}={word}" for word in words if " " not in word]
    yield from [number for number in NUMBERS if number.partition("=")[0] in known]


@cache
def variants() -> Mapping[str, Mapping[str, str]]:
    """What is told of every name, and of every row with every option that it has."""
    texts = [f"{name}:{option}" for name in registry.POLICIES for option in asked(name) if option != "solver=lp"]
    return {
        text: mechanisms_view(registry.create(text), CoreConfig(), [], [])
        for text in (*registry.NAMES, *texts)
        if not refusal(text)
    }


@cache
def full(text: str) -> Mapping[str, str]:
    """What is told of a policy where machines and settings have everything."""
    config = CoreConfig(tuning=TuningConfig(), contention=ContentionConfig.of(10.0))
    return mechanisms_view(registry.create(text), config, [by_mps(machine("a", 4), 4)], [BY_RESCTRL])


def waits_for_cores(text: str) -> bool:
    """Whether a job with GPUs waits where others have the cores that it asks for."""
    core = Core(registry.create(text), ClusterState(Beliefs()), CoreConfig(tuning=TuningConfig()))
    core.step([NodeRegistered(machine("a", 1))], 0.0)
    core.step([Submitted(JobId(1), JobSpec(name="c", family="c", gpus=0, cores=6))], 1.0)
    core.step([Submitted(JobId(2), replace(TRAINS, cores=8))], 2.0)
    return not core.state.jobs[JobId(2)].gpus_held


def test_whether_cores_are_waited_for_is_as_it_is_said() -> None:
    said = {text: full(text)["cores"] == "on: jobs with GPUs wait for theirs" for text in variants()}
    assert {text: waits_for_cores(text) for text in said} == said
    assert {full(text)["bandwidth"] for text in said} == {"on"}, "jobs are held back under every policy"


def off(name: str) -> list[str]:
    """Policies under which it is said to be off."""
    return [text for text, told in variants().items() if told[name].startswith("off")]


def job(number: int, kind: JobKind) -> JobSpec:
    family = "ab"[number % 2]
    return JobSpec(name="j", family=family, gpus=1, batch_size=64, kind=kind, steps_total=10_000, preemptible=True)


def shares(policy: str, kinds: Sequence[JobKind]) -> tuple[bool, bool]:
    """Whether jobs of small, well-known families run at once on a GPU under it, and whether they take turns there."""
    profiles = [make_profile(family, "V100", 0.2, 10**9) for family in ("a", "b")]
    core = Core(registry.create(policy), ClusterState(Beliefs(profiles=profiles)))
    core.step([NodeRegistered(make_node("n0", 1))], 0.0)
    at_once = turns = False
    for number, kind in enumerate(kinds, 1):
        now_s = 1_000.0 * number
        core.step([Submitted(JobId(number), job(number, kind))], now_s)
        started = [one for one in core.state.jobs.values() if one.state is JobState.ASSIGNED]
        core.step([Launched(one.id, one.attempt, 1, now_s + 1, "n0") for one in started], now_s + 1)
        sample = Progress(at_s=now_s + 500, steps=500, first_step_s=now_s + 2, last_step_s=now_s + 500, step_mean_s=0.1)
        running = [one for one in core.state.jobs.values() if one.gpus_held]
        core.step([Progressed(one.id, one.attempt, sample, "n0") for one in running], now_s + 500)
        core.step([Tick()], now_s + 900)
        lanes = [booking.lane for booking in core.state.gpus[GpuId("n0", 0)].bookings]
        at_once, turns = at_once or len(set(lanes)) > 1, turns or len(set(lanes)) < len(lanes)
    return at_once, turns


@pytest.mark.parametrize(
    "kinds", [[JobKind.TRAINING] * 4, [JobKind.INFERENCE, JobKind.TRAINING] * 2], ids=["training", "servers"]
)
def test_what_is_off_never_happens(kinds: Sequence[JobKind]) -> None:
    alone, in_no_lane = off("co-location"), off("lanes")
    found = {policy: shares(policy, kinds) for policy in dict.fromkeys([*alone, *in_no_lane, "pack", "fair"])}
    assert [policy for policy in alone if found[policy][0]] == []
    assert [policy for policy in in_no_lane if found[policy][1]] == []
    assert {text for text in variants() if full(text)["mps"].startswith("off")} == set(alone), "nothing to run by it"
    assert (found["pack"][0], found["fair"][1]) == (True, True), "the world shows both"


TRAINS = JobSpec(name="t", family="a", batch_size=64, steps_total=10**7, preemptible=True)
SHORT = replace(TRAINS, steps_total=10_000)
SCENES = (
    (replace(TRAINS, gpus=2), replace(SHORT, gpus=2), replace(SHORT, gpus=2, priority=1)),
    (
        replace(TRAINS, cores=4),
        JobSpec(name="c", family="c", gpus=0, cores=10, abortable=True),
        replace(SHORT, cores=8),
    ),
)
"""What comes to a node of two GPUs and 16 cores: to long training what is short or urgent; to cores that are lent
training that wants them."""


def stops(policy: str) -> bool:
    """Whether a job is stopped or parked for another in one of the scenes."""
    return any(_stops(policy, scene) for scene in SCENES)


def _stops(policy: str, scene: Sequence[JobSpec]) -> bool:
    core = Core(registry.create(policy), ClusterState(Beliefs(profiles=[make_profile("a", "V100", 0.2, 10**9)])))
    core.step([NodeRegistered(make_node("n0", 2))], 0.0)
    for number, spec in enumerate(scene, 1):
        now_s = 50_000.0 * number
        outcomes = [core.step([Submitted(JobId(number), spec)], now_s)]
        started = [one for one in core.state.jobs.values() if one.state is JobState.ASSIGNED]
        outcomes.append(core.step([Launched(one.id, one.attempt, 1, now_s + 1, "n0") for one in started], now_s + 1))
        sample = Progress(at_s=now_s + 500, steps=500, first_step_s=now_s + 2, last_step_s=now_s + 500, step_mean_s=0.2)
        running = [one for one in core.state.jobs.values() if one.gpus_held]
        outcomes.append(core.step([Progressed(one.id, one.attempt, sample, "n0") for one in running], now_s + 500))
        outcomes += [core.step([Tick()], now_s + later_s) for later_s in (900, 2_000, 40_000)]
        actions = [one.action for outcome in outcomes for one in outcome.decisions]
        if any(isinstance(action, Stop | Park) for action in actions):
            return True
    return False


def test_where_preemption_is_off_no_job_is_stopped_for_another() -> None:
    assert [policy for policy in off("preemption") if stops(policy)] == []
    assert [policy for policy in ("srtf", "max-min", "coda", "colane", "f-sched") if not stops(policy)] == []


SHORT_S, LONG_S = 100.0, 50_000.0  # between jobs: none has waited long, or all have
WIDE = replace(TRAINS, gpus=2)
SINGLE = replace(TRAINS, gpus=1)
ELASTIC = replace(TRAINS, gpus=2, sizes=(1, 2), checkpoint=CheckpointContract("SIGUSR1", 9.0))
WITHOUT_GPUS = JobSpec(name="c", family="c", gpus=0, cores=8)


def started(policy: str, machine: Node, specs: Sequence[JobSpec], gap_s: float) -> list[tuple[int, Placement]]:
    """What is decided of places while these come to a machine, so far apart: job and place, in order."""
    core = Core(registry.create(policy), ClusterState(Beliefs(profiles=[make_profile("a", "V100", 0.9, 10**9)])))
    core.step([NodeRegistered(machine)], 0.0)
    found: list[tuple[int, Placement]] = []
    for number, spec in enumerate(specs, 1):
        now_s = gap_s * number
        outcomes = [core.step([Submitted(JobId(number), spec)], now_s)]
        begun = [one for one in core.state.jobs.values() if one.state is JobState.ASSIGNED]
        outcomes.append(core.step([Launched(one.id, one.attempt, 1, now_s + 1, "n0") for one in begun], now_s + 1))
        outcomes.append(core.step([Tick()], now_s + 0.9 * gap_s))
        actions = [one.action for outcome in outcomes for one in outcome.decisions]
        found += [(int(a.job), a.placement) for a in actions if isinstance(a, Start | Resize)]
    return found


def places(policy: str, *, is_connected: bool) -> list[list[int]]:
    """GPUs of each job, on a machine whose GPUs are connected in pairs, or of which nothing is known."""
    machine = make_node("n0", 4)
    machine = replace(machine, topology=topologies.minsky() if is_connected else None)
    specs = [SINGLE, WIDE, replace(SINGLE, priority=1)]
    return [
        sorted(slot.gpu.number for slot in placement.slots) for _, placement in started(policy, machine, specs, LONG_S)
    ]


def test_where_topology_is_off_places_do_not_depend_on_it() -> None:
    depends = [text for text in off("topology") if places(text, is_connected=True) != places(text, is_connected=False)]
    assert depends == []
    assert all(places(text, is_connected=True) != places(text, is_connected=False) for text in ("topo-aware", "colane"))


def resizes(policy: str) -> bool:
    """Whether a job gets another number of GPUs where three of one or two come to three."""
    counts: dict[int, set[int]] = {}
    for number, place in started(policy, make_node("n0", 3), [ELASTIC] * 3, LONG_S):
        counts.setdefault(number, set()).add(len(place.slots))
    return any(len(found) > 1 for found in counts.values())


def test_where_elastic_sizes_are_off_a_job_keeps_as_many_gpus_as_it_started_with() -> None:
    assert [text for text in off("elastic sizes") if resizes(text)] == []
    assert resizes("f-sched")


def test_where_arrays_are_off_a_job_without_gpus_starts_where_cores_are_free() -> None:
    def starts(policy: str) -> bool:
        """Beside a job on one of two GPUs: the twelve cores that it leaves, some of which the other may want."""
        specs = [replace(SINGLE, cores=4), replace(WITHOUT_GPUS, cores=12)]
        return 2 in [job for job, _ in started(policy, make_node("n0", 2), specs, SHORT_S)]

    assert [text for text in off("arrays") if not starts(text)] == []
    assert not starts("colane:arrays=yes")
