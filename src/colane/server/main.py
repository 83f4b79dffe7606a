"""Start the scheduler: one process on one state directory, found by clients through a file there."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import hashlib
import hmac
import json
import logging
import os
import secrets
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from colane.client.hosts import LOOPBACK_NAMES, is_loopback
from colane.client.locate import TOKEN_FILE, TOKEN_VARIABLE, UNIX, URL_VARIABLE, read_token
from colane.client.tls import TlsError
from colane.model.words import about_lease
from colane.server.assembly import make_service, make_standby
from colane.server.config import ServerConfig
from colane.server.ground.access import Callers, user_name
from colane.server.handlers.standby import Standby
from colane.server.http.app import create_app
from colane.server.http.door import GateRules
from colane.server.http.leading import Leading
from colane.server.http.listening import (
    SOCKET_FILE,
    ApiServer,
    ListenError,
    listen_tcp,
    listen_unix,
    raise_descriptor_limit,
    url_of,
    uvicorn_config,
)
from colane.server.service import Service
from colane.server.store.opening import open_store
from colane.server.store.store import SupersededError

SAMPLES_FILE: Final = "samples.db"
OUTBOX_FILE: Final = "notify.json"
FORESEEN_FILE: Final = "foreseen.json"
SHARED_FILE: Final = "shared.json"
LOCK_FILE: Final = "lock"
SERVER_FILE: Final = "server.json"
"""`{"url": ..., "pid": ..., "socket": ...}` while a scheduler listens; clients on the machine find it here."""

PASSABLE: Final = 0o711
"""Mode of root's state directory: all users may pass to the socket and to their own jobs' files; none may list it."""

OBJECTS_PER_COLLECTION: Final = 10_000
"""Within a turn cycles are looked for after so many new objects, not Python's 700, and among these alone: what a turn
leaves behind holds few, and is looked at when it ends (`LiveDriver.run`). To look at older ones too, 8,000 live jobs
among them, takes 400 ms and more, in which nothing is answered."""
NEVER: Final = 2**30
COLLECTION_PERIOD_S: Final = 3600.0  # how often cycles are looked for among all objects

LOCK_HELD_S: Final = 0.0005
"""So long at most, not Python's 5 ms, another thread runs Python code while the event loop waits to: writing a large
commit down takes 20 ms and more."""

log = logging.getLogger(__name__)
Listener = TypeVar("Listener")


class ServerError(Exception):
    """The scheduler cannot start; the message is one line that names the fix."""


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
    raise_descriptor_limit()  # not in serve: under `up` jobs would inherit it
    gc.freeze()
    gc.set_threshold(OBJECTS_PER_COLLECTION, NEVER, NEVER)
    sys.setswitchinterval(LOCK_HELD_S)
    factory = uvicorn_config(None).get_loop_factory()
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(config, on_listening))


async def serve(config: ServerConfig, on_listening: Callable[[str], None] | None = None) -> None:
    """Run a scheduler in this event loop; see `run_server`. Cancelling it stops the scheduler."""
    _check(config)
    try:
        await _serve(config, on_listening)
    except SupersededError as error:
        raise ServerError(f"state: {error}") from error


async def _serve(config: ServerConfig, on_listening: Callable[[str], None] | None) -> None:
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(locked(config.state_dir))
        loop = asyncio.get_running_loop()
        job_key = _job_key(config)
        token = config.token or own_secret(config.state_dir, TOKEN_FILE)
        config = replace(config, token=token, job_key=job_key, samples=config.state_dir / SAMPLES_FILE)
        config = replace(config, outbox=config.state_dir / OUTBOX_FILE, foreseen=config.state_dir / FORESEEN_FILE)
        loop.add_reader(name, _dismiss, name)
        stack.callback(loop.remove_reader, name)
        listener = stack.enter_context(_listening(lambda: listen_tcp(config.host, config.port)))
        local = _listening(lambda: listen_unix(config.state_dir / SOCKET_FILE))
        if local is not None:
            stack.enter_context(local)
            stack.callback((config.state_dir / SOCKET_FILE).unlink, missing_ok=True)
        store = open_store(config.store, config.state_dir, config.store_password_file)
        stack.callback(store.close)
        if told := str(store.durability()):
            log.warning("%s", told)
        url = url_of(config.host, listener.getsockname()[1], "http" if config.tls is None else "https")
        reached_by = {URL_VARIABLE: url, TOKEN_VARIABLE: token}
        if local is not None:
            reached_by = {URL_VARIABLE: f"{UNIX}{(config.state_dir / SOCKET_FILE).absolute()}"}
        own_url = config.own_url or _reached_from_afar(config, url)
        config = replace(config, own_url=own_url, reached_by=reached_by, shared=config.state_dir / SHARED_FILE)
        service, standby = make_standby(store, config) if config.standby else (make_service(store, config), None)
        stack.callback((config.state_dir / SERVER_FILE).unlink, missing_ok=True)

        def announce() -> None:
            _publish(config.state_dir / SERVER_FILE, url, local is not None)
            on_listening(url) if on_listening else _print_url(config, url)

        app = create_app(service, _rules(config, service, standby))
        server = ApiServer(uvicorn_config(app), service, announce, local, config.tls)
        await _run(server, service, listener, standby)


def _check(config: ServerConfig) -> None:
    if not is_loopback(config.host) and not config.token:
        raise ServerError(
            f"host: {config.host} is reachable from other machines, so a token is needed: set COLANE_TOKEN "
            "or --token-file, or listen on 127.0.0.1"
        )
    if config.tls is not None:
        try:
            config.tls.context()
        except TlsError as error:
            raise ServerError(f"tls-cert: {error}") from error
    if config.standby and config.store is None:
        raise ServerError(
            "standby: it reads the store of the scheduler that leads, so that has to be over the network: --store "
            "redis://... or postgres://... on both (docs/how-to/high-availability.md)"
        )
    if config.standby and not config.token:
        raise ServerError(
            "standby: clients know both schedulers by one token: set COLANE_TOKEN, or --token-file, on both to the same"
        )
    if config.standby and not config.leader_lease_s:
        raise ServerError("standby: it leads once a lease has run out, so not with --leader-lease off")
    if config.token is not None and not config.token.strip():
        raise ServerError("token: must not be empty")


def _job_key(config: ServerConfig) -> bytes:
    """By which tokens of jobs are made: on each scheduler of one store the same, where they have a token in common."""
    if config.store is not None and config.token:
        return hmac.new(config.token.encode(), b"tokens of jobs", hashlib.sha256).digest()
    return own_secret(config.state_dir, JOB_KEY_FILE).encode()


def _reached_from_afar(config: ServerConfig, url: str) -> str:
    """The URL of this scheduler for other machines: one that listens everywhere is known by its machine's name."""
    if config.host not in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        return url
    scheme, _, port = url.partition("://")[0], "", url.rpartition(":")[2]
    return f"{scheme}://{socket.gethostname()}:{port}"


