"""The last look before a start: jobs that do not fit beside what devices really carry are sent back."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from colane.agent import main
from colane.agent.launch.check import DeviceOccupant, LaunchVerdict, judge, occupant
from colane.agent.measuring.device_memory import DeviceMemory
from colane.agent.reconcile import DesiredJob, Key
from colane.devices import NvmlDevices, gpu
from colane.devices.host import read_host
from colane.devices.nvml import Nvml
from colane.model.hardware import Gpu
from colane.model.profile import Memory
from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler
from tests.devices.fake_nvml import FakeGpu, FakeNvml

GB = 10**9
CONTEXT_BYTES = 4 * 10**8
GPU = Gpu(index=0, uuid="GPU-0", type="H200", memory_bytes=10 * GB)


def desired(job: int, persistent: int, ephemeral: int, lane: int = 0, *, run: bool = True) -> DesiredJob:
    return DesiredJob(Key(job, 1), run, (0,), lanes=(lane,), memory=Memory(persistent * GB, ephemeral * GB))


def there(job: DesiredJob, persistent: int = 0, peak: int = 0) -> DeviceOccupant:
    found = occupant(job.key, job.gpus, job, DeviceMemory(persistent * GB, peak * GB, "nvml"))
    assert found is not None
    return found


def verdict(*starts: DesiredJob, here: tuple[DeviceOccupant, ...] = (), device: Gpu = GPU) -> LaunchVerdict:
    return judge(starts, here, {0: device})


def test_a_job_is_started_where_it_fits_as_booked_and_as_seen() -> None:
    one, two = desired(1, 2, 4), desired(2, 2, 4)
    assert verdict(two, here=(there(one, 1, 6),)) == LaunchVerdict({}, frozenset()), (
        "one lane: 4 between steps, 4 within"
    )
    assert verdict(two, here=(there(one, 4, 8),)) == LaunchVerdict({}, frozenset()), "just"
    assert verdict(desired(2, 2, 4, lane=1), here=(there(one),)).sent_back, "12 in two lanes"


def test_a_lane_mate_that_holds_more_than_was_booked_leaves_no_room() -> None:
    found = verdict(desired(2, 2, 4), here=(there(desired(1, 2, 4), 5, 9),))
    assert found.sent_back == {Key(2, 1): "with it, jobs would need 11 GB of device 0, which has 10 GB"}


def test_memory_of_others_counts_and_is_named() -> None:
    device = replace(GPU, foreign_bytes=5 * GB)
    (problem,) = verdict(desired(1, 2, 4), device=device).sent_back.values()
    assert problem == "with it, jobs would need 6 GB of device 0, which has 5 GB (5 GB are held by others)"


def test_of_several_that_start_the_first_have_the_room() -> None:
    jobs = [desired(job, 3, 1) for job in (1, 2, 3, 4)]
    assert list(verdict(*jobs).sent_back) == [Key(4, 1)], "9 between steps, 1 within"
    assert list(verdict(*jobs, here=(there(desired(9, 3, 1)),)).sent_back) == [Key(3, 1), Key(4, 1)]


def test_a_job_waits_for_one_that_is_about_to_end() -> None:
    ending, two = desired(1, 6, 2, run=False), desired(2, 2, 4)
    assert verdict(two, here=(there(ending),)) == LaunchVerdict({}, frozenset({two.key}))
    forgotten = occupant(Key(3, 1), (0,), None, DeviceMemory(8 * GB, 8 * GB, "nvml"))
    assert forgotten is not None
    assert verdict(two, here=(forgotten,)).waiting == {two.key}
    full = replace(GPU, foreign_bytes=9 * GB)
    assert verdict(two, here=(forgotten,), device=full).sent_back, "it would not fit after that either"


def test_nothing_is_judged_of_what_nothing_is_known_of() -> None:
    unknown = DesiredJob(Key(2, 1), run=True, gpus=(0,), lanes=(0,))
    assert verdict(unknown, here=(there(desired(1, 9, 1)),)) == LaunchVerdict({}, frozenset())
    assert occupant(unknown.key, (0,), unknown, None) is None


@pytest.mark.live
async def test_an_agent_sends_a_job_back_that_does_not_fit_and_starts_it_when_it_does(
    tmp_path: Path, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = FakeGpu("GPU-0", total_bytes=10 * GB, reserved_bytes=0)
    monkeypatch.setattr(gpu, "is_first_namespace", lambda: True)
    monkeypatch.setattr(main, "discover", lambda *_, **__: NvmlDevices(Nvml(FakeNvml([device])), read_host()))
    name, _, value = marker.partition("=")
    fake, env = FakeScheduler(), {"PATH": os.environ["PATH"], name: value}
    command, turn = (sys.executable, "-c", "import time; time.sleep(1000)"), {"memory": [2 * GB, 4 * GB]}
    fake.want(1, *command, env=env, turn=turn)
    async with running(tmp_path / "state", fake) as agent:
        first = await agent.until(lambda: fake.launched(1))
        device.processes[int(first["pid"])] = 6 * GB + CONTEXT_BYTES  # its context was not in the booking
        fake.want(2, *command, env=env, turn=turn)
        end = await agent.until(lambda: fake.ends.get((2, 1)))
        assert (end["outcome"], end["start_s"]) == ("no-memory", None)
        assert end["detail"] == "with it, jobs would need 12.4 GB of device 0, which has 10 GB"
        told = fake.launched(1)
        assert told is not None
        assert told["progress"]["peak_bytes"] == 6 * GB + CONTEXT_BYTES, "what was seen is told before"
        device.processes.clear()
        fake.want(2, *command, attempt=2, env=env, turn=turn)
        second = await agent.until(lambda: fake.launched(2))
        assert second["attempt"] == 2
        for job, attempt in ((1, 1), (2, 2)):
            fake.end(job, attempt)
        await agent.until(lambda: {(1, 1), (2, 2)} <= fake.ends.keys())
