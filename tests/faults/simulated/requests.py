"""Jobs that clients of a simulated world ask for, drawn from its seed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from colane.api.job_request import JobRequest
from tests.faults.simulated.machine import LEAD_S

FAMILIES: Final = ("a", "b", "c")


def draw(pick: Random, number: int, gpus_by_machine: Sequence[int]) -> JobRequest:
    """One job: now and then over several nodes, elastic, saving its state, or ending with a failure."""
    most, most_here = sum(gpus_by_machine), max(gpus_by_machine)
    gang = most > 1 and pick.random() < 0.25
    saves = not gang and pick.random() < 0.4
    gpus = pick.randint(2, min(most, 3)) if gang else pick.choice((1, 1, 1, 1, int(saves)))
    work = {
        "work_s": str(round(pick.choice((5, 60)) * pick.uniform(0.2, 1.5), 1)),
        "code": str(int(pick.random() < 0.15)),
    }
    return JobRequest.model_validate({
        "name": f"job-{number}",
        "command": ["work"],
        "family": pick.choice(FAMILIES),
        "labels": work,
        "gpus": f"1..{most_here}" if saves and pick.random() < 0.6 else gpus,
        "multi_node": gang,
        "priority": pick.choice((0, 0, 0, 5)) if not gang else 0,
        "preemptible": saves or pick.random() < 0.5,
        **({"checkpoint": "plain", "checkpoint_lead_s": LEAD_S} if saves else {}),
        "retries": pick.choice((0, 0, 2)),
        **({"time_limit_s": pick.uniform(5.0, 40.0)} if pick.random() < 0.15 else {}),
    })  # fmt: skip
