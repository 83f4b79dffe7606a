"""Runs an agent: its loop and its API in one event loop."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from urllib.parse import urlsplit

from colane.agent.app import make_app
from colane.agent.config import AgentConfig
from colane.agent.errors import AgentError
from colane.agent.files.jobdir import StateDir
from colane.agent.link.messages import Door, Scheduler
from colane.agent.loop import Agent
from colane.client.agent_link import AgentLink
from colane.client.hosts import is_loopback
from colane.client.locate import urls_of
from colane.client.tls import TlsError
from colane.devices import Devices, DeviceSpecError, discover, known
from colane.listening.serving import BoundedServer, bounded

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 128  # a scheduler and its standbys ask; their descriptors are the jobs' otherwise
ANSWERS_MAX_S = 2  # at the end, answers under way have this long; what is cut off is asked of the next agent

SWITCH_INTERVAL_S = 5e-4
"""How long the gate's thread waits at most for the other one of this process; Python's default is ten times as long."""

SAME_ORDER_S = 1.0
"""A SIGTERM so soon after another is the same order: Slurm, say, tells each process of a pilot, and the shell above the
agent passes on what it was told."""

EVERY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 - recognised, not bound to


def run_agent(config: AgentConfig) -> None:
    """Run an agent until SIGTERM or SIGINT; SIGHUP says that its parent is gone, which ends none of its jobs.

    Raises AgentError: it cannot go on; the message is one line for the person who started it.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    asyncio.run(_run_until_signal(config))


async def serve(
    config: AgentConfig,
    *,
    stop: asyncio.Event | None = None,
    hurry: asyncio.Event | None = None,
    abandoned: asyncio.Event | None = None,
    scheduler: Scheduler | None = None,
    on_address: Callable[[str], None] | None = None,
) -> None:
    """Run an agent in this event loop.

    Args:
        config: Its settings.
        stop: Set it to end the agent; without one it runs until it is cancelled.
        hurry: Set it to end an agent that drains its node, or waits for its jobs, before it ends.
        abandoned: Set it before `stop` where the end is no order: the jobs go on.
        scheduler: The scheduler it serves; by default the one at `config.scheduler_url`.
        on_address: Called with the agent's base URL once it listens.

    Raises:
        AgentError: It cannot go on; the message is one line for the person who started it.
    """
    try:
        if config.tls is not None:
            config.tls.context()
    except TlsError as error:
        raise AgentError(f"--tls-cert: {error}") from error
    devices = _discover(config)
    state = StateDir(config.state_dir, config.grace_s)
    try:
        with suppress(OSError):  # whatever keeps it from being written: they are known again by the next agent only
            known.write(state.root, devices.observe())
        with _listen(config) as listener:
            address = _address(config, listener)
            async with _linked(config, scheduler) as link:
                door = Door(address, secrets.token_urlsafe(32))
                agent = Agent(config, link, devices, state, door)
                async with _api(agent, config, door, listener):
                    (on_address or (lambda at: log.info("the agent listens on %s", at)))(address)
                    await agent.run(stop or asyncio.Event(), hurry, abandoned)
    finally:
        state.close()


async def _run_until_signal(config: AgentConfig) -> None:
    stop, hurry, abandoned = asyncio.Event(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    told_s = -math.inf

    def end(number: int) -> None:
        """Be told to stop; told again, drain no longer."""
        nonlocal told_s
        if not stop.is_set():
            told_s = loop.time()
            stop.set()
        elif number == signal.SIGINT or loop.time() >= told_s + SAME_ORDER_S:
            hurry.set()

    def leave() -> None:
        """The crash of a parent, or a closed terminal, is no order."""
        if not stop.is_set():
            log.warning("the process that started this agent is gone: it ends, and its jobs go on")
            abandoned.set()
            stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, number)
    loop.add_signal_handler(signal.SIGHUP, leave)
    await serve(config, stop=stop, hurry=hurry, abandoned=abandoned)


@asynccontextmanager
async def _linked(config: AgentConfig, scheduler: Scheduler | None) -> AsyncIterator[Scheduler]:
    if scheduler is not None:
        yield scheduler
        return
    async with AgentLink(config.scheduler_url, config.token) as link:
        yield link


def _discover(config: AgentConfig) -> Devices:
    try:
        return discover(config.devices, config.topology, root=config.state_dir)
    except DeviceSpecError as error:
        raise AgentError(str(error)) from error


def _listen(config: AgentConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        return socket.create_server((config.host, config.port), family=family)
    except OSError as error:
        where = f"{config.host}:{config.port}"
        raise AgentError(f"the agent cannot listen on {where}: {error.strerror}") from error


def _address(config: AgentConfig, listener: socket.socket) -> str:
    """Say where the scheduler finds us: on the interface that leads to it when we listen on all."""
    host = config.host if config.host not in EVERY_ADDRESS else _own_address(urls_of(config.scheduler_url)[0])
    scheme = "http" if config.tls is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def _own_address(scheduler_url: str) -> str:
    """Ask the kernel which of our addresses it would use towards the scheduler; no packet is sent."""
    url = urlsplit(scheduler_url)
    family, *_, target = socket.getaddrinfo(url.hostname, url.port or 80, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])


class _AgentServer(BoundedServer):
    """Leaves signals to the agent."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


@asynccontextmanager
async def _api(agent: Agent, config: AgentConfig, door: Door, listener: socket.socket) -> AsyncIterator[None]:
    """Serve the agent's API meanwhile."""
    app = make_app(
        agent.state, agent.woken.set, name=config.name, secret=door.secret, on_loopback=is_loopback(config.host)
    )
    server = _AgentServer(bounded(app, CONNECTIONS_MAX, timeout_graceful_shutdown=ANSWERS_MAX_S), config.tls)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await serving
