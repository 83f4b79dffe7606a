"""What `colane submit --plan` says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colane.cli import output
from colane.cli.errors import MisuseError
from colane.cli.jobs import objects as jobs
from colane.cli.submit.handing_in import place
from colane.cli.submit.jobfile import JobFile
from colane.client.errors import Refused
from colane.model.words import percent

if TYPE_CHECKING:
    from colane.api.jobs import JobRequestObject
    from colane.api.plans import MakesWayObject, PlanAnswer

DEEDS = {
    "stop": "would be stopped and queued again",
    "park": "would wait parked, its process alive",
    "move": "would move",
    "resize": "would go on with another number of GPUs",
    "set-cores": "would have other cores",
    "set-throttle": "would be held back",
}


def ask(file: JobFile, wanted: list[JobRequestObject]) -> PlanAnswer:
    """Ask what would become of jobs; a refusal names the option, or the line of the file."""
    is_one = len(wanted) == 1 and not file.is_batch
    try:
        with jobs.client() as scheduler:
            return scheduler.plan(wanted)
    except Refused as refused:
        if refused.status >= 500:
            raise
        said = [
            place(file, field.removeprefix("jobs[0].") if is_one else field, message)
            for field, message in refused.problems
        ]
        raise MisuseError("; ".join(said)) from refused


def tell(plan: PlanAnswer, *, as_json: bool) -> None:
    """Say what would become of them, and the index."""
    if as_json:
        output.print_json(plan)
        return
    for job in plan["jobs"]:
        output.say(f"job {job['id']} ({job['name']}) {job['sentence']}")
    for other in plan["makes_way"]:
        output.say(_makes_way(other))
    output.say("nothing was submitted; to submit while this holds: --if-plan INDEX in place of --plan")
    output.say(f"plan {plan['index']}")


def _makes_way(other: MakesWayObject) -> str:
    name = "another user's job" if other["job"] is None else f"job {other['job']}"
    deed = DEEDS.get(other["action"], f"would be changed ({other['action']})")
    now, then = other["ratio_now"], other["ratio_then"]
    speeds = "" if now is None or then is None else f", at {percent(then)} of its speed alone (now {percent(now)})"
    return f"{name} {deed}{speeds}"
