"""What users may have and see: options of `up` and `server`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colane.cli.errors import MisuseError
from colane.model.see import See

if TYPE_CHECKING:
    from colane.model.limits import Quotas

LimitsOption = Annotated[
    Path | None,
    typer.Option(
        "--limits",
        metavar="FILE",
        show_default="10000 waiting jobs a user",
        help="What users and groups may use: gpus, running, queued, submits_per_minute (docs/how-to/security.md).",
    ),
]

SeeOption = Annotated[
    See, typer.Option("--see", help="Which jobs users are told of: all, or their own; operators are told of all.")
]


def quotas(file: Path | None) -> Quotas:
    """Return the limits that a file says; where there is no file, the default on jobs that wait.

    Raises:
        MisuseError: It cannot be read, or says what cannot be.
    """
    from colane.model.limits import QUEUED_DEFAULT, Limits, Quotas  # noqa: PLC0415 - imported late

    if file is None:
        return Quotas(Limits(queued=QUEUED_DEFAULT))
    from colane.server.submitting.limits import LimitsError, read_quotas  # noqa: PLC0415

    try:
        return read_quotas(file.expanduser())
    except LimitsError as error:
        raise MisuseError(f"--limits: {error}") from error


def quotas_of_trace(file: Path | None) -> Quotas:
    """Return the limits that a file says, for users of a trace: those of running jobs and their GPUs are simulated.

    Raises:
        MisuseError: As for `quotas`; or a group names no members, as those of this machine are not the trace's users.
    """
    limits = quotas(file)
    if limits.of_system:
        name = limits.of_system[0]
        raise MisuseError(f'--limits: {file}: group.{name}: name the users of the trace in it: members = ["ann"]')
    return limits
