"""Where simulations of a command go that makes several."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from colane.cli.errors import FailureError, MisuseError
from colane.settings.table import ADDRESS

if TYPE_CHECKING:
    from concurrent.futures import Executor


class RunsOn(StrEnum):
    """What runs several simulations."""

    LOCAL = "local"
    RAY = "ray"


Engine = Annotated[
    RunsOn,
    typer.Option("--engine", help="Where several simulations run: processes of this machine (local), or Ray's nodes."),
]
RayAddress = Annotated[
    str | None,
    typer.Option("--address", metavar="HOST:PORT", show_default="none", help="Where Ray's head listens."),
]


def judge_engine(engine: RunsOn, address: str | None, seeds: int | None = None) -> None:
    """Refuse what makes no sense for where runs go.

    Args:
        engine: What runs them.
        address: Of Ray's head, where it is named.
        seeds: Of a command that makes several runs by its seeds alone.

    Raises:
        MisuseError: It makes none.
    """
    if engine is RunsOn.LOCAL:
        if address is not None:
            raise MisuseError("--address: is for --engine ray")
        return
    if seeds == 1:
        raise MisuseError("--engine ray: is for several seeds (--seeds N), as one runs in one process")
    if address is None:
        raise MisuseError("--address: must be given with --engine ray: where Ray's head listens, 127.0.0.1:6379")
    try:
        ADDRESS.read(address)
    except ValueError as error:
        raise MisuseError(f"--address: {error}") from error


def elsewhere(address: str | None) -> Executor | None:
    """Return what runs on Ray; None where runs are this machine's.

    Raises:
        FailureError: No Ray can be joined there.
    """
    if address is None:
        return None
    from colane.engines import EngineError  # noqa: PLC0415 - imported late
    from colane.engines.ray_runs import RayExecutor  # noqa: PLC0415

    try:
        return RayExecutor(address)
    except EngineError as error:
        raise FailureError(str(error)) from error
