from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from colane.agent.launch import gang
from colane.agent.launch.environment import THREAD_POOLS, open_pools
from colane.agent.reconcile import Meeting
from colane.agent.supervisor import shim_system
from colane.agent.supervisor.command import Command
from colane.api.nodes import LaunchSpecObject
from colane.devices.types import HostFacts
from colane.model.hardware import Gpu

HOST = HostFacts(cores=tuple(range(8)), memory_bytes=1, sockets={core: core // 4 for core in range(8)})
FLAT = HostFacts(cores=tuple(range(8)), memory_bytes=1, sockets=dict.fromkeys(range(8), 0))
GPUS = [
    Gpu(index=i, uuid=f"GPU-{i}", type="V100", memory_bytes=1, socket=near, cores=tuple(range(near * 4, near * 4 + 4)))
    for i, near in enumerate((0, 0, 1, 1))
]
MEETING = Meeting("127.0.0.1", 23_456, 2)
PROGRAM = Path("/state/ranks.pyc")


def arranged(launch: LaunchSpecObject, gpus: list[Gpu], *, meeting: Meeting | None = MEETING) -> Command:
    cores = tuple(sorted({core for gpu in gpus for core in gpu.cores}))
    command = Command(("python", "train.py"), "/", {"MINE": "1", "MASTER_ADDR": "theirs"}, cores)
    return gang.arrange(command, launch, gpus=gpus, host=HOST, program=PROGRAM, meeting=meeting)


def test_a_job_on_one_device_is_left_as_it_is() -> None:
    assert not gang.needs_meeting({}, GPUS[:1])
    command = arranged({}, GPUS[:1], meeting=None)
    assert (command.argv, command.env) == (("python", "train.py"), {"MINE": "1", "MASTER_ADDR": "theirs"})
    assert command.memory_nodes == (0,)


def test_a_job_that_starts_its_own_processes_is_told_where_they_may_meet() -> None:
    assert gang.needs_meeting({}, GPUS[:2])
    command = arranged({"ranks": "one"}, GPUS[:2])
    assert command.argv == ("python", "train.py")
    assert command.env == {
        "MASTER_ADDR": "theirs", "MASTER_PORT": "23456", "NNODES": "1", "NODE_RANK": "0", "NPROC_PER_NODE": "2",
        "MINE": "1",
    }, "what the submitting shell says stays, and no rank is claimed"  # fmt: skip


def test_ranks_are_told_where_to_meet() -> None:
    assert gang.needs_meeting({"ranks": gang.PER_GPU}, GPUS[:1])
    assert gang.needs_meeting({"elastic": True}, GPUS[:1]), "its launcher reads the same words at every size"
    assert not gang.needs_meeting({"elastic": True}, ())
    command = arranged({"ranks": gang.PER_GPU}, GPUS[1:3])
    assert command.argv[1:] == (
        "-I", "-S", str(PROGRAM), "10.0", "0", ",".join(THREAD_POOLS), "0,1,2,3:0:4", "4,5,6,7:1:4",
        "--", "python", "train.py",
    )  # fmt: skip
    assert (command.env["MASTER_ADDR"], command.env["MASTER_PORT"], command.env["WORLD_SIZE"]) == (
        "127.0.0.1", "23456", "2",
    )  # fmt: skip
    assert command.memory_nodes == (), "of both sockets there is nothing to prefer"


def test_a_node_of_several() -> None:
    meeting = replace(MEETING, address="10.0.0.1", ranks=6, first_rank=4, nodes=2, node=1)
    command = arranged({"ranks": gang.PER_GPU}, GPUS[:2], meeting=meeting)
    assert command.argv[5] == "4"
    names = ("MASTER_ADDR", "WORLD_SIZE", "NNODES", "NODE_RANK", "GROUP_RANK", "NPROC_PER_NODE")
    assert [command.env[name] for name in names] == ["10.0.0.1", "6", "2", "1", "1", "2"]


@pytest.mark.parametrize(
    ("gpus", "cores", "expected"),
    [
        (GPUS[:2], range(4), ["0,1,2,3:0:2", "0,1,2,3:0:2"]),
        (GPUS[1:3], (1, 2, 5), ["1,2:0:2", "5:1:1"]),
        (GPUS[:1], (6,), ["6:0:1"]),
        (GPUS[:4], range(8), ["0,1,2,3:0:2"] * 2 + ["4,5,6,7:1:2"] * 2),
        (GPUS[:2], (), [":0:", ":0:"]),
    ],
)
def test_bindings(gpus: list[Gpu], cores: tuple[int, ...], expected: list[str]) -> None:
    assert gang.bindings(gpus, tuple(cores), HOST) == expected


@pytest.mark.parametrize(
    ("env", "pools"),
    [
        ({}, THREAD_POOLS),
        ({"MKL_NUM_THREADS": "1"}, tuple(name for name in THREAD_POOLS if name != "MKL_NUM_THREADS")),
        ({"OMP_NUM_THREADS": "1"}, ()),
    ],
)
def test_ranks_size_the_thread_pools_that_the_request_leaves_open(env: dict[str, str], pools: tuple[str, ...]) -> None:
    assert open_pools(env) == pools
    assert arranged({"ranks": gang.PER_GPU, "env": env}, GPUS[:2]).argv[6] == ",".join(pools)


def test_memory_near_the_gpus() -> None:
    assert gang.memory_nodes(GPUS[:2], HOST) == (0,)
    assert gang.memory_nodes(GPUS[2:], HOST) == (1,)
    assert gang.memory_nodes(GPUS[1:3], HOST) == ()
    assert gang.memory_nodes(GPUS[:2], FLAT) == ()
    elsewhere = [replace(GPUS[0], socket=7)]
    assert gang.memory_nodes(elsewhere, HOST) == ()


def test_what_is_not_permitted_is_said_once_and_only_where_it_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim_system, "libc", lambda *_: -1)
    assert gang.memory_problem(FLAT) == ""
    assert "set_mempolicy" in gang.memory_problem(HOST)
    monkeypatch.setattr(shim_system, "libc", lambda *_: 0)
    assert gang.memory_problem(HOST) == ""


def test_a_port_is_free_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    first = gang.find_port(frozenset())
    assert gang.find_port(frozenset({first})) != first
    with socket.create_server(("127.0.0.1", first)):
        assert not gang._is_free(first)
    monkeypatch.setattr(gang, "_outgoing_from", lambda: gang.PORT_MIN)
    assert gang.find_port(frozenset()) > 0
    taken = frozenset(range(gang.PORT_MIN, gang.PORT_MIN + 3))
    monkeypatch.setattr(gang, "_outgoing_from", lambda: gang.PORT_MIN + 3)
    assert gang.find_port(taken) not in taken


def test_memory_of_a_cpu_device_is_near_its_cores_whatever_socket_is_declared() -> None:
    device = Gpu(index=0, uuid="cpu-0", type="cpu", memory_bytes=1, socket=0, cores=(4, 5))
    assert gang.memory_nodes([device], HOST) == (1,)
    assert gang.memory_nodes([replace(device, cores=(3, 4))], HOST) == ()
