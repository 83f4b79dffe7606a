"""Steps of a job over several machines: the script runs on the first, and its `srun` starts tasks on all of them.

Colane starts the same command on each machine. On the first it becomes the leader, which runs the script; on each, the
leader's own included, a member runs the tasks of that machine, as `srun` in a job of one machine does. Members and each
`srun` of the script connect to the leader, by the address where the job's ranks meet and a port near that of theirs,
and prove that they have the job's key, which came with its environment.

A message is a JSON object, and behind a zero byte what tasks have written.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from typing import Any, Final, NamedTuple

from colane.integrations.slurm import contact
from colane.integrations.slurm.contact import SlurmError

KEY: Final = "SLURM_COLANE_KEY"
"""In the environment of a job over several machines: what its processes know each other by."""
PER_NODE: Final = "SLURM_COLANE_TASKS_PER_NODE"
PER_GPU: Final = "SLURM_COLANE_TASKS_PER_GPU"
"""What a job has in place of `PER_NODE` that an older Colane has submitted."""
LEADER: Final = "SLURM_COLANE_LEADER"  # in the script's environment: where the leader listens, as `HOST:PORT`
TASKS: Final = "SLURM_COLANE_TASKS"  # in the script's environment: tasks on each machine, as `2,1`
SHARE: Final = "SLURM_COLANE_SHARE"
"""In the environment of the `srun` that runs the tasks of one machine: which those are."""

OWN_PREFIX: Final = "SLURM_COLANE_"  # what is of one job, and of none that is submitted from within it

OF_JOB: Final = frozenset({"SLURM_JOB_NODELIST", "SLURM_NODELIST"})
"""What the leader tells the script of all machines, where the beginning of a job knows its own."""

MEETING: Final = ("MASTER_ADDR", "MASTER_PORT", "NNODES", "NODE_RANK", "NPROC_PER_NODE")
"""What Colane tells a job of several machines, unless the shell that submits it has said it already."""

NEAR: Final = 500  # so far from the port where ranks meet: those beside it are other jobs'
TRIES: Final = 16
LAST_PORT: Final = 65_535
AGAIN_S: Final = 0.2
ANSWER_MAX_S: Final = 5.0
WAIT_MAX_S: Final = 5.0
ALL_THERE_S: Final = 30.0  # machines that have not connected by then are told of
PART_BYTES: Final = 1 << 16
SIGNALLED: Final = 128
RUN_SRUN: Final = (
    sys.executable, "-I", "-c",
    "import sys; from colane.integrations.slurm.main import main; sys.exit(main('srun', '', sys.argv[1:]))",
)  # fmt: skip


class TaskShare(NamedTuple):
    """Tasks of a step on one machine."""

    node: int  # which of the step's machines it is
    nodes: Sequence[str]  # names of all of them
    tasks: Sequence[int]  # how many tasks each of them has
    step: int = 0  # the step's number

    @property
    def ranks(self) -> range:
        """The tasks here."""
        ends = list(itertools.accumulate(self.tasks))
        return range(ends[self.node] - self.tasks[self.node], ends[self.node])


def own_share() -> TaskShare | None:
    """Which tasks this `srun` runs; None where it is not of several machines."""
    text = os.environ.get(SHARE)
    return TaskShare(*json.loads(text)) if text else None


def tasks_per_node(tasks: Sequence[int]) -> str:
    """Write numbers of tasks as Slurm does: `2(x3),1`."""
    parts = list[tuple[int, int]]()
    for number in tasks:
        times = parts.pop()[1] if parts and parts[-1][0] == number else 0
        parts.append((number, times + 1))
    return ",".join(str(number) if times == 1 else f"{number}(x{times})" for number, times in parts)


# -- messages


class Peer:
    """One end of a connection, which several threads write to."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, message: Mapping[str, Any], data: bytes = b"") -> None:
        """Send a message; one that is for a process that has gone is lost."""
        with self._lock, suppress(OSError):
            self._connection.send_bytes(json.dumps(message).encode() + b"\0" + data)

    def receive(self) -> tuple[dict[str, Any], bytes] | None:
        """Wait for the next message; None once the other end is closed."""
        try:
            text, _, data = self._connection.recv_bytes().partition(b"\0")
        except (EOFError, OSError):
            return None
        return json.loads(text), data


