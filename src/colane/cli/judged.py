"""Values of options that are judged when they are read, before any request; they go on as they were typed."""

from __future__ import annotations

from collections.abc import Callable

import typer

from colane.model.quantities import parse_duration_s


def judged(parse: Callable[[str], object]) -> Callable[[str | None], str | None]:
    """Return a callback of an option that refuses what cannot be parsed, by the parser's own words."""

    def judge(text: str | None) -> str | None:
        try:
            if text is not None:
                parse(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        return text

    return judge


def limit_s(text: str) -> float:
    """Return a time limit with its unit: a bare number is minutes to users of Slurm, and seconds in our files.

    Raises ValueError: it is none, or has no unit.
    """
    seconds = parse_duration_s(text)
    bare = text.strip()
    if bare.replace(".", "", 1).isdecimal():
        raise ValueError(f"say {bare}s for seconds, or {bare}m for minutes as Slurm reads {bare}")
    return seconds
