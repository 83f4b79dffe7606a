"""What a field of a record may hold besides what its type says; it is told beside the type, as `Annotated`.

Who makes a record in a program is believed. One that comes from outside is judged by it: pydantic, where it is there,
asks each of these for its schema, and nothing here needs pydantic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple

from colane.model.field_values import EXACT_MAX, NO_CONTROLS, NO_NUL, TIME_MAX_S
from colane.model.versions import Words

TEXT_MAX: Final = 10_000
WORD_MAX: Final = 100
NEARLY_ZERO: Final = -0.01
"""A measured ratio just below zero is a rounding error of the sender: it must not cost a whole report."""

Schema = dict[str, Any]


class Bounds(NamedTuple):
    """Bounds of a value, in the words of pydantic's schemas, and what is made of one that keeps them."""

    limits: tuple[tuple[str, object], ...] = ()  # as `("ge", 0)`
    read: Callable[[Any], Any] | None = None  # gives the value that is meant; raises ValueError where there is none

    def __get_pydantic_core_schema__(self, source: object, handler: Callable[[object], Schema]) -> Schema:
        """Return the schema of the type, and of this."""
        schema = {**handler(source), **dict(self.limits)}
        if self.read is None:
            return schema
        return {"type": "function-after", "function": {"type": "no-info", "function": self.read}, "schema": schema}


def within(least: float | None = None, most: float | None = None, above: float | None = None) -> Bounds:
    """Bound a number: `least` and `most` are met, `above` is not."""
    limits = (("ge", least), ("le", most), ("gt", above))
    return Bounds(tuple([(name, value) for name, value in limits if value is not None]))


def text(
    most: int, pattern: str | None = None, read: Callable[[str], str] | None = None, least: int | None = None
) -> Bounds:
    """Bound a text by its length and what it must match."""
    limits = (("min_length", least), ("max_length", most), ("pattern", pattern))
    return Bounds(tuple([(name, value) for name, value in limits if value is not None]), read)


def several(most: int) -> Bounds:
    """Bound how many there are of something; JSON has lists for tuples."""
    return Bounds((("strict", False), ("max_length", most)))


def word(words: Words) -> Bounds:
    """One of a closed set, of which another version may know others: see `model.versions`."""
    return text(WORD_MAX, read=words.read)


def _not_below_zero(value: float) -> float:
    return max(0.0, value)


Count = Annotated[int, within(0, EXACT_MAX)]
Size = Annotated[int, within(0, EXACT_MAX)]
Positive = Annotated[int, within(1, EXACT_MAX)]
Seconds = Annotated[float, within(0, TIME_MAX_S)]
Ratio = Annotated[float, within(0)]
MeasuredRatio = Annotated[float, Bounds((("ge", NEARLY_ZERO),), _not_below_zero)]
StepTime = Annotated[float, within(above=0, most=TIME_MAX_S)]
LongText = Annotated[str, text(TEXT_MAX, NO_NUL)]
Name = Annotated[str, text(200, NO_CONTROLS, least=1)]
ShortWord = Annotated[str, text(WORD_MAX)]
