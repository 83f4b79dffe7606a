"""`colane nodes`: the machines and their devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from colane.cli import jobs, output
from colane.cli.output import Column

COLUMNS = (
    Column("NODE"),
    Column("GPU", is_number=True),
    Column("TYPE", may_fold=True),
    Column("MEMORY", is_number=True),
    Column("CORES", may_fold=True),
    Column("SHARING"),
    Column("STATE"),
    Column("JOBS", may_fold=True),
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("nodes", epilog="Example: [bold]colane nodes --json[/bold]")(list_nodes)


def list_nodes(as_json: output.Json = False) -> None:
    """List the machines, their devices and the jobs on them."""
    with jobs.client() as scheduler:
        nodes = scheduler.nodes()
    if as_json:
        output.print_json(nodes)
        return
    output.print_table(COLUMNS, [row for node in nodes for row in _rows(node)])
    for node in nodes:
        for message in node["messages"]:
            output.say(f"{node['name']}: {message}")
    if not nodes:
        output.note("no node has registered; start one with 'colane agent'")


def _rows(node: dict[str, Any]) -> Iterator[list[str]]:
    for gpu in node["gpus"]:
        yield [
            node["name"],
            str(gpu["index"]),
            gpu["type"],
            _memory(gpu),
            ranges(gpu["cores"]),
            gpu["sharing"],
            _state(node, gpu),
            " ".join(str(job["id"]) for job in node["jobs"] if _is_on(job, gpu["index"])),
        ]


def _memory(gpu: dict[str, Any]) -> str:
    foreign = f" ({output.size(gpu['foreign_bytes'])} foreign)" if gpu["foreign_bytes"] else ""
    return output.size(gpu["memory_bytes"]) + foreign


def _state(node: dict[str, Any], gpu: dict[str, Any]) -> str:
    if node["lost"]:
        return "lost"
    if not gpu["healthy"]:
        return "unhealthy"
    return "busy" if any(_is_on(job, gpu["index"]) for job in node["jobs"]) else "free"


def _is_on(job: dict[str, Any], gpu: int) -> bool:
    return any(slot["gpu"] == gpu for slot in job["slots"])


def ranges(cores: list[int]) -> str:
    """Return core numbers as Linux lists them: `0-3,8`."""
    spans: list[list[int]] = []
    for core in sorted(cores):
        if spans and core == spans[-1][1] + 1:
            spans[-1][1] = core
        else:
            spans.append([core, core])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
