"""A scheduler without scheduling: holds what the test wants, records what agents say, fails when told to."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from colane.agent.launch.users import own_account
from colane.api.of_record import as_object
from colane.api.wire_nodes import FinishedBody, NodeBody, ReportBody
from colane.client.errors import Refused, SchedulerUnreachable
from colane.model.device_use import DeviceUsage, JobUsage
from colane.model.problem import Problem
from colane.model.progress import Progress

Object = dict[str, Any]
Key = tuple[int, int]

NODE_FIELDS = {
    "leased", "secret", "version", "runs_as", "name", "agent_id", "address", "pool", "gpus", "cores",
    "host_memory_bytes", "host_bandwidth_bytes_per_s", "host_refusal", "topology",
}  # fmt: skip
REPORT_FIELDS = {
    "leased", "lease_left_s", "halts", "halts_told",
    "agent_id", "cluster_id", "events_seen", "version_seen", "epoch", "at_s", "gpus", "messages", "jobs",
    "bandwidth", "devices",
}  # fmt: skip
FINISHED_FIELDS = {
    "id", "attempt", "node", "agent_id", "cluster_id", "events_seen", "epoch", "start_s", "end_s", "exit_code",
    "signal", "outcome", "detail", "step_durations_s", "progress", "log_bytes", "log_truncated", "was_stopped",
}  # fmt: skip
OUTCOMES = {
    "exited",
    "signalled",
    "out-of-memory",
    "not-started",
    "supervisor-died",
    "stopped",
    "lease-run-out",
    "node-fault",
    "no-memory",
    "mps-fault",
    "mps-fault-of-other",
    "mps-fault-unknown",
    "gpu-refused",
}


class FakeScheduler:
    """Implements the agent's `Scheduler`; what the interface forbids fails the test at once."""

    def __init__(self) -> None:
        self.nodes: dict[str, Object] = {}
        self.reports: list[Object] = []
        self.ends: dict[Key, Object] = {}
        self.told: Counter[Key] = Counter()
        self.tellings: list[tuple[int, Key]] = []
        self.registrations = 0
        self.calls = 0
        self.away = False
        self.refuse_ends = 0
        self.lose_answers = 0
        self.takes_ends_together = True
        self.told_together: list[list[Key]] = []
        self.lost_commands: set[int] = set()
        self._jobs: dict[Key, Object] = {}
        self._launches: dict[int, Object] = {}
        self._generation = 0
        self.cluster_id = ""
        self.epoch: Object | None = None
        self.events = 0
        self.lease_s: float | None = None
        self.turns: Object = {"rule": "fair", "quantum_s": 0.0}

    def want(self, job: int, *command: str, attempt: int = 1, gpus: tuple[int, ...] = (0,), **launch: Any) -> None:
        """Place a job; `turn` holds what the node object says of its turns."""
        cores, turn = launch.pop("cores", []), launch.pop("turn", {})
        self._launches[job] = {
            "id": job, "attempt": attempt, "name": "test", "user": own_account().name, "command": list(command),
            "workdir": "/", "env": {}, "gpus": len(gpus), "mps": False, "gpu_memory_bytes": None, "labels": {},
            **launch,
        }  # fmt: skip
        slots = [{"gpu": gpu, "lane": 0} for gpu in gpus]
        wish = {"id": job, "attempt": attempt, "run": True, "slots": slots, "cores": cores, "time_limit_s": None}
        wish |= turn
        self._drop(job)
        self._change({(job, attempt): wish})

    def end(self, job: int, attempt: int = 1) -> None:
        """Ask for a job's end."""
        self._change({(job, attempt): {**self._jobs[job, attempt], "run": False}})

    def pause(self, job: int, attempt: int = 1, *, paused: bool = True, to_host: bool = False) -> None:
        """Suspend a job in its lane, or let it go on."""
        self.change(job, attempt, paused=paused, to_host=to_host)

    def resume(self, *jobs: int) -> None:
        """Let the first attempts of jobs go on, all with one word."""
        self._change({(job, 1): {**self._jobs[job, 1], "paused": False} for job in jobs})

    def change(self, job: int, attempt: int = 1, **turn: Any) -> None:
        """Say something else of a job's turns."""
        self._change({(job, attempt): {**self._jobs[job, attempt], **turn}})

    def forget(self, job: int) -> None:
        """Drop a job from the node."""
        self._drop(job)
        self._change({})

    def _drop(self, job: int) -> None:
        """The server's thread takes out what has ended meanwhile: nothing is looked through while it changes."""
        for key in list(self._jobs):
            if key[0] == job:
                self._jobs.pop(key, None)

    def seen(self, job: int) -> Object | None:
        """What the latest report says of a job."""
        jobs = self.reports[-1]["jobs"] if self.reports else []
        return next((one for one in jobs if one["id"] == job), None)

    def launched(self, job: int) -> Object | None:
        """What the latest report says of a job, once its process runs."""
        seen = self.seen(job)
        return seen if seen and seen["phase"] == "launched" else None

    def has_reported(self, count: int) -> bool:
        """Whether so many reports have come."""
        return len(self.reports) >= count

    def is_told(self, words: str) -> bool:
        """Whether the latest report has a message with these words; a busy machine may give cause for others too."""
        return bool(self.reports) and any(words in message for message in self.reports[-1]["messages"])

    async def register(self, node: Any) -> Any:
        self._answer()
        fields = NODE_FIELDS | ({"to_host_bytes_per_s"} & node.keys())
        node = as_json(node, fields, NodeBody)
        known = self.nodes.get(node["name"])
        if known and known["agent_id"] != node["agent_id"]:
            raise Refused(409, [Problem("name", f"node {node['name']} has a live agent")])
        self.registrations += 1
        self.nodes[node["name"]] = node
        return self._node(node["name"])

    async def report(self, name: str, report: Any) -> Any:
        self._answer()
        if name not in self.nodes:
            raise Refused(404, [Problem("", f"no node {name}")])
        fields = REPORT_FIELDS | ({"notice"} & report.keys())
        report = as_json(_in_full(report, self.nodes[name]), fields, ReportBody)
        if report["agent_id"] != self.nodes[name]["agent_id"]:
            raise Refused(409, [Problem("agent_id", f"node {name} belongs to another agent")])
        assert all(job["phase"] in {"launching", "launched"} for job in report["jobs"])
        self.reports.append(report)
        return self._node(name)

    async def launch_info(self, job_id: int) -> Any:
        self._answer()
        if job_id not in self._launches:
            raise Refused(404, [Problem("", f"no job {job_id}")])
        if job_id in self.lost_commands:
            raise Refused(410, [Problem("", "submit it again")])
        return as_json(self._launches[job_id])

    async def finished(self, finished: Any) -> Any:
        self._answer()
        finished = as_json(finished, FINISHED_FIELDS, FinishedBody)
        assert finished["outcome"] in OUTCOMES
        assert finished["node"] in self.nodes
        if self.refuse_ends:
            self.refuse_ends -= 1
            raise Refused(503, [Problem("", "the store cannot be written")])
        key = (finished["id"], finished["attempt"])
        self.told[key] += 1
        self.tellings.append((self.registrations, key))
        known = self.ends.setdefault(key, finished)
        said = {**finished, **{name: known[name] for name in ("events_seen", "epoch")}}
        assert known == said, "an end is always told in the same words"
        wish = self._jobs.pop(key, None)
        self._generation += wish is not None
        if self.lose_answers:
            self.lose_answers -= 1
            raise SchedulerUnreachable("http://fake", "the answer was lost")
        standing = {
            "cluster_id": self.cluster_id,
            "epoch": self.epoch,
            "events": self.events,
            "store_version": self.events,
        }
        return {"believed": True, **standing}

    async def finished_together(self, ends: Any) -> Any:
        if not self.takes_ends_together:
            raise Refused(405, [Problem("", "Method Not Allowed")])
        answers = [await self.finished(end) for end in ends]
        self.told_together.append([(end["id"], end["attempt"]) for end in ends])
        return {**answers[-1], "believed": [answer["believed"] for answer in answers]}

    def _answer(self) -> None:
        self.calls += 1
        if self.away:
            raise SchedulerUnreachable("http://fake", "it is away")

    def _change(self, jobs: dict[Key, Object]) -> None:
        self._jobs |= jobs
        self._generation += 1

    def _node(self, name: str) -> Object:
        node = {
            **self.nodes[name],
            "cluster_id": self.cluster_id,
            "epoch": self.epoch,
            "events": self.events,
            "store_version": self.events,
            "lease_s": self.lease_s,
            "generation": self._generation,
            "lost": False,
            "last_seen_s": 1.0,
        }
        return as_json({**node, "turns": self.turns, "jobs": list(self._jobs.values())})


