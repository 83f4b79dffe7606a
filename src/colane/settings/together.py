"""Settings of one service that must fit those of another."""

from __future__ import annotations

from typing import Final

from colane.settings.setting import Values
from colane.settings.table import HEARTBEAT

REPORTS_PER_LEASE_MIN: Final = 3
"""Of a lease jobs have up to a third to end: of fewer reports in it, one that is late would end them."""


def judge_heartbeat(agent: Values, lease_s: float) -> None:
    """Refuse reports so seldom that a node's lease would run out between two of them.

    Args:
        agent: Settings of agents.
        lease_s: The scheduler's.

    Raises:
        SettingError: They do not fit.
    """
    most_s = lease_s / REPORTS_PER_LEASE_MIN
    if agent[HEARTBEAT] > most_s:
        raise agent.fault(
            HEARTBEAT,
            f"must be at most {most_s:.3g} s, a third of the scheduler's lease of {lease_s:g} s, "
            f"got {agent[HEARTBEAT]:g}: report more often, or start the scheduler with a longer --lease",
        )
