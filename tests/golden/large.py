"""Decisions on a cluster of 512 GPUs with 2,000 jobs, kept as a hash of every 100 of them.

The small worlds reach hardly any of what is kept from plan to plan: groups of GPUs that are alike, lines of hundreds of
jobs, passes that look at newcomers alone. A run ends after so many decisions, as a pass over a full cluster takes long.
`python -m tests.golden.large POLICY NUMBER` prints the decisions behind a hash.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

from colane.core import Core
from colane.core.events import Outcome
from colane.lab.simulate.run import simulate
from colane.scheduling.registry import create

from .log import FrozenLog, codes
from .workloads import large

LOGS = Path(__file__).parent / "large"
BLOCK = 100
DECISIONS = MappingProxyType({"fifo": 2000, "colocate": 900, "colane": 450})
"""Policies, and after how many decisions their runs end."""


class _EnoughSeenError(Exception):
    """The run is over."""


@dataclass(slots=True)
class _FirstOnes(FrozenLog):
    """Ends the run after so many decisions."""

    most: int = 0

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        """See `FrozenLog`."""
        FrozenLog.outcome(self, outcome, now_s)
        if len(self.lines) >= self.most:
            raise _EnoughSeenError

    def _ask(self, now_s: float) -> None:
        """Nothing: to say why one job waits all that wait are looked at, and the small worlds ask for it."""


def decide(policy: str) -> list[str]:
    """The first decisions of a policy, as lines."""
    logs: list[_FirstOnes] = []

    def look_on(core: Core) -> list[_FirstOnes]:
        logs.append(_FirstOnes(core, most=DECISIONS[policy]))
        return logs

    try:
        simulate(large(create(policy)), watchers=look_on)
    except _EnoughSeenError:
        return logs[0].lines[: DECISIONS[policy]]
    msg = f"{policy} makes only {len(logs[0].lines)} decisions"
    raise AssertionError(msg)


def hashed(lines: Sequence[str]) -> str:
    """A line for each 100 decisions, then how often each reason was given."""
    blocks = [
        f"{number:3} from {block[0].split()[0]} s {_hash(block)}"
        for number, block in enumerate(lines[at : at + BLOCK] for at in range(0, len(lines), BLOCK))
    ]
    given = codes("\n".join(lines))
    return "".join(f"{line}\n" for line in [*blocks, *(f"{code} {given[code]}" for code in sorted(given))])


def _hash(lines: Sequence[str]) -> str:
    return sha256("\n".join(lines).encode()).hexdigest()[:16]


if __name__ == "__main__":
    first = BLOCK * int(sys.argv[2])
    sys.stdout.write("".join(f"{line}\n" for line in decide(sys.argv[1])[first : first + BLOCK]))
