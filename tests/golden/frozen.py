"""Where frozen decisions are kept, and how they are made anew."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from colane.core import Core
from colane.lab.simulate.run import simulate
from colane.scheduling.registry import NAMES, create

from .live import Live
from .log import FrozenLog
from .workloads import SIMULATED

LOGS = Path(__file__).parent / "logs"
WORKLOADS = (*SIMULATED, "live")
DIFFERENCES_SHOWN = 20


class Frozen(NamedTuple):
    """Decisions of one policy on one workload."""

    policy: str
    workload: str

    @property
    def path(self) -> Path:
        """Where they are kept."""
        return LOGS / self.workload / f"{self.policy}.txt"

    def decide(self) -> str:
        """What the policy decides today."""
        if self.workload == "live":
            return Live(create(self.policy)).run()
        logs: list[FrozenLog] = []

        def look_on(core: Core) -> list[FrozenLog]:
            logs.append(FrozenLog(core))
            return logs

        simulate(SIMULATED[self.workload](create(self.policy), 0), watchers=look_on)
        return logs[0].text()


def every() -> Iterator[Frozen]:
    """All there are: every registered policy on every workload."""
    return (Frozen(policy, workload) for workload in WORKLOADS for policy in NAMES)


def differences(kept: str, decided: str) -> str:
    """The first lines that differ; empty when none do."""
    found = unified_diff(kept.splitlines(), decided.splitlines(), "frozen", "today", n=0, lineterm="")
    return "\n".join(islice(found, DIFFERENCES_SHOWN))
