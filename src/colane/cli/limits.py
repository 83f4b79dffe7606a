"""What users may have and see: options of `up` and `server`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colane.cli.errors import MisuseError
from colane.model.see import See

if TYPE_CHECKING:
    from colane.server.limits import Quotas

LimitsOption = Annotated[
    Path | None,
    typer.Option(
        "--limits",
        metavar="FILE",
        show_default="none",
        help="What users and groups may use: gpus, running, queued, submits_per_minute (docs/how-to/security.md).",
    ),
]

SeeOption = Annotated[
    See, typer.Option("--see", help="Whose jobs users are told of: all, or their own; operators are told of all.")
]


def quotas(file: Path | None) -> Quotas:
    """Return the limits that a file says, none where there is no file.

    Raises:
        MisuseError: It cannot be read, or says what cannot be.
    """
    from colane.server.limits import LimitsError, Quotas, read_quotas  # noqa: PLC0415 - imported late

    try:
        return Quotas() if file is None else read_quotas(file.expanduser())
    except LimitsError as error:
        raise MisuseError(f"--limits: {error}") from error