def _in_full(report: Object, node: Object) -> Object:
    """A report with what its agent may leave out of it (`client.agent_link`)."""

    def whole(kind: type, said: Object | None) -> Object | None:
        return None if said is None else as_object(kind(**said))

    samples = {"progress": Progress, "use": JobUsage}
    jobs = [
        {name: whole(samples[name], value) if name in samples else value for name, value in job.items()}
        for job in report["jobs"]
    ]
    devices = {"devices": [whole(DeviceUsage, use) for use in report["devices"]]} if "devices" in report else {}
    return {"gpus": node["gpus"], **report, "jobs": jobs, **devices}


def as_json(value: Object, fields: set[str] | None = None, shape: type[BaseModel] | None = None) -> Object:
    """Send an object through JSON as HTTP would, and judge it as the real scheduler does, to the last field."""
    assert fields is None or set(value) == fields, set(value) ^ fields
    text = json.dumps(value, allow_nan=False)
    if shape is not None:
        shape.model_validate_json(text, extra="forbid")
    result: Object = json.loads(text)
    return result


def make_app(fake: FakeScheduler) -> Starlette:
    """Serve it over HTTP, as the real one is."""

    async def register(request: Request) -> Response:
        return await _respond(fake.register(await request.json()))

    async def report(request: Request) -> Response:
        return await _respond(fake.report(request.path_params["name"], await request.json()))

    async def launch(request: Request) -> Response:
        return await _respond(fake.launch_info(request.path_params["job"]))

    async def finished(request: Request) -> Response:
        return await _respond(fake.finished(await request.json()))

    async def finished_together(request: Request) -> Response:
        return await _respond(fake.finished_together(await request.json()))

    return Starlette(
        routes=[
            Route("/node", register, methods=["POST"]),
            Route("/node/{name}/report", report, methods=["POST"]),
            Route("/job/{job:int}/launch", launch),
            Route("/finished_job", finished, methods=["POST"]),
            Route("/finished_jobs", finished_together, methods=["POST"]),
        ]
    )


async def _respond(answer: Any) -> Response:
    try:
        return JSONResponse(await answer or {})
    except Refused as error:
        return JSONResponse({"detail": str(error)}, status_code=error.status)
    except SchedulerUnreachable as error:
        return JSONResponse({"detail": str(error)}, status_code=503)
