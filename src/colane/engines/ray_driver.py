"""The process of `colane up --engine ray` that speaks with Ray: `python -m colane.engines.ray_driver`.

It is apart, as Ray ends a process of its own when the head is lost. It reads one line of JSON, writes a line for all
that happens, and leaves everything as it is when its standard input ends.
"""

from __future__ import annotations

import json
import os
import re
import select
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from colane.client.client import Client
from colane.client.errors import SchedulerError
from colane.engines import EngineError
from colane.engines.ray_keeper import AgentKeeper
from colane.engines.tidy import cancel_jobs, revoke_tokens
from colane.model.versions import own_version
from colane.model.words import count

LOOK_EVERY_S: Final = 1.0
ANSWER_MAX_S: Final = 15.0  # what an actor that is there takes to answer, at most
START_LONG_S: Final = 20.0
AGAIN_S: Final = 10.0
STOP_MAX_S: Final = 45.0
SILENT: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_USAGE_STATS_REPORT_URL": "http://127.0.0.1:9",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "5",
}
"""Ray tells its makers nothing of us, and says soon when its head is gone."""
NAMESPACE: Final = "colane"
RESOURCE: Final = "colane:"
NODE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
VERSIONS: Final = re.compile(r"Ray: (\S+)\s+Python: (\S+).*?Ray: (\S+)\s+Python: (\S+)", re.DOTALL)


class RayNode(NamedTuple):
    """A node of Ray's that is to have an agent."""

    name: str  # the node's, for Colane
    id: str  # Ray's; another each time it joins
    gpus: int  # that Ray counts there
    is_named: bool  # whether the node itself declares the resource `colane:NAME`


@dataclass(slots=True)
class _Actor:
    """An agent's actor."""

    handle: Any  # Ray's
    node: RayNode  # where it was started
    asked: Any  # the answer that it owes us; None once it has been heard
    since_s: float  # when it was asked
    told: str = ""  # what was said of it


