"""NVIDIA MPS: one control daemon for each GPU that jobs share through it, and for each user of these jobs.

The daemon runs as the jobs' user with pipe and log directories of its own: a server serves the clients of one user,
and its pipes let no other user in. So it needs no root and meets no other daemon (NVIDIA's guide to MPS). It
is asked as that user too, so that an answer says that the user's jobs reach it. CUDA goes on silently without MPS when
no daemon answers, so a daemon is asked before each job relies on it. Where it cannot be started, jobs share by time
slicing, and the fact is kept as a message until it is no longer true.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Container, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

from colane.agent import processes
from colane.agent.launch.users import Account, UnknownUserError, account_of_uid, own_account
from colane.model.hardware import Gpu

T = TypeVar("T")

CONTROL = "nvidia-cuda-mps-control"

ANSWER_MAX_S = 5.0  # a healthy daemon answers within milliseconds; one that hangs must not hold up the node

PROBE_EVERY_S = 30.0  # how often a daemon is asked for its health while nothing is launched: each time costs a process

SOCKET_PATH_MAX = 107
"""Bytes of a unix socket's path (unix(7)); MPS makes `control` and longer names in its pipe directory."""

IN_FAULT = (
    "MPS on GPU {gpu} takes no new job: one it has failed them all, and they are not all gone; time slicing is used"
)

_LONGEST_NAME = "/control_privileged"


class MpsError(Exception):
    """The daemon cannot be used; says why."""