def _ports() -> list[int]:
    meeting = int(os.environ["MASTER_PORT"])
    first = meeting + NEAR if meeting + NEAR + TRIES <= LAST_PORT else meeting - NEAR
    return list(range(first, first + TRIES))


def _reach(host: str, ports: Sequence[int], *, waits: bool) -> Peer:
    """Connect to the leader, who may not have begun to listen.

    Raises SlurmError: it is not there, and is not to be waited for.
    """
    key = os.environ[KEY].encode()
    while True:
        for port in ports:
            if (found := _connected(host, port, key)) is not None:
                return Peer(found)
        if not waits:
            raise SlurmError("the job's batch script does not answer")
        select.select([], [], [], AGAIN_S)


def _connected(host: str, port: int, key: bytes) -> Connection | None:
    """Connect to a port where the leader may listen, or another program that says nothing."""
    with suppress(OSError, EOFError, AuthenticationError):
        connection = Connection(socket.create_connection((host, port), ANSWER_MAX_S).detach())
        os.set_blocking(connection.fileno(), True)
        if connection.poll(ANSWER_MAX_S):
            answer_challenge(connection, key)
            deliver_challenge(connection, key)
            return connection
        connection.close()
    return None


# -- on the first machine


@dataclass
class _Member:
    peer: Peer
    name: str
    gpus: int


@dataclass
class _Step:
    client: Peer
    nodes: Sequence[int]
    kills: bool
    codes: list[int] = field(default_factory=list)


