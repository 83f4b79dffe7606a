"""What one scheduler carries: nodes by the hundred whose jobs step, and users who go on submitting.

A real `colane server` on loopback; agents that start no process but say all that real ones say, a process for each
hundred: they register, are nudged, ask what a job is to be launched with, report steps, memory and use of each job
every two seconds, end them once no report was answered for their lease, and tell of ends. Every GPU runs a job, and as
many are submitted as end. Then all agents fall silent for longer than their lease and return at once (`--lose`).
Printed with it: the same reports by a bare loop that reads and writes JSON, so that what the machine is does not
matter.

    python -m benchmarks.agents [--agents 1000] [--gpus 8] [--rate 20] [--seconds 60] [--lose] [--first]
        [--heartbeat 2] [--lease 20] [--profile FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime as dt
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from colane.agent.files.lease import KILL_MARGIN_S
from colane.api.reports import ENDS_MAX
from colane.client.agent_link import AgentLink
from colane.client.client import Client
from colane.client.errors import SchedulerError, SchedulerUnreachable
from colane.client.locate import TOKEN_FILE, read_token
from colane.server.http.listening import raise_descriptor_limit

AGENTS_PER_PROCESS = 100
HEARTBEAT_S = 2.0
"""An agent's own default."""
LEASE_S = 20.0
STEP_S = 0.2
GB = 10**9
BATCH = 4_000
USERS = 20
RUNNING_RATIO = 0.98
BARE_REPORTS = 4_000
ACCEPTED = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 18\r\n\r\n{"accepted": true}'
STEPS = {
    "steps_total": None, "loss": None, "persistent_bytes": 2 * GB, "peak_bytes": 4 * GB, "memory_by": "torch",
    "overhead_bytes": 500_000_000, "occupancy_ratio": 0.4, "bandwidth_ratio": 0.3, "others_ratio": 0.0,
    "occupancy_by": "nvml", "note": "", "turn": "", "turn_service_s": None, "turn_wait_s": None,
    "turn_share_ratio": None, "turn_quantum_s": None, "turn_handoff_s": None, "on_host_bytes": None,
    "host_refusal": "", "saved_s": None,
    "steps_saved": None, "save_problem": "", "saves_asked": 0, "noise_scale": None, "saves": False, "reforms": False,
    "ranks": 1, "answers": None, "idle_s": None, "latency_p50_s": None, "latency_p95_s": None, "latency_p99_s": None,
}  # fmt: skip
"""What does not change of a sample."""


class Run(NamedTuple):
    """An attempt that a node runs, when it ends by itself, and how long a step of it takes."""

    job: int
    attempt: int
    begin_s: float
    end_s: float
    step_s: float


@dataclass(slots=True)
class Told:
    """What the agents of a process have seen.

    Attributes:
        reports_s: How long reports took to be answered.
        returns_s: How long after all were let return each was first answered.
        refused: Answers that were none.
        expired: Runs that ended with their lease.
        spans: Job, attempt, node, begin and end of each run that is over.
    """

    reports_s: list[float] = field(default_factory=list)
    returns_s: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    spans: list[tuple[int, int, str, float, float]] = field(default_factory=list)
    running: int = 0
    expired: int = 0
    sample: tuple[str, str] = ("", "")


