"""Nodes: what their agents report, and what they are told to run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import inf

from colane.api.nodes import JobTokenObject, LaunchObject, NodeObject, ReservationObject, ReservedObject
from colane.api.wire_nodes import FinishedBody, NodeBody, ReportBody, ReserveBody
from colane.core.events import NodeReserved
from colane.facts.ran import steps_told
from colane.model.device_use import DeviceUsage, JobUsage
from colane.model.hardware import KeptFor, nodes_named
from colane.model.job import Job, JobId
from colane.server.board import submission
from colane.server.board.arrays import launched_element
from colane.server.board.read_model import NodeRecord
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
from colane.server.submitting.admission import begin_hold
from colane.server.submitting.asked_conditions import time_text
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


# -- Reserving nodes: who may use them from when to when.


def reserve_nodes(turn: Turn, body: ReserveBody, by: str) -> ReservedObject:
    """Keep nodes for users. Raises RefusedError: 404, 409, 422."""
    try:
        nodes = list(dict.fromkeys(nodes_named(body.nodes)))
    except ValueError as error:
        raise RefusedError.because(422, str(error), "nodes") from error
    times = {name: begin_hold(text, turn.now_s, name) for name, text in (("from", body.from_), ("to", body.to))}
    from_s, to_s = ((hold.until_s if hold is not None else None) or turn.now_s for hold in times.values())
    if to_s <= max(from_s, turn.now_s):
        raise RefusedError.because(422, f"must be later than from, {time_text(from_s)}, got {body.to}", "to")
    if unknown := [name for name in nodes if name not in turn.read_model.nodes or name in turn.removed_nodes]:
        raise RefusedError.because(404, f"there is no node {unknown[0]!r}; colane nodes lists those there are", "nodes")
    present = {each["name"] for each in reserved(turn.read_model.nodes.values(), turn.now_s, turn)}
    name = body.name or next(word for i in count(1) if (word := f"{body.users[0]}-{i}") not in present)
    if name in present:
        raise RefusedError.because(409, f"there is a reservation {name!r}: choose another name, or cancel it", "name")
    made = KeptFor(name, tuple(dict.fromkeys(body.users)), from_s, to_s, by)
    for node in nodes:
        for one in turn.reservations_of(turn.read_model.nodes[node].node):
            if one.from_s < to_s and from_s < one.to_s:
                text = f"{node} is kept for {one.told} from {time_text(one.from_s)} to {time_text(one.to_s)}"
                raise RefusedError.because(409, f"{text}: choose another time, or cancel that", "nodes")
        if not body.ignore_jobs:
            demand_ended(turn, node, made)
    for node in nodes:
        _say(turn, node, [*turn.reservations_of(turn.read_model.nodes[node].node), made])
    return _shown(made, nodes)


def demand_ended(turn: Turn, node: str, made: KeptFor) -> None:
    """Refuse what would find jobs of others there. Raises RefusedError: 409."""
    for job in turn.read_model.jobs.values():
        promised = job.constraints.promised if job.placement is None and job.spec.user not in made.users else None
        due_s = job.due_s or inf
        if promised is not None and node in {gpu.node for gpu in promised.gpus} and due_s > made.from_s:
            fix = "reserve other nodes, or from then on, or with ignore_jobs (--ignore-jobs)"
            text = f"job {job.id} of {job.spec.user} was promised GPUs of {node} until {time_text(due_s)}: {fix}"
            raise RefusedError.because(409, text, "nodes")
        limit_s = job.effective.time_limit_s
        end_s = inf if limit_s is None else (turn.now_s if job.start_s is None else job.start_s) + limit_s
        is_there = job.placement is not None and node in job.placement.nodes and job.spec.user not in made.users
        if is_there and end_s > made.from_s:
            end = "has no time limit" if end_s == inf else f"may run there until {time_text(end_s)}"
            fix = "limit its time (colane change), requeue it, or reserve with ignore_jobs (--ignore-jobs)"
            raise RefusedError.because(409, f"job {job.id} of {job.spec.user} on {node} {end}: {fix}", "nodes")


def unreserve_nodes(turn: Turn, name: str) -> None:
    """Keep nodes no longer. Raises RefusedError: 404."""
    found = False
    for record in turn.read_model.nodes.values():
        known = turn.reservations_of(record.node)
        left = [one for one in known if one.name != name]
        if len(left) < len(known):
            found = True
            _say(turn, record.node.name, left)
    if not found:
        raise RefusedError.because(404, f"there is no reservation {name!r}; colane reserve lists those there are")


def _say(turn: Turn, node: str, reservations: Sequence[KeptFor]) -> None:
    """What a node is reserved for from now on; what is over is forgotten."""
    left = tuple(sorted([one for one in reservations if one.to_s > turn.now_s], key=lambda one: one.from_s))
    turn.reserved[node] = left
    turn.events.append(NodeReserved(node, left))
    kept = [_whole(one) for one in left]
    turn.record("node-reserved", node=node, reservations=[one.name for one in left], kept=kept)


def _whole(one: KeptFor) -> ReservationObject:
    return {"name": one.name, "users": list(one.users), "from_s": one.from_s, "to_s": one.to_s, "by": one.by}


def _shown(one: KeptFor, nodes: list[str]) -> ReservedObject:
    return {**_whole(one), "nodes": nodes}


def reserved(nodes: Iterable[NodeRecord], now_s: float, turn: Turn | None = None) -> list[ReservedObject]:
    """Return the reservations that are not over, with their nodes, in order of time."""
    found: dict[str, ReservedObject] = {}
    for record in nodes:
        node = record.node
        for one in node.reservations if turn is None else turn.reservations_of(node):
            if one.to_s > now_s:
                made = found.setdefault(one.name, _shown(one, []))
                made["nodes"].append(node.name)
    return sorted(found.values(), key=lambda one: (one["from_s"], one["name"]))
