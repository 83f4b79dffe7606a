"""Files as users write them, good and bad."""

from __future__ import annotations

from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "docs/examples/fewest_running.py"

HEAD = """
import time
from colane.core.cluster.draft import Draft
from colane.model.placement import Placement, Slot
from colane.model.hardware import GpuId
from colane.model.plan import Plan, Replan, Start
from colane.model.reason import Reason, Why
from colane.scheduling.mechanisms.topology.free import first_fit

class Mine:
    name = "mine"
    def plan(self, view):
        draft = Draft(view)
        first = min(view.jobs)
        if first in list(view.queue("default")):
            job = view.job(first)
            draft.start(job, first_fit(draft, job.spec) or (), Reason(Why.FREE_GPU, {'gpu': ''}))
            return draft.plan()
        if not list(view.queue("default")):
            return draft.plan()
"""
"""It starts the first job there is, so that one runs, and does with the others what follows."""

BAD = {
    "raises": ("        return view.jobs['nobody']\n", "line 21: KeyError: 'nobody'"),
    "returns nothing": ("        pass\n", "plan(view) must return a Plan, not NoneType"),
    "no actions": ("        return Plan(view.version, actions=['start'])\n", "Plan.actions must be a tuple"),
    "no action": ("        return Plan(view.version, actions=('start',))\n", "Plan.actions must hold Start"),
    "no reason": (
        "        return Plan(view.version, rest={'default': Reason(Why.BACKFILL)})\n",
        "lacks a fact its sentence needs: KeyError",
    ),
    "asks in the past": (
        "        return Plan(view.version, replan={'default': Replan(at_s=0.0)})\n",
        "has at_s=0.0, not a time after view.now_s",
    ),
    "loops": ("        while True:\n            pass\n", "plan(view) took longer than"),
    "sleeps": ("        time.sleep(1.0)\n", "line 21: plan(view) took longer than"),
    "writes into a job's needs": (
        "        view.job(list(view.queue('default'))[0]).spec.priority = 5\n        return draft.plan()\n",
        "line 21 sets job 2.spec.priority to 5",
    ),
    "writes into a job": (
        "        view.job(list(view.queue('default'))[0]).attempt = 5\n        return draft.plan()\n",
        "line 21 sets job 2.attempt to 5",
    ),
    "plans nonsense": (
        """        place = Placement((Slot(GpuId('nowhere', 0), 0),))
        job = list(view.queue('default'))[0]
        return Plan(view.version, (Start(job, place, Reason(Why.FREE_GPU, {'gpu': 'x'})),))
""",
        "its plan was refused: no-such-gpu",
    ),
}
"""How a policy fails while it runs, and what is said of it."""


def written(folder: Path, tail: str) -> str:
    """A file with a policy that ends so, as `--policy` names it."""
    path = folder / "mine.py"
    path.write_text(HEAD + tail)
    return f"{path}:Mine"
