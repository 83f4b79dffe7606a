"""The service's parts put together, and what the routes ask of them."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

import httpx

from colane.core.config import CoreConfig
from colane.model.job import JobId, JobState, SuspendVia
from colane.server import changes, documents
from colane.server.admission import admit_all
from colane.server.board import Board
from colane.server.documents import Body
from colane.server.driver import Driver, Timing
from colane.server.feed import Feed
from colane.server.idempotency import expired
from colane.server.ledger import explain
from colane.server.lengths import kind_of
from colane.server.liveness import Liveness
from colane.server.logs import LogPlace
from colane.server.notifier import Notifier
from colane.server.problems import Problem, RefusedError
from colane.server.retention import Retention, outdated
from colane.server.store import FINISHED_JOBS, LAUNCH_SPECS, Document, Store, StoreError, job_key
from colane.server.turn import Turn
from colane.server.views import finished_view, job_view, node_view
from colane.server.wire import JobRequest, NodeBody, ReportBody

CLEANING_PERIOD_S: Final = 3600.0
"""How often answers to idempotency keys that nobody will use again, and records of old jobs, are removed."""

PAGE_ROWS: Final = 500
"""Records read from the store, or rendered, at once."""

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """What the service needs to know.

    Attributes:
        policy: Registered name.
        workdir: Directory of jobs that name none.
        token: Sent to agents.
        tick_s: The core is asked at least this often.
        node_timeout_s: A node silent for longer is lost.
        batch_jobs_max: Jobs in one request.
        keep_finished: What is kept of finished jobs.
        core: How jobs are treated, whatever the policy.
    """

    policy: str
    workdir: str
    token: str | None = None
    tick_s: float = 1.0
    node_timeout_s: float = 30.0
    batch_jobs_max: int = 10_000
    keep_finished: Retention = field(default_factory=Retention)
    core: CoreConfig = field(default_factory=CoreConfig)


@dataclass(slots=True)
class Service:
    """See the module's docstring; made by `make_service`.

    Attributes:
        store: Where everything is kept.
        config: See `ServiceConfig`.
        http: Talks to agents.
        driver: The only writer.
        feed: Published changes.
        liveness: When nodes were heard of.
        stopping: Set when streams shall end.
        started_s: Unix time of the start.
    """

    store: Store
    config: ServiceConfig
    http: httpx.AsyncClient
    driver: Driver
    feed: Feed
    liveness: Liveness
    started_s: float
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def board(self) -> Board:
        """What is durable now."""
        return self.driver.board

    async def run(self) -> None:
        """Drive until `stop`; what comes out of it is a bug."""
        cleaning = asyncio.create_task(self._clean())
        try:
            await self.driver.run()
        finally:
            cleaning.cancel()
            with suppress(asyncio.CancelledError):
                await cleaning
            await self.driver.notifier.close()
            await self.http.aclose()

    def end_streams(self) -> None:
        """Let followers of logs and events go, so that their connections can close."""
        self.stopping.set()
        self.feed.close()

    def stop(self) -> None:
        """End `run` once what waits is done."""
        self.end_streams()
        self.driver.stop()

    async def _clean(self) -> None:
        while True:
            try:
                for transaction in await asyncio.to_thread(expired, self.store, self.driver.now()):
                    await asyncio.to_thread(self.store.commit, transaction)
                await self.forget_old_jobs()
            except (StoreError, RefusedError) as error:
                log.warning("old idempotency keys and finished jobs were not all removed: %s", error)
            await asyncio.sleep(CLEANING_PERIOD_S)

    async def forget_old_jobs(self) -> None:
        """Remove records of finished jobs that need not be kept, in turns of the driver.

        Raises:
            StoreError: The store cannot be read.
            RefusedError: 503, it cannot be written.
        """
        keep = self.config.keep_finished
        batches = outdated(self.store, keep, self.driver.now())
        while records := await asyncio.to_thread(next, batches, None):
            await self.driver.change(partial(changes.forget, records=records, keep=keep))

    # -- jobs

    def submit(self, requests: list[JobRequest]) -> Callable[[Turn], list[JobId]]:
        """Return the change that judges and appends jobs."""
        if len(requests) > self.config.batch_jobs_max:
            most = self.config.batch_jobs_max
            raise RefusedError.because(422, f"must be at most {most} at once, got {len(requests)}", "jobs")

        def prepare(turn: Turn) -> list[JobId]:
            return changes.submit(turn, admit_all(requests, turn.board.hardware, self.config.workdir))

        return prepare

    def submit_one(self, request: JobRequest) -> Callable[[Turn], Body]:
        """Return the change that judges and appends one job; problems name its fields alone."""
        prepare = self.submit([request])

        def prepare_one(turn: Turn) -> Body:
            try:
                return {"id": prepare(turn)[0]}
            except RefusedError as refused:
                bare = [Problem(p.field.removeprefix("jobs[0]."), p.message) for p in refused.problems]
                raise RefusedError(refused.status, bare) from refused

        return prepare_one

    def cancel(self, job_id: JobId, by: str) -> Callable[[Turn], Body]:
        """Return the change that cancels a job, whatever it does; a cancelled one stays so."""

        def prepare(turn: Turn) -> Body:
            ended = self.store.get(FINISHED_JOBS, job_key(job_id)) if job_id not in turn.board.jobs else None
            if ended is None:
                changes.cancel(turn, job_id, by)
            elif ended["job"]["state"] != JobState.CANCELLED:
                raise RefusedError.because(409, f"job {job_id} has already ended: {ended['job']['state']}")
            return {"id": job_id}

        return prepare

    def suspend(self, job_id: JobId, by: str, via: SuspendVia) -> Callable[[Turn], Body]:
        """Return the change that suspends a live job."""

        def prepare(turn: Turn) -> Body:
            self._demand_live(turn, job_id)
            changes.suspend(turn, job_id, by, via, self.driver.core.state.nodes)
            return {"id": job_id}

        return prepare

    def resume(self, job_id: JobId, by: str) -> Callable[[Turn], Body]:
        """Return the change that lets a live job go on."""

        def prepare(turn: Turn) -> Body:
            self._demand_live(turn, job_id)
            changes.resume(turn, job_id, by)
            return {"id": job_id}

        return prepare

    def _demand_live(self, turn: Turn, job_id: JobId) -> None:
        """Refuse a job that has ended, by its end; one nobody knows is for the caller to refuse."""
        ended = self.store.get(FINISHED_JOBS, job_key(job_id)) if job_id not in turn.board.jobs else None
        if ended is not None:
            raise RefusedError.because(409, f"job {job_id} has already ended: {ended['job']['state']}")

    async def job(self, job_id: JobId) -> Body:
        """Return a job, live or ended.

        Raises:
            RefusedError: 404.
        """
        live = self.board.jobs.get(job_id)
        if live is None:
            return finished_view(await self._ended(job_id))
        names, progress, company = self.board.model_names, self.driver.progress, self.driver.company(job_id)
        length = self.board.lengths.get(kind_of(live.spec))
        return job_view(live, names.get(job_id), self.config.policy, progress.get(job_id), company, length)

    def live_jobs(self, state: JobState | None = None) -> Iterator[Body]:
        """Return live jobs in order of id, of one state or all; rendered as they are asked for."""
        board, progress = self.board, dict(self.driver.progress)
        jobs = [job for job in board.jobs.values() if state in (None, job.state)]
        jobs.sort(key=lambda job: job.id)
        names, policy = board.model_names, self.config.policy
        # Rendering goes on while the core changes, so what is asked of the core is asked now.
        companies = {job.id: found for job in jobs if job.placement and (found := self.driver.company(job.id))}
        lengths = [board.lengths.get(kind_of(job.spec)) for job in jobs]
        return (
            job_view(job, names.get(job.id), policy, progress.get(job.id), companies.get(job.id), length)
            for job, length in zip(jobs, lengths, strict=True)
        )

    async def why(self, job_id: JobId) -> Body:
        """Return why a job is where it is.

        Raises:
            RefusedError: 404; 503 while the store cannot be read.
        """
        job = self.board.jobs.get(job_id)
        if job is not None and job_id in self.driver.core.state.jobs:
            return explain(self.driver.core.why(job_id, self.driver.now()))
        if job is None:
            job = documents.decode_job((await self._ended(job_id))["job"])
        return explain(job.reason) if job.reason else {"why": None, "sentence": "", "facts": {}, "jobs": []}

    async def launch(self, job_id: JobId) -> Body:
        """Return what the agent needs to start a job.

        Raises:
            RefusedError: 404, no such live job; 409, it holds no GPUs.
        """
        job = self.board.jobs.get(job_id)
        secret = await asyncio.to_thread(self.store.get, LAUNCH_SPECS, job_key(job_id))
        if job is None or secret is None:
            raise RefusedError.because(404, f"there is no live job {job_id}")
        if job.placement is None:
            raise RefusedError.because(409, f"job {job_id} is queued and holds no GPUs")
        spec = job.spec
        return {
            "id": job_id,
            "attempt": job.attempt,
            "name": spec.name,
            "user": spec.user,
            "gpus": spec.gpus,
            "gpu_memory_bytes": spec.gpu_memory_bytes,
            "labels": dict(spec.labels),
            **secret,
        }

    async def locate_log(self, job_id: JobId) -> LogPlace:
        """Return where the log of a job's latest attempt lies.

        Raises:
            RefusedError: 404.
        """
        live = self.board.jobs.get(job_id)
        job = live or documents.decode_job((await self._ended(job_id))["job"])
        node = job.placement.node if job.placement else ""
        record = self.board.nodes.get(node)
        return LogPlace(job_id, job.attempt, node, record.node.address if record else "", live is not None)

    async def _ended(self, job_id: JobId) -> Document:
        ended = await asyncio.to_thread(self.store.get, FINISHED_JOBS, job_key(job_id))
        if ended is None:
            raise RefusedError.because(404, f"there is no job {job_id}")
        return ended

    def finished_jobs(self, after: int, limit: int | None, labels: dict[str, str]) -> Iterator[Body]:
        """Yield records of finished jobs in order of id, read page by page."""
        return islice(self._finished_jobs(after, labels), limit)

    def _finished_jobs(self, after: int, labels: dict[str, str]) -> Iterator[Body]:
        key = job_key(after)
        while page := self.store.page(FINISHED_JOBS, key, PAGE_ROWS):
            for _, document in page:
                has = document["job"]["spec"]["labels"]
                if all(has.get(name) == value for name, value in labels.items()):
                    yield finished_view(document)
            key = page[-1][0]

    # -- nodes

    def register(self, body: NodeBody) -> Callable[[Turn], None]:
        """Return the change that takes a node in."""

        def prepare(turn: Turn) -> None:
            changes.register(turn, body)
            self.liveness.hear(body.name, turn.now_s)

        return prepare

    async def report(self, name: str, body: ReportBody) -> Body:
        """Take in an agent's report and return its node; one without news costs no turn.

        Raises:
            RefusedError: 404, unknown node; 409, another agent's; 503.
        """

        def prepare(turn: Turn) -> None:
            changes.report(turn, name, body)
            self.liveness.hear(name, turn.now_s)

        trial = Turn(self.board, self.driver.now(), 0, self.driver.progress)
        prepare(trial)
        if trial.events or trial.messages or trial.audit:
            await self.driver.change(prepare)
        return self.node(name)

    def node(self, name: str) -> Body:
        """Return a node object.

        Raises:
            RefusedError: 404.
        """
        record = self.board.nodes.get(name)
        if record is None:
            raise RefusedError.because(404, f"there is no node {name!r}")
        jobs, seen_s = self.board.assigned(name), self.liveness.last_seen_s(name)
        tight = self.driver.tight_gpus(name)
        return node_view(record, seen_s, jobs, self.driver.turns, self.board.nodes, tight)

    def health(self) -> Body:
        """Return the service's state in numbers."""
        queued = sum(job.placement is None for job in self.board.jobs.values())
        lost = sum(record.lost for record in self.board.nodes.values())
        return {
            "status": "ok" if self.driver.is_ready else "store-unavailable",
            "policy": self.config.policy,
            "queued": queued,
            "running": len(self.board.jobs) - queued,
            "nodes": len(self.board.nodes) - lost,
            "lost_nodes": lost,
            "state_version": self.board.counters.version,
            "events": self.feed.last_number,
            "started_s": self.started_s,
        }


