"""A disk that is full, or fills up, costs jobs and not the service."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler

pytestmark = pytest.mark.live


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


async def test_a_full_disk_refuses_jobs_and_not_the_service(
    fake: FakeScheduler, small_disk: Path, mark: dict[str, str]
) -> None:
    async with running(small_disk / "state", fake) as agent:
        await agent.until(lambda: fake.reports)
        filler = small_disk / "filler"
        fill(filler)
        fake.want(7, "true", env=mark)
        await agent.until(lambda: fake.ends)
        assert "cannot be written: No space left on device" in fake.ends[7, 1]["detail"]
        filler.unlink()
        fake.want(8, "true", env=mark)
        await agent.until(lambda: (8, 1) in fake.ends)
    assert fake.ends[8, 1]["exit_code"] == 0


async def test_a_disk_that_fills_up_while_a_job_runs(
    fake: FakeScheduler, small_disk: Path, mark: dict[str, str]
) -> None:
    fake.want(7, "sh", "-c", f"cat /dev/zero >{small_disk}/filler; exit 5", env=mark)
    async with running(small_disk / "state", fake) as agent:
        await agent.until(lambda: fake.ends)
    assert (fake.ends[7, 1]["outcome"], fake.ends[7, 1]["exit_code"]) == ("exited", 5)


def fill(path: Path) -> None:
    try:
        with path.open("wb", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass
    except OSError:
        return
