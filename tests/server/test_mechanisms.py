"""Which mechanisms a scheduler says are on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colane.core.config import CoreConfig
from colane.cpu.config import TuningConfig
from colane.cpu.contention import ContentionConfig
from colane.model.hardware import Node
from colane.model.limits import GroupQuota, Limits, Quotas
from colane.model.progress import BY_CPU_TIME, BY_RESCTRL
from colane.policyfiles.guard import guarded
from colane.scheduling import registry
from colane.server.views.mechanisms import mechanisms_view
from tests.server.harness import node, world
from tests.simulate.scenes import node as machine

OF_POLICY = ("co-location", "lanes", "topology", "preemption", "arrays", "elastic sizes")


@pytest.mark.parametrize(
    ("policy", "on"),
    [
        ("fifo", set()),
        ("srtf", {"preemption"}),
        ("colocate", {"co-location", "preemption"}),
        ("pack", {"lanes", "preemption"}),
        ("topo-aware-p", {"topology", "preemption", "co-location"}),
        ("f-sched", {"elastic sizes", "preemption"}),
        ("colane", {"co-location", "topology", "preemption", "elastic sizes"}),
        ("colane:arrays=yes", {"co-location", "topology", "preemption", "arrays", "elastic sizes"}),
        ("coda", {"arrays"}),
    ],
)
def test_a_policys_parts_say_what_is_on(policy: str, on: set[str]) -> None:
    told = mechanisms_view(registry.create(policy), CoreConfig(), [], [])
    assert {name for name in OF_POLICY if told[name] == "on"} == on
    served = {"lanes"} if policy in {"colocate", "colane", "colane:arrays=yes"} else set[str]()
    assert {name for name in OF_POLICY if told[name] == "on: beside servers"} == served
    off = set(OF_POLICY) - on - served
    assert all(told[name].startswith(f"off: policy {policy} ") for name in off)


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
