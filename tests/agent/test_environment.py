from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from colane.agent.config import AgentConfig
from colane.agent.launch.environment import OF_A_LAUNCH, THREAD_POOLS, job_cores, job_environment, open_pools
from colane.agent.launch.launcher import batch_variables, plan_launch
from colane.agent.reconcile import DesiredJob, Key
from colane.devices.cpu import CpuDevices, CpuSpec
from colane.devices.makers import NVIDIA
from colane.devices.types import HostFacts
from colane.model.hardware import Gpu

CPU = Gpu(index=0, uuid="cpu-0", type="cpu", memory_bytes=1, cores=(2, 3))
GPUS = [Gpu(index=i, uuid=f"GPU-{i}", type="H200", memory_bytes=1, cores=(4 * i, 4 * i + 1)) for i in range(3)]
OWN = {"PATH": "/agent/bin", "HOME": "/agent", "RAY_ADDRESS": "x", "OMP_NUM_THREADS": "1", "COLANE_TOKEN": "secret"}
COLANE = {"COLANE_JOB_ID": "7"}


def environment(requested: dict[str, str], gpus: list[Gpu], mps: dict[str, str] | None = None) -> dict[str, str]:
    return job_environment(requested, OWN, shown=NVIDIA.visible(gpus), cores=(2, 3), colane=COLANE, mps=mps or {})


def test_a_request_without_environment_gets_a_basic_one() -> None:
    assert environment({}, [CPU]) == {
        "PATH": "/agent/bin",
        "HOME": "/agent",
        "PYTHONUNBUFFERED": "1",
        **dict.fromkeys(THREAD_POOLS, "2"),
        "COLANE_THREADS": "2",
        "CUDA_VISIBLE_DEVICES": "",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "COLANE_JOB_ID": "7",
    }


def test_the_submitting_shell_lies_over_the_basics() -> None:
    seen = environment({"PATH": "/venv/bin:/bin", "OMP_NUM_THREADS": "8", "MINE": "1", "PYTHONUNBUFFERED": ""}, [CPU])
    assert seen["PYTHONUNBUFFERED"] == "", "as its owner says"
    assert (seen["PATH"], seen["OMP_NUM_THREADS"], seen["MINE"]) == ("/venv/bin:/bin", "8", "1")


def test_thread_pools_have_a_thread_for_each_core_unless_the_request_says_otherwise() -> None:
    assert {environment({}, [CPU])[name] for name in THREAD_POOLS} == {"2"}
    assert {name: environment({"MKL_NUM_THREADS": "7"}, [CPU])[name] for name in THREAD_POOLS} == {
        **dict.fromkeys(THREAD_POOLS, "2"),
        "MKL_NUM_THREADS": "7",
    }
    spoken_for_all = environment({"OMP_NUM_THREADS": "3"}, [CPU])
    assert [name for name in THREAD_POOLS if name in spoken_for_all] == ["OMP_NUM_THREADS"]
    assert open_pools({"OMP_NUM_THREADS": "3"}) == ()


def test_what_the_placement_decides_lies_over_the_submitting_shell() -> None:
    requested = {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "CUDA_DEVICE_ORDER": "FASTEST_FIRST", "COLANE_JOB_ID": "3"}
    seen = environment(requested, [GPUS[2], GPUS[0]])
    assert seen["CUDA_VISIBLE_DEVICES"] == "GPU-2,GPU-0", "in rank order"
    assert (seen["CUDA_DEVICE_ORDER"], seen["COLANE_JOB_ID"]) == ("PCI_BUS_ID", "7")


@pytest.mark.parametrize("name", sorted(OF_A_LAUNCH - COLANE.keys()))
def test_a_job_submitted_from_within_another_is_told_nothing_of_that_launch(name: str) -> None:
    assert environment({name: "of the outer job"}, [CPU]).get(name) != "of the outer job"


def test_the_owners_own_variables_go_along() -> None:
    assert environment({"COLANE_DATA": "/data", "COLANE_DEBUG": "1"}, [CPU]).items() >= {
        ("COLANE_DATA", "/data"),
        ("COLANE_DEBUG", "1"),
    }