class FakeAgent:
    """One node: says what a real agent says, and starts nothing."""

    def __init__(self, name: str, gpus: int, link: AgentLink, told: Told, port: int, heartbeat_s: float) -> None:
        self.name, self.woken = name, asyncio.Event()
        self._link, self._told, self._port, self._heartbeat_s = link, told, port, heartbeat_s
        self._runs: dict[tuple[int, int], Run] = {}
        self._gpus = [_gpu(name, index) for index in range(gpus)]
        self._heard: dict[str, Any] = {}
        self._returned_s: float | None = None
        self._counted = 0
        self._untold: list[Any] = []
        self._lease: asyncio.TimerHandle | None = None

    async def register(self) -> None:
        """Make the node known."""
        described: Any = {
            "name": self.name, "agent_id": f"agent of {self.name}", "secret": "s", "version": "", "pool": "default",
            "address": f"http://127.0.0.1:{self._port}/{self.name}", "gpus": self._gpus, "cores": list(range(64)),
            "host_memory_bytes": 512 * GB, "host_bandwidth_bytes_per_s": 0, "host_refusal": "",
        }  # fmt: skip
        while True:
            try:
                self._hears(await self._link.register(described))
            except SchedulerUnreachable:  # it has too many to register: asked again, as real ones do
                await asyncio.sleep(self._heartbeat_s)
            else:
                return

    def _hears(self, node: Any) -> None:  # noqa: ANN401 - a node object
        self._heard = {"cluster_id": node["cluster_id"], "epoch": node["epoch"], "events_seen": node["events"]}

    async def live(self, silent: asyncio.Event, back: asyncio.Event) -> None:
        """Report until cancelled."""
        await asyncio.sleep(random.uniform(0.0, self._heartbeat_s))  # noqa: S311
        while True:
            if silent.is_set():
                await self._be_silent(back)
            try:
                await self._round()
            except SchedulerError as error:
                self._told.refused.append(f"{self.name}: {error}")
            rest_s = min([self._heartbeat_s, *(run.end_s - time.time() for run in self._runs.values())])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, rest_s)):
                    await self.woken.wait()
            self.woken.clear()

    async def _be_silent(self, back: asyncio.Event) -> None:
        """Nothing is heard of it for longer than its lease, at whose end its jobs end."""
        await back.wait()
        self._returned_s = time.monotonic()

    def _lease_is_over(self) -> None:
        """No report was answered for so long that its jobs may be started elsewhere."""
        for run in list(self._runs.values()):
            body = self._over(run, time.time())
            body.update(outcome="lease-run-out", exit_code=None, signal=signal.SIGTERM)
            self._untold.append(body)
            self._told.expired += 1
        self._told.running, self._counted = self._told.running - self._counted, 0

    async def _round(self) -> None:
        now_s = time.time()
        self._untold += [self._over(run, now_s) for run in list(self._runs.values()) if run.end_s <= now_s]
        if untold := self._untold[:ENDS_MAX]:
            await self._link.finished_together(untold)
            del self._untold[: len(untold)]
        node = await self._report()
        await self._follow(node)

    async def _report(self) -> Any:  # noqa: ANN401 - a node object
        at_s = time.time()
        jobs = [_sample(run, at_s) for run in self._runs.values()]
        devices = [_device(gpu["index"], at_s) for gpu in self._gpus]
        report: Any = {"agent_id": f"agent of {self.name}", "at_s": at_s, "gpus": self._gpus, "messages": [],
                       "jobs": jobs, **self._heard, "leased": True, "halts": True, "bandwidth": None,
                       "devices": devices}  # fmt: skip
        began_s = time.monotonic()
        node = await self._link.report(self.name, report)
        answered_s = time.monotonic()
        if self._lease is not None:
            self._lease.cancel()
        if (lease_s := node["lease_s"]) is not None:
            left_s = began_s + lease_s - KILL_MARGIN_S - answered_s
            self._lease = asyncio.get_running_loop().call_later(max(0.0, left_s), self._lease_is_over)
        self._told.reports_s.append(answered_s - began_s)
        if self._returned_s is not None:
            self._told.returns_s.append(answered_s - self._returned_s)
            self._returned_s = None
        if not self._told.sample[0]:
            self._told.sample = json.dumps(report), json.dumps(node)
        self._hears(node)
        return node

    async def _follow(self, node: Any) -> None:  # noqa: ANN401 - a node object
        """Start and end what shall; nothing is started where the answer came too late."""
        wanted = {(job["id"], job["attempt"]): job for job in node["jobs"] if job["run"]}
        for key in [key for key in self._runs if key not in wanted]:
            body = self._over(self._runs[key], time.time())
            body.update(outcome="signalled", exit_code=None, signal=signal.SIGTERM)
            self._untold.append(body)
            self.woken.set()
        over = {(body["id"], body["attempt"]) for body in self._untold}  # with their lease, while this was asked
        for key in [key for key in wanted if key not in self._runs and key not in over]:
            launch = await self._link.launch_info(key[0])
            if self._lease is not None and self._lease.when() <= asyncio.get_running_loop().time():
                break
            if launch["attempt"] == key[1]:
                now_s = time.time()
                uneven = STEP_S * random.uniform(0.95, 1.05)  # noqa: S311
                self._runs[key] = Run(*key, now_s, now_s + float(launch["command"][1]), uneven)
                self.woken.set()
        self._told.running += len(self._runs) - self._counted
        self._counted = len(self._runs)

    def end(self) -> None:
        """Note what still runs."""
        for run in list(self._runs.values()):
            self._over(run, time.time())

    def _over(self, run: Run, end_s: float) -> Any:  # noqa: ANN401 - a finished object
        del self._runs[run.job, run.attempt]
        self._told.spans.append((run.job, run.attempt, self.name, run.begin_s, end_s))
        return {
            "id": run.job, "attempt": run.attempt, "node": self.name, "agent_id": f"agent of {self.name}",
            "start_s": run.begin_s, "end_s": end_s, "outcome": "exited", "exit_code": 0, "signal": None,
            "detail": "", "step_durations_s": [], "progress": _sample(run, end_s)["progress"], "log_bytes": 0,
            "log_truncated": False, **self._heard,
        }  # fmt: skip


