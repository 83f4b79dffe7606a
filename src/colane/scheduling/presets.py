"""Policies by name: rows made of the same parts, and short names for rows with options.

What is special about a paper stands in its parts. A policy that another row makes with options is no row but a line of
`ALIASES`: its name goes wherever a row's goes, in `--policy`, in records and in reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from colane.model.placement import TurnRule, Turns
from colane.perf.utility import FELT_FIRST, NEUTRAL
from colane.scheduling.admissions.ageing import DAY_S, HOUR_S, WEEK_S, Ageing
from colane.scheduling.admissions.backfill import Backfill
from colane.scheduling.admissions.line import DepthMax, HeadOfLine
from colane.scheduling.engine.loop import Composed, InTurn
from colane.scheduling.mechanisms.cpu.arrays import ReclaimCores
from colane.scheduling.mechanisms.cpu.cpu_array import CpuArray
from colane.scheduling.mechanisms.cpu.lending import CpuArrayBeside, GiveBack, ReclaimLent
from colane.scheduling.mechanisms.deadlines.keeping import Deadlines
from colane.scheduling.mechanisms.elastic.fair_throughput import USUAL_SIZES
from colane.scheduling.mechanisms.elastic.priced import PRICED_SIZES
from colane.scheduling.mechanisms.elastic.rebalancing import Rebalancing
from colane.scheduling.mechanisms.elastic.shrinking import ByShrinking
from colane.scheduling.mechanisms.fairness.least_share import LeastShare
from colane.scheduling.mechanisms.fairness.moves import ToAim
from colane.scheduling.mechanisms.fairness.service import LeastAttained, SmallestPart, WorstFinish
from colane.scheduling.mechanisms.fairness.shares import ShareBy
from colane.scheduling.mechanisms.fairness.usage import PastUse
from colane.scheduling.mechanisms.guarantees.keeping import Guarantees
from colane.scheduling.mechanisms.lanes.in_lane import InLane, LaneRule
from colane.scheduling.mechanisms.preemption.preemption import Preemption, PreemptsFor
from colane.scheduling.mechanisms.price.chooser import ByPrice
from colane.scheduling.mechanisms.price.gangs import ByExchange, GangMoves
from colane.scheduling.mechanisms.sharing.beside import BesideLightest, BesidePartner
from colane.scheduling.mechanisms.sharing.beside_servers import BesideServers
from colane.scheduling.mechanisms.sharing.beside_unmeasured import BesideUnmeasured
from colane.scheduling.mechanisms.sharing.beside_utility import BesideByUtility
from colane.scheduling.mechanisms.topology.connected import Fastest
from colane.scheduling.mechanisms.topology.free import Free, NodesBy
from colane.scheduling.mechanisms.topology.placement import Connected
from colane.scheduling.orders.arrival import Arrival, InferenceFirst, LightestFirst
from colane.scheduling.orders.length import LeastRemaining, Shortest
from colane.scheduling.orders.price import ByShadowPrice

BY_PRIORITY: Final = Preemption(PreemptsFor.PRIORITY)
BY_ORDER: Final = Preemption(PreemptsFor.ORDER)
GANGS: Final = Preemption(PreemptsFor.GANGS, postpones=True, for_overdue=True)
NEVER: Final = Preemption(PreemptsFor.NEVER)

HOUR: Final = Ageing(HOUR_S)
DAY: Final = Ageing(DAY_S)
WEEK: Final = Ageing(WEEK_S)
GANGS_SOONER: Final = Ageing(WEEK_S, gang_wait_ratio=5.0)

GAIN_MIN: Final = 0.1  # of a job's speed alone: sharing for less does not pay
NO_LANES: Final = InLane(LaneRule.NO, gain_min=GAIN_MIN)

PROMISES: Final = (Deadlines(), Guarantees())

PRESETS: Final[tuple[Composed, ...]] = (
    # Baselines: whole GPUs, no job is stopped.
    Composed("fifo", Arrival(), (Free(), NEVER), (WEEK, HeadOfLine())),
    Composed("easy-backfill", Arrival(), (Free(), NEVER), (WEEK, Backfill())),
    Composed("sjf", Shortest(), (Free(), NEVER), (WEEK,)),
    Composed("drf", LeastShare(), (Free(), NEVER), (DAY,)),
    # Those that make room by their order.
    Composed("srtf", LeastRemaining(), (Free(), BY_ORDER), (WEEK,)),
    Composed("las", LeastAttained(), (Free(), BY_ORDER), (WEEK,)),
    Composed("max-min", SmallestPart(), (Free(), BesidePartner(packed=False), BY_ORDER), (WEEK,), moving=ToAim()),
    Composed("finish-time-fair", WorstFinish(), (Free(), BY_ORDER), (WEEK,), moving=ToAim()),
    # Paper E.
    Composed(
        "f-sched", Arrival(), (Free(), ByShrinking(USUAL_SIZES), BY_PRIORITY), (WEEK,),
        sizes=USUAL_SIZES, moving=Rebalancing(USUAL_SIZES),
    ),
    # Paper A.
    Composed("colocate", LightestFirst(), (Free(), BesideServers(), BesideLightest(), BY_PRIORITY), (HOUR,)),
    # Paper B.
    Composed("pack", InferenceFirst(), (Free(), InLane(gain_min=GAIN_MIN), BY_PRIORITY), (HOUR,)),
    Composed(
        "salus-srtf", LeastRemaining(), (Free(), InLane(LaneRule.SINGLE), BY_ORDER), (HOUR,),
        turns=Turns(TurnRule.SRTF),
    ),
    # Paper D.
    Composed("coda", LeastShare(ShareBy.GPUS), (Free(NodesBy.ARRAYS), ReclaimCores()), (WEEK,), cpu_jobs=CpuArray()),
    # Paper C.
    Composed(
        "topo-aware", Arrival(),
        (Connected(weights=FELT_FIRST), BesideByUtility(1, FELT_FIRST), BY_PRIORITY),
        (HOUR, HeadOfLine(strict=False), DepthMax()),
    ),
    # The product's own.
    Composed(
        "colane", ByShadowPrice(),
        (Fastest(), ReclaimLent(), BesideServers(unseen=True), BesideUnmeasured(), NO_LANES, GANGS),
        (GANGS_SOONER,), sizes=PRICED_SIZES, choose=ByExchange(), chooser=ByPrice(), cpu_jobs=CpuArrayBeside(),
        moving=InTurn((GangMoves(), GiveBack())),
    ),
)  # fmt: skip

POLICIES: Final[Mapping[str, Composed]] = MappingProxyType(
    {preset.name: replace(preset, usage=PastUse(), keeps=PROMISES) for preset in PRESETS}
)
"""The rows; past use may go before the order of each, and each keeps what was promised."""

ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "fcfs": "fifo:nodes=socket",
        "slurm-fifo": "fifo:nodes=fullest",
        "fifo-skip": f"fifo:strict=no,max_wait_s={DAY_S:.0f}",
        "best-fit": f"fifo:strict=no,max_wait_s={DAY_S:.0f},nodes=fullest",
        "srsf": "srtf:counts_gpus=yes",
        "max-min-packed": "max-min:packed=yes",
        "fair": "pack:lanes=single,gain_min=none",
        "salus-code": "pack:lanes=salus,gain_min=none",
        "topo-aware-p": "topo-aware:postpones=yes",
        "topo-aware-share": "topo-aware:jobs_per_gpu_max=2",
    }
)
"""Short names, and the row with the options that each stands for."""

UNGUARDED: Final[Mapping[str, object]] = MappingProxyType({"max_wait_s": None, "protects": False})

AS_PUBLISHED: Final[Mapping[str, Mapping[str, object]]] = MappingProxyType(
    {
        "fifo": UNGUARDED,
        "easy-backfill": UNGUARDED,
        "sjf": UNGUARDED,
        "drf": UNGUARDED,
        "srtf": {**UNGUARDED, "displaces_min": 1.0, "quantum_s": 0.0},
        "salus-srtf": {"max_wait_s": None, "displaces_min": 1.0, "quantum_s": 0.0},
        "las": UNGUARDED,
        "max-min": {**UNGUARDED, "surplus_min": 1.0},
        "finish-time-fair": {**UNGUARDED, "rho_gain_min": 1.0},
        "f-sched": {
            "max_wait_s": None,
            "variance_max": 0.5,
            "rise_steps_per_s_min": 1.0,
            "rise_ratio_min": 0.0,
            "pays_back": False,
        },
        "colocate": UNGUARDED,
        "pack": {**UNGUARDED, "gain_min": None},
        "coda": UNGUARDED,
        "topo-aware": {**UNGUARDED, "weights": NEUTRAL},
    }
)
"""What each row that is others' is without what we added to it, which a cluster that people use needs (decision 9).

