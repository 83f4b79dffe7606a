"""Whose rights decide where an agent of root writes for another user: that user's, whatever the place.

Every path of a user's that is opened for a job, and by whom:

| path | opened by | written by |
| --- | --- | --- |
| working directory, `--input` | the job's process, as its user | - |
| `--output`, with its directories | the job's process, as its user | a thread of the supervisor that has its rights |
| steps, pipes, answers in the job's own folder | the agent: `wire.open_own` alone | the agent: single words of a page |
| the own folder, when it is removed | a process of its user (`removals`) | the same |
| pipes and logs of MPS | its daemon, as its user | the same |

The log of a job (`log.OFFSET`) lies in the agent's state directory, where no user may write.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from colane.adaptor import wire
from colane.agent.files.jobdir import JobDir
from colane.agent.files.logs import segments
from colane.agent.running import stacks
from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler
from tests.agent.shims import Supervised, run
from tests.agent.waiting import until
from tests.disks import disk_with_a_reserve, fill
from tests.users import NEEDS_ROOT, OTHER_UID, as_user, open_directory

pytestmark = [pytest.mark.live, NEEDS_ROOT]
MIB = 2**20
AS_OTHER = (OTHER_UID, OTHER_UID)


@pytest.fixture
def place() -> Iterator[Path]:
    with open_directory() as folder:
        yield folder


def other(place: Path, *argv: str, marker: str, **changes: Any) -> Supervised:
    """Run a job of another user, whose directory is everybody's."""
    (place / "home").mkdir(exist_ok=True)
    (place / "home").chmod(0o777)
    return run(place, *argv, marker=marker, run_as=AS_OTHER, **{"workdir": str(place / "home"), **changes})


def test_an_output_takes_nothing_that_is_kept_for_root(place: Path, marker: str) -> None:
    with disk_with_a_reserve(place / "disk") as disk:
        asked = ("sh", "-c", "head -c 3000000 /dev/zero; sleep 0.1; head -c 3000000 /dev/zero")
        ended = other(place, *asked, marker=marker, output=str(disk / "out"))
        assert ended.end()["exit_code"] == 0
        said = b"".join(segment.path.read_bytes() for segment in segments(ended.job.path))
        assert f"colane: {disk}/out lacks some of what follows: No space left on device\n".encode() in said
        (disk / "out").chmod(0o666)
        assert as_user(OTHER_UID, lambda: fill(disk / "more")) is None
        taken, left = (disk / "out").stat().st_size, os.statvfs(disk)
        assert 0 < taken < 4 * MIB
        assert left.f_bfree * left.f_frsize > 3 * MIB, "what is kept for root is there"


def test_an_output_is_written_with_its_owners_rights_by_a_thread_that_the_owner_cannot_touch(
    place: Path, marker: str
) -> None:
    running_job = other(place, "sh", "-c", "echo begun; exec sleep 1000", marker=marker, output="deep/out")
    until(lambda: (place / "home" / "deep" / "out").exists() and running_job.output(), "its output")
    shim = running_job.supervisor.pid
    ids = until(lambda: _writer_ids(shim), "the thread that writes")
    assert ids["Uid"] == f"0 0 0 {OTHER_UID}".split()
    assert ids["Gid"] == f"0 0 0 {OTHER_UID}".split()
    assert int(ids["CapEff"][0], 16) == int(ids["CapPrm"][0], 16) == 0

    def harm() -> list[str]:
        said = []
        for task in Path(f"/proc/{shim}/task").iterdir():
            try:
                os.kill(int(task.name), 9)
            except PermissionError:
                said.append("refused")
        return said

    assert as_user(OTHER_UID, harm) == ["refused"] * 2
    for path in (place / "home" / "deep", place / "home" / "deep" / "out"):
        assert (path.stat().st_uid, path.stat().st_gid) == AS_OTHER
    running_job.stop()
    running_job.end()


