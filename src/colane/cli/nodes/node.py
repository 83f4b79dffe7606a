"""`colane node`: add machines by ssh, see which version each has, renew them, remove them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from colane.cli import output
from colane.cli.completing import complete_nodes
from colane.cli.errors import FAILURE, FailureError, MisuseError, from_scheduler, one_line
from colane.cli.formatting import Format, printed
from colane.cli.jobs import objects as jobs
from colane.cli.nodes.command import differs
from colane.cli.nodes.drain import Deadline, seconds
from colane.cli.output import ScreenColumn
from colane.client.errors import SchedulerError
from colane.engines import EngineError
from colane.model.versions import own_version
from colane.settings.table import DEVICES, POOL, TOPOLOGY

if TYPE_CHECKING:
    from colane.api.nodes import NodeObject
    from colane.client.client import Client
    from colane.engines.ssh_nodes import SshNode, SshNodes

AT_ONCE_MAX: Final = 16  # hosts that are worked on at the same time

COLUMNS: Final = (
    ScreenColumn("NODE"),
    ScreenColumn("STATE"),
    ScreenColumn("DEVICES", is_number=True),
    ScreenColumn("JOBS", is_number=True),
    ScreenColumn("VERSION"),
    ScreenColumn("ADDED AS"),
)


def register(app: typer.Typer) -> None:
    """Add the group."""
    example = "Example: [bold]colane node add ann@gpu-1 ann@gpu-2[/bold]"
    group = typer.Typer(no_args_is_help=True, help="Add machines by ssh, renew and remove them.", epilog=example)
    group.command("add", epilog=example)(add)
    group.command("list", epilog="Example: [bold]colane node list --json[/bold]")(list_added)
    group.command("upgrade", epilog="Example: [bold]colane node upgrade gpu-1[/bold]")(upgrade)
    group.command("remove", epilog="Example: [bold]colane node remove gpu-1 --deadline 10m[/bold]")(remove)
    app.add_typer(group, name="node")


def add(
    hosts: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]USER@HOST...",
            show_default=False,
            help="Machines as ssh takes them; a node has its machine's name unless it is given one.",
        ),
    ],
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            show_default="as this command finds it",
            help="The scheduler, as the machines reach it.",
        ),
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option("--devices", metavar=DEVICES.metavar, show_default=DEVICES.default_told, help=DEVICES.help),
    ] = None,
    pool: Annotated[str | None, typer.Option("--pool", show_default=POOL.default, help=POOL.help)] = None,
    topology: Annotated[
        str | None,
        typer.Option("--topology", metavar=TOPOLOGY.metavar, show_default=TOPOLOGY.default_told, help=TOPOLOGY.help),
    ] = None,
    python: Annotated[
        str,
        typer.Option(
            "--python", metavar="PATH", show_default="the first of 3.11 or newer", help="Python on the machines."
        ),
    ] = "",
    folder: Annotated[
        str,
        typer.Option(
            "--dir",
            metavar="DIR",
            show_default="colane-node in the user's data directory there; root's is /var/lib/colane-node",
            help="Where it is put on the machines.",
        ),
    ] = "",
    ssh: Annotated[
        str, typer.Option("--ssh", metavar="COMMAND", help="How ssh is called; kept for upgrade and remove.")
    ] = "ssh",
) -> None:
    """Make machines nodes of this cluster, over ssh: no root, no cluster manager.

    A wheel of this very version goes there, with a virtual environment, a token of the node's own and a systemd unit of
    the user's (without systemd a process that keeps the agent), and the node takes jobs. What cannot be done is said in
    a line for each machine, and leaves nothing there.
    """
    from colane.engines import ssh_nodes  # noqa: PLC0415 - imported late
    from colane.engines.wheel import own_wheel  # noqa: PLC0415

    if folder and not folder.startswith("/"):
        raise MisuseError(f"--dir: must be an absolute path, got {folder!r}")
    try:
        words = ssh_nodes.own_ssh(ssh)
    except ValueError as error:
        raise MisuseError(f"--ssh: {error}") from error
    given = {"devices": devices, "pool": pool, "topology": topology}
    settings = {name: value for name, value in given.items() if value is not None}
    places = [_place(text, words, folder) for text in hosts]
    with jobs.client() as scheduler:
        _demand_same_version(scheduler)
        reached = ssh_nodes.reachable_url(scheduler.url, url)
        noted = ssh_nodes.SshNodes.of(scheduler)
    wheel = own_wheel()

    def one(place: SshNode) -> None:
        asked = ssh_nodes.ToAdd(place, reached, python, settings)
        with jobs.client() as scheduler:
            node = ssh_nodes.add(scheduler, noted, asked, wheel, output.note)
        output.say(f"{node['name']}: is a node with {_devices(node)}, its agent is {node['agent_version']}")

    _for_each(one, places)


def list_added(as_json: output.Json = False, template: Format = None) -> None:
    """List nodes with the version of each, and how those that were added from here are reached.

    A version that is not the scheduler's has a !.
    """
    from colane.engines.ssh_nodes import SshNodes  # noqa: PLC0415 - imported late

    with jobs.client() as scheduler:
        nodes = scheduler.nodes()
        noted = SshNodes.of(scheduler).all()
    known = {node["name"] for node in nodes}
    objects = [
        *(_listed(node, noted.get(node["name"])) for node in nodes),
        *(
            {"name": place.name, "state": "unknown", "version": None, "differs": False, "at": place.at}
            for place in noted.values()
            if place.name not in known
        ),
    ]
    if printed(template, as_json, objects):
        return
    rows = [
        [
            node["name"],
            node["state"],
            str(len(node["gpus"])),
            str(len(node["jobs"])),
            (node.get("agent_version") or "?") + " !" * differs(node),
            noted[node["name"]].at if node["name"] in noted else "",
        ]
        for node in nodes
    ]
    rows += [[place.name, "unknown", "", "", "?", place.at] for place in noted.values() if place.name not in known]
    output.print_table(COLUMNS, rows)
    behind = [node["name"] for node in nodes if differs(node)]
    if behind:
        output.note(
            f"not the scheduler's version ({nodes[0]['scheduler_version']}): {' '.join(behind)}; colane node upgrade"
        )


def upgrade(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NODE...]",
            autocompletion=complete_nodes,
            show_default="all that were added from here",
            help="Names, as colane node list shows them.",
        ),
    ] = None,
) -> None:
    """Give nodes this very version, while their jobs go on.

    A node whose new agent does not report goes back to the one before. The scheduler is upgraded first.
    """
    from colane.engines import ssh_nodes  # noqa: PLC0415 - imported late
    from colane.engines.wheel import own_wheel  # noqa: PLC0415

    with jobs.client() as scheduler:
        _demand_same_version(scheduler)
        noted = ssh_nodes.SshNodes.of(scheduler)
    places = _noted(noted, names) if names else list(noted.all().values())
    if not places:
        output.note("no node was added from here: colane node add USER@HOST")
    wheel = own_wheel()

    def one(place: SshNode) -> None:
        with jobs.client() as scheduler:
            node = ssh_nodes.upgrade(scheduler, place, wheel, output.note)
        if node is None:
            output.say(f"{place.name}: has this very Colane {own_version()} already")
        else:
            output.say(f"{place.name}: its agent is {node['agent_version']}")

    _for_each(one, places)


def remove(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NODE...",
            autocompletion=complete_nodes,
            show_default=False,
            help="Names, as colane node list shows them.",
        ),
    ],
    deadline: Deadline = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="The machine never comes back: forget it without going there.")
    ] = False,
) -> None:
    """Drain nodes, wait until their jobs have left or finished, and leave nothing of Colane on their machines.

    With --forget, jobs of a lost node are queued again: you vouch that nothing of them runs there any more.
    """
    from colane.engines import ssh_nodes  # noqa: PLC0415 - imported late

    deadline_s = None if deadline is None else seconds(deadline)
    with jobs.client() as scheduler:
        noted = ssh_nodes.SshNodes.of(scheduler)
        places = _forgettable(scheduler, noted, names) if forget else _noted(noted, names)

    def one(place: SshNode) -> None:
        with jobs.client() as scheduler:
            if forget:
                ssh_nodes.forget(scheduler, noted, place.name)
            else:
                ssh_nodes.remove(scheduler, noted, place, output.note, deadline_s=deadline_s)
        output.say(f"{place.name}: is removed")

    _for_each(one, places)


def _place(text: str, ssh: tuple[str, ...], folder: str) -> SshNode:
    from colane.engines.ssh_nodes import NODE_NAME, SshNode  # noqa: PLC0415 - imported late

    name, is_named, at = text.rpartition("=")
    if is_named and NODE_NAME.fullmatch(name) is None:
        raise MisuseError(f"{text}: {name!r} is no name of a node: letters, digits, and . _ - behind the first")
    if not at or at.startswith("-") or not at.isprintable() or " " in at:
        raise MisuseError(f"{text}: must be a machine as ssh takes it, such as ann@gpu-1")
    return SshNode(name=name, at=at, ssh=ssh, folder=folder)


def _demand_same_version(scheduler: Client) -> None:
    theirs = scheduler.health()["version"]
    if theirs != own_version():
        raise FailureError(
            f"the scheduler is Colane {theirs} and this command {own_version()}, which nodes would be given: "
            "upgrade the scheduler first, or use its own command"
        )


def _noted(noted: SshNodes, names: Sequence[str]) -> list[SshNode]:
    found = noted.all()
    unknown = [name for name in names if name not in found]
    if unknown:
        raise MisuseError(
            f"{', '.join(unknown)}: not added from here by this user, so its machine is not known; "
            "colane node list shows those that are"
        )
    return [found[name] for name in dict.fromkeys(names)]


def _forgettable(scheduler: Client, noted: SshNodes, names: Sequence[str]) -> list[SshNode]:
    from colane.engines.ssh_nodes import SshNode  # noqa: PLC0415 - imported late

    known = noted.all() | {
        node["name"]: SshNode(name=node["name"], at="", ssh=(), folder="") for node in scheduler.nodes()
    }
    unknown = [name for name in names if name not in known]
    if unknown:
        raise MisuseError(f"there is no node {', '.join(unknown)}; colane node list shows those there are")
    return [known[name] for name in dict.fromkeys(names)]


def _for_each(do: Callable[[SshNode], None], places: Sequence[SshNode]) -> None:
    """Do it for all at once; what goes wrong with some is a line each, and the others are done.

    Raises typer.Exit: it went wrong with some.
    """

    def told(place: SshNode) -> bool:
        try:
            do(place)
        except EngineError as error:
            sys.stderr.write(f"colane: {one_line(str(error))}\n")
        except SchedulerError as error:
            sys.stderr.write(f"colane: {place.name or place.at}: {from_scheduler(error).format_message()}\n")
        else:
            return True
        return False

    with ThreadPoolExecutor(AT_ONCE_MAX) as pool:
        if not all(list(pool.map(told, places))):
            raise typer.Exit(FAILURE)


def _listed(node: NodeObject, place: SshNode | None) -> dict[str, Any]:
    return {
        "name": node["name"],
        "state": node["state"],
        "version": node.get("agent_version"),
        "differs": differs(node),
        "at": None if place is None else place.at,
    }


def _devices(node: NodeObject) -> str:
    kinds = sorted({gpu["type"] for gpu in node["gpus"]})
    return f"{len(node['gpus'])} device{'s' * (len(node['gpus']) != 1)} ({', '.join(kinds)})"
