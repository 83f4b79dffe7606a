"""How fast a job runs somewhere: one answer for policies, guard, `why` and remaining times (`Beliefs.rate`).

Times multiply: time of a step = time in the reference x size x cores x max(bus, same GPU) / share of the turns, where
*size* stands for GPU type, number of GPUs and how they are connected. Each factor says where it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from colane.model.placement import TurnRule
from colane.model.profile import ProfileKey, Value


class LaneMate(NamedTuple):
    """A job that takes turns with ours in one lane."""

    key: ProfileKey  # its profile
    weight: float = 1.0  # its share under the fair rule, against the weights of the others


class Situation(NamedTuple):
    """Where and with which co-runners a job runs; the defaults mean alone, at its best."""

    gpu_type: str = ""  # type of its GPUs; empty is the type it asked for, or the fastest that is known of it
    gpus: int | None = None  # how many it has; None is as many as it asked for
    # how they are connected, its locality class: the sum of the shortest paths between them (paper C, eq. 3); None is
    # as well as can be
    distance: float | None = None
    sharing: str = ""  # how jobs on its GPU share it: `mps`, `time-slice` or `cpu`; empty is the usual way of the type
    # jobs in other lanes of its GPU, which run at once with it: of each lane the busiest one
    beside: tuple[ProfileKey, ...] = ()
    lane_mates: tuple[LaneMate, ...] = ()  # jobs in its own lane
    rule: TurnRule = TurnRule.FAIR  # how the jobs of its lane take turns
    near: tuple[ProfileKey, ...] = ()  # kinds of jobs on other GPUs of its sockets
    cores: int | None = None  # cores it has; None is enough
    bandwidth_pressure: float = 0.0  # bandwidth to host memory that is asked for on its node over what there is
    # whether they lie on several nodes, where their distance is not known yet; None leaves it to `distance`
    spans: bool | None = None


def without_beside(situation: Situation) -> Situation:
    """The same with nothing in other lanes of its GPU."""
    gpu_type, gpus, distance, sharing, _, lane_mates, rule, near, cores, pressure, spans = situation
    return Situation(gpu_type, gpus, distance, sharing, (), lane_mates, rule, near, cores, pressure, spans)


ALONE = Situation()
"""The reference: itself alone, at the size and on the type it asked for, best connected, with enough cores."""


class RateSource(StrEnum):
    """Where a factor comes from, strongest first."""

    GIVEN = "given"
    ORACLE = "oracle"
    MEASURED = "measured"
    DECLARED = "declared"
    INTERPOLATED = "interpolated"
    FITTED = "fitted"
    REGRESSION = "regression"
    WORK_BOUND = "work-bound"
    THRESHOLD = "threshold"
    NO_EVIDENCE = "no-evidence"
    DEFAULT = "default"
    NO_PROMISE = "no-promise"


STRENGTH: Mapping[RateSource, int] = {source: place for place, source in enumerate(RateSource)}
"""Place of a source, the strongest first: the higher, the less it is worth."""


class Factor(NamedTuple):
    """One thing that changes speed."""

    slowdown: float = 1.0  # time with it over time without
    source: RateSource = RateSource.GIVEN  # where that comes from
    samples: int = 0  # what stands behind it: steps, or sets that were measured
    spread_ratio: float | None = None  # its standard error, as a part of it; None is that of its source

    @property
    def is_known(self) -> bool:
        """Whether anything tells of it: more than a default, or than what is taken where there is no evidence."""
        return STRENGTH[self.source] < STRENGTH[RateSource.NO_EVIDENCE]


NEUTRAL_FACTOR = Factor()  # nothing changes


class Factors(NamedTuple):
    """What a slowdown is made of."""

    size: Factor = NEUTRAL_FACTOR  # GPU type, number of GPUs and how they are connected
    cores: Factor = NEUTRAL_FACTOR  # cores it has, of those it needs
    turns: Factor = NEUTRAL_FACTOR  # waiting for its turn in its lane
    bus: Factor = NEUTRAL_FACTOR  # neighbours on its sockets, and the bandwidth to host memory
    gpu: Factor = NEUTRAL_FACTOR  # jobs in other lanes of its GPU

    @property
    def co_runner_slowdown(self) -> float:
        """What others cost it: time now over time alone in the same place."""
        return max(self.bus.slowdown, self.gpu.slowdown) * self.turns.slowdown

    @property
    def slowdown(self) -> float:
        """Time now over time in the reference."""
        return self.size.slowdown * self.cores.slowdown * self.co_runner_slowdown


class Slowed(NamedTuple):
    """What sharing costs one of a set."""

    key: ProfileKey  # of the job
    slowdown: float  # time together over time alone, at least 1
    spread_ratio: float | None = None  # standard error of that, as a part of it; None is that of its source


class Prediction(NamedTuple):
    """A set of jobs on one GPU: its speed-up (paper A's delta), how much each is slowed, and what that rests on."""

    speedup: float  # time one after another over time together
    source: str  # in words
    basis: RateSource = RateSource.DEFAULT  # the same as a kind
    samples: int = 0  # sets that were measured
    jobs: tuple[Slowed, ...] = ()  # each of the set; empty where the speed-up is all there is

    def pays(self, speedup_min: float) -> bool:
        """Whether such a speed-up is predicted; of sharing of which nothing tells that it gains, none is."""
        return self.speedup >= speedup_min and self.basis is not RateSource.NO_EVIDENCE

    def of(self, key: ProfileKey) -> Slowed | None:
        """What it costs a job of that kind, None where that is not told."""
        for job in self.jobs:
            if job.key == key:
                return job
        return None


class Rate(NamedTuple):
    """How fast a job runs in a situation."""

    alone: Value | None  # time of a step alone in the same place; None while unknown
    step_s: float | None  # mean time of a step there, waiting for turns included; None while unknown
    slowdown: float  # time there over time in the reference (`ALONE`)
    source: RateSource  # where the slowdown comes from: its weakest factor
    samples: int  # what stands behind that factor
    spread_ratio: float  # how far the slowdown may be off, as a part of it (see `spread_ratio`)
    factors: Factors  # what it is made of
    jobs: int = 1  # how many run at once on its GPU, itself included
    together: Prediction | None = None  # speed-up of those, None while unknown; alone there is nothing to speed up

    @property
    def steps_per_s(self) -> float | None:
        """Steps per second, None while its time alone is unknown."""
        return 1 / self.step_s if self.step_s else None

    @property
    def ratio(self) -> float:
        """Its speed: rate there over rate in the reference (paper E's S), at most 1 at the size it asked for."""
        return 1 / self.slowdown

    @property
    def is_promised(self) -> bool:
        """Whether the rule of its lane gives it its turn soon."""
        return self.factors.turns.source is not RateSource.NO_PROMISE
