"""A borrower of cores aborted once too often: the real scheduler, the real agent, real processes; GPUs are a double."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from colane.agent import main
from colane.agent.files.logs import read_log
from colane.devices import NvmlDevices
from colane.devices.host import read_host
from colane.devices.nvml import Nvml
from tests.agent.agents import running
from tests.agent.test_host_memory_whole import Link, until
from tests.devices.fake_nvml import GB, FakeGpu, FakeNvml
from tests.server.harness import world

pytestmark = [pytest.mark.live]

CORES = len(os.sched_getaffinity(0))
BORROWER = ["sh", "-c", "echo attempt $COLANE_ATTEMPT; exec sleep 10000"]


async def test_it_ends_with_that_reason_and_its_log_is_kept(
    tmp_path: Path, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "discover", lambda *_, **__: NvmlDevices(Nvml(FakeNvml([FakeGpu("GPU-0")])), read_host()))
    name, _, value = marker.partition("=")
    env = {"PATH": os.environ["PATH"], name: value}
    async with world(policy="coda:aborts_max=1") as w, running(tmp_path / "state", Link(w)) as agent:  # type: ignore[arg-type]

        async def is_seen(job: int, state: str, attempt: int) -> bool:
            seen = await w.good("GET", f"/job/{job}")
            return bool(seen["state"] == state and seen["attempt"] == attempt)

        async def train(number: int) -> None:
            """It needs every core, for a moment."""
            wish = {"gpus": 1, "cores": CORES, "gpu_memory": GB, "env": env, "workdir": "/"}
            assert await w.submit(command=["true"], **wish) == number
            await until(agent, lambda: is_seen(number, "succeeded", 1), f"job {number} ends")

        await w.submit(command=BORROWER, gpus=0, cores=1, abortable=True, env=env, workdir="/")
        await until(agent, lambda: is_seen(1, "running", 1), "it runs on a borrowed core")
        await train(2)
        await until(agent, lambda: is_seen(1, "running", 2), "it begins anew")
        await train(3)
        await until(agent, lambda: is_seen(1, "failed", 2), "it ends")
        job, why = await w.good("GET", "/job/1"), await w.good("GET", "/job/1/why")
    assert [line["why"] for line in job["story"]].count("preempted") == 2
    assert [line["why"] for line in job["story"]][-2:] == ["aborts-used-up", "aborts-used-up"]
    assert why["sentence"].startswith("stopped for job 3, which took the cores it ran on, and not queued again")
    (place,) = {log.parent for log in (tmp_path / "state").rglob("1-2/log.*")}
    printed, told = read_log(place)[0].splitlines()
    assert printed == b"attempt 2"
    assert told.startswith(b"colane: stopped for job 3")
