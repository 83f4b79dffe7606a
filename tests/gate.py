"""Which tests the gate tries: all that are quick, and of each kind of the others the quickest one.

`durations.tsv` has the tests that took long when all were last measured on two cores: seconds, id. `scripts/test` tries
those that `chosen` leaves, `scripts/test --all` every one and, with `COLANE_DURATIONS=FILE`, measures them anew.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pytest

TABLE: Final = Path(__file__).with_name("durations.tsv")
QUICK_S: Final = 0.5
"""A test that takes no longer is always tried."""
LONG_S: Final = 3.0
"""Of tests that take longer, a file has one in the gate."""


def is_gate() -> bool:
    """Whether the gate is run, and not all."""
    return os.environ.get("COLANE_GATE", "0") != "0"


def measured() -> dict[str, float]:
    """Return the seconds of the tests that took longer than `QUICK_S`, by id."""
    if not TABLE.exists():
        return {}
    rows = (line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines())
    return {test: float(seconds) for seconds, test in rows}


def chosen(tests: Iterable[str], seconds: Mapping[str, float]) -> set[str]:
    """Return the ids of the tests that the gate tries.

    Args:
        tests: Ids of all.
        seconds: How long those take that are not quick.
    """
    chosen, kinds = set[str](), defaultdict[str, list[str]](list)
    for test in tests:
        took_s, function = seconds.get(test, 0.0), test.partition("[")[0]
        if took_s <= QUICK_S:
            chosen.add(test)
        elif took_s <= LONG_S:
            kinds[function].append(test)
        else:
            kinds[function.partition("::")[0]].append(test)
    return chosen | {min(kind, key=lambda test: (seconds[test], test)) for kind in kinds.values()}


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take what the gate does not try out of what was collected."""
    if is_gate():
        ours = chosen([item.nodeid for item in items], measured())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in ours])
        items[:] = [item for item in items if item.nodeid in ours]


def write_durations(reports: Iterable[pytest.TestReport], path: Path) -> None:
    """Write what took long, longest first; what other runs have written there stays."""
    seconds = defaultdict[str, float](float)
    for report in reports:
        seconds[report.nodeid] += report.duration
    rows = [(took_s, test) for test, took_s in seconds.items() if took_s > QUICK_S]
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{took_s:.1f}\t{test}\n" for took_s, test in sorted(rows, reverse=True))
