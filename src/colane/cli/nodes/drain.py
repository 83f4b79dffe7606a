"""`colane drain`: let a node take no new jobs, and its jobs go; `colane undrain` takes it back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from colane.cli import output
from colane.cli.completing import complete_nodes
from colane.cli.errors import MisuseError
from colane.cli.jobs import objects as jobs
from colane.model.quantities import parse_duration_s

if TYPE_CHECKING:
    from colane.api.nodes import DrainObject, NodeObject
    from colane.client.client import Client

LOOK_EVERY_S: Final = 0.5

NodesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="NODE...", autocompletion=complete_nodes, show_default=False, help="Names, as colane nodes shows them."
    ),
]


def register(app: typer.Typer) -> None:
    """Add both commands."""
    app.command("drain", epilog="Example: [bold]colane drain gpu7 --deadline 10m --reason 'new fan' --wait[/bold]")(
        drain
    )
    app.command("undrain", epilog="Example: [bold]colane undrain gpu7[/bold]")(undrain)


Deadline = Annotated[
    str | None,
    typer.Option(
        "--deadline",
        metavar="TIME",
        show_default="none",
        help="Stop jobs that are still there after so long (90s, 10m), and queue them again; else they finish.",
    ),
]


def drain(
    node: NodesArgument,
    deadline: Deadline = None,
    reason: Annotated[str, typer.Option("--reason", help="Shown with the node and its jobs.")] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Return when no job is left there.")] = False,
    as_json: output.Json = False,
) -> None:
    """Let nodes take no new jobs, and let the jobs that are there go on elsewhere.

    Those that may be stopped save their state, leave, and go on where there is room for them, at another size if they
    have several. The others finish, as with Slurm, unless there is a deadline. It holds until colane undrain, whatever
    is restarted meanwhile.
    """
    deadline_s = None if deadline is None else seconds(deadline)
    with jobs.client() as scheduler:
        _ask(scheduler, node, lambda name: scheduler.drain(name, deadline_s=deadline_s, reason=reason))
        while wait and any(scheduler.node(name)["state"] == "draining" for name in node):
            time.sleep(LOOK_EVERY_S)
        _show([scheduler.node(name) for name in node], as_json=as_json)


def undrain(node: NodesArgument, as_json: output.Json = False) -> None:
    """Let nodes take jobs again.

    A node whose own agent has notice of its end (a spot instance, a shutdown) stays drained until the agent takes that
    back.
    """
    with jobs.client() as scheduler:
        _ask(scheduler, node, scheduler.undrain)
        _show([scheduler.node(name) for name in node], as_json=as_json)


def seconds(text: str) -> float:
    """Return the time of --deadline. Raises MisuseError: it is none."""
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise MisuseError(f"--deadline: {error}") from error


def _ask(scheduler: Client, names: list[str], ask: Callable[[str], None]) -> None:
    """Ask of all or none that are unknown. Raises MisuseError: there is no such node."""
    known = {each["name"] for each in scheduler.nodes()}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise MisuseError(f"there is no node {', '.join(unknown)}; colane nodes lists those there are")
    for name in names:
        ask(name)


def _show(nodes: list[NodeObject], *, as_json: bool) -> None:
    if as_json:
        output.print_json([{name: node[name] for name in ("name", "state", "drain", "notice")} for node in nodes])
        return
    for node in nodes:
        ids = " ".join(str(job["id"]) for job in node["jobs"])
        output.say(
            f"{node['name']}: {state_text(node)}{f'; still there: {ids}' if node['state'] == 'draining' else ''}"
        )


def state_text(node: NodeObject) -> str:
    """Return a node's state, and why it is drained and until when its jobs may stay."""
    whys = [drain for drain in (node.get("drain"), node.get("notice")) if drain]
    return "; ".join([str(node["state"]), *map(_because, whys)])


def _because(drain: DrainObject) -> str:
    """`drained by ann (new fan), until 14:03:20`."""
    reason = f" ({output.clean(drain['reason'])})" if drain["reason"] else ""
    deadline_s = drain["deadline_s"]
    until = "" if deadline_s is None else f", until {time.strftime('%H:%M:%S', time.localtime(deadline_s))}"
    return f"drained by {drain['by']}{reason}{until}"
