"""What an assistant may ask and do, over whatever protocol: it looks freely, and changes only what it has planned.

Every change takes the index of a plan that this very session has made; the scheduler, or the job's state, is looked at
once more before it is done.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from colane.api.jobs import JobObject, WhyAnswer
from colane.api.plans import PlanAnswer, StartAnswer
from colane.model.phases import is_in
from colane.verbs.of_jobs import CANCEL, JOB_VERBS, REQUEUE, RESUME, SUSPEND, Deed

if TYPE_CHECKING:
    from colane.client.client import Client

THROUGH: Final = "mcp"
LABEL: Final = "through"  # jobs that were submitted so carry it, as a label: `colane ps --label through=mcp`

LINES_MAX: Final = 1_000
TAIL_BYTES: Final = 1 << 18
JOBS_MAX: Final = 200
_KEPT_OF_A_JOB: Final = ("id", "name", "user", "state", "reason", "node", "gpus", "steps", "steps_total", "attempt")

Request = dict[str, Any]


class AssistantError(Exception):
    """What an assistant asked for cannot be done; the message says why, and what to do instead."""


class PlannedChange(NamedTuple):
    """A change of a job that may be done while the job is as it was when it was planned."""

    deed: str
    job: int
    stands: str


@dataclass(slots=True)
class AssistantSession:
    """One assistant's; see the module's docstring."""

    scheduler: Client  # asked and told, in the name of the user who runs this
    # makes a whole request of a command and fields, as `colane submit` here would
    complete: Callable[[Mapping[str, Any]], Request]
    id_of: Callable[[str], int]  # gives the id of a job by its name, as `7` or `12[3]`
    _requests: dict[str, Request] = field(default_factory=dict)
    _changes: dict[str, PlannedChange] = field(default_factory=dict)

    # -- looking

    def queue(self, user: str | None = None, ended: bool = False, limit: int = 50) -> dict[str, Any]:
        """List jobs that run and wait, with why each is where it is; with `ended` also those that ended last."""
        listed = self.scheduler.listing(max(1, min(limit, JOBS_MAX)), ended=ended, user=user)
        return {"jobs": [_short(job) for job in listed["jobs"]], "left_out": listed["left_out"]}

    def job(self, job: str) -> JobObject:
        """Show all that is known of a job: state, place, needs, speed, progress, and its story with reasons."""
        return self.scheduler.job(self.id_of(job))

    def why(self, job: str) -> WhyAnswer:
        """Say why a job waits, runs or has ended, in one sentence with its numbers."""
        return self.scheduler.why(self.id_of(job))

    def start(self, job: str) -> StartAnswer:
        """Say when a job that waits would start, and end: p10, p50 and p90 in seconds, and in a sentence."""
        return self.scheduler.start_of(self.id_of(job))

    def logs(self, job: str, lines: int = 100, attempt: int | None = None) -> str:
        """Return the last lines that a job of the caller's has written; an attempt by its number, else the latest."""
        part = self.scheduler.log(self.id_of(job), -TAIL_BYTES, TAIL_BYTES, attempt)
        found = part.data.decode(errors="replace").splitlines()
        return "\n".join(found[-max(1, min(lines, LINES_MAX)) :])

    def nodes(self) -> dict[str, Any]:
        """List the nodes with their devices and the jobs on them."""
        nodes = [
            {
                "name": node["name"], "pool": node["pool"], "state": node["state"], "messages": node["messages"],
                "cores": len(node["cores"]), "host_memory_bytes": node["host_memory_bytes"],
                "gpus": [
                    {"index": gpu["index"], "type": gpu["type"], "memory_bytes": gpu["memory_bytes"]}
                    for gpu in node["gpus"]
                ],
                "jobs": [{"id": job["id"], "gpus": [slot["gpu"] for slot in job["slots"]]} for job in node["jobs"]],
            }
            for node in self.scheduler.nodes()
        ]  # fmt: skip
        return {"nodes": nodes}

    # -- planning

    def plan(
        self, command: Sequence[str], workdir: str | None = None, options: Mapping[str, Any] | None = None
    ) -> PlanAnswer:
        """Ask what would become of a job if it were submitted now; nothing is. The index is what `submit` takes.

        Options are fields of a job request, as gpus, gpu_memory ("8GB"), time_limit ("2h"), after ("ok:12"), array.
        """
        where = {} if workdir is None else {"workdir": workdir}
        return self._planned({**(options or {}), "command": [*command], **where})

    def whatif(self, job: str, changes: Mapping[str, Any]) -> PlanAnswer:
        """Ask what would become of another job like one of the caller's, with some fields changed, as {"gpus": 2}."""
        like = self.scheduler.request(self.id_of(job))
        return self._planned({**like, **changes})

    def _planned(self, said: Mapping[str, Any]) -> PlanAnswer:
        labels = said.get("labels") or {}
        if not isinstance(labels, Mapping):
            raise AssistantError(f'labels: must be an object of names and values, as {{"a": "b"}}, got {labels!r}')
        request = self.complete({**said, "labels": {**labels, LABEL: THROUGH}})
        plan = self.scheduler.plan([request])
        self._requests[plan["index"]] = request
        return plan

    def plan_change(self, deed: str, job: str) -> dict[str, Any]:
        """Say what a job is before it is changed; the index is what `change` takes.

        DEEDS
        """
        if deed not in DEEDS:
            raise AssistantError(f"deed: must be one of {', '.join(DEEDS)}, got {deed!r}")
        found = self.scheduler.job(self.id_of(job))
        planned = PlannedChange(deed, found["id"], _stands(found))
        index = f"{deed}-{planned.job}-{planned.stands}"
        self._changes[index] = planned
        return {"index": index, "would": DEEDS[deed], "job": _short(found)}

    # -- changing

    def submit(self, plan_index: str) -> dict[str, Any]:
        """Submit the job of a plan of this session, while the plan holds; if it does not, the new plan is told.

        Also told is when it starts, as `start` does.
        """
        request = self._requests.get(plan_index)
        if request is None:
            raise AssistantError(f"plan_index: no plan {plan_index!r} was made in this session: call plan or whatif")
        answer = self.scheduler.submit_told(request, plan_index)
        del self._requests[plan_index]
        return {**answer}

    def change(self, plan_index: str) -> dict[str, Any]:
        """Do what `plan_change` has planned in this session, while the job is as it was then."""
        planned = self._changes.get(plan_index)
        if planned is None:
            raise AssistantError(f"plan_index: no change {plan_index!r} was planned in this session: call plan_change")
        found = self.scheduler.job(planned.job)
        if _stands(found) != planned.stands:
            del self._changes[plan_index]
            raise AssistantError(
                f"job {planned.job} is not as it was when this was planned: by now it {is_in(found['state'])} "
                f"({found['reason']}); call plan_change again"
            )
        self.scheduler.act(JOB_VERBS[Deed(planned.deed)], planned.job)
        del self._changes[plan_index]
        return _short(self.scheduler.job(planned.job))