@dataclass(slots=True)
class RayDriver:
    """Keeps one actor on each node.

    Args:
        config: What `RayEngine` sends: `address`, `url`, `token`, `owner`, `gpus_per_node`, `takes_any` (nodes without
            GPUs too) and `agent`, its settings.
    """

    config: Mapping[str, Any]
    actors: dict[str, _Actor] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    heard_s: dict[str, float] = field(default_factory=dict)
    lost_s: dict[str, float] = field(default_factory=dict)
    not_before_s: dict[str, float] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)

    def client(self) -> Client:
        """Return a client of the scheduler."""
        return Client(self.config["url"], self.config["token"])

    def tend(self) -> None:
        """Start what is missing, and say what has changed."""
        import ray  # noqa: PLC0415 - an extra

        nodes = {node.name: node for node in self._nodes(ray.nodes())}
        for name in [*self.seen]:
            if name not in nodes:
                self.seen.discard(name)
                self.lost_s[name] = self.heard_s.get(name, 0.0)
                _say(f"{name}: Ray has lost the node; jobs there are queued again when the scheduler has lost it, too")
        for node in nodes.values():
            if time.monotonic() >= self.not_before_s.get(node.name, 0.0):
                self._tend_one(node)
        with suppress(SchedulerError), self.client() as scheduler:
            self.heard_s = {node["name"]: node["last_seen_s"] or 0.0 for node in scheduler.nodes() if not node["lost"]}
            for name in (nodes.keys() & self.actors.keys() & self.heard_s.keys()) - self.seen:
                if self.actors[name].asked is None and self.heard_s[name] > self.lost_s.get(name, -1.0):
                    self.seen.add(name)
                    _say(f"{name}: its agent is there")
        _tell(beat=True, missing=sorted(nodes.keys() - self.seen))

    def stop(self) -> None:
        """Cancel the jobs there, and end agents and actors."""
        import ray  # noqa: PLC0415 - an extra

        cancel_jobs(self.client, self.actors.keys())
        alive = {node.name for node in self._nodes(ray.nodes())}
        ends = [actor.handle.stop.remote() for name, actor in self.actors.items() if name in alive]
        if ends:
            ray.wait(ends, num_returns=len(ends), timeout=STOP_MAX_S)
        for name, actor in self.actors.items():
            ray.kill(actor.handle, no_restart=True)
            with suppress(SchedulerError), self.client() as scheduler:
                revoke_tokens(scheduler, name)
                scheduler.remove_node(name)

    def _nodes(self, told: Iterable[Mapping[str, Any]]) -> Iterable[RayNode]:
        alive = [node for node in told if node["Alive"]]
        named = [node for node in alive if _resource(node)]
        found: dict[str, RayNode] = {}
        for node in named or alive:  # naming some is choosing
            name, gpus = _resource(node) or _own_name(node), int(node["Resources"].get("GPU", 0))
            if not named and not gpus and not self.config["takes_any"]:
                continue
            if NODE_NAME.fullmatch(name) is None:
                self._say_once(
                    name, f"{name!r} is no name of a node: start it with --resources '{{\"colane:NAME\": 1}}'"
                )
            elif name in found:
                self._say_once(
                    name, f"two nodes are called {name}: start each with --resources '{{\"colane:NAME\": 1}}'"
                )
            else:
                found[name] = RayNode(name, node["NodeID"], gpus, bool(named))
        return found.values()

    def _tend_one(self, node: RayNode) -> None:
        actor = self.actors.get(node.name)
        if actor is not None and not node.is_named and actor.node.id != node.id:
            self._drop(node.name)  # it was pinned to what this node was before
            actor = None
        if actor is None:
            if not self._found(node):
                self._start(node)
        elif actor.asked is not None:
            self._hear(actor)
        elif node.name not in self.seen and time.monotonic() > actor.since_s + START_LONG_S:
            self._ask_why(actor)

    def _found(self, node: RayNode) -> bool:
        """Take over the actor that is there from before."""
        import ray  # noqa: PLC0415 - an extra

        try:
            handle = ray.get_actor(_actor_name(node.name), namespace=NAMESPACE)
        except ValueError:
            return False
        try:
            owner = ray.get(handle.about.remote(), timeout=ANSWER_MAX_S)
        except ray.exceptions.GetTimeoutError:
            self._say_once(node.name, f"{node.name}: an agent's actor from before is there and does not answer yet")
            self.not_before_s[node.name] = time.monotonic() + AGAIN_S
            return True
        except ray.exceptions.RayError:
            ray.kill(handle, no_restart=True)
            return False
        mine = self.config["owner"]
        if owner["cluster"] != mine["cluster"]:
            raise EngineError(
                f"the agents on this Ray are those of the scheduler at {owner['url']} "
                f"(colane up on {owner['host']}, state in {owner['state']}): "
                f"one scheduler has all of a Ray; stop that one, or use it"
            )
        self.actors[node.name] = _Actor(handle, node, None, time.monotonic())
        if {name: owner.get(name) for name in mine} != mine or owner["version"] != own_version():
            _say(f"{node.name}: its agent is from before, with other settings, and is started anew")
            ray.get(handle.stop.remote(), timeout=STOP_MAX_S)
            self._drop(node.name)
            return False
        return True

    def _start(self, node: RayNode) -> None:
        import ray  # noqa: PLC0415 - an extra
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415

        with self.client() as scheduler:
            revoke_tokens(scheduler, node.name)
            token = scheduler.make_token(node=node.name)
        asked = self.config["gpus_per_node"]
        place: dict[str, Any] = (
            {"resources": {f"{RESOURCE}{node.name}": 1}}
            if node.is_named
            else {"scheduling_strategy": NodeAffinitySchedulingStrategy(node.id, soft=False)}
        )
        options = {
            "name": _actor_name(node.name),
            "namespace": NAMESPACE,
            "lifetime": "detached",
            "num_cpus": 0,
            "num_gpus": node.gpus if asked is None else asked,
            "max_restarts": -1,
            **place,
        }
        keeper = ray.remote(AgentKeeper).options(**options)
        handle = keeper.remote(self.config["owner"], {**self.config["agent"], "name": node.name}, token)
        self.actors[node.name] = _Actor(handle, node, handle.about.remote(), time.monotonic())

    def _hear(self, actor: _Actor) -> None:
        """See whether an actor has started."""
        import ray  # noqa: PLC0415 - an extra

        name = actor.node.name
        if not ray.wait([actor.asked], timeout=0)[0]:
            if time.monotonic() > actor.since_s + START_LONG_S:
                asked = self.config["gpus_per_node"]
                gpus = actor.node.gpus if asked is None else asked
                lacks = f"{gpus} of its {count(actor.node.gpus, 'GPU')} must be free"
                if gpus > actor.node.gpus:
                    lacks = f"it has {count(actor.node.gpus, 'GPU')}, of --gpus-per-node {gpus}"
                self._say_once(name, f"{name}: Ray has not started its agent yet: {lacks}")
            return
        try:
            about = ray.get(actor.asked)
        except ray.exceptions.RayError as error:
            self._say_once(name, f"{name}: Ray could not start its agent: {_line(error)}")
            self._drop(name)
            self.not_before_s[name] = time.monotonic() + AGAIN_S
            return
        actor.asked, actor.since_s = None, time.monotonic()
        if about["version"] != own_version():
            self._say_once(name, f"{name}: has Colane {about['version']}, and this is {own_version()}")

    def _ask_why(self, actor: _Actor) -> None:
        """Say what an agent says that does not report."""
        import ray  # noqa: PLC0415 - an extra

        actor.since_s = time.monotonic()
        with suppress(ray.exceptions.RayError):
            if said := ray.get(actor.handle.said.remote(), timeout=ANSWER_MAX_S):
                self._say_once(actor.node.name, f"{actor.node.name}: its agent does not report: {said}")

    def _drop(self, name: str) -> None:
        import ray  # noqa: PLC0415 - an extra

        actor = self.actors.pop(name)
        self.seen.discard(name)
        ray.kill(actor.handle, no_restart=True)

    def _say_once(self, about: str, text: str) -> None:
        if self.said.get(about) != text:
            self.said[about] = text
            _say(text)


