"""`colane manifest`: files for other programs."""

from __future__ import annotations

import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from colane.cli import output
from colane.cli.errors import FailureError, MisuseError

DNS_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class UnitOf(StrEnum):
    """What a unit starts."""

    SERVER = "server"
    AGENT = "agent"


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help="Print files for other programs.")
    app.add_typer(group, name="manifest")
    example = "Example: [bold]colane manifest grafana > board.json[/bold]"
    group.command("grafana", epilog=example)(grafana)
    group.command(
        "systemd",
        epilog="Example: [bold]colane manifest systemd agent > /etc/systemd/system/colane-agent.service[/bold]",
    )(systemd)
    group.command(
        "k8s", epilog="Example: [bold]colane manifest k8s --image registry/colane --gpus 8 > colane.yaml[/bold]"
    )(k8s)
    group.command("container", epilog="Example: [bold]colane manifest container --wheel . > Containerfile[/bold]")(
        container
    )


def grafana(
    alerts: Annotated[bool, typer.Option("--alerts", help="The alert rules for Prometheus instead, as YAML.")] = False,
) -> None:
    """Print a board for Grafana, as JSON to be imported; it reads the Prometheus that reads /metrics."""
    from colane.integrations import grafana as made  # noqa: PLC0415 - what other commands have no use for

    if not alerts:
        output.print_json(made.board())
        return
    import yaml  # noqa: PLC0415 - imported late

    yaml.safe_dump(made.alerts(), sys.stdout, sort_keys=False, width=1000)


def systemd(service: Annotated[UnitOf, typer.Argument(show_default=False, help="Whose unit.")]) -> None:
    """Print a unit of systemd for the scheduler or an agent, as a service of the system.

    It starts the program that prints this; settings are those of /etc/colane/colane.toml. colane node add makes such a
    unit by itself.
    """
    from colane.integrations import manifests  # noqa: PLC0415 - as above

    program = str(Path(sys.executable).with_name("colane"))
    made = manifests.server_unit if service is UnitOf.SERVER else manifests.agent_unit
    sys.stdout.write(made(program))


def k8s(
    image: Annotated[
        str, typer.Option("--image", show_default=False, help="Of scheduler and agents (manifest container).")
    ],
    gpus: Annotated[
        int,
        typer.Option("--gpus", min=0, max=64, help="NVIDIA GPUs that each agent takes; 0 offers its cores instead."),
    ] = 0,
    namespace: Annotated[str, typer.Option("--namespace", help="Where they are.")] = "colane",
    storage: Annotated[str, typer.Option("--storage", help="Of the scheduler's volume.")] = "10Gi",
) -> None:
    """Print objects of Kubernetes: a scheduler with its volume and service, and an agent on each node.

    They need no roles. They are checked against Kubernetes' schemas, and were not run.
    """
    import yaml  # noqa: PLC0415 - imported late

    from colane.integrations import manifests  # noqa: PLC0415 - as above

    if DNS_LABEL.fullmatch(namespace) is None:
        raise MisuseError(f"--namespace: must be lower-case letters, digits and dashes, got {namespace!r}")
    if re.fullmatch(r"[1-9][0-9]*(Mi|Gi|Ti|M|G|T)", storage) is None:
        raise MisuseError(f"--storage: must be a size as Kubernetes takes it, such as 10Gi, got {storage!r}")
    if not image.strip() or " " in image:
        raise MisuseError(f"--image: must be the name of an image, such as registry/colane:1, got {image!r}")
    sys.stdout.write(manifests.COMMENT.format(namespace=namespace))
    made = manifests.k8s(manifests.K8sAsked(image, namespace, gpus, storage))
    yaml.safe_dump_all(made, sys.stdout, sort_keys=False, width=1000)


def container(
    wheel: Annotated[
        Path | None,
        typer.Option("--wheel", metavar="DIR", show_default="none", help="Write the wheel of this very Colane here."),
    ] = None,
) -> None:
    """Print a recipe (Containerfile) for an image of this very Colane; its wheel lies beside it."""
    from colane.engines.wheel import own_wheel  # noqa: PLC0415 - imported late
    from colane.integrations import manifests  # noqa: PLC0415 - as above

    made = own_wheel()
    if wheel is not None:
        try:
            (wheel / made.name).write_bytes(made.content)
        except OSError as error:
            raise FailureError(f"--wheel {wheel}: {error.strerror}") from error
    sys.stdout.write(manifests.containerfile(made.name))
