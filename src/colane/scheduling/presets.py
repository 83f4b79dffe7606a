"""Every policy by name: one row each, made of the same parts. What is special about a paper stands in its parts."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from colane.model.lane import TurnRule, Turns
from colane.perf.utility import FELT_FIRST
from colane.scheduling.admissions.ageing import DAY_S, HOUR_S, WEEK_S, Ageing
from colane.scheduling.admissions.line import Backfill, DepthMax, HeadOfLine
from colane.scheduling.engine.choices import MostValue
from colane.scheduling.engine.loop import Composed
from colane.scheduling.mechanisms.cpu.arrays import InArrays, TakeBack
from colane.scheduling.mechanisms.cpu.cpu_array import CpuArray
from colane.scheduling.mechanisms.elastic.fair_throughput import FairThroughput
from colane.scheduling.mechanisms.elastic.most_value import VALUE_SIZES, Resizing
from colane.scheduling.mechanisms.elastic.rebalancing import Rebalancing
from colane.scheduling.mechanisms.elastic.shrinking import ByShrinking
from colane.scheduling.mechanisms.fairness.least_share import LeastShare
from colane.scheduling.mechanisms.fairness.moves import InTurn, ToAim
from colane.scheduling.mechanisms.fairness.service import LeastAttained, SmallestPart, WorstFinish
from colane.scheduling.mechanisms.fairness.users import ShareBy
from colane.scheduling.mechanisms.lanes.in_lane import InLane, LaneRule
from colane.scheduling.mechanisms.preemption.making_room import MakesRoom, MakingRoom
from colane.scheduling.mechanisms.preemption.making_way import MakingWay
from colane.scheduling.mechanisms.sharing.beside import BesideLightest, BesidePartner
from colane.scheduling.mechanisms.sharing.beside_utility import BesideByUtility
from colane.scheduling.mechanisms.sharing.company import BesideBest
from colane.scheduling.mechanisms.sharing.in_place import InPlaceOf
from colane.scheduling.mechanisms.sharing.moving_mate import ByMovingMate
from colane.scheduling.mechanisms.sharing.parting import Parting
from colane.scheduling.mechanisms.sharing.rearranging import Rearranging
from colane.scheduling.mechanisms.topology.connected import Connected
from colane.scheduling.mechanisms.topology.fastest import Fastest
from colane.scheduling.mechanisms.topology.free import Free, NodesBy
from colane.scheduling.mechanisms.topology.gathering import Gathering
from colane.scheduling.orders.arrival import Arrival, InferenceFirst, LightestFirst
from colane.scheduling.orders.length import LeastRemaining, Shortest
from colane.scheduling.orders.value import ByValue

BY_PRIORITY: Final = MakingRoom(MakesRoom.PRIORITY)
BY_ORDER: Final = MakingRoom(MakesRoom.ORDER)
WHERE_GOOD: Final = MakingRoom(MakesRoom.PRIORITY, postpones=True)
BY_VALUE: Final = MakingRoom(MakesRoom.ORDER, postpones=True)
NEVER: Final = MakingRoom(MakesRoom.NEVER)

HOUR: Final = Ageing(HOUR_S)
DAY: Final = Ageing(DAY_S)
WEEK: Final = Ageing(WEEK_S)

GAIN_MIN: Final = 0.1
"""Of a job's speed alone: less is not worth the company."""

SHORTEST: Final = Turns(rule=TurnRule.SRTF)

PRESETS: Final[tuple[Composed, ...]] = (
    # Baselines: whole GPUs, nobody is stopped.
    Composed("fifo", Arrival(), (Free(), NEVER), (WEEK, HeadOfLine())),
    Composed("fcfs", Arrival(), (Free(NodesBy.SOCKET), NEVER), (WEEK, HeadOfLine())),
    Composed("fifo-skip", Arrival(), (Free(), NEVER), (DAY,)),
    Composed("best-fit", Arrival(), (Free(NodesBy.FULLEST), NEVER), (DAY,)),
    Composed("easy-backfill", Arrival(), (Free(), NEVER), (WEEK, Backfill())),
    Composed("sjf", Shortest(), (Free(), NEVER), (WEEK,)),
    Composed("drf", LeastShare(), (Free(), NEVER), (DAY,)),
    Composed("slurm-fifo", Arrival(), (Free(NodesBy.FULLEST), NEVER), (WEEK, HeadOfLine())),
    # Those that make room by their order.
    Composed("srtf", LeastRemaining(), (Free(), BY_ORDER), (WEEK,)),
    Composed("srsf", LeastRemaining(counts_gpus=True), (Free(), BY_ORDER), (WEEK,)),
    Composed("las", LeastAttained(), (Free(), BY_ORDER), (WEEK,)),
    Composed("max-min", SmallestPart(), (Free(), BesidePartner(packed=False), BY_ORDER), (WEEK,), moving=ToAim()),
    Composed("max-min-packed", SmallestPart(), (Free(), BesidePartner(), BY_ORDER), (WEEK,), moving=ToAim()),
    Composed("finish-time-fair", WorstFinish(), (Free(), BY_ORDER), (WEEK,), moving=ToAim()),
    # Paper E.
    Composed(
        "f-sched", Arrival(), (Free(), ByShrinking(), BY_PRIORITY), (WEEK,),
        sizes=FairThroughput(), moving=Rebalancing(),
    ),
    # Paper A.
    Composed("colocate", LightestFirst(), (Free(), BesideLightest(), BY_PRIORITY), (HOUR,)),
    # Paper B.
    Composed("pack", InferenceFirst(), (Free(), InLane(gain_min=GAIN_MIN), BY_PRIORITY), (HOUR,)),
    Composed("fair", InferenceFirst(), (Free(), InLane(LaneRule.SINGLE), BY_PRIORITY), (HOUR,)),
    Composed("salus-srtf", InferenceFirst(), (Free(), InLane(LaneRule.SINGLE), BY_PRIORITY), (HOUR,), turns=SHORTEST),
    Composed("salus-code", InferenceFirst(), (Free(), InLane(LaneRule.SALUS), BY_PRIORITY), (HOUR,)),
    # Paper D.
    Composed("coda", LeastShare(ShareBy.GPUS), (InArrays(), TakeBack()), (WEEK,), cpu_jobs=CpuArray()),
    # Paper C.
    Composed(
        "topo-aware", Arrival(),
        (Connected(weights=FELT_FIRST), BesideByUtility(1, FELT_FIRST), BY_PRIORITY),
        (HOUR, HeadOfLine(strict=False), DepthMax()),
    ),
    Composed(
        "topo-aware-p", Arrival(),
        (Connected(weights=FELT_FIRST, postpones=True), BesideByUtility(1, FELT_FIRST, postpones=True), WHERE_GOOD),
        (HOUR, HeadOfLine(strict=False), DepthMax()),
    ),
    Composed(
        "topo-aware-share", Arrival(),
        (Connected(weights=FELT_FIRST), BesideByUtility(2, FELT_FIRST), BY_PRIORITY),
        (HOUR, HeadOfLine(strict=False), DepthMax()),
    ),
    # The product's own.
    Composed(
        "colane", ByValue(),
        (Fastest(), BesideBest(), ByMovingMate(), InPlaceOf(), ByShrinking(VALUE_SIZES), BY_VALUE),
        (WEEK,), sizes=VALUE_SIZES, choose=MostValue(),
        moving=InTurn((Rearranging(), Parting(), MakingWay(), Gathering(), Resizing())),
    ),
)  # fmt: skip

POLICIES: Final[Mapping[str, Composed]] = MappingProxyType({preset.name: preset for preset in PRESETS})
