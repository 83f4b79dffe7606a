"""A scheduler and an agent as two child processes that start and stop together."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from colane.client.client import Client
from colane.client.errors import SchedulerError
from colane.client.locate import SERVER_FILE, TOKEN_FILE, URL_VARIABLE, read_token
from colane.engines import EngineError
from colane.engines.child import Child
from colane.settings.setting import Given, Section, SettingError, Values
from colane.settings.sources import gather
from colane.settings.table import AGENT, AGENT_DIR, AGENT_STATE, GRACE, HOST, NAME, SERVER, SERVER_PORT, STOP_JOBS, URL

if TYPE_CHECKING:
    from colane.api.nodes import NodeObject

Found = TypeVar("Found")

START_MAX_S: Final = 600.0
"""A start takes one to two seconds, on a machine with ten others on each core more than a minute; then it is stuck."""

START_LONG_S: Final = 20.0  # after this long it is said what is waited for

LOOK_EVERY_S: Final = 0.02

AGENT_STOP_MAX_S: Final = 20.0  # the agent's last words fit into it, beside what its jobs have to save and to end

SERVER_STOP_MAX_S: Final = 10.0

RESTARTS_MAX: Final = 5
RESTARTS_WITHIN_S: Final = 60.0  # a child that dies more often than this will die again


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalConfig:
    """What is started."""

    state_dir: Path  # the scheduler's; the agent's lies in it
    node: str  # name of the node
    server: Values  # settings of the scheduler
    agent: Values  # settings of the agent; it listens where the scheduler does unless they say otherwise
    agents: Values | None = None  # what the scheduler tells agents that join it later; None is nothing
    token: str | None = field(default=None, repr=False)  # demanded by both
    keep_jobs: bool = False  # leave jobs running at the end
    has_agent: bool = True  # whether there is an agent; else the scheduler alone is started
    env: Mapping[str, str] = field(default_factory=dict)  # further variables of the agent

    @classmethod
    def of(cls, state_dir: Path, node: str, *, env: Mapping[str, str] | None = None, **given: object) -> Self:
        """Return one with these settings, by their names in `colane.toml`, at a free port.

        Raises SettingError: there is no such setting, or a value cannot be.
        """
        parts: dict[Section, dict[str, object]] = {SERVER: {"port": 0}, AGENT: {}}
        for name, value in given.items():
            home = next((part for part in parts if name in {setting.name for setting in part.settings}), None)
            if home is None:
                raise SettingError(f"there is no setting {name!r}")
            parts[home] |= {name: value}
        server, agent = (gather(section, flags) for section, flags in parts.items())
        return cls(state_dir=state_dir, node=node, server=server, agent=agent, env=env or {})


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")


class LocalEngine:
    """A context manager: inside it a scheduler answers at `url` and its one node has registered.

    Args:
        config: What is started.
        tell: Told what happens, a line each; standard error by default.

    Raises (on entering):
        EngineError: One of the two cannot start; it has said why on standard error.
    """

    def __init__(self, config: LocalConfig, tell: Callable[[str], None] = _to_stderr) -> None:
        self.config = config
        self._tell = tell
        self.url = ""
        self._port = config.server[SERVER_PORT]
        self._server: Child | None = None
        self._agent: Child | None = None
        self._deaths: deque[float] = deque(maxlen=RESTARTS_MAX)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is KeyboardInterrupt:
            self._tell("stopping")
        self.stop()

    def start(self) -> None:
        """Start both, and return once the node has registered; what has started is stopped where one cannot start.

        Raises EngineError: one of the two cannot start; it has said why on standard error.
        """
        try:
            self._start_server()
            if self.config.has_agent:
                started_s, agent = time.time(), self._start_agent()
                with self.client() as scheduler:
                    _wait_for(agent, lambda: _seen_since(scheduler, self.config.node, started_s))
        except BaseException:
            self.stop()
            raise

    def client(self) -> Client:
        """Return a client of this scheduler."""
        return Client(self.url, self.token)

    @property
    def token(self) -> str | None:
        """What the scheduler demands: as set, else what it made for itself."""
        return self.config.token or read_token(self.config.state_dir / TOKEN_FILE)

    def node(self) -> NodeObject:
        """Return the node object."""
        with self.client() as scheduler:
            return scheduler.node(self.config.node)

    def watch(self, max_s: float | None = None) -> None:
        """Wait, for ever or for a while, and start anew what dies meanwhile.

        Raises EngineError: it dies again and again.
        """
        deadline_s = None if max_s is None else time.monotonic() + max_s
        while deadline_s is None or time.monotonic() < deadline_s:
            children = {child.pidfd: child for child in (self._server, self._agent) if child is not None}
            left_s = None if deadline_s is None else max(deadline_s - time.monotonic(), 0.0)
            for pidfd in filter(wait(list(children), left_s).__contains__, children):
                self._restart(children[pidfd])

    def stop(self) -> None:
        """Stop both, the agent first: it tells the scheduler how the jobs ended.

        Who asks for the end once more does not wait for jobs that are saving: they end by themselves, in their time.
        """
        with _hurrying(lambda: self._agent):
            if self._agent is not None:
                lead_s = 0.0 if self.config.keep_jobs else self._cancel_running(self._agent)
                if lead_s:
                    self._tell(
                        f"jobs that run have up to {lead_s + self.config.agent[GRACE]:g} s to save and end; {AGAIN}"
                    )
                self._agent.end(AGENT_STOP_MAX_S + self.config.agent[GRACE] + lead_s)
                self._agent = None
            if self._server is not None:
                self._server.end(SERVER_STOP_MAX_S)
                self._server = None

    def _cancel_running(self, agent: Child) -> float:
        """Cancel what runs, and return the longest time that any of it has to save.

        The agent is halted meanwhile, or the devices that become free would be filled anew.
        """
        if not self.url or agent.process.poll() is not None:
            return 0.0
        agent.signal(signal.SIGSTOP)
        lead_s = 0.0
        with suppress(SchedulerError), self.client() as scheduler:
            for job in scheduler.live_jobs():
                if job["node"] == self.config.node:
                    scheduler.cancel(job["id"], by="the end of colane up")
                    lead_s = max(lead_s, (job["needs"].get("checkpoint") or {"lead_s": 0.0})["lead_s"])
        return lead_s

    def _start_server(self) -> None:
        config = self.config
        told = {} if config.agents is None else config.agents.document()
        settings = {**told, **config.server.document(), SERVER_PORT.name: Given(self._port, SERVER_PORT.flag)}
        words, said = ["server", "--state", str(config.state_dir)], {"settings": settings, "token": config.token}
        child = self._server = Child("scheduler", words, said, self._tell)
        self.url = _wait_for(child, lambda: _published(config.state_dir, child.process.pid))
        # A scheduler that is started again must be where its agent and its users know it.
        self._port = int(self.url.rpartition(":")[2])

    def _start_agent(self) -> Child:
        config = self.config
        settings = {
            HOST.name: config.server.given[HOST.name],
            **config.agent.document(),
            NAME.name: Given(config.node, NAME.flag),
            URL.name: Given(self.url, URL_VARIABLE),
            STOP_JOBS.name: Given(not config.keep_jobs, STOP_JOBS.flag),
        }
        folder = config.agent[AGENT_STATE] or config.state_dir / AGENT_DIR
        words, said = ["agent", "--state", str(folder)], {"settings": settings, "token": self.token}
        self._agent = Child("agent", words, said, self._tell, {**os.environ, **config.env})
        return self._agent

    def _restart(self, child: Child) -> None:
        code = child.process.wait()
        child.close()
        folder = self.config.state_dir
        if child is self._agent and not (folder / SERVER_FILE).exists():
            raise EngineError(f"{folder} was deleted, moved or replaced meanwhile, so nothing can be kept: start anew")
        now_s = time.monotonic()
        if len(self._deaths) == RESTARTS_MAX and now_s < self._deaths[0] + RESTARTS_WITHIN_S:
            raise EngineError(f"the {child.name} has died {RESTARTS_MAX + 1} times within a minute")
        self._deaths.append(now_s)
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self._tell(f"the {child.name} has died ({how}) and is started again")
        if child is self._server:
            self._start_server()
        else:
            self._start_agent()  # not waited for: the scheduler that is to hear of it may be dead, too


def _wait_for(child: Child, look: Callable[[], Found | None]) -> Found:
    """Look until there is something, as long as the child lives."""
    began_s, is_told = time.monotonic(), False
    while (found := look()) is None:
        if wait([child.pidfd], LOOK_EVERY_S):
            raise EngineError(exit_code=max(child.process.wait(), 1))  # it has said why itself
        waited_s = time.monotonic() - began_s
        if waited_s > START_LONG_S and not is_told:
            child.tell(f"the {child.name} takes long to start: this machine is busy")
            is_told = True
        if waited_s > START_MAX_S:
            raise EngineError(f"the {child.name} is not ready after {START_MAX_S:.0f} s")
    return found


def _published(state_dir: Path, pid: int) -> str | None:
    try:
        body = json.loads((state_dir / SERVER_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return str(body["url"]) if body.get("pid") == pid else None


def _seen_since(scheduler: Client, name: str, start_s: float) -> bool | None:
    """Whether the node has been heard of since then; None while not."""
    try:
        node = scheduler.node(name)
    except SchedulerError:
        return None
    return True if not node["lost"] and (node["last_seen_s"] or 0.0) >= start_s else None


AGAIN: Final = "ask for the end again to leave them to it"

END_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def _hurrying(agent: Callable[[], Child | None]) -> Iterator[None]:
    """While we are at our end, asking for it again hurries the agent, and nothing else is broken off."""

    def hurry(number: int, _frame: FrameType | None) -> None:
        child = agent()
        if child is not None and number != signal.SIGHUP:
            child.signal(number)

    with handled(hurry):
        yield


@contextmanager
def handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle what asks for our end in this way meanwhile."""
    before = {number: signal.signal(number, handler) for number in END_SIGNALS}
    try:
        yield
    finally:
        for number, had in before.items():
            signal.signal(number, had)