def _gpu(node: str, index: int) -> dict[str, Any]:
    return {
        "index": index, "uuid": f"GPU-{node}-{index}", "type": "A100-SXM4-80GB", "memory_bytes": 80 * GB,
        "socket": index // 4, "cores": list(range(index // 4 * 32, index // 4 * 32 + 32)), "healthy": True,
        "foreign_bytes": 0, "others_ratio": 0.0, "sharing": "time-slice",
    }  # fmt: skip


def _device(index: int, at_s: float) -> dict[str, Any]:
    return {
        "index": index, "busy_ratio": 0.4, "used_bytes": 4 * GB, "power_w": 250.0 + at_s % 7, "temperature_c": 60.0,
        "throttle": [], "xid": None,
    }  # fmt: skip


def _sample(run: Run, at_s: float) -> dict[str, Any]:
    """What an agent says of a job that has run so long."""
    steps = int((at_s - run.begin_s) / run.step_s)
    stepped: Any = {"first_step_s": run.begin_s + run.step_s, "last_step_s": run.begin_s + steps * run.step_s,
                    "step_mean_s": run.step_s, "step_median_s": run.step_s}  # fmt: skip
    if not steps:
        stepped = dict.fromkeys(stepped)
    use = {
        "busy_ratio": 0.4,
        "device_bytes": 4 * GB,
        "cpu_cores": 1.0,
        "host_bytes": 3 * GB,
        "steps_per_s": 1 / run.step_s,
    }
    progress = {"at_s": at_s, "steps": steps, "cpu_s": at_s - run.begin_s, **STEPS, **stepped}
    return {
        "id": run.job, "attempt": run.attempt, "phase": "launched", "pid": 4000 + run.job, "start_s": run.begin_s,
        "progress": progress, "use": {**use, "share_ratio": None},
    }  # fmt: skip


