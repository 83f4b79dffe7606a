"""Turns a placed job into a running supervisor."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import NamedTuple, TypedDict

from colane.adaptor import bundle, wire
from colane.adaptor.turns import GATE_ENV
from colane.agent.config import AgentConfig
from colane.agent.files.jobdir import SHIM_ERRORS, TOKEN, JobDir, LaunchFacts
from colane.agent.launch.environment import job_cores, job_environment
from colane.agent.launch.users import Account
from colane.agent.reconcile import DesiredJob, Key
from colane.agent.supervisor import programs
from colane.agent.supervisor.command import Command
from colane.agent.supervisor.shim import LEAD_ENV, SIGNAL_ENV, TO_SHELL_ENV
from colane.api.nodes import LaunchObject, LaunchSpecObject
from colane.client.locate import TOKEN_FILE_VARIABLE
from colane.devices import Devices
from colane.devices.host import boot_id
from colane.model import file_names
from colane.model.checkpoint import CHECKPOINT_PRESETS
from colane.model.hardware import Gpu
from colane.settings.table import Mps


def gate_path(state_dir: Path) -> Path:
    """Where the jobs of an agent ask for their turns."""
    return state_dir.absolute() / "gate"


def wants_mps(config: AgentConfig, launch: LaunchSpecObject, gpus: Sequence[Gpu]) -> bool:
    """Whether this job should go through MPS: it was asked for, here or by the job, on real GPUs."""
    asked = config.mps == Mps.ON or (config.mps == Mps.AUTO and bool(launch.get("mps")))
    return asked and bool(gpus) and not any(gpu.is_cpu_device for gpu in gpus)


def plan_launch(
    job: DesiredJob,
    launch: LaunchObject,
    config: AgentConfig,
    *,
    gpus: Sequence[Gpu],
    devices: Devices,
    steps_path: Path,
    mps: Mapping[str, str],
    account: Account | None = None,
) -> tuple[Command, LaunchFacts]:
    """Say exactly what is run.

    Args:
        job: Where the scheduler placed it.
        launch: What the scheduler keeps for its launch.
        config: The agent's settings.
        gpus: Its devices in rank order.
        devices: All of this node.
        steps_path: Where its steps file will be.
        mps: Variables that lead to an MPS daemon; empty without one.
        account: The user it runs as; None for the agent's own user.
    """
    is_other = account is not None and account.uid != os.geteuid()
    cores = job_cores(job.cores, gpus, devices.host.cores)
    colane = {
        "COLANE_JOB_ID": str(job.key.job),
        "COLANE_ATTEMPT": str(job.key.attempt),
        "COLANE_NODE": config.name,
        "COLANE_POOL": config.pool,
        "COLANE_URL": config.scheduler_url,
        wire.STEPS_FILE_ENV: str(steps_path),
        GATE_ENV: str(gate_path(config.state_dir)),
    }
    if job.serves:
        colane[wire.SERVES_ENV] = "1"
    if launch.get("checkpoint_signal"):
        colane[SIGNAL_ENV] = launch["checkpoint_signal"]
        colane[LEAD_ENV] = f"{launch.get('checkpoint_lead_s') or CHECKPOINT_PRESETS['plain'].lead_s:g}"
    if launch.get("checkpoint_to_shell"):
        colane[TO_SHELL_ENV] = "1"
    if launch.get("token"):
        colane[TOKEN_FILE_VARIABLE] = str(steps_path.with_name(TOKEN))
    colane |= batch_variables(launch) | array_variables(launch)
    env = job_environment(
        launch.get("env") or {},
        os.environ,
        shown=devices.maker.visible(gpus),
        cores=cores,
        colane=colane,
        mps=mps,
        adaptor=bundle.place(config.state_dir),
        user=account.variables if account is not None and is_other else None,
    )
    command = Command(
        tuple(launch["command"]),
        launch.get("workdir") or env.get("HOME", "/"),
        env,
        cores,
        log_cap_bytes=config.log_cap_bytes,
        grace_s=config.grace_s,
        memory_limit_bytes=job.memory_limit_bytes,
        has_terminal=bool(launch.get("pty")),
        **files_of(launch, config.name, job.key, is_first=job.meeting is None or job.meeting.node == 0),
        run_as=(account.uid, account.gid, *account.groups) if account is not None and is_other else (),
    )
    cpu_devices = any(gpu.is_cpu_device for gpu in gpus)
    return command, LaunchFacts(boot_id(), time.time(), job.gpus, cores, cpu_devices, bool(mps))


def files_of(launch: LaunchObject, node: str, key: Key, *, is_first: bool) -> JobFiles:
    """Say which files a job writes and reads, with its names in the places of theirs.

    Args:
        launch: What the scheduler keeps for its launch.
        node: This one.
        key: Which start of it: a later attempt adds to what an earlier one has written.
        is_first: It has no other node before this one, which would have written already.
    """
    element = launch.get("array")
    values: dict[str, object] = {
        "j": key.job, "x": launch.get("name") or "", "u": launch.get("user") or "", "N": node,
        "A": key.job if element is None else element["id"], "a": 0 if element is None else element["index"],
    }  # fmt: skip
    return {
        "output": file_names.filled(launch.get("output", ""), values),
        "adds": key.attempt > 1 or not is_first,
        "input": file_names.filled(launch.get("input", ""), values),
    }


def array_variables(launch: LaunchObject) -> dict[str, str]:
    """Say which element of which array a job is."""
    return {f"COLANE_ARRAY_{name.upper()}": str(value) for name, value in (launch.get("array") or {}).items()}


def batch_variables(launch: LaunchObject) -> dict[str, str]:
    """Say how many samples a step of a job takes with the GPUs it has now, in all and on each of them."""
    batch, gpus = launch.get("batch"), launch.get("gpus") or 1
    if not batch:
        return {}
    each = batch["size"] if batch["per_gpu"] else batch["size"] // gpus
    kind = "per-gpu" if batch["per_gpu"] else "global"
    return {"COLANE_BATCH": kind, "COLANE_BATCH_SIZE": str(each * gpus), "COLANE_BATCH_SIZE_PER_GPU": str(each)}


class JobFiles(TypedDict):
    """Of a `Command`, which files it writes and reads."""

    output: str
    adds: bool
    input: str


class _Launch(NamedTuple):
    """A supervisor that was asked for: for which job, when, what closes once it runs or cannot, what ends looking."""

    server: ForkServer
    asked_s: float
    ready_fd: int
    cancel: Callable[[], None]


LAUNCH_MAX_S = 10.0
"""An agent that ends waits no longer than this for supervisors that it has just asked for. A fork server by which a job
has not come to run within it is not asked again: it may be stopped."""


class Launcher:
    """Has supervisors started, each in a process that is not our child."""

    def __init__(self, state_root: Path) -> None:
        self._program = programs.place(state_root) / programs.FORK_SERVER
        bundle.unpack(state_root)
        self._server: ForkServer | None = None
        self._left: list[ForkServer] = []
        self._under_way: dict[Key, _Launch] = {}

    def is_under_way(self, key: Key) -> bool:
        """Whether a supervisor was started that does not run its job yet."""
        return key in self._under_way

    def spawn(self, job: JobDir, on_ready: Callable[[JobDir], None]) -> None:
        """Start a supervisor for a prepared directory.

        Args:
            job: The directory; when it is claimed already, the new supervisor goes away again.
            on_ready: Called in the event loop once the job runs, has ended, or could not be supervised.

        Raises:
            OSError: No process can be started.
        """
        ready_fd, ready_end = os.pipe()
        try:
            with (job.path / SHIM_ERRORS).open("ab") as errors:
                server = self._ask(job, ready_end, errors.fileno())
        except OSError:
            os.close(ready_fd)
            raise
        finally:
            os.close(ready_end)

        def finish() -> None:
            del self._under_way[job.key]
            on_ready(job)

        self._under_way[job.key] = _Launch(server, time.monotonic(), ready_fd, watch(ready_fd, finish))

    def close(self) -> None:
        """Watch no more; one about to run a job is waited for, so that it is claimed when the next agent looks."""
        until_s = time.monotonic() + LAUNCH_MAX_S
        for launch in self._under_way.values():
            wait([launch.ready_fd], max(until_s - time.monotonic(), 0.0))
            launch.cancel()
        self._under_way.clear()
        for server in (self._server, *self._left):
            if server is not None:
                server.leave()
                server.has_ended(within_s=until_s - time.monotonic())
        self._server, self._left = None, []

    def _ask(self, job: JobDir, ready_end: int, errors_fd: int) -> ForkServer:
        """Have a supervisor forked: by another fork server where the one we have is gone or does not do it."""
        server = self._server
        if server is not None and not self._is_stuck(server):
            with suppress(OSError):
                server.ask(job.path, ready_end, errors_fd)
                return server
        if server is not None:
            server.leave()
            self._left = [one for one in (*self._left, server) if not one.has_ended()]
        self._server = ForkServer(self._program)
        self._server.ask(job.path, ready_end, errors_fd)
        return self._server

    def _is_stuck(self, server: ForkServer) -> bool:
        late_s = time.monotonic() - LAUNCH_MAX_S
        return any(launch.asked_s < late_s for launch in self._under_way.values() if launch.server is server)


class ForkServer:
    """The process that forks supervisors: `fork_server`.

    Args:
        program: Its copy.

    Raises:
        OSError: No process can be started.
    """

    def __init__(self, program: Path) -> None:
        self._socket, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with end:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(program)],
                stdin=end.fileno(),
                stdout=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        self._socket.setblocking(False)

    def ask(self, directory: Path, ready_end: int, errors_fd: int) -> None:
        """Have a supervisor forked for a directory; see `fork_server`.

        Raises OSError: it is gone, or has not done what it was asked before.
        """
        socket.send_fds(self._socket, [os.fsencode(directory)], [ready_end, errors_fd])

    def leave(self) -> None:
        """Ask no more: it ends after what it was asked before."""
        self._socket.close()

    def has_ended(self, *, within_s: float = 0.0) -> bool:
        """Whether it has; a process of ours that is waited for is none any more."""
        try:
            self._process.wait(max(within_s, 0.0))
        except subprocess.TimeoutExpired:
            return False
        return True


def watch(fd: int, then: Callable[[], None]) -> Callable[[], None]:
    """Call `then` in the running event loop when the process of a pidfd, or a pipe's other end, is gone.

    Returns:
        What cancels that. Either way `fd` is closed.
    """
    loop = asyncio.get_running_loop()

    def cancel() -> None:
        loop.remove_reader(fd)
        os.close(fd)

    def ended() -> None:
        cancel()
        then()

    loop.add_reader(fd, ended)
    return cancel
