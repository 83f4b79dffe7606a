"""The user who holds the fewest GPUs goes first, but the overdue before all; GPUs are shared where that pays."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from colane.scheduling.admissions.ageing import Ageing
from colane.scheduling.engine.contracts import BoundOrder
from colane.scheduling.engine.loop import Composed
from colane.scheduling.engine.walks import by_priority, each_ranked, ranked
from colane.scheduling.mechanisms.sharing.beside import BesideLightest
from colane.scheduling.mechanisms.topology.free import Free


@dataclass(frozen=True)
class ByUser:
    quantum_s: float = 60.0

    def bind(self, draft, _pool):
        held = Counter()
        for job in draft.view.jobs.values():
            held[job.spec.user] += len(job.gpus_held)

        def rank(job):
            return float(-job.spec.priority), float(held[job.spec.user])

        return BoundOrder(walk=ranked(draft, each_ranked(draft, rank)), rank=rank, displaces=by_priority)


FewestRunning = Composed("fewest-running", ByUser(), (Free(), BesideLightest()), (Ageing(3600.0),))
