"""Start the scheduler: one process on one state directory, found by clients through a file there."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import logging
import os
import secrets
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Final

import uvicorn

from colane.client.locate import TOKEN_FILE, read_token
from colane.core.config import CoreConfig
from colane.policyfiles.guard import BUDGET_S
from colane.server.app import create_app
from colane.server.assembly import make_service
from colane.server.config import ServiceConfig
from colane.server.gate import LOOPBACK_NAMES, GateRules, is_loopback
from colane.server.retention import Retention
from colane.server.service import Service
from colane.server.sqlite_store import SqliteStore

DEFAULT_PORT: Final = 8642
STORE_FILE: Final = "colane.db"
LOCK_FILE: Final = "lock"
SERVER_FILE: Final = "server.json"
"""`{"url": ..., "pid": ...}` while a scheduler listens; clients on the machine find it here."""

BACKLOG: Final = 2048
KEEP_ALIVE_S: Final = 75
"""Longer than any period of an agent or a client, so that a pooled connection is not closed under a request."""

SHUTDOWN_S: Final = 5
"""Requests under way get this long when the scheduler is told to stop."""

log = logging.getLogger(__name__)


class ServerError(Exception):
    """The scheduler cannot start; the message is one line that names the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Settings of a scheduler.

    Attributes:
        state_dir: Holds the store, the lock and `server.json`; made when it is not there.
        host: Address to listen on; other than loopback needs a token.
        port: 0 takes a free one.
        policy: Registered name, or FILE.py:NAME of a user's own.
        policy_budget_s: What a pass of a user's own policy may take.
        token: Needed by every client; None takes the one in the state directory, made when it is not there.
        workdir: Directory of jobs that name none.
        body_bytes_max: Largest request.
        batch_jobs_max: Jobs in one request.
        node_timeout_s: A node silent for longer is lost.
        tick_s: The core is asked at least this often.
        keep_finished: What is kept of finished jobs.
        core: How jobs are treated, whatever the policy.
    """

    state_dir: Path
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    policy: str = "colocate"
    policy_budget_s: float = BUDGET_S
    token: str | None = field(default=None, repr=False)
    workdir: Path = field(default_factory=Path.cwd)
    body_bytes_max: int = 8 * 2**20
    batch_jobs_max: int = 10_000
    node_timeout_s: float = 60.0
    tick_s: float = 1.0
    keep_finished: Retention = field(default_factory=Retention)
    core: CoreConfig = field(default_factory=CoreConfig)


def run_server(config: ServerConfig, on_listening: Callable[[str], None] | None = None) -> None:
    """Run a scheduler until SIGINT or SIGTERM.

    Args:
        config: Settings.
        on_listening: Called with the URL once it answers; the default prints it.

    Raises:
        ServerError: It cannot start.
        StoreError: The store cannot be opened or read.
        UnknownPolicyError: No policy of that name.
    """
    factory = _uvicorn_config(None).get_loop_factory()
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(config, on_listening))


async def serve(config: ServerConfig, on_listening: Callable[[str], None] | None = None) -> None:
    """Run a scheduler in this event loop; see `run_server`. Cancelling it stops the scheduler."""
    _check(config)
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(_locked(config.state_dir))
        loop = asyncio.get_running_loop()
        config = replace(config, token=config.token or own_token(config.state_dir))
        loop.add_reader(name, _dismiss, name)
        stack.callback(loop.remove_reader, name)
        listener = stack.enter_context(_listen(config.host, config.port))
        store = SqliteStore(config.state_dir / STORE_FILE)
        stack.callback(store.close)
        service = make_service(store, _service_config(config))
        url = _url(config.host, listener.getsockname()[1])
        stack.callback(_withdraw, config.state_dir / SERVER_FILE)

        def announce() -> None:
            _publish(config.state_dir / SERVER_FILE, url)
            (on_listening or _print_url(config))(url)

        server = _ApiServer(_uvicorn_config(create_app(service, _rules(config))), service, announce)
        await _run(server, service, listener)


def _check(config: ServerConfig) -> None:
    if not is_loopback(config.host) and not config.token:
        raise ServerError(
            f"host: {config.host} is reachable from other machines, so a token is needed: set COLANE_TOKEN, "
            "or listen on 127.0.0.1"
        )
    if config.token is not None and not config.token.strip():
        raise ServerError("token: must not be empty")


def _service_config(config: ServerConfig) -> ServiceConfig:
    return ServiceConfig(
        policy=config.policy,
        policy_budget_s=config.policy_budget_s,
        workdir=str(config.workdir),
        token=config.token,
        tick_s=config.tick_s,
        node_timeout_s=config.node_timeout_s,
        batch_jobs_max=config.batch_jobs_max,
        keep_finished=config.keep_finished,
        core=config.core,
    )


def _rules(config: ServerConfig) -> GateRules:
    hosts = LOOPBACK_NAMES | {config.host} if is_loopback(config.host) else None
    return GateRules(token=config.token, hosts=hosts, body_bytes_max=config.body_bytes_max)


def _write_pid(handle: int, state_dir: Path) -> None:
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        raise _unwritable(state_dir, error) from error


def _unwritable(state_dir: Path, error: OSError) -> ServerError:
    return ServerError(f"state: {state_dir} cannot be written: {error.strerror}; make room there, or choose another")


def _hold_name(state_dir: Path) -> socket.socket:
    """Hold a name made of the directory's path: unlike the lock file, nobody can delete it while we live.

    Raises:
        ServerError: A scheduler of ours or root's holds it.
    """
    place = hashlib.sha256(os.fsencode(state_dir.resolve())).hexdigest()
    name = f"\0colane-scheduler-{place}"
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        holder.bind(name)
        holder.listen()
        holder.setblocking(False)
    except OSError:
        pid, uid = _holder_of(name)
        if uid in {0, os.geteuid()}:  # anybody may take the name; only these could be a scheduler on our files
            holder.close()
            raise _taken(state_dir, str(pid)) from None
    return holder


def _dismiss(name: socket.socket) -> None:
    """Let go whoever asked who holds the name; too many of them would keep the next from asking."""
    with contextlib.suppress(OSError):
        name.accept()[0].close()


def _holder_of(name: str) -> tuple[int, int]:
    """Process and user that listen under a name; -1 when nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.setblocking(False)
        if caller.connect_ex(name) != 0:
            return -1, -1
        pid, uid, _ = struct.unpack("3i", caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return pid, uid


def _taken(state_dir: Path, pid: str) -> ServerError:
    return ServerError(f"state: another scheduler (pid {pid}) uses {state_dir}; stop it, or choose another --state")


@contextlib.contextmanager
def _locked(state_dir: Path) -> Iterator[socket.socket]:
    """Hold the state directory: two schedulers on one store would each run ahead of the other."""
    try:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(state_dir / LOCK_FILE, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ServerError(f"state: {state_dir} cannot be used: {error.strerror}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            pid = os.pread(handle, 20, 0).decode(errors="replace").strip() or "unknown"
            raise _taken(state_dir, pid) from error
        with _hold_name(state_dir) as name:
            _write_pid(handle, state_dir)
            yield name
    finally:
        os.close(handle)


def own_token(state_dir: Path) -> str:
    """Return the token that lies in the state directory, for its owner only; made at the first start.

    Raises:
        ServerError: It cannot be written.
    """
    path = state_dir / TOKEN_FILE
    known = read_token(path)
    if known is not None:
        return known
    token = secrets.token_urlsafe(32)
    try:
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{token}\n")
    except OSError as error:
        raise _unwritable(state_dir, error) from error
    return token


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        hint = "; choose another --port, 0 for any" if error.errno else ""
        raise ServerError(f"port: cannot listen on {host}:{port}: {error.strerror}{hint}") from error


def _url(host: str, port: int) -> str:
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def _publish(path: Path, url: str) -> None:
    fresh = path.with_suffix(".new")
    try:
        fresh.write_text(json.dumps({"url": url, "pid": os.getpid()}) + "\n", encoding="utf-8")
        fresh.replace(path)
    except OSError as error:
        raise _unwritable(path.parent, error) from error


def _withdraw(path: Path) -> None:
    path.unlink(missing_ok=True)


def _print_url(config: ServerConfig) -> Callable[[str], None]:
    def show(url: str) -> None:
        sys.stdout.write(f"colane scheduler listens on {url} (policy {config.policy}, state {config.state_dir})\n")
        sys.stdout.flush()

    return show


def _uvicorn_config(app: Any) -> uvicorn.Config:  # noqa: ANN401 - an ASGI application, or none yet
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )


class _ApiServer(uvicorn.Server):
    """uvicorn, with our word once it listens and streams ended before it waits for connections to close."""

    def __init__(self, config: uvicorn.Config, service: Service, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._service = service
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.end_streams()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM; unlike uvicorn's own, do not raise them again before we have cleaned up."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: FrameType | None) -> None:
            self.handle_exit(number, frame)

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


async def _run(server: _ApiServer, service: Service, listener: socket.socket) -> None:
    """Serve until told to stop, or until the driver fails: then the process must not go on answering."""
    driving = asyncio.create_task(service.run())
    driving.add_done_callback(lambda _: setattr(server, "should_exit", True))
    try:
        await server.serve(sockets=[listener])
    finally:
        service.stop()
        await driving