async def _agents(first: int, count: int, asked: argparse.Namespace, url: str, token: str, orders: Connection) -> None:
    """Be so many agents until told to end."""
    loop, told, woken = asyncio.get_running_loop(), Told(), dict[str, asyncio.Event]()
    silent, back, end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def nudged(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                lengths = [int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"]
                await reader.readexactly(sum(lengths))
                woken[head.split(b" ", 2)[1].split(b"/")[1].decode()].set()
                writer.write(ACCEPTED)
        writer.close()

    def ordered() -> None:
        order = orders.recv()
        if order == "count":
            orders.send(told)
            told.reports_s, told.returns_s, told.refused, told.spans, told.expired = [], [], [], [], 0
        else:
            {"silence": silent, "return": back, "end": end}[order].set()
            if order == "return":
                silent.clear()

    loop.add_reader(orders.fileno(), ordered)
    async with contextlib.AsyncExitStack() as links:
        server = await asyncio.start_server(nudged, "127.0.0.1", 0)
        port, agents = server.sockets[0].getsockname()[1], list[FakeAgent]()
        for number in range(first, first + count):
            link = await links.enter_async_context(AgentLink(url, token))
            agents.append(FakeAgent(f"n{number}", asked.gpus, link, told, port, asked.heartbeat))
            woken[agents[-1].name] = agents[-1].woken
        for agent in agents:
            await agent.register()
        orders.send("registered")
        tasks = [asyncio.create_task(agent.live(silent, back)) for agent in agents]
        await end.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        server.close()
        for agent in agents:
            agent.end()
        orders.send(told)


def _be_agents(first: int, count: int, asked: argparse.Namespace, url: str, token: str, orders: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise_descriptor_limit()
    asyncio.run(_agents(first, count, asked, url, token, orders))


class Fleet:
    """All agents, as processes."""

    def __init__(self, asked: argparse.Namespace, url: str, token: str) -> None:
        context, self._pipes, self._processes = get_context("spawn"), list[Connection](), list[Any]()
        for first in range(0, asked.agents, AGENTS_PER_PROCESS):
            ours, theirs = context.Pipe()
            count = min(AGENTS_PER_PROCESS, asked.agents - first)
            process = context.Process(target=_be_agents, args=(first, count, asked, url, token, theirs), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)
        for pipe in self._pipes:
            pipe.recv()

    def cpu_s(self) -> float:
        """CPU time of all so far."""
        return sum(cpu_s(psutil.Process(process.pid)) for process in self._processes)

    def order(self, word: str) -> None:
        """Have all do something."""
        for pipe in self._pipes:
            pipe.send(word)

    def count(self, word: str = "count") -> Told:
        """What all have seen since the last time."""
        self.order(word)
        parts, whole = [pipe.recv() for pipe in self._pipes], Told()
        for part in parts:
            for name in ("reports_s", "returns_s", "refused", "spans"):
                getattr(whole, name).extend(getattr(part, name))
            whole.running += part.running
            whole.expired += part.expired
            whole.sample = whole.sample if whole.sample[0] else part.sample
        return whole


class Submitters:
    """Users who go on submitting, so many a second."""

    def __init__(self, url: str, token: str, rate: float, life_s: float) -> None:
        self.took_s, self.refused = list[float](), list[str]()
        self._stop, self._asked = threading.Event(), (url, token, life_s)
        count = max(1, min(8, int(rate)))
        self._threads = [threading.Thread(target=self._run, args=(count / rate,), daemon=True) for _ in range(count)]
        for thread in self._threads if rate else ():
            thread.start()

    def _run(self, gap_s: float) -> None:
        url, token, life_s = self._asked
        with Client(url, token) as client:
            while not self._stop.wait(random.expovariate(1 / gap_s)):
                began_s = time.monotonic()
                try:
                    client.submit(job(life_s))
                    self.took_s.append(time.monotonic() - began_s)
                except SchedulerError as error:
                    self.refused.append(str(error))

    def end(self) -> None:
        """Submit no more."""
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()


def job(life_s: float) -> dict[str, Any]:
    """A job of one GPU that makes steps for so long, as one of twenty users submits it."""
    user = f"u{random.randrange(USERS)}"  # noqa: S311
    return {
        "name": "train", "command": ["train", f"{life_s:.1f}"], "gpus": 1, "user": user, "family": "resnet",
        "env": {"PATH": "/usr/bin", "HOME": f"/home/{user}"}, "workdir": "/",
    }  # fmt: skip


@contextlib.contextmanager
def scheduler(folder: Path, asked: argparse.Namespace) -> Iterator[tuple[psutil.Process, str, str]]:
    """A scheduler as people start it; its process, URL and token."""
    policy, profile, is_first = asked.policy, asked.profile, asked.first
    before = ["-m", "cProfile", "-o", profile] if profile else []
    first = ["chrt", "--fifo", "1"] if is_first else []
    words = ["server", "--port", "0", "--state", str(folder / "s"), "--policy", policy, "--lease", f"{asked.lease:g}s"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("COLANE_")}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*first, sys.executable, *before, "-m", "colane.cli", *words],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=env,
        )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split(" on ", 1)[1].split(" ", 1)[0]
        yield psutil.Process(process.pid), url, read_token(folder / "s" / TOKEN_FILE) or ""
    finally:
        process.terminate()
        process.wait()
        if said := (folder / "log").read_text().splitlines()[:5]:
            print("it said:", *said, sep="\n  ")


def cpu_s(process: psutil.Process) -> float:
    """CPU time of a process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def at(ratio: float, times_s: list[float]) -> str:
    """A percentile in milliseconds."""
    return f"{sorted(times_s)[min(len(times_s) - 1, int(ratio * len(times_s)))] * 1e3:.0f} ms" if times_s else "none"


def run_twice(spans: list[tuple[int, int, str, float, float]]) -> list[tuple[int, str, str]]:
    """Jobs of which two runs overlap, with both nodes."""
    by_job = defaultdict[int, list[tuple[float, float, str]]](list)
    for number, _attempt, node, begin_s, end_s in spans:
        by_job[number].append((begin_s, end_s, node))
    return [
        (number, before[2], after[2])
        for number, runs in by_job.items()
        for before, after in pairwise(sorted(runs))
        if after[0] < before[1]
    ]


def bare_ms(sample: tuple[str, str]) -> float:
    """CPU of a report in a loop that reads its JSON and writes the answer's, and does nothing else."""
    report, answer = sample[0].encode(), json.loads(sample[1])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                json.loads(await reader.readexactly(int(head.rpartition(b": ")[2])))
                body = json.dumps(answer).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()

    async def ask(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        asked = b"POST /report HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(report), report)
        for _ in range(BARE_REPORTS):
            writer.write(asked)
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.rpartition(b": ")[2]))
        writer.close()

    async def both() -> float:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        began_s = time.thread_time()
        await asyncio.to_thread(lambda: asyncio.run(ask(server.sockets[0].getsockname()[1])))
        return (time.thread_time() - began_s) / BARE_REPORTS * 1e3

    return asyncio.run(both())