class StepLeader:
    """Runs the script, and brings its steps to the members."""

    def __init__(self) -> None:
        self._key = os.environ[KEY].encode()
        self._base = dict(os.environ)
        self._members: dict[int, _Member] = {}
        self._steps: dict[int, _Step] = {}
        self._numbers = itertools.count()
        self._lock = threading.Condition()
        self._script: subprocess.Popen[bytes] | None = None
        self._lost = ""
        self._is_over = False

    def run(self, words: Sequence[str]) -> int:
        """Run the script once all machines are there; return its exit code, or 1 once one of them is lost."""
        listener, port = self._listen()
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        own = subprocess.Popen([*RUN_SRUN, "--member"])
        nodes = int(self._base["NNODES"])
        with self._lock:
            if not self._lock.wait_for(lambda: len(self._members) == nodes, ALL_THERE_S):
                here = f"{len(self._members)} of {nodes} machines have reached {self._base['MASTER_ADDR']}:{port}"
                contact.note("srun", f"{here} so far; the script begins once all have")
            self._lock.wait_for(lambda: len(self._members) == nodes)
            env = {**self._base, **self._told(), LEADER: f"{self._base['MASTER_ADDR']}:{port}"}
            self._script = subprocess.Popen(words, env=env, close_fds=False)
        code = self._script.wait()
        with self._lock:
            self._is_over = True
            for member in self._members.values():
                member.peer.send({"bye": True})
        own.wait()
        return 1 if self._lost else SIGNALLED - code if code < 0 else code

    def _listen(self) -> tuple[Listener, int]:
        for port in _ports():
            with suppress(OSError):
                return Listener(("", port), backlog=64), port
        raise SlurmError(f"no port of {_ports()[0]} to {_ports()[-1]} is free for the job's steps")

    def _told(self) -> dict[str, str]:
        """What the script is told of its machines."""
        members = [self._members[node] for node in range(len(self._members))]
        names, each = ",".join(member.name for member in members), self._base.get(PER_NODE)
        tasks = [int(each) if each else member.gpus * int(self._base[PER_GPU]) for member in members]
        told: dict[str, object] = {
            "SLURM_JOB_NUM_NODES": len(members), "SLURM_NNODES": len(members), "SLURM_NTASKS": sum(tasks),
            "SLURM_NPROCS": sum(tasks), "SLURM_TASKS_PER_NODE": tasks_per_node(tasks), "SLURM_JOB_NODELIST": names,
            "SLURM_NODELIST": names, "SLURM_GPUS_ON_NODE": members[0].gpus, TASKS: ",".join(map(str, tasks)),
        }  # fmt: skip
        return {name: str(value) for name, value in told.items()}

    def _accept(self, listener: Listener) -> None:
        while True:
            with suppress(OSError):
                connection = listener.accept()
                threading.Thread(target=self._hear, args=(connection,), daemon=True).start()

    def _hear(self, connection: Connection) -> None:
        try:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
        except (OSError, EOFError, AuthenticationError):
            connection.close()
            return
        peer = Peer(connection)
        found = peer.receive()
        if found is not None and "member" in found[0]:
            self._hear_member(peer, found[0])
        elif found is not None:
            self._hear_step(peer, found[0])

    def _hear_member(self, peer: Peer, told: Mapping[str, Any]) -> None:
        peer.send({"base": self._base})
        with self._lock:
            self._members[told["member"]] = _Member(peer, told["name"], told["gpus"])
            self._lock.notify_all()
        while (found := peer.receive()) is not None:
            message, data = found
            step = self._steps.get(message["step"])
            if step is not None and "code" in message:
                self._ended(message["step"], step, message["code"])
            elif step is not None:
                step.client.send({"to": message["to"]}, data)
        with self._lock:
            if not self._is_over and self._script is not None:
                self._lost = told["name"]
                contact.note("srun", f"error: {self._lost} is gone, the job ends")
                self._script.kill()

    def _ended(self, number: int, step: _Step, code: int) -> None:
        with self._lock:
            step.codes.append(code)
            if len(step.codes) == len(step.nodes):
                del self._steps[number]
                step.client.send({"code": max(step.codes)})
            elif code and step.kills:
                self._end(number, step)

    def _end(self, number: int, step: _Step) -> None:
        for node in step.nodes:
            self._members[node].peer.send({"step": number, "end": True})

    def _hear_step(self, client: Peer, asked: Mapping[str, Any]) -> None:
        nodes: Sequence[int] = asked["nodes"]
        names = [self._members[node].name for node in nodes]
        with self._lock:
            number = next(self._numbers)
            step = self._steps[number] = _Step(client, nodes, asked["kills"])
        for at, node in enumerate(nodes):
            share = json.dumps(TaskShare(at, names, asked["tasks"], number))
            run = {name: asked[name] for name in ("words", "cwd", "env")}
            self._members[node].peer.send({"step": number, **run, "share": share})
        while client.receive() is not None:
            pass
        with self._lock:
            if number in self._steps and self._steps[number] is step:
                self._end(number, step)


# -- on each machine


