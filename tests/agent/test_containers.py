"""Processes of a job that no supervisor is above, as in a container: known by the job's mark in their environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from colane.adaptor import wire
from colane.agent import main, processes
from colane.agent.files.jobdir import mark_of
from colane.devices import NvmlDevices, gpu
from colane.devices.host import read_host
from colane.devices.nvml import Nvml
from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler
from tests.devices.fake_nvml import GB, FakeGpu, FakeNvml

pytestmark = [pytest.mark.live]
WAITS = (sys.executable, "-c", "print(flush=True); import time; time.sleep(1000)")


@contextmanager
def beside(env: dict[str, str]) -> Iterator[int]:
    """A process of this one, that has begun."""
    with subprocess.Popen(WAITS, env=env, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


def test_only_a_process_with_the_mark_of_the_job_is_one_of_it(tmp_path: Path) -> None:
    steps, root = tmp_path / "steps", processes.identify(os.getpid())
    assert root is not None
    with beside({wire.STEPS_FILE_ENV: str(steps)}) as pid:
        assert processes.is_marked(pid, mark_of(steps), root)
        assert not processes.is_marked(pid, mark_of(tmp_path / "other"), root)
        assert not processes.is_marked(pid, mark_of(steps), root._replace(start_ticks=1)), "the job has ended"
    assert not processes.is_marked(pid, mark_of(steps), root)


async def test_memory_of_a_containers_process_is_the_jobs_and_no_others(
    tmp_path: Path, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = FakeGpu("GPU-0", total_bytes=10 * GB, reserved_bytes=0)
    monkeypatch.setattr(gpu, "is_first_namespace", lambda: True)
    monkeypatch.setattr(main, "discover", lambda *_, **__: NvmlDevices(Nvml(FakeNvml([device])), read_host()))
    name, _, value = marker.partition("=")
    fake = FakeScheduler()
    fake.want(1, *WAITS, env={"PATH": os.environ["PATH"], name: value})
    async with running(tmp_path / "state", fake) as agent:
        await agent.until(lambda: fake.launched(1))
        (steps,) = (tmp_path / "state" / "jobs").glob("1-*/own/steps")

        def told() -> tuple[int, int | None]:
            seen = fake.launched(1)
            assert seen is not None
            return fake.reports[-1]["gpus"][0]["foreign_bytes"], seen["progress"]["peak_bytes"]

        with beside({wire.STEPS_FILE_ENV: str(steps)}) as own, beside({}) as stranger:
            device.processes.update({own: 3 * GB, stranger: 2 * GB})
            await agent.until(lambda: told() == (2 * GB, 3 * GB), "3 GB are the job's, 2 GB another's")
            device.processes.clear()
        fake.end(1)
        await agent.until(lambda: (1, 1) in fake.ends)