def _wait_for_jobs(fleet: Fleet, client: Client, gpus: int, limit_s: float) -> tuple[float, Told]:
    """Until all jobs run that have a GPU; how long that took, and what was seen by then.

    How many these are the scheduler says: jobs end meanwhile, and where submissions take long fewer come than end.
    """
    began_s, seen = time.monotonic(), Told()
    while True:
        part = fleet.count()
        for name in ("reports_s", "returns_s", "refused", "spans"):
            getattr(seen, name).extend(getattr(part, name))
        seen.running, seen.sample, seen.expired = part.running, part.sample, seen.expired + part.expired
        health = client.health()
        if (
            part.running >= RUNNING_RATIO * min(gpus, health["queued"] + health["running"])
            or time.monotonic() - began_s > limit_s
        ):
            return time.monotonic() - began_s, seen
        time.sleep(1.0)


def measure(asked: argparse.Namespace, folder: Path) -> None:
    """Print what was measured."""
    gpus = asked.agents * asked.gpus
    jobs = asked.jobs or gpus
    life_s = jobs / asked.rate if asked.rate else 1e6
    with scheduler(folder, asked) as (process, url, token), Client(url, token) as client:
        began_s, spent_s = time.monotonic(), cpu_s(process)
        fleet = Fleet(asked, url, token)
        print(f"{asked.agents} agents registered after {time.monotonic() - began_s:.1f} s, "
              f"{cpu_s(process) - spent_s:.1f} s of the scheduler's CPU", flush=True)  # fmt: skip
        began_s, spent_s = time.monotonic(), cpu_s(process)
        for first in range(0, jobs, BATCH):
            lives = [random.uniform(30.0, max(30.0, life_s)) for _ in range(min(BATCH, jobs - first))]  # noqa: S311
            client.submit_batch([job(one) for one in lives])
        told_s = time.monotonic() - began_s
        waited_s, seen = _wait_for_jobs(fleet, client, gpus, asked.limit)
        spans = seen.spans
        print(f"{jobs} jobs submitted in {told_s:.1f} s; {seen.running} run {waited_s:.1f} s later "
              f"({seen.expired} ended with their lease), "
              f"{cpu_s(process) - spent_s:.1f} s of CPU", flush=True)  # fmt: skip
        users = Submitters(url, token, asked.rate, life_s)
        time.sleep(10.0)
        spans += fleet.count().spans
        users.took_s.clear()
        began_s, spent_s, theirs_s = time.monotonic(), cpu_s(process), fleet.cpu_s()
        time.sleep(asked.seconds)
        cost_s, passed_s, load = cpu_s(process) - spent_s, time.monotonic() - began_s, os.getloadavg()[0]
        theirs_s = fleet.cpu_s() - theirs_s
        seen = fleet.count()
        users.end()
        spans += seen.spans
        reports = len(seen.reports_s)
        bare = bare_ms(seen.sample)
        each_ms = cost_s / max(1, reports) * 1e3
        refused = [*seen.refused, *users.refused]
        print(
            f"{reports / passed_s:.0f} reports/s, {seen.running} jobs: {cost_s / passed_s:.2f} cores, "
            f"{each_ms:.2f} ms a report "
            f"({each_ms / bare:.1f} times a bare loop's {bare:.2f} ms), answered in {at(0.5, seen.reports_s)}, "
            f"p99 {at(0.99, seen.reports_s)}; {len(users.took_s) / passed_s:.1f} submissions/s in "
            f"{at(0.5, users.took_s)}, p99 {at(0.99, users.took_s)}; {process.memory_full_info().pss / 1e6:.0f} MB; "
            f"load {load:.1f}; the agents' own {theirs_s / max(1, reports) * 1e3:.2f} ms a report; "
            f"{seen.expired} runs ended with their lease; refused: {len(refused)} {refused[:2]}",
            flush=True,
        )
        if asked.lose:
            fleet.order("silence")
            time.sleep(2 * asked.lease)
            spans += fleet.count().spans
            spent_s = cpu_s(process)
            fleet.order("return")
            time.sleep(1.0)
            waited_s, seen = _wait_for_jobs(fleet, client, gpus, asked.limit)
            spans += seen.spans
            print(
                f"all silent for {2 * asked.lease:g} s and back at once: {len(seen.returns_s)} agents answered, "
                f"the last after {max(seen.returns_s, default=0.0):.1f} s; {seen.running} jobs run after "
                f"{waited_s + 1.0:.0f} s, "
                f"{cpu_s(process) - spent_s:.1f} s of CPU; {seen.expired} more runs ended with their lease; "
                f"refused: {len(seen.refused)} {seen.refused[:2]}"
            )
        twice = run_twice(spans + fleet.count("end").spans)
        print(f"jobs that ran twice at once: {len(twice)} {twice[:3]}")


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=1_000)
    parser.add_argument("--gpus", type=int, default=8, help="of each agent")
    parser.add_argument("--jobs", type=int, default=0, help="that run; as many as there are GPUs where it is not given")
    parser.add_argument("--rate", type=float, default=20.0, help="jobs submitted a second")
    parser.add_argument("--heartbeat", type=float, default=HEARTBEAT_S, help="seconds between an agent's reports")
    parser.add_argument("--lease", type=float, default=LEASE_S, help="seconds after which a silent node is lost")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--policy", default="colane")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds waited at most until all jobs run")
    parser.add_argument("--lose", action="store_true", help="then have all agents fall silent and return at once")
    parser.add_argument("--first", action="store_true", help="the scheduler before all else here (chrt, as root)")
    parser.add_argument("--profile", default="", metavar="FILE", help="of the scheduler, by cProfile")
    asked = parser.parse_args()
    raise_descriptor_limit()
    print(
        f"{dt.datetime.now(dt.UTC):%Y-%m-%d}, {os.cpu_count()} cores, load before {os.getloadavg()[0]:.1f}; "
        f"{asked.agents} agents of {asked.gpus} GPUs, a report every {asked.heartbeat:g} s, {asked.policy}",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        measure(asked, Path(folder))


if __name__ == "__main__":
    main()
