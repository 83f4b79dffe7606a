"""What commands run is looked up once, apart from the turns, and for so long only."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from colane.api.job_request import JobRequest
from colane.server.submitting.family import AsWritten, Disk, derive_family
from colane.server.submitting.lookup import LOOKS_MAX, SEEN_S, Lookup


class Counted(Disk):
    """Counts how often files are looked at."""

    looks = 0

    def _followed(self, path: str) -> str:
        Counted.looks += 1
        return super()._followed(path)

    def _root(self, folder: str) -> str:
        Counted.looks += 1
        return super()._root(folder)


class Hung(Disk):
    """Answers when it is told to."""

    answers = threading.Event()

    def _followed(self, path: str) -> str:
        assert self.answers.wait(60)
        return super()._followed(path)


def sweep(directory: Path, jobs: int, script: str = "train.py") -> list[JobRequest]:
    bodies = [{"command": ["python", script, "--lr", str(n)], "workdir": str(directory)} for n in range(jobs)]
    return [JobRequest.model_validate(body) for body in bodies]


async def test_a_sweep_looks_at_its_script_once(tmp_path: Path) -> None:
    (tmp_path / "net" / ".git").mkdir(parents=True)
    Counted.looks, now_s = 0, [0.0]
    lookup = Lookup(Counted, lambda: now_s[0])
    found = await lookup.families(sweep(tmp_path / "net", 500), "/")
    looked = Counted.looks
    assert looked <= 4
    family = derive_family(["python", "train.py", "--lr", "1"], str(tmp_path / "net"))
    assert found.of(["python", "train.py", "--lr", "77"], str(tmp_path / "net"), "") == family
    assert family.startswith("net/train.py@")
    await lookup.families(sweep(tmp_path / "net", 500), "/")
    assert Counted.looks == looked
    now_s[0] = SEEN_S  # links may lead elsewhere by now
    await lookup.families(sweep(tmp_path / "net", 1), "/")
    assert Counted.looks == 2 * looked


async def test_a_file_system_that_hangs_holds_up_no_job(tmp_path: Path) -> None:
    """Not even where all threads hang; and when it answers again, its paths are followed again."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    Hung.answers.clear()
    lookup = Lookup(Hung)
    one = sweep(tmp_path / "link", 1)
    as_written = derive_family(one[0].command or (), str(tmp_path / "link"), "", AsWritten())
    followed = derive_family(one[0].command or (), str(tmp_path / "link"))
    assert as_written != followed
    for _ in range(LOOKS_MAX + 1):
        found = await lookup.families(one, "/", look_s=0.01)
        assert found.of(one[0].command or (), str(tmp_path / "link"), "") == as_written
    Hung.answers.set()
    found = await lookup.families(one, "/", look_s=60)
    assert found.of(one[0].command or (), str(tmp_path / "link"), "") == followed
    many = await asyncio.gather(*[lookup.families(sweep(tmp_path / f"n{n}", 1), "/", look_s=60) for n in range(20)])
    assert len({found.of(one[0].command or (), str(tmp_path / f"n{n}"), "") for n, found in enumerate(many)}) == 20