def make_service(
    store: Store,
    config: ServiceConfig,
    *,
    now: Callable[[], float] = time.time,
    steady: Callable[[], float] = time.monotonic,
    agents: httpx.AsyncBaseTransport | None = None,
) -> Service:
    """Read the store and put a service together; it acts once `run` runs.

    Args:
        store: Owned by the caller, who closes it after `run`.
        config: Settings.
        now: Unix time.
        steady: Seconds that only go forward, for judging silence.
        agents: How to reach agents, the network by default.

    Raises:
        StoreError: The store cannot be read.
        UnknownPolicyError: No policy of that name.
    """
    headers = {"Authorization": f"Bearer {config.token}"} if config.token else {}
    # Agents are on this machine or in this cluster: a proxy from the environment must not see them.
    client = httpx.AsyncClient(headers=headers, trust_env=False, transport=agents)
    feed = Feed(store)
    liveness = Liveness(config.node_timeout_s, steady)
    timing = Timing(tick_s=config.tick_s, now=now)
    driver = Driver(store, config.policy, timing, liveness, feed, Notifier(client), config=config.core)
    driver.load()
    return Service(store, config, client, driver, feed, liveness, now())


def json_list(items: Iterable[Body]) -> Iterator[bytes]:
    """Yield a JSON list piece by piece, so that ten thousand jobs are never one text in memory."""
    left = iter(items)
    lead = b"["
    while part := list(islice(left, PAGE_ROWS)):
        yield lead + b",".join(json.dumps(item).encode() for item in part)
        lead = b","
    yield b"]" if lead == b"," else b"[]"


async def sse_lines(service: Service, after: int) -> AsyncIterator[dict[str, Any]]:
    """Yield server-sent events: id, event (kind) and data (JSON)."""
    async for line in service.feed.follow(after):
        data = json.dumps({"at_s": line.at_s, **line.body})
        yield {"id": str(line.number), "event": line.kind, "data": data}
