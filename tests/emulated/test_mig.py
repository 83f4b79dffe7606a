"""A job on several instances of a GPU in MIG mode, of which CUDA shows a process one: it is not started so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from colane.core import ClusterState, Core
from colane.core.events import Ended, NodeRegistered, Submitted
from colane.model.hardware import Gpu, Node
from colane.model.job import Exit, JobId, JobSpec
from colane.model.reason import Why
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import preset
from tests.agent.agents import running
from tests.agent.lane import Lane
from tests.devices.fake_nvml import GB, FakeGpu, FakeNvml

pytestmark = [pytest.mark.live]


SHOWN = (sys.executable, "-c", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")


class WithInstances(FakeNvml):
    """NVML of a GPU that is cut in two, and of whole ones behind it."""

    def __init__(self, *, whole: int = 0, name: str = "NVIDIA H100 MIG 3g.40gb") -> None:
        halves = [FakeGpu(f"MIG-{half}", name=name, total_bytes=40 * GB) for half in "ab"]
        others = [FakeGpu(f"GPU-{number}", name="NVIDIA H100", total_bytes=80 * GB) for number in range(1, whole + 1)]
        super().__init__([FakeGpu("GPU-0", name="NVIDIA H100", instances=halves), *others])

    def nvmlInit(self) -> None:  # noqa: N802
        """There is a driver."""


async def test_a_job_is_given_one_instance(lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", WithInstances())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    lane.fake.want(1, *SHOWN, env=lane.env, gpus=(0, 1))
    lane.fake.want(2, *SHOWN, env=lane.env, gpus=(1,))
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        await agent.until(lambda: len(lane.fake.ends) == 2, "both end")
        log = (await agent.get("/log/2/1")).text
    assert log == "MIG-b\n"
    refused = lane.fake.ends[1, 1]
    assert refused["outcome"] == "not-started"
    assert refused["detail"].startswith("devices 0, 1 are MIG instances, and CUDA shows a process one of these only")


@pytest.mark.parametrize("name", ["NVIDIA H100 MIG 3g.40gb", "NVIDIA H100"], ids=["told", "of the whole GPU's name"])
async def test_beside_whole_gpus_a_job_of_two_waits_for_these(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What the agent tells of its devices keeps the scheduler from giving it an instance."""
    monkeypatch.setitem(sys.modules, "pynvml", WithInstances(whole=2, name=name))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    core = Core(preset("fifo"), ClusterState(Beliefs()))
    first, second = JobId(1), JobId(2)
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        gpus = [Gpu(**gpu) for gpu in lane.fake.nodes["node-1"]["gpus"]]
        core.step([NodeRegistered(Node(name="node-1", gpus=tuple(gpus), cores=(0, 1), host_memory_bytes=GB))], 0.0)
        whole = JobSpec(name="a", family="a", gpus=1, gpu_type="NVIDIA H100")
        core.step([Submitted(first, whole), Submitted(second, JobSpec(name="b", family="b", gpus=2))], 1.0)
        assert core.why(second, 2.0).why is Why.NO_FREE_WHOLE_GPU
        core.step([Ended(first, 1, "exited", Exit(0, None), 1.0, 3.0, node="node-1")], 3.0)
        placement = core.state.jobs[second].placement
        assert placement is not None
        lane.fake.want(2, *SHOWN, env=lane.env, gpus=tuple(gpu.number for gpu in placement.gpus))
        await agent.until(lambda: (2, 1) in lane.fake.ends, "it ends")
        assert (await agent.get("/log/2/1")).text == "GPU-1,GPU-2\n"
