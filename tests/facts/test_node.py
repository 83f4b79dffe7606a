"""The law of facts: of one moment, every screen tells the same of a node."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from colane.cli.nodes.command import members
from colane.cli.top.drawing import TopPicture, TopView
from colane.facts.node import booked_by, lanes_of
from colane.integrations.slurm.sinfo import LONG_STATES, USES, SlurmNode, _cores, state_of
from colane.lab.commands.topo import _machine
from colane.model.choices import MetricNames
from colane.model.hardware import Closed, Drain
from tests.cli.shots import empty_shot
from tests.facts import test_screens as of_jobs
from tests.server.harness import World, gpu, launched, node, report, world
from tests.server.test_metrics import scrape

DRAIN = Drain("ann", "new fan", 0.0, None)
KINDS: dict[str, dict[str, Any]] = {
    "up": {},
    "drained": {"drain": DRAIN},
    "about to end": {"notice": DRAIN},
    "taken out": {"closed": Closed("slow", 1e12)},
    "taken out, and drained": {"closed": Closed("slow", 1e12), "drain": DRAIN},
}
JOBS: dict[str, tuple[dict[str, Any], ...]] = {
    "none": (), "on one GPU": ({"gpus": 1},), "on all GPUs": ({"gpus": 2},), "on cores": ({"gpus": 0, "cores": 1},),
}  # fmt: skip


async def told(w: World) -> tuple[str, str, set[str], set[str]]:
    """Return what the node says of itself, `sinfo`, and the states that the two kinds of metrics count it in."""
    (one,) = await w.good("GET", "/nodes")
    found = await scrape(w)
    own = {dict(at)["state"] for at, value in found["colane_nodes"].items() if value}
    slurm = {name.removeprefix("slurm_nodes_") for name in found if name.startswith("slurm_nodes_") and found[name][()]}
    return one["state"], LONG_STATES[state_of(one)], own, slurm


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("jobs", JOBS)
async def test_every_screen_tells_the_same_state_of_a_node(kind: str, jobs: str) -> None:
    async with world(metrics_names=frozenset(MetricNames)) as w:
        await w.good("POST", "/node", {**node(), "gpus": [gpu(0), gpu(1)]})
        for job in JOBS[jobs]:
            await w.submit(**job)
            await w.good("POST", "/node/n1/report", report(launched(1)))
        nodes = w.service.driver.read_model.nodes
        nodes["n1"] = replace(nodes["n1"], node=replace(nodes["n1"].node, **KINDS[kind]))
        state, in_sinfo, own, slurm = await told(w)
        assert state == {"up": "up", "taken out": "taken-out"}.get(kind, "draining" if JOBS[jobs] else "drained")
        assert own == {"draining" if state == "drained" else state}
        use = {"none": "idle", "on all GPUs": "allocated"}.get(jobs, "mixed")
        leaves = "draining" if JOBS[jobs] else "drained"
        assert in_sinfo == (use if kind == "up" else leaves)
        counted = {use.replace("allocated", "alloc")}
        assert slurm == (counted if kind == "up" else counted | {"drain", leaves})
        nodes["n1"] = replace(nodes["n1"], lost=True)
        assert await told(w) == ("lost", "down", {"lost"}, {"down"})
        nodes["n1"] = replace(nodes["n1"], node=replace(nodes["n1"].node, agent_id=""))
        assert await told(w) == ("no-agent", "down", {"no-agent"}, {"down"})


@pytest.mark.parametrize("kind", of_jobs.KINDS)
async def test_every_screen_tells_the_same_jobs_on_a_gpu(kind: str) -> None:
    """One whose memory was moved to the host is on none: `sinfo` and the page said that its GPU is in use."""
    async with of_jobs.scene(kind) as (w, _):
        placed: dict[str, set[int]] = {}
        for job in await w.good("GET", "/live_jobs"):
            for place in job["facts"]["gpus"]:
                placed.setdefault(place, set()).add(job["id"])
        for one in await w.good("GET", "/nodes"):
            numbers = [gpu["index"] for gpu in one["gpus"]]
            on = {number: placed.get(f"{one['name']}/{number}", set()) for number in numbers}
            assert {number: here for number, here in on.items() if here} == {
                number: {job["id"] for jobs in lanes.values() for job in jobs}
                for number, lanes in lanes_of(one).items()
            }
            picture = TopPicture(empty_shot(), TopView())
            assert {cell.gpu["index"]: set(cell.ids) for cell in picture._cells(one)} == on
            told = {number: members(one, number).partition("on the host")[0] for number in numbers}
            names = {number: re.sub(r"lane [0-9]+:", "", text) for number, text in told.items()}
            assert {number: set(map(int, re.findall("[0-9]+", text))) for number, text in names.items()} == on
            assert {number: set(ids) for number, ids in _machine(one).jobs.items()} == on
            if one["state"] == "up":
                is_full = bool(on) and all(on.values())
                assert state_of(one) == ("alloc" if is_full else "mix" if one["jobs"] else "idle")


@pytest.mark.parametrize("kind", of_jobs.KINDS)
async def test_every_screen_tells_the_same_of_what_is_booked(kind: str) -> None:
    async with of_jobs.scene(kind, metrics_names=frozenset(MetricNames)) as (w, _):
        found = await scrape(w)
        for one in await w.good("GET", "/nodes"):
            booked, cores = one["booked"], len(one["cores"])
            at = (("node", one["name"]),)
            assert booked == booked_by(one["jobs"])
            assert found["slurm_node_cpus_alloc"][at] == booked["cores"]
            assert found["slurm_node_cpus_idle"][at] == cores - booked["cores"]
            assert found["slurm_node_memory_alloc_bytes"][at] == booked["host_memory_bytes"]
            assert found["slurm_node_gpus_alloc"][at] == booked["gpus"] == len(lanes_of(one))
            state = state_of(one)
            left = [cores - booked["cores"], 0] if state in USES else [0, cores - booked["cores"]]
            assert _cores([SlurmNode(one, state)]) == (booked["cores"], *left, cores)
            facts = " ".join(text for text, _ in TopPicture(empty_shot(), TopView())._facts(one))
            assert f" {booked['cores']}/{cores} core" in facts
