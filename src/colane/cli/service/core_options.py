"""Options of the CPU side, shared by `up`, `server` and `simulate`: tuning cores, and who is held back."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from colane.cli.errors import MisuseError
from colane.model.quantities import parse_duration_s

if TYPE_CHECKING:
    from colane.cpu.config import TuningConfig
    from colane.cpu.contention import ContentionConfig


class CoreTunerChoice(StrEnum):
    """Which tuner looks for the right number of cores."""

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
ContentionOption = Annotated[
    str,
    typer.Option(
        "--contention",
        metavar="TIME|off",
        help="How often use of memory bandwidth is measured; jobs that slow training on the node are throttled.",
    ),
]
CONTENTION: Final = "10s"


def contention(text: str) -> ContentionConfig | None:
    """Return when jobs without GPUs are held back for training jobs; None where they never are.

    Raises:
        MisuseError: It is neither a time nor `off`.
    """
    from colane.cpu.contention import ContentionConfig  # noqa: PLC0415 - imported late

    if text.strip().lower() == "off":
        return None
    try:
        interval_s = parse_duration_s(text)
    except ValueError as error:
        raise MisuseError(f"--contention: {error}, or off") from None
    if interval_s == 0:
        raise MisuseError("--contention: must be more than 0, or off")
    return ContentionConfig.of(interval_s)


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
