"""Cores and memory of this machine, as far as this process may use them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import psutil

from colane.devices.types import HostFacts

NODE_ROOT = Path("/sys/devices/system/node")


def read_host(node_root: Path = NODE_ROOT) -> HostFacts:
    """Read the allowed cores, their NUMA nodes and the total memory of this machine."""
    cores = tuple(sorted(os.sched_getaffinity(0)))
    return HostFacts(cores=cores, memory_bytes=psutil.virtual_memory().total, sockets=read_sockets(node_root))


@cache
def boot_id() -> str:
    """Identity of this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def read_sockets(node_root: Path = NODE_ROOT) -> dict[int, int]:
    """Give the NUMA node of every core; empty where the kernel does not tell."""
    sockets: dict[int, int] = {}
    for path in sorted(node_root.glob("node[0-9]*/cpulist")):
        socket = int(path.parent.name.removeprefix("node"))
        sockets.update(dict.fromkeys(parse_cpu_list(path.read_text()), socket))
    return sockets


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Read the kernel's list format, `0-3,8`."""
    parts = (part.partition("-") for part in text.strip().split(",") if part.strip())
    spans = ((int(first), int(last or first)) for first, _, last in parts)
    return tuple(core for first, last in spans for core in range(first, last + 1))


def cores_of_socket(host: HostFacts, socket: int) -> tuple[int, ...]:
    """Give the allowed cores of one NUMA node."""
    return tuple(core for core in host.cores if host.sockets.get(core, 0) == socket)


def allowed(host: HostFacts, cores: Iterable[int]) -> tuple[int, ...]:
    """Keep those cores that this process may use, in order."""
    usable = frozenset(host.cores)
    return tuple(sorted(core for core in cores if core in usable))
