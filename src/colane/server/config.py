"""What the service is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field

from colane.core.config import CoreConfig
from colane.model.limits import Quotas
from colane.model.see import See
from colane.policyfiles.guard import BUDGET_S
from colane.server.store.retention import Retention


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """What the service needs to know.

    Attributes:
        policy: Registered name, or FILE.py:NAME of a user's own.
        policy_budget_s: What a pass of a user's own policy may take.
        workdir: Directory of jobs that name none.
        tick_s: The core is asked at least this often.
        node_timeout_s: A node silent for longer is lost.
        batch_jobs_max: Jobs in one request.
        keep_finished: What is kept of finished jobs.
        quotas: How much users may have.
        see: Which jobs users are told of.
        core: How jobs are treated, whatever the policy.
    """

    policy: str
    workdir: str
    policy_budget_s: float = BUDGET_S
    tick_s: float = 1.0
    node_timeout_s: float = 60.0
    batch_jobs_max: int = 10_000
    keep_finished: Retention = field(default_factory=Retention)
    quotas: Quotas = field(default_factory=Quotas)
    see: See = See.ALL
    core: CoreConfig = field(default_factory=CoreConfig)
