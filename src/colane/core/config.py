"""Settings of the core."""

from __future__ import annotations

from dataclasses import dataclass, field

from colane.cpu.config import TuningConfig
from colane.cpu.contention import ContentionConfig
from colane.model.job_spec import ShareBetween
from colane.model.limits import Quotas
from colane.model.placement import TurnRule
from colane.perf.config import PerfConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreConfig:
    """How the core treats jobs, whatever the policy."""

    protection_factor: float = 3.0  # a job is left alone for this many launch times after its first step (paper E, 4.2)
    opaque_after_s: float = 10.0  # a process that reports no step for this long is taken to run
    # whether what is learnt outlives this run: else lengths are added up, and use by users is charged, where a part of
    # the policy goes by them alone
    is_kept: bool = True
    # a job that is given GPUs runs from that moment, and no `Launched` comes: for recorded durations, which have no
    # launching in them
    runs_at_once: bool = False
    # first and last port on which ranks of jobs over several nodes meet, each job on its own
    gang_ports: tuple[int, int] = (29500, 29999)
    node_losses_max: int = 3  # a job whose node or GPU is lost is queued again this often; the loss is not its fault
    # a job with GPUs that has waited this long is left the cores and the host memory it books by later jobs without
    # GPUs
    cpu_only_passes_s: float = 3600.0
    # nodes on which jobs of many fail at their start are taken out, see `core.reducers.black_holes`
    black_holes: bool = True
    guard: bool = True  # jobs slower with co-runners than predicted are separated
    guard_margin_ratio: float = 0.3  # by how much their slowdown may exceed the predicted one
    guard_after_s: float = 45.0  # for how long, at least
    turn_rule: TurnRule | None = None  # which job of a lane goes next; None leaves it to the policy
    quantum_s: float | None = None  # how long a turn lasts; None leaves it to the policy
    share_between: ShareBetween = ShareBetween.ALL  # which jobs may share a GPU
    # what one user's jobs have shown is believed of another's of the same family once both agree, see
    # `perf.shared_family`; otherwise at once, as all jobs of a trace are one owner's word
    families_agree: bool = True
    # a job that so often did not save its state when asked is not stopped for others any more
    saves_failed_max: int = 3
    tuning: TuningConfig | None = None  # how cores of training jobs are tuned; None leaves them what they ask for
    # when jobs without GPUs are throttled for training jobs on the same node; None never does
    contention: ContentionConfig | None = None
    limits: Quotas = field(default_factory=Quotas)  # what users and groups may have running, see `core.cluster.limits`
    # a job that has waited this long is not passed any more by smaller ones under a limit it shares
    limit_passes_s: float = 7 * 24 * 3600.0
    # safety factors on measured P, and on P so raised + E, when it is booked
    memory_factors: tuple[float, float] = (PerfConfig().persistent_factor, PerfConfig().total_factor)
