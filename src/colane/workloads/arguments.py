"""The trainer's command line: paper A's job object, one option a field."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any, NoReturn

from colane.workloads import catalogue

TEXTS = ("model_name", "dataset", "optim", "dataset_path", "device", "checkpoint_dir")

LOG_EVERY = 10
"""Steps between two lines of progress."""


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line and exits with 2."""

    def error(self, message: str) -> NoReturn:
        """Exit with `message`."""
        self.exit(2, f"{self.prog}: {message}\n")


def parse(argv: Sequence[str] | None = None) -> tuple[dict[str, Any], int]:
    """Return the completed job object, extra fields included, and the steps between two lines of progress.

    Exits with code 2 and one line when an argument is wrong.
    """
    parser = _parser()
    given = vars(parser.parse_args(argv))
    log_every = given.pop("log_every")
    job = {name: value for name, value in given.items() if value is not None}
    found = catalogue.problems(job, os.getcwd())  # noqa: PTH109  # a path in text is what it takes
    if found:
        parser.error("; ".join(f"{catalogue.option(field)} {message}" for field, message in found))
    extras = {name: field.default for name, field in catalogue.EXTRA_FIELDS.items()}
    return extras | catalogue.complete(job), log_every


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog=f"python -m {catalogue.MODULE}", description=__doc__, allow_abbrev=False, exit_on_error=True
    )
    for name, field in {**catalogue.FIELDS, **catalogue.EXTRA_FIELDS}.items():
        shown = "required" if name == "model_name" else f"default {field.default}"
        parser.add_argument(
            catalogue.option(name), type=str if name in TEXTS else _number, help=shown, metavar=name.upper()
        )
    parser.add_argument("--log-every", type=_steps, default=LOG_EVERY, help=f"default {LOG_EVERY}")
    return parser


def _number(text: str) -> int | float | str:
    """Read a number; what is none stays text, for the catalogue to refuse by the field's name."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _steps(text: str) -> int:
    steps = _number(text)
    if not isinstance(steps, int) or steps < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of steps, at least 1, got {text!r}")
    return steps