@dataclass(slots=True)
class _Daemon:
    """One GPU's daemon for one user."""

    gpu: Gpu
    account: Account
    root: Path
    probed_s: float = 0.0
    server_pids: frozenset[int] = field(default_factory=frozenset)

    def environment(self) -> dict[str, str]:
        return {"CUDA_MPS_PIPE_DIRECTORY": str(self.root / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(self.root / "log")}


class MpsManager:
    """Starts, asks, restarts and stops the daemons."""

    def __init__(self, root: Path, control: str = CONTROL) -> None:
        """Begin with none.

        Args:
            root: Directory for the daemons' pipes and logs.
            control: The control program.
        """
        self._root = root
        self._control = control
        self._daemons: dict[tuple[int, int], _Daemon] = {}
        self._problems: dict[tuple[int, int], str] = {}
        self._locks: defaultdict[tuple[int, int], asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def messages(self) -> list[str]:
        """What keeps MPS from being used, for the node's report."""
        return [self._problems[key] for key in sorted(self._problems)]

    @property
    def active(self) -> frozenset[int]:
        """Indexes of the GPUs whose daemon answered last time; servers of two users take turns as without MPS."""
        users = Counter(index for index, _ in self._daemons)
        return frozenset(index for index, count in users.items() if count == 1)

    @property
    def server_pids(self) -> frozenset[int]:
        """Processes of ours that hold GPU memory in the name of clients."""
        return frozenset(pid for daemon in self._daemons.values() for pid in daemon.server_pids)

    async def adopt(self, gpus: Iterable[Gpu]) -> None:
        """Take over the daemons that an earlier agent left for its jobs."""
        left = [daemon for gpu in gpus for daemon in self._left(gpu)]
        for daemon in left if shutil.which(self._control) else ():
            with suppress(MpsError):  # it is gone; a job that needs it has it started anew
                await self._probe(daemon)
                self._daemons[daemon.gpu.index, daemon.account.uid] = daemon

    async def ensure(self, gpu: Gpu, account: Account | None = None) -> dict[str, str]:
        """Have a daemon that answers, and give the variables that lead to it; none when that is not possible.

        Args:
            gpu: The GPU.
            account: The user its clients run as; None is the agent's own user.
        """
        account = account or own_account()
        async with self._locks[gpu.index, account.uid]:  # jobs that start together have one daemon started
            return await self._ensure(gpu, account)

    async def _ensure(self, gpu: Gpu, account: Account) -> dict[str, str]:
        key = (gpu.index, account.uid)
        daemon = self._daemons.get(key) or self._daemon(gpu, account)
        try:
            self._prepare(daemon)
            try:
                await self._probe(daemon)
            except MpsError:
                await self._start(daemon)
                await self._probe(daemon)
        except MpsError as error:
            whose = "" if account.uid == os.geteuid() else f" for {account.name}"
            self._daemons.pop(key, None)
            problem = f"MPS on GPU {gpu.index}{whose} could not be started: {error}; time slicing is used"
            self._problems[key] = problem
            return {}
        self._daemons[key] = daemon
        if await self._is_in_fault(daemon):
            self._problems[key] = IN_FAULT.format(gpu=gpu.index)
            return {}
        self._problems.pop(key, None)
        return daemon.environment()

    def _daemon(self, gpu: Gpu, account: Account) -> _Daemon:
        own = account.uid == os.geteuid()
        return _Daemon(gpu, account, self._root / (str(gpu.index) if own else f"{gpu.index}-{account.uid}"))

    def _left(self, gpu: Gpu) -> list[_Daemon]:
        """What an earlier agent may have left on a GPU: its own user's daemon, and those of others."""
        own = self._daemon(gpu, own_account())
        found = [own] if own.root.exists() else []
        for path in sorted(self._root.glob(f"{gpu.index}-*")):
            with suppress(OSError, UnknownUserError):
                found.append(_Daemon(gpu, account_of_uid((path / "pipe").lstat().st_uid), path))
        return found

    async def has_failed(self, index: int) -> bool:
        """Whether a server of a GPU says that a client's fatal error has failed it; older drivers do not tell."""
        return any([await self._is_in_fault(daemon) for daemon in self._daemons.values() if daemon.gpu.index == index])

    async def let_go(self, pids: Container[int]) -> None:
        """Have the servers end the work of those of these processes that are their clients, before they are killed."""
        for daemon in list(self._daemons.values()):
            with suppress(MpsError):
                await self._probe(daemon)
                for server in sorted(daemon.server_pids):
                    for client in (await self._ask(daemon, f"get_client_list {server}")).split():
                        if client.isdigit() and int(client) in pids:
                            await self._ask(daemon, f"terminate_client {server} {client}")

    async def watch(self, busy: Container[int] = ()) -> None:
        """Ask daemons that have not been asked for a while, and start anew those that are gone.

        A server comes with its first client, and anew after a fault: while jobs run on a GPU whose servers are not
        known, its daemon is asked each time, or what they hold of it would be taken for another user's.
        """
        due_s = time.monotonic() - PROBE_EVERY_S
        for daemon in list(self._daemons.values()):
            is_unknown = daemon.gpu.index in busy and not any(map(processes.identify, daemon.server_pids))
            if is_unknown or daemon.probed_s <= due_s:
                await self.ensure(daemon.gpu, daemon.account)

    async def stop(self) -> None:
        """End all daemons."""
        for key, daemon in list(self._daemons.items()):
            try:
                await self._ask(daemon, "quit")
            except MpsError as error:
                self._problems[key] = f"MPS on GPU {daemon.gpu.index} could not be stopped: {error}"
            del self._daemons[key]

    def _prepare(self, daemon: _Daemon) -> None:
        if shutil.which(self._control) is None:
            raise MpsError(f"{self._control} is not installed")
        pipe = daemon.root / "pipe"
        if len(os.fsencode(pipe)) + len(_LONGEST_NAME) > SOCKET_PATH_MAX:
            raise MpsError(f"the path {pipe} is too long for a socket, use a shorter state directory")
        try:
            for path in (self._root, daemon.root):  # ours: a user who could put a link there would be given its target
                path.mkdir(parents=True, exist_ok=True)
                path.chmod(0o700 if daemon.account.uid == os.geteuid() and path == daemon.root else 0o711)
            for path in (pipe, daemon.root / "log"):
                path.mkdir(exist_ok=True, mode=0o700)
                os.chown(path, daemon.account.uid, daemon.account.gid, follow_symlinks=False)
        except OSError as error:
            raise MpsError(f"{error.filename} cannot be made: {error.strerror}") from error

    async def _probe(self, daemon: _Daemon) -> None:
        answer = await self._ask(daemon, "get_server_list")
        daemon.server_pids = frozenset(int(word) for word in answer.split() if word.isdigit())
        daemon.probed_s = time.monotonic()

    async def _is_in_fault(self, daemon: _Daemon) -> bool:
        with suppress(MpsError):
            await self._probe(daemon)
            for pid in sorted(daemon.server_pids):
                if "FAULT" in (await self._ask(daemon, f"get_server_status {pid}")).upper():
                    return True
        return False

    async def _start(self, daemon: _Daemon) -> None:
        # Its output goes to a file: it may keep a pipe open for as long as it lives.
        environment = {**os.environ, **daemon.environment(), "CUDA_VISIBLE_DEVICES": daemon.gpu.uuid}
        said = daemon.root / "start.txt"
        with said.open("wb") as file:
            process = await self._spawn(daemon.account, ["-d"], environment, asyncio.subprocess.DEVNULL, file)
        if await _finish(process, process.wait()) != 0:
            raise MpsError(_reason(said.read_text(errors="replace"), process))

    async def _ask(self, daemon: _Daemon, question: str) -> str:
        pipe = asyncio.subprocess.PIPE
        process = await self._spawn(daemon.account, [], {**os.environ, **daemon.environment()}, pipe, pipe)
        output, _ = await _finish(process, process.communicate(f"{question}\n".encode()))
        text = output.decode(errors="replace")
        if process.returncode != 0:
            raise MpsError(_reason(text, process))
        return text

    async def _spawn(
        self, account: Account, arguments: list[str], environment: dict[str, str], stdin: int, stdout: int | IO[bytes]
    ) -> asyncio.subprocess.Process:
        """Run the control program as a user."""
        as_other: dict[str, Any] = {}
        if account.uid != os.geteuid():
            as_other = {"user": account.uid, "group": account.gid, "extra_groups": list(account.groups), "cwd": "/"}
            environment = {**environment, **account.variables}
        try:
            return await asyncio.create_subprocess_exec(
                self._control,
                *arguments,
                stdin=stdin,
                stdout=stdout,
                stderr=asyncio.subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                **as_other,
            )
        except OSError as error:
            raise MpsError(f"{self._control}: {error.strerror}") from error


async def _finish(process: asyncio.subprocess.Process, end: Coroutine[Any, Any, T]) -> T:
    try:
        return await asyncio.wait_for(end, ANSWER_MAX_S)
    except TimeoutError as error:
        process.kill()
        await process.wait()
        raise MpsError(f"no answer within {ANSWER_MAX_S:g} s") from error


def _reason(text: str, process: asyncio.subprocess.Process) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else f"exit code {process.returncode}"