def _actor_name(node: str) -> str:
    return f"agent-{node}"


def _resource(node: Mapping[str, Any]) -> str:
    names = [name.removeprefix(RESOURCE) for name in node["Resources"] if name.startswith(RESOURCE)]
    return min(names, default="")


def _own_name(node: Mapping[str, Any]) -> str:
    """Return what a node is called; Ray calls it by its address where `--node-name` does not say."""
    name, address = str(node["NodeName"]), str(node["NodeManagerAddress"])
    return str(node["NodeManagerHostname"]) if name in ("", address) else name


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next(
        (line for line in reversed(lines) if re.match(r"\w*(Error|Exception)\b", line)), lines[0] if lines else ""
    )


def connect(address: str) -> None:
    """Join Ray at an address. Raises EngineError: there is none, or it is another version's; one line."""
    host, _, port = address.rpartition(":")
    os.environ.update(SILENT)  # before Ray is imported, which reads them then
    try:
        import ray  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise EngineError(
            "Ray is not installed here: pip install 'colane[ray]', in the version that the cluster has"
        ) from error
    try:
        socket.create_connection((host, int(port)), timeout=5.0).close()
    except OSError as error:
        raise EngineError(
            f"no Ray answers at {address} ({error.strerror or error}): ray start --head gives its address"
        ) from error
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    except Exception as error:
        raise EngineError(_why(address, str(error))) from error


def _why(address: str, said: str) -> str:
    if found := VERSIONS.search(said):
        return (
            f"the Ray at {address} is {found[1]} on Python {found[2]}, "
            f"and here is Ray {found[3]} on Python {found[4]}: install the same versions on all machines"
        )
    if "raylet" in said or "IP address" in said:
        return f"this machine is no node of the Ray at {address}: run colane up on one of its machines"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f"the Ray at {address} cannot be joined: {lines[0] if lines else 'it does not say why'}"


_OUT: Final[list[int]] = []


def _tell(**words: object) -> None:
    os.write(_OUT[0], json.dumps(words).encode() + b"\n")


def _say(text: str) -> None:
    _tell(say=text)


def main() -> None:
    """Do what the first line says until the next one says `stop`, or there is none."""
    _OUT.append(os.dup(1))
    os.dup2(2, 1)  # Ray writes where it likes
    with os.fdopen(os.dup(0), "rb", buffering=0) as told:  # not a byte more than the line: the rest is waited for
        config = json.loads(told.readline())
    driver = RayDriver(config)
    try:
        connect(config["address"])
        while True:
            driver.tend()
            if select.select([0], [], [], LOOK_EVERY_S)[0]:
                if os.read(0, 100).strip() == b"stop":
                    driver.stop()
                    _tell(stopped=True)
                break
    except (EngineError, SchedulerError) as error:
        _tell(fail=str(error))
    sys.stderr.flush()
    os._exit(0)  # without Ray's own farewell, which waits where its head is gone


if __name__ == "__main__":
    main()
