"""First come, first served; where GPUs are free on no node for the first, jobs of one GPU move together to make room.

A policy without parts that moves jobs: `colane simulate -c dgx1 -t jobs.csv -p makes_room.py:MakesRoom --checkpoints`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from colane.core.cluster.draft import Draft
from colane.model.job import JobState
from colane.model.placement import Turns
from colane.model.reason import Reason, Why
from colane.scheduling.mechanisms.topology.free import first_fit


@dataclass(frozen=True)
class MakesRoom:
    moved_max: int = 4
    min_runtime_before_preemption_s: float = 60.0  # until then a job is protected, and not RUNNING
    name: str = "makes-room"
    turns: Turns = field(default_factory=Turns)

    def plan(self, view):
        draft = Draft(view)
        for pool in view.pools:
            for job in map(view.job, view.queue(pool)):
                gpus = first_fit(draft, job.effective)
                if gpus is None:  # it waits, and all behind it
                    self.make_room(draft, job)
                    draft.plan_after_moves(pool)
                    break
                draft.start(job, gpus, Reason(Why.FREE_GPU, {"gpu": str(gpus[0].id)}))
        return draft.plan()

    def make_room(self, draft, job):
        nodes = [node for node in draft.view.nodes.values() if node.node.takes_jobs]
        leaving = [each.id for each in draft.view.jobs.values() if each.preempted_for == job.id]
        moves = min(filter(None, (self.moves(draft, node, nodes, job) for node in nodes)), key=len, default=[])
        for other, gpu in moves if not leaving else ():
            facts = {"had": str(other.gpus_held[0]), "because": f"{job.spec.name} needs GPUs of one node"}
            draft.resize(other, (gpu,), Reason(Why.RESIZED, facts, (job.id,)), for_job=job.id)
            leaving.append(other.id)
        if leaving:
            draft.waits[job.id] = Reason(Why.PREEMPTING, jobs=tuple(leaving))

    def moves(self, draft, node, nodes, job):
        """Jobs that would leave a node for free GPUs of others, the fullest first, so that this one fits; else none."""
        kinds = draft.view.gpu_types_for(job.spec) if node.node.pool == job.spec.pool else ()
        lacking = min((job.spec.gpus - draft.free_count(node, kind) for kind in kinds), default=0)
        here = [draft.view.job(each) for each in node.jobs]
        able = [each for each in here if each.state is JobState.RUNNING and each.spec.preemptible
                and len(each.gpus_held) == 1]  # fmt: skip
        free = sorted((draft.free_gpus(other, kind) for other in nodes for kind in kinds if other is not node), key=len)
        found = list(zip(able, (gpu for gpus in free for gpu in gpus), strict=False))
        return found[:lacking] if 0 < lacking <= min(len(found), self.moved_max) else []
