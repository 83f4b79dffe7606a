"""The exposition formats of Prometheus and OpenMetrics, written line by line.

A library takes twenty times as long for the tens of thousands of lines of a large cluster; the tests read what is
written here with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from colane.server.writer.meters import Histogram

LABEL_MAX: Final = 64  # characters of a label's value: what is longer is cut in its middle

PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class MetricKind(StrEnum):
    """How the values of a family are to be read."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


def label_value(text: str) -> str:
    """Return a text as the value of a label: control and formatting characters by their codes, cut in the middle."""
    if not text.isprintable():
        text = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
    if len(text) > LABEL_MAX:
        half = (LABEL_MAX - 1) // 2
        text = f"{text[:half]}\N{HORIZONTAL ELLIPSIS}{text[-half:]}"
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def labels_text(labels: Mapping[str, str]) -> str:
    """Return labels as they stand behind a name, `{node="n1"}`; empty of none."""
    return "{" + ",".join(f'{name}="{label_value(value)}"' for name, value in labels.items()) + "}" if labels else ""


class RatioTexts(dict[float, str]):
    """Texts of numbers of which there are few different ones, as percents: found in a fifth of the time."""

    def __missing__(self, value: float) -> str:
        """Make one that was not asked for before; all are forgotten where they have become many."""
        if len(self) >= RATIOS_MAX:
            self.clear()
        self[value] = text = f"{value:.12g}"
        return text


RATIOS_MAX: Final = 10_000


class MetricText:
    """Families, one after another.

    Attributes:
        is_open: Whether OpenMetrics is written, which names counters in another way and has an end.
    """

    def __init__(self, *, is_open: bool) -> None:
        self.is_open: Final = is_open
        self._parts: list[str] = []

    def family(self, name: str, kind: MetricKind, about: str, samples: Iterable[tuple[str, float | None]]) -> None:
        """Write a family: label texts and values; unknown values are left out. A counter's name ends in `_total`."""
        lines = [
            f"{name}{at} {value}" if type(value) is int else f"{name}{at} {value:.12g}"  # in a third of the time
            for at, value in samples
            if value is not None
        ]
        self.lines(name, kind, about, lines)

    def histogram(self, name: str, about: str, histogram: Histogram) -> None:
        """Write a histogram."""
        lines, below = [], 0
        for bound, count in zip(histogram.bounds, histogram.counts, strict=False):
            below += count
            lines.append(f'{name}_bucket{{le="{float(bound)}"}} {below}')
        lines.append(f'{name}_bucket{{le="+Inf"}} {histogram.count}')
        lines += [f"{name}_sum {histogram.total:.9g}", f"{name}_count {histogram.count}"]
        self.lines(name, MetricKind.HISTOGRAM, about, lines)

    def lines(self, name: str, kind: MetricKind, about: str, lines: list[str]) -> None:
        """Write a family whose lines are made already."""
        if lines:
            told = name.removesuffix("_total") if self.is_open else name
            self._parts += [f"# HELP {told} {about}", f"# TYPE {told} {kind.value}", *lines]

    def finish(self) -> str:
        """Return all of it."""
        end = ["# EOF"] if self.is_open else []
        return "\n".join([*self._parts, *end, ""])