class StepMember:
    """Runs the tasks of this machine."""

    def __init__(self) -> None:
        self._own = dict(os.environ)
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def run(self) -> int:
        """Run what the leader says until the script has ended; return 1 where the leader has gone before."""
        node = int(self._own["NODE_RANK"])
        self._leader = _reach(self._own["MASTER_ADDR"], _ports(), waits=True)
        gpus = int(self._own["NPROC_PER_NODE"])
        self._leader.send({"member": node, "name": self._own["COLANE_NODE"], "gpus": gpus})
        is_over = False
        base: Mapping[str, str] = {}
        while not is_over and (found := self._leader.receive()) is not None:
            message = found[0]
            if "share" in message:
                self._start(message, base)
            elif "end" in message and message["step"] in self._running:
                self._running[message["step"]].terminate()
            base = message.get("base", base)
            is_over = "bye" in message
        for process in list(self._running.values()):
            process.terminate()
        for process in list(self._running.values()):
            process.wait()
        return 0 if is_over else 1

    def _start(self, message: Mapping[str, Any], base: Mapping[str, str]) -> None:
        # What the script has set goes to its tasks, but where machines differ (their devices) each keeps its own.
        apart = {name for name in {*self._own, *base} if self._own.get(name) != base.get(name)} - OF_JOB
        env = {name: value for name, value in message["env"].items() if name not in apart}
        env |= {name: value for name, value in self._own.items() if name in apart}
        env |= {"SLURM_GPUS_ON_NODE": self._own["NPROC_PER_NODE"], SHARE: message["share"]}
        step = message["step"]
        try:
            process = subprocess.Popen(
                [*RUN_SRUN, *message["words"]], env=env, cwd=message["cwd"],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
        except OSError as error:
            text = f"srun: error: {self._own['COLANE_NODE']}: {error.filename}: {error.strerror}\n"
            self._leader.send({"step": step, "to": 2}, text.encode())
            self._leader.send({"step": step, "code": 1})
            return
        self._running[step] = process
        threading.Thread(target=self._follow, args=(step, process), daemon=True).start()

    def _follow(self, step: int, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None and process.stderr is not None  # noqa: PT018, S101 - both are pipes
        threads = [
            threading.Thread(target=self._copy, args=(step, source.fileno(), to), daemon=True)
            for source, to in ((process.stdout, 1), (process.stderr, 2))
        ]
        for thread in threads:
            thread.start()
        code = process.wait()
        for thread in threads:
            thread.join(WAIT_MAX_S)  # what tasks leave behind may hold them open
        del self._running[step]
        self._leader.send({"step": step, "code": SIGNALLED - code if code < 0 else code})

    def _copy(self, step: int, source: int, to: int) -> None:
        while data := os.read(source, PART_BYTES):
            self._leader.send({"step": step, "to": to}, data)


# -- in the script


def follow(words: Sequence[str], chosen: Sequence[int], tasks: Sequence[int], *, kills: bool) -> int:
    """Have a step run on machines of this job, write what it writes, and return its exit code.

    Args:
        words: Of `srun`.
        chosen: Which of the job's machines.
        tasks: How many tasks on each of them.
        kills: One task that fails ends all.
    """
    host, _, port = os.environ[LEADER].rpartition(":")
    leader = _reach(host, [int(port)], waits=False)
    asked = {"words": list(words), "cwd": os.getcwd(), "env": dict(os.environ)}  # noqa: PTH109 - as it is
    leader.send({**asked, "nodes": list(chosen), "tasks": list(tasks), "kills": kills})
    while (found := leader.receive()) is not None:
        message, data = found
        if "code" in message:
            return int(message["code"])
        stream = sys.stdout if message["to"] == 1 else sys.stderr
        stream.buffer.write(data)
        stream.flush()
    raise SlurmError("the job ends")


_NODES: Final = re.compile(r"\d+")


def shared_out(
    names: Sequence[str],
    usual: Sequence[int],
    nodes: str | None,
    named: Sequence[str],
    each: int | None,
    whole: int | None,
) -> tuple[list[int], list[int]]:
    """Return on which machines of a job a step runs, and how many tasks it has on each.

    Args:
        names: The job's machines.
        usual: Tasks on each of them where a step does not say.
        nodes: What it says of `--nodes`.
        named: Machines that it names.
        each: Tasks on each.
        whole: Tasks in all.

    Raises:
        SlurmError: It asks for more than the job has.
    """
    unknown = [name for name in named if name not in names]
    if unknown:
        raise SlurmError(f"--nodelist must be machines of this job: {','.join(names)}; got {unknown[0]!r}")
    if nodes is not None and not (_NODES.fullmatch(nodes) and 1 <= int(nodes) <= len(names)):
        raise SlurmError(f"--nodes must be 1 to {len(names)}, the machines of this job, got {nodes!r}")
    chosen = [names.index(name) for name in named] or list(range(len(names)))
    if nodes is not None:
        chosen = chosen[: int(nodes)]
    elif whole is not None and whole < len(chosen):
        chosen = chosen[:whole]
    if each is not None:
        return chosen, [each] * len(chosen)
    own = [usual[node] for node in chosen]
    if whole is None or whole == sum(own):
        return chosen, own
    if whole < len(chosen):
        raise SlurmError(f"--ntasks must be {len(chosen)} or more, one for each machine, got {whole}")
    more, left = divmod(whole, len(chosen))
    return chosen, [more + (at < left) for at in range(len(chosen))]
