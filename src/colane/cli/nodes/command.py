"""`colane nodes`: the machines and their devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import typer

from colane.cli import output
from colane.cli.formatting import Format, printed
from colane.cli.jobs import objects as jobs
from colane.cli.nodes.drain import state_text
from colane.cli.nodes.reserve import kept_texts
from colane.cli.output import ScreenColumn
from colane.facts.node import lanes_of
from colane.model.versions import own_version
from colane.model.words import percent

if TYPE_CHECKING:
    from colane.api.nodes import GpuObject, NodeObject


# -- Which of Colane's mechanisms are on, and why others are off, in one line.


def on_and_off(told: Mapping[str, str]) -> str:
    """Return which are on, then the others with why."""
    on = [
        name + value.removeprefix("on").replace(": ", " ", 1) for name, value in told.items() if value.startswith("on")
    ]
    off = [f"{name} ({value.removeprefix('off: ')})" for name, value in told.items() if not value.startswith("on")]
    return f"on: {', '.join(on) or 'none'}" + (f"; off: {', '.join(off)}" if off else "")


COLUMNS = (
    ScreenColumn("NODE"),
    ScreenColumn("GPU", is_number=True),
    ScreenColumn("TYPE", may_fold=True),
    ScreenColumn("MEMORY", is_number=True),
    ScreenColumn("CORES", may_fold=True),
    ScreenColumn("SHARING"),
    ScreenColumn("STATE"),
    ScreenColumn("VERSION"),
    ScreenColumn("JOBS", may_fold=True),
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("nodes", epilog="Example: [bold]colane nodes --json[/bold]")(list_nodes)


def list_nodes(as_json: output.Json = False, template: Format = None) -> None:
    """List the machines, their devices and the jobs on them.

    A device is idle when none of its jobs has used it for long.

    Jobs in one lane of a device take turns, those in different lanes run at once. Jobs without GPUs stand in a line of
    their own, with the cores they book. The version is that of the node's agent, with a ! where it is not the
    scheduler's. The last line says which mechanisms are on, and why others are off.
    """
    with jobs.client() as scheduler:
        nodes = scheduler.nodes()
        is_screen = not as_json and template is None
        idle = jobs.idle_of(scheduler) if is_screen else {}
        mechanisms = scheduler.health().get("mechanisms", {}) if is_screen else {}
    if printed(template, as_json, nodes):
        return
    output.print_table(COLUMNS, [row for node in nodes for row in _rows(node, idle)])
    for node in nodes:
        if differs(node):
            versions = f"{node.get('agent_version') or 'an unknown version'}, the scheduler {node['scheduler_version']}"
            output.say(f"{node['name']}: its agent is {versions}")
        if node.get("drain") or node.get("notice"):
            output.say(f"{node['name']}: {state_text(node)}")
        for message in [*kept_texts(node), *map(output.clean, node["messages"])]:
            output.say(f"{node['name']}: {message}")
    theirs = nodes[0].get("scheduler_version") if nodes else None
    if theirs is not None and theirs != own_version():
        output.note(f"the scheduler is Colane {theirs}, this command {own_version()}")
    if mechanisms:
        output.say(f"mechanisms {on_and_off(mechanisms)}")
    if not nodes:
        output.note("no node has registered yet: an agent takes some seconds to start (colane up, or colane agent)")


def _rows(node: NodeObject, idle: Mapping[int, float]) -> Iterator[list[str]]:
    for gpu in node["gpus"]:
        foreign = f" ({output.size(gpu['foreign_bytes'])} foreign)" if gpu["foreign_bytes"] else ""
        yield [
            node["name"],
            str(gpu["index"]),
            gpu["type"],
            (output.size(gpu["memory_bytes"]) + foreign),
            ranges(gpu["cores"]),
            gpu["sharing"],
            _state(node, gpu, idle),
            _version(node),
            members(node, gpu["index"]),
        ]
    beside = [job for job in node["jobs"] if not job["slots"]]
    if beside:
        names = " ".join(str(job["id"]) for job in beside)
        cores = ranges([core for job in beside for core in job["cores"]])
        yield [node["name"], "", "no GPU", "", cores, "", "lost" if node["lost"] else "busy", _version(node), names]


def differs(node: NodeObject) -> bool:
    """Whether a node's agent is of another version than the scheduler; an older scheduler does not tell."""
    scheduler = node.get("scheduler_version")
    return scheduler is not None and node.get("agent_version") != scheduler


def _version(node: NodeObject) -> str:
    return (node.get("agent_version") or "?") + " !" * differs(node)


def _state(node: NodeObject, gpu: GpuObject, idle: Mapping[int, float]) -> str:
    if node["lost"]:
        return "lost" if node["agent_id"] else "no agent"
    if not gpu["healthy"]:
        return "unhealthy"
    drained = "drained" if node.get("drain") or node.get("notice") else "taken out" if node.get("closed") else "free"
    here = [job["id"] for jobs in lanes_of(node).get(gpu["index"], {}).values() for job in jobs]
    state = "busy" if here else drained
    if here and all(job in idle for job in here):  # none of its jobs uses it
        state = f"idle {output.duration(min(idle[job] for job in here))}"
    return state + (f" (others use {percent(gpu['others_ratio'])})" if gpu.get("others_ratio") else "")


def members(node: NodeObject, gpu: int) -> str:
    """Return the jobs on a GPU; of several, lane by lane: `lane 0: 3 5, lane 1: 4`. Jobs on the host stand last."""
    names = [
        str(job["id"])
        for job in node["jobs"]
        if job.get("on_host") and job["slots"][:1] and job["slots"][0]["gpu"] == gpu
    ]
    return ", ".join(filter(None, [_on_gpu(node, gpu), (f"on the host: {' '.join(names)}" if names else "")]))


def _on_gpu(node: NodeObject, gpu: int) -> str:
    lanes = {
        lane: [str(job["id"]) + "(paused)" * bool(job.get("paused")) for job in jobs]
        for lane, jobs in lanes_of(node).get(gpu, {}).items()
    }
    if sum(map(len, lanes.values())) <= 1:
        return "".join(name for names in lanes.values() for name in names)
    return ", ".join(f"lane {lane}: {' '.join(names)}" for lane, names in lanes.items())


def ranges(cores: list[int]) -> str:
    """Return core numbers as Linux lists them: `0-3,8`."""
    spans: list[list[int]] = []
    for core in sorted(cores):
        if spans and core == spans[-1][1] + 1:
            spans[-1][1] = core
        else:
            spans.append([core, core])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