Bounds of waiting, gains asked for and spared beginnings that were published stay: Gavel's round (`max-min`), Themis'
lease (`finish-time-fair`), the three launch times of `f-sched`. Rows that are not here are our own.
"""

SUMMARIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "fifo": "in order of arrival; the head of the line blocks",
        "easy-backfill": "others pass the head of the line where they do not delay it",
        "sjf": "the shortest first, no job is stopped",
        "drf": "users by dominant share",
        "srtf": "least left to do first, preemptive",
        "las": "least attained service first, in queues (Tiresias)",
        "max-min": "the smallest part of a fair share first (Gavel)",
        "finish-time-fair": "the worst finish time first (Themis)",
        "f-sched": "elastic jobs by throughput functions",
        "colocate": "beside others where the pair is predicted to gain",
        "pack": "in lanes of shared GPUs, as far as memory is safe (Salus)",
        "salus-srtf": "least left to do first, in one lane while memory is safe, in place of others where not (Salus)",
        "coda": "sub-arrays, and cores lent to jobs without GPUs",
        "topo-aware": "the GPUs of best connection and least interference",
        "colane": "what a second of work saves all jobs, for every change on a GPU; the default",
    }
)
"""What each row is for, in a line; all of it stands in docs/reference/policies.md."""

NAMES: Final[tuple[str, ...]] = (*POLICIES, *ALIASES)  # whatever `create` knows without options