def _writer_ids(pid: int) -> dict[str, list[str]]:
    """The ids of the thread of a process that is not its first; nothing while it is not the user's."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = {
            name: rest.split()
            for name, rest in re.findall(r"^(\w+):\t(.*)$", (task / "status").read_text(), re.MULTILINE)
        }
        if int(task.name) != pid and int(fields["CapEff"][0], 16) == 0:
            return fields
    return {}


@pytest.mark.parametrize("field", ["output", "input", "workdir"])
@pytest.mark.parametrize("way", ["file", "link", "below a closed folder"])
def test_what_the_user_may_not_open_is_not_opened_for_it(place: Path, marker: str, field: str, way: str) -> None:
    precious = place / "precious"
    if field == "workdir":
        precious.mkdir()
    else:
        precious.write_text("root's")
    precious.chmod(0o600)
    target = precious
    if way == "link":
        (place / "home").mkdir()
        target = place / "home" / "link"
        target.symlink_to(precious)
    elif way == "below a closed folder":
        target = place / "closed" / "precious"
        target.parent.mkdir(mode=0o700)
        precious.rename(target)
        target.chmod(0o777)
    record = other(place, "true", marker=marker, **{field: str(target)}).end()
    assert record["outcome"] == "not-started"
    assert "Permission denied" in record["detail"]
    if field != "workdir":
        kept = precious if way != "below a closed folder" else target
        assert kept.read_text() == "root's"


@pytest.mark.parametrize("what", ["another's", "linked twice", "link", "pipe", "folder"])
def test_only_what_the_owner_of_its_folder_made_is_opened(place: Path, what: str) -> None:
    """A user may move root's file out of a directory that is the user's, and into the job's own folder."""
    own = place / "own"
    own.mkdir()
    steps = own / "steps"
    wire.create(steps)
    if what != "another's":
        os.chown(steps, *AS_OTHER)
    os.chown(own, *AS_OTHER)
    if what == "linked twice":
        os.link(steps, own / "second")
    elif what != "another's":
        steps.rename(place / "aside")
        if what == "link":
            steps.symlink_to(place / "aside")
        elif what == "pipe":
            os.mkfifo(steps)
        else:
            steps.mkdir()
        os.chown(steps, *AS_OTHER, follow_symlinks=False)
    for access in (os.O_RDONLY, os.O_RDWR):
        with pytest.raises(OSError, match=r"steps|Too many levels|Is a directory"):
            wire.open_own(steps, access)


async def test_an_agent_opens_what_is_a_users_in_one_way(
    fake: FakeScheduler, place: Path, mark: dict[str, str]
) -> None:
    """This process opens nothing in a user's directory, and below a job's own folder by `wire.open_own` alone."""
    home, opened = place / "home", set[tuple[str, str]]()
    home.mkdir()
    home.chmod(0o777)
    (home / "in").write_text("given\n")
    is_heard = True

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and is_heard and isinstance(arguments[0], str | bytes | os.PathLike):
            path = os.fsdecode(arguments[0])
            if re.search(r"/jobs/[0-9-]+/own/", path) or path.startswith(str(home)):
                opened.add((Path(path).name, sys._getframe(1).f_code.co_name))

    sys.addaudithook(hear)
    files: dict[str, Any] = {"output": str(home / "out"), "input": str(home / "in"), "workdir": str(home)}
    async with running(place / "state", fake, devices="cpu:1:1GB") as agent:
        fake.want(7, "sh", "-c", "echo said; cat; exec sleep 1000", env=mark, user=str(OTHER_UID), **files)
        await agent.until(lambda: (home / "out").exists() and (home / "out").stat().st_size == 11, "its output")
        await agent.until(lambda: bool(opened), "its steps are read")
        await asyncio.to_thread(stacks.ask, JobDir(place / "state" / "jobs" / "7-1"))
        fake.end(7)
        await agent.until(lambda: fake.ends.get((7, 1)), "its end is told")
    is_heard = False
    assert opened == {("steps", "open_own")}
    assert (home / "out").stat().st_uid == OTHER_UID
