"""Options that say how the cores of training jobs are tuned, shared by `up`, `server` and `simulate`."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from colane.cli.errors import MisuseError
from colane.model.quantities import parse_duration_s

if TYPE_CHECKING:
    from colane.cpu.config import TuningConfig


class CoreTunerChoice(StrEnum):
    """Who looks for the right number of cores."""

    OFF = "off"
    LINEAR = "linear"
    STEP = "step"


CoreTunerOption = Annotated[
    CoreTunerChoice,
    typer.Option("--core-tuner", help="Find how many cores each training job needs while it runs; off leaves them."),
]
CoreWindowOption = Annotated[
    str, typer.Option("--core-window", metavar="TIME", help="How long it tries each number of cores, as 90s.")
]
CORE_WINDOW: Final = "90s"


def tuning(choice: CoreTunerChoice, window: str) -> TuningConfig | None:
    """Return how cores of training jobs are tuned; None where they are not.

    Raises:
        MisuseError: The window is not a time, or none.
    """
    from colane.cpu.config import TuningConfig  # noqa: PLC0415 - imported late
    from colane.cpu.tuner import TunerName  # noqa: PLC0415

    try:
        window_s = parse_duration_s(window)
    except ValueError as error:
        raise MisuseError(f"--core-window: {error}") from None
    if window_s == 0:
        raise MisuseError("--core-window: must be more than 0")
    return None if choice is CoreTunerChoice.OFF else TuningConfig.of(TunerName(choice.value), window_s)