def _listening(listen: Callable[[], Listener]) -> Listener:
    try:
        return listen()
    except ListenError as error:
        raise ServerError(str(error)) from error


def _rules(config: ServerConfig, service: Service, standby: Standby | None) -> GateRules:
    assert config.token is not None  # noqa: S101 - made before this at the latest
    callers = Callers(
        token=config.token, tokens=lambda: service.read_model.tokens, job_caller=service.nodes.tokens.caller
    )
    hosts = LOOPBACK_NAMES | {config.host} if is_loopback(config.host) else None
    lead = service.driver.lead
    leading = Leading(
        leads=lambda: service.leads,
        is_held=lambda: lead.is_held,
        leader=lambda: None if standby is None else standby.leader,
        has_lease=bool(config.leader_lease_s),
    )
    return GateRules(callers=callers, hosts=hosts, leading=leading)


def _write_pid(handle: int, state_dir: Path) -> None:
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        raise _unwritable(state_dir, error) from error


def _unwritable(state_dir: Path, error: OSError) -> ServerError:
    return ServerError(f"state: {state_dir} cannot be written: {error.strerror}; make room there, or choose another")


def _hold_name(state_dir: Path) -> socket.socket:
    """Hold a name made of the directory's path: unlike the lock file, it cannot be deleted while we live.

    Raises ServerError: a scheduler of ours or root's holds it.
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
        if uid in {0, os.geteuid()}:  # any user may take the name; only these could be a scheduler on our files
            holder.close()
            raise _taken(state_dir, str(pid)) from None
    return holder


def _dismiss(name: socket.socket) -> None:
    """Close connections that asked which process holds the name; too many of them would keep the next from asking."""
    with contextlib.suppress(OSError):
        name.accept()[0].close()


def _holder_of(name: str) -> tuple[int, int]:
    """Process and user that listen under a name; -1 when none does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.setblocking(False)
        if caller.connect_ex(name) != 0:
            return -1, -1
        pid, uid, _ = struct.unpack("3i", caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return pid, uid


def _taken(state_dir: Path, pid: str) -> ServerError:
    return ServerError(f"state: another scheduler (pid {pid}) uses {state_dir}; stop it, or choose another --state")


@contextlib.contextmanager
def locked(state_dir: Path) -> Iterator[socket.socket]:
    """Hold the state directory: two schedulers on one store would each run ahead of the other."""
    try:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.geteuid() == 0:
            state_dir.chmod(PASSABLE)
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


JOB_KEY_FILE: Final = "job_key"  # by which tokens of jobs are made: it goes into no copy of the store


def own_secret(state_dir: Path, name: str) -> str:
    """Return a secret that lies in the state directory, for its owner only; made at the first start.

    Raises ServerError: it cannot be written.
    """
    path = state_dir / name
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


def _publish(path: Path, url: str, has_socket: bool) -> None:
    fresh = path.with_suffix(".new")
    body = {"url": url, "pid": os.getpid(), **({"socket": str(path.with_name(SOCKET_FILE))} if has_socket else {})}
    try:
        fresh.write_text(json.dumps(body) + "\n", encoding="utf-8")
        fresh.replace(path)
    except OSError as error:
        raise _unwritable(path.parent, error) from error


def about_users() -> str:
    """Say which users may use a scheduler that we run, in one line."""
    if os.geteuid() == 0:
        return "every user of this machine may submit; jobs run as their submitters (docs/how-to/security.md)"
    return f"users: {user_name(os.geteuid())} alone; run it as root to serve all users (docs/how-to/security.md)"


def _print_url(config: ServerConfig, url: str) -> None:
    kept = f"state {config.state_dir}{'' if config.store is None else f', store {config.store}'}"
    what = "standby" if config.standby else "scheduler"
    sys.stdout.write(f"colane {what} listens on {url} (policy {config.policy}, {kept})\n")
    sys.stdout.write(f"{about_users()}\n{about_lease(config.node_timeout_s)}\n")
    sys.stdout.flush()


async def _run(server: ApiServer, service: Service, listener: socket.socket, standby: Standby | None) -> None:
    """Serve until told to stop, or until the driver fails: then the process must not go on answering."""
    driving = asyncio.create_task(_drive(service, standby))
    collecting = asyncio.create_task(_collect())
    driving.add_done_callback(lambda _: setattr(server, "should_exit", True))
    handing = asyncio.create_task(service.hands_over.wait())
    # It releases the lead before its connections are closed: what is still asked is sent elsewhere by the door.
    handing.add_done_callback(lambda _: service.driver.stop())
    try:
        await server.serve(sockets=[listener])
    finally:
        service.stop()
        handing.cancel()
        collecting.cancel()
        await driving


async def _collect() -> None:
    while True:
        await asyncio.sleep(COLLECTION_PERIOD_S)
        gc.collect()


async def _drive(service: Service, standby: Standby | None) -> None:
    if standby is not None:
        if not await standby.run():
            await service.close()
            return
        log.warning("this scheduler leads now (epoch %d)", service.history.current.number)
    await service.run()
