"""The processes of a job on several GPUs: where they meet, and how each is bound to its GPU's socket.

A job is one process, which may start others itself (`torchrun`, `mp.spawn`), or one process for each of its GPUs, which
`ranks` starts. Variables are those that PyTorch's `env://` initialisation and its launchers read.
"""

from __future__ import annotations

import os
import random
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from colane.agent.launch.environment import open_pools
from colane.agent.reconcile import Meeting
from colane.agent.supervisor import shim_system
from colane.agent.supervisor.command import Command
from colane.api.nodes import LaunchSpecObject
from colane.devices.types import HostFacts
from colane.model.hardware import Gpu
from colane.model.job_spec import Ranks

PER_GPU = Ranks.PER_GPU.value  # value of a job's `ranks` that asks for a process for each GPU; `one` is the other

LOOPBACK = "127.0.0.1"
PORT_MIN = 20_000
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 1_000


def ranks_problem(launch: LaunchSpecObject) -> str:
    """Say why its processes cannot be started as the scheduler says, which may be a newer one; empty where they can."""
    asked = launch.get("ranks") or Ranks.ONE
    if asked in set(Ranks):
        return ""
    return f"this agent, of another version than its scheduler, cannot start {asked!r} ranks: upgrade it"


def needs_meeting(launch: LaunchSpecObject, gpus: Sequence[Gpu]) -> bool:
    """Whether processes of this job look for each other.

    Of an elastic one at one GPU as well: its launcher is given the same words at every size.
    """
    return len(gpus) > 1 or launch.get("ranks") == PER_GPU or bool(gpus and launch.get("elastic"))


def arrange(
    command: Command,
    launch: LaunchSpecObject,
    *,
    gpus: Sequence[Gpu],
    host: HostFacts,
    program: Path,
    meeting: Meeting | None,
) -> Command:
    """Let a job's processes find each other, and take their memory near their GPUs.

    Args:
        command: What is run, for one process.
        launch: What the scheduler keeps for the job's launch; `ranks` says how many processes are started.
        gpus: The job's devices on this node in rank order.
        host: This machine.
        program: The compiled `ranks`.
        meeting: Where they meet; None for a job that is one process on one device.
    """
    command = replace(command, memory_nodes=memory_nodes(gpus, host))
    if meeting is None:
        return command
    if launch.get("ranks") != PER_GPU:
        return replace(command, env={**meeting.hints(len(gpus)), **command.env})
    pools = ",".join(open_pools(launch.get("env") or {}))
    words = (str(command.grace_s), str(meeting.first_rank), pools, *bindings(gpus, command.cores, host))
    starter = (sys.executable, "-I", "-S", str(program), *words, "--")
    return replace(command, argv=(*starter, *command.argv), env={**command.env, **meeting.orders(len(gpus))})


def cores_of_ranks(gpus: Sequence[Gpu], cores: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Give each rank those of its job's cores that are near its GPU, all of them where none is."""
    return tuple(tuple(core for core in cores if core in set(gpu.cores)) or tuple(cores) for gpu in gpus)


def bindings(gpus: Sequence[Gpu], cores: Sequence[int], host: HostFacts) -> list[str]:
    """Bind each rank to those of the job's cores that are near its GPU, and to the memory of that socket.

    Args:
        gpus: The job's devices here in rank order.
        cores: The job's cores here.
        host: The machine.

    Returns:
        Words for `ranks`; the number of near cores is shared out as threads among the ranks that have them.
    """
    near = cores_of_ranks(gpus, cores)
    words = []
    for gpu, own in zip(gpus, near, strict=True):
        threads = str(max(len(own) // near.count(own), 1)) if own else ""
        words.append(":".join((_list(own), _list(memory_nodes([gpu], host)), threads)))
    return words


def memory_nodes(gpus: Sequence[Gpu], host: HostFacts) -> tuple[int, ...]:
    """Give the NUMA nodes near these GPUs; empty where that is no choice."""
    known = set(host.sockets.values())
    near = {node for gpu in gpus for node in _nodes_of(gpu, host)} & known
    return tuple(sorted(near)) if near != known else ()


def _nodes_of(gpu: Gpu, host: HostFacts) -> set[int]:
    """Give the NUMA nodes of one device: of a cpu device, those its cores are really on."""
    return {host.sockets[core] for core in gpu.cores if core in host.sockets} if gpu.is_cpu_device else {gpu.socket}


def memory_problem(host: HostFacts) -> str:
    """Say why memory cannot be taken near the GPUs of this machine; empty when it can, or need not."""
    if len(set(host.sockets.values())) < 2:
        return ""
    number = shim_system.SET_MEMPOLICY.get(os.uname().machine)
    if number is not None and shim_system.libc("syscall", number, 0, 0, 0) == 0:  # MPOL_DEFAULT, as it is
        return ""
    return "jobs' memory cannot be kept near their GPUs: this system does not permit set_mempolicy(2)"


def find_port(taken: frozenset[int]) -> int:
    """Find a free TCP port for a job to listen on.

    Below the range that the kernel gives to outgoing connections no process takes it by chance before the job does.

    Args:
        taken: Ports of other jobs here, which may not listen yet.
    """
    end = _outgoing_from()
    for _ in range(_TRIES if end > PORT_MIN else 0):
        port = random.randrange(PORT_MIN, end)  # noqa: S311 - no secret
        if port not in taken and _is_free(port):
            return port
    with socket.create_server(("127.0.0.1", 0)) as any_free:
        return int(any_free.getsockname()[1])


def _outgoing_from() -> int:
    try:
        return int(_PORT_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return PORT_MIN


def _is_free(port: int) -> bool:
    """Whether the port is free on all addresses; nothing listens meanwhile."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _list(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
