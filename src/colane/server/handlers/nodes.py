"""Nodes: what their agents report, and what they are told to run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from colane.api.nodes import JobTokenObject, LaunchObject, NodeObject
from colane.api.wire_nodes import FinishedBody, NodeBody, ReportBody
from colane.facts.ran import steps_told
from colane.model.device_use import DeviceUsage, JobUsage
from colane.model.job import Job, JobId
from colane.server.board import submission
from colane.server.board.arrays import launched_element
from colane.server.board.submission import launch_key
from colane.server.board.turn import Turn
from colane.server.ground.access import Caller, Role
from colane.server.ground.job_tokens import JobTokens
from colane.server.ground.problems import RefusedError
from colane.server.handlers import ownership
from colane.server.handlers.grants import Grants
from colane.server.handlers.leading import Leadership
from colane.server.nodes import liveness as leases
from colane.server.parts import Parts
from colane.server.samples.idle import IdleWatch, JobSeen
from colane.server.samples.keeper import SampleKeeper
from colane.server.store.store import LAUNCH_SPECS, Document, Store, StoreError
from colane.server.store.unreadable import get_readable
from colane.server.views.jobs_and_nodes import bandwidth_view, closed, node_view
from colane.server.writer import changes

# -- What jobs are started with, read for all who ask at the same time in one go of one thread.


class LaunchReads:
    """Reads launch specs; whoever asks while others are read is served by the next reading.

    Args:
        store: Where they are kept.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._wanted: dict[str, asyncio.Future[Document | None]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def get(self, key: str) -> Document | None:
        """Return one; None where it is not there, or cannot be read. Raises StoreError: the store cannot be read."""
        if key not in self._wanted:
            self._wanted[key] = asyncio.get_running_loop().create_future()
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        return await asyncio.shield(self._wanted[key])

    async def _read(self) -> None:
        try:
            while wanted := self._wanted:
                self._wanted = {}
                found = await asyncio.to_thread(self._found, list(wanted))
                for key, future in wanted.items():
                    result = found[key]
                    if isinstance(result, StoreError):
                        future.set_exception(result)
                        future.exception()  # looked at, whether or not its client is still there
                    else:
                        future.set_result(result)
        finally:
            self._reading = None

    def _found(self, keys: list[str]) -> dict[str, Document | StoreError | None]:
        found: dict[str, Document | StoreError | None] = {}
        for key in keys:
            try:
                found[key] = get_readable(self._store, LAUNCH_SPECS, key)
            except StoreError as error:
                found[key] = error
        return found


# -- What of an agent's report is sampled.


def take_idle(idle: IdleWatch, node: str, now_s: float, body: ReportBody, jobs: Iterable[Job]) -> None:
    """Note which of a node's jobs use what they hold; a job without a sample is taken to."""
    attempts = {job.id: job.attempt for job in jobs}
    for told in body.jobs:
        if attempts.get(JobId(told.id)) == told.attempt:
            progress, busy_ratio = told.progress, None if told.use is None else told.use.get("busy_ratio")
            steps, turn = (0, "") if progress is None else (progress.get("steps", 0), progress.get("turn", ""))
            idle.take(node, told.id, now_s, JobSeen(told.attempt, steps, busy_ratio, turn))


def take(samples: SampleKeeper, node: str, now_s: float, body: ReportBody, jobs: Iterable[Job]) -> None:
    """Sample the devices of a node, and of its jobs those whose attempt is believed to run there."""
    attempts = {job.id: job.attempt for job in jobs}
    uses = {
        told.id: JobUsage(**told.use)
        for told in body.jobs
        if told.use is not None and attempts.get(JobId(told.id)) == told.attempt
    }
    samples.take(node, now_s, [DeviceUsage(**told) for told in body.devices], uses)


@dataclass(slots=True)
class Nodes:
    """Answers agents, and tells of their nodes."""

    parts: Parts  # what the scheduler consists of
    grants: Grants  # leases of nodes
    leading: Leadership  # judges what agents have heard
    launches: LaunchReads = field(init=False)  # what jobs are started with
    tokens: JobTokens = field(init=False)  # of jobs

    def __post_init__(self) -> None:
        self.launches = LaunchReads(self.parts.store)
        self.tokens = JobTokens(self.parts.config.job_key, lambda: self.parts.read_model.jobs)

    def register(self, body: NodeBody) -> Callable[[Turn], None]:
        """Return the change that takes a node in."""

        def prepare(turn: Turn) -> None:
            changes.register(turn, body, is_heard=self.parts.liveness.is_heard(body.name))
            if body.agent_id:
                self.grants.hear(body.name, turn.now_s)

        return prepare

    async def report(self, name: str, body: ReportBody) -> NodeObject:
        """Take in an agent's report and return its node; one without news costs no turn.

        Raises RefusedError: 404, unknown node; 409, another agent's; 503.
        """
        await self.leading.refuse_while_behind(name, body)
        await self.leading.set_apart_if_of_another_history(name, body)

        def prepare(turn: Turn) -> None:
            changes.report(turn, name, self._ours(name, body))
            changes.lease(turn, name, body, may_be_endless=leases.stands_alone(self.parts.read_model, name))
            self.grants.hear(name, turn.now_s, body)

        if name in self.parts.read_model.nodes and self.parts.read_model.nodes[name].node.agent_id == body.agent_id:
            of_here = self.parts.read_model.assigned(name)
            now_s, ours = self.parts.driver.now(), self._ours(name, body)
            take(self.parts.samples, name, now_s, ours, of_here)
            take_idle(self.parts.idle, name, now_s, ours, of_here)
        trial = Turn(self.parts.read_model, self.parts.driver.now(), 0, self.parts.driver.progress)
        has_news = changes.has_stepped(trial, name, self._ours(name, body))
        if not has_news:
            prepare(trial)
        is_losing = name in self.parts.driver.losing
        if has_news or is_losing or trial.events or trial.messages or trial.audit or trial.leased or trial.halts:
            may_wait = has_news and not is_losing and changes.is_routine(trial, name, body)
            await self.parts.driver.change(prepare, may_wait=may_wait)
        self.grants.hear(name, self.parts.driver.now(), body)  # what is granted may have changed with what runs there
        told = self.node(name)
        self.grants.answered(name)
        return told

    async def finished(self, bodies: Sequence[FinishedBody]) -> list[bool]:
        """Take in how attempts ended, all in one turn, and return which are believed; what is not costs no turn.

        Raises RefusedError: see `finish`; 503.
        """
        prepares = [self.finish(body) for body in bodies]

        def prepare(turn: Turn) -> list[bool]:
            return [one(turn) for one in prepares]

        believed = prepare(Turn(self.parts.read_model, self.parts.driver.now(), 0, self.parts.driver.progress))
        return await self.parts.driver.change(prepare) if any(believed) else believed

    def finish(self, body: FinishedBody) -> Callable[[Turn], bool]:
        """Return the change that takes in how an attempt ended; one of another cluster is not believed.

        Raises RefusedError: 409, of a history that this store does not know: were it answered, its agent would go on
        from there as from ours. By its next report it is set apart.
        """
        is_ours = body.cluster_id in {None, self.leading.cluster_of(body.node)}
        if is_ours and not self.leading.is_of_ours(body.node, body):
            raise RefusedError.because(409, f"{body.node} has heard what this store never knew: it has to report first")
        return lambda turn: is_ours and changes.finish(turn, body)

    def _ours(self, name: str, body: ReportBody) -> ReportBody:
        """A report without the jobs of another cluster: their ids mean other jobs here."""
        return (
            body if body.cluster_id in {None, self.leading.cluster_of(name)} else body.model_copy(update={"jobs": []})
        )

    def node(self, name: str, caller: Caller | None = None) -> NodeObject:
        """Return a node object, to its own agent where no other caller is named. Raises RefusedError: 404."""
        record = self.parts.read_model.nodes.get(name)
        if record is None:
            raise RefusedError.because(404, f"there is no node {name!r}")
        board, seen_s = self.parts.read_model, self.parts.liveness.last_seen_s(name)
        jobs = board.wanted(name) if caller is None else board.assigned(name)
        memory, contention = self.parts.driver.memory_of(name), self.parts.driver.config.contention
        totals = {job.id: steps_told(job) for job in jobs}
        view = node_view(
            record, seen_s, jobs, self.parts.driver.turns, self.parts.read_model.nodes, memory, totals, contention
        )
        if caller is not None and not (sight := self.parts.sight(caller)).has_node(name):
            own = {job.id for job in jobs if sight.has(job.spec.user)}
            view["messages"] = closed(record.node)
            view["jobs"] = [job for job in view["jobs"] if job["id"] in own]
        if caller is not None:
            seen = self.parts.driver.core.state.nodes.get(name) if self.parts.driver.is_ready else None
            view["bandwidth_use"] = bandwidth_view(None if seen is None else seen.bandwidth, self.parts.driver.now())
        return {
            **view,
            **self.leading.standing_of(name),
            "leased": record.leased,
            "lease_s": leases.lease_s(self.parts.read_model, record, self.grants.lease_s(name)),
        }

    async def launch(self, job_id: JobId, caller: Caller) -> LaunchObject:
        """Return what the agent needs to start a job.

        Raises RefusedError: 403, neither its owner nor an agent it is placed with; 404, no such live job; 409, it runs
        nowhere; 410, its command cannot be read any more.
        """
        job = self.parts.read_model.jobs.get(job_id)
        if job is not None:
            ownership.demand_launch(job, self.parts.sight(caller))
        if job is None:
            raise RefusedError.because(404, f"there is no live job {job_id}")
        if job.placement is None:
            raise RefusedError.because(409, f"job {job_id} is queued and runs nowhere")
        secret = await self.launches.get(launch_key(job))
        if secret is None and job_id not in self.parts.read_model.jobs:  # it has ended meanwhile
            raise RefusedError.because(404, f"there is no live job {job_id}")
        if secret is None:
            gone = "its command cannot be read from the scheduler's store any more: submit it again"
            raise RefusedError.because(410, gone)
        spec = job.spec
        own = None if caller.role is Role.USER else self.tokens.token_of(job)
        token: JobTokenObject = {} if own is None else {"token": own}
        return {
            "id": job_id,
            "attempt": job.attempt,
            "name": spec.name,
            "user": spec.user,
            "gpus": job.gpu_count,
            "gpu_memory_bytes": spec.gpu_memory_bytes,
            "labels": dict(spec.labels),
            **submission.to_launch(secret, spec.pool),
            **launched_element(job, self.parts.read_model),
            **token,
        }
