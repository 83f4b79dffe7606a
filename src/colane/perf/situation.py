"""All that changes how fast a job runs, as one value (`perf.rate` answers it)."""

from __future__ import annotations

from typing import NamedTuple

from colane.model.lane import TurnRule
from colane.model.profile import ProfileKey


class LaneMate(NamedTuple):
    """A job that takes turns with ours in one lane.

    Attributes:
        key: Its profile.
        weight: Its share under the fair rule, against the weights of the others.
    """

    key: ProfileKey
    weight: float = 1.0


class Situation(NamedTuple):
    """Where and with which co-runners a job runs; the defaults mean alone, at its best.

    Attributes:
        gpu_type: Type of its GPUs; empty is the type it asked for, or the fastest that is known of it.
        gpus: How many it has; None is as many as it asked for.
        distance: How they are connected, its locality class: the sum of the shortest paths between them (paper C,
            eq. 3); None is as well as can be.
        spans: Whether they lie on several nodes, where their distance is not known yet; None leaves it to `distance`.
        sharing: How jobs on its GPU share it: `mps`, `time-slice` or `cpu`; empty is the usual way of the type.
        beside: Jobs in other lanes of its GPU, which run at once with it: of each lane the busiest one.
        lane_mates: Jobs in its own lane.
        rule: How the jobs of its lane take turns.
        near: Kinds of jobs on other GPUs of its sockets.
        cores: Cores it has; None is enough.
        bandwidth_pressure: Bandwidth to host memory that is asked for on its node over what there is.
    """

    gpu_type: str = ""
    gpus: int | None = None
    distance: float | None = None
    sharing: str = ""
    beside: tuple[ProfileKey, ...] = ()
    lane_mates: tuple[LaneMate, ...] = ()
    rule: TurnRule = TurnRule.FAIR
    near: tuple[ProfileKey, ...] = ()
    cores: int | None = None
    bandwidth_pressure: float = 0.0
    spans: bool | None = None


ALONE = Situation()
"""The reference: itself alone, at the size and on the type it asked for, best connected, with enough cores."""