def test_whatever_a_launch_tells_is_of_that_launch() -> None:
    asked: Any = {
        "checkpoint_signal": "SIGUSR1",
        "checkpoint_to_shell": True,
        "batch": {"size": 8, "per_gpu": True},
        "array": {"id": 12, "index": 3, "count": 100, "min": 0, "max": 99},
        "command": ["true"],
        "workdir": "/",
    }
    asked["token"] = "its own"
    command, _ = plan_launch(
        DesiredJob(Key(1, 1), run=True, gpus=(0,), serves=True),
        asked,
        AgentConfig(name="n1", scheduler_url="http://127.0.0.1:1", state_dir=Path("/nowhere")),
        gpus=[CPU],
        devices=CpuDevices(CpuSpec(1), HostFacts(cores=(2, 3), memory_bytes=1)),
        steps_path=Path("/nowhere/steps"),
        mps={},
    )
    told = {name for name in command.env if name.startswith("COLANE_")}
    assert told == OF_A_LAUNCH
    assert command.env["COLANE_ARRAY_INDEX"] == "3"
    assert command.env["COLANE_TOKEN_FILE"] == "/nowhere/token"
    assert "its own" not in str(command.env), "others see an environment: ps, logs, crash reports"


def test_no_foreign_mps_daemon_is_used() -> None:
    requested = {"CUDA_MPS_PIPE_DIRECTORY": "/theirs", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10"}
    assert not [name for name in environment(requested, [GPUS[0]]) if "MPS" in name]
    ours = environment(requested, [GPUS[0]], mps={"CUDA_MPS_PIPE_DIRECTORY": "/ours"})
    assert ours["CUDA_MPS_PIPE_DIRECTORY"] == "/ours"


@pytest.mark.parametrize(
    ("booked", "gpus", "expected"),
    [((9, 8), [CPU], (8, 9)), ((), [CPU], (2, 3)), ((), GPUS[:2], (0, 1, 4, 5)), ((), [], (0, 1, 2))],
)
def test_cores(booked: tuple[int, ...], gpus: list[Gpu], expected: tuple[int, ...]) -> None:
    assert job_cores(booked, gpus, (0, 1, 2)) == expected


@pytest.mark.parametrize(("per_gpu", "whole", "each"), [(False, "64", "16"), (True, "256", "64")])
def test_a_job_is_told_its_batch_of_the_gpus_it_has(per_gpu: bool, whole: str, each: str) -> None:
    asked: Any = {"gpus": 4, "batch": {"size": 64, "per_gpu": per_gpu}}
    told = batch_variables(asked)
    kind = "per-gpu" if per_gpu else "global"
    assert told == {"COLANE_BATCH": kind, "COLANE_BATCH_SIZE": whole, "COLANE_BATCH_SIZE_PER_GPU": each}
    del asked["batch"]
    assert batch_variables(asked) == {}


ADAPTOR = Path("/agent/adaptor/1")


@pytest.mark.parametrize(
    "requested",
    [
        {},
        {"OMP_NUM_THREADS": "8"},
        {"MKL_NUM_THREADS": "7"},
        {"PYTHONPATH": "/mine:/theirs"},
        {"PYTHONPATH": "/mine", "OMP_NUM_THREADS": "4", "PATH": "/venv/bin"},
    ],
)
@pytest.mark.parametrize("outer", [ADAPTOR, Path("/another/nodes/adaptor")])
def test_a_job_submitted_from_within_another_is_as_one_from_the_shell(requested: dict[str, str], outer: Path) -> None:
    """However deep, and whatever cores and adaptor the outer one had."""

    def launched(env: dict[str, str], cores: tuple[int, ...], adaptor: Path) -> dict[str, str]:
        return job_environment(
            env, OWN, shown=NVIDIA.visible([CPU]), cores=cores, colane=COLANE, mps={}, adaptor=adaptor
        )

    once = launched(requested, (2, 3), ADAPTOR)
    within = launched(launched(requested, (0, 1, 2, 3, 4), outer), (7,), outer)
    assert launched(within, (2, 3), ADAPTOR) == once