DEEDS: Final[Mapping[str, str]] = {row.deed.value: row.would for row in (CANCEL, SUSPEND, RESUME, REQUEUE)}
"""What is told of each before it is done."""

AssistantSession.plan_change.__doc__ = (AssistantSession.plan_change.__doc__ or "").replace(
    "DEEDS", f"Deeds: {', '.join(f'`{deed}`' for deed in DEEDS)}; what is held is let go by `resume`, too."
)

LOOKING: Final = ("queue", "job", "why", "start", "logs", "nodes", "plan", "whatif", "plan_change")
CHANGING: Final = ("submit", "change")  # names of what a session offers: the first change nothing


_FACTS_OF_A_JOB: Final = (
    "word",
    "left_s",
    "left_by",
    "now_steps_per_s",
    "speed_ratio",
    "share_got_ratio",
    "expected_start",
    "expected_end",
)


def _short(job: JobObject) -> dict[str, Any]:
    facts: Mapping[str, Any] = job.get("facts") or {}
    return {name: job.get(name) for name in _KEPT_OF_A_JOB} | {name: facts.get(name) for name in _FACTS_OF_A_JOB}


def _stands(job: JobObject) -> str:
    """What changes with every move of a job."""
    moves = len(job["story"]) + job["story_left_out"]
    text = f"{job['id']} {job['state']} {job['attempt']} {moves} {job['suspended']} {job['holds']}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]
