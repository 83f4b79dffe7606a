"""Whatever a job leaves on the disk or writes where the agent reads: the agent goes on, and so do the other jobs."""

from __future__ import annotations

import math
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from colane.adaptor import wire
from colane.agent.files.jobdir import FINISHED, LAUNCH, OWN, STEPS, JobDir
from colane.agent.files.removal import Emptying
from colane.agent.files.removals import Removals
from colane.agent.reconcile import DesiredJob, Key
from colane.agent.running.boundaries import Boundaries
from colane.agent.supervisor import programs, shim_files
from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler
from tests.agent.waiting import until
from tests.examples import examples

DEPTH = 1200
"""More than any recursion in Python goes, and in longer names than a path may have."""
NAMES = (b"a", b"-rf", b"..x", b"\xff\xfe", b"line\nbreak", b".colane-1-1", b"x" * 255, b" ", b"\xe2\x80\xae")


def rounds(count: int) -> int:
    """Seeds to try: `COLANE_FUZZ=800` makes some ten thousand of them."""
    return examples(count).max_examples


def deep(root: Path, name: bytes = b"d" * 40, levels: int = DEPTH) -> None:
    """Nest directories below one, deeper than a path can say."""
    fd = os.open(root, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)


def tree(rng: random.Random, fd: int, left: int) -> None:
    """Grow a random tree of odd names and things."""
    for _ in range(rng.randrange(1, 5)):
        name, kind = rng.choice(NAMES) + b"%d" % rng.randrange(3), rng.randrange(6)
        try:
            if kind == 0:
                os.close(os.open(name[-255:], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o000, dir_fd=fd))
            elif kind == 1:
                os.symlink(rng.choice([b"/", b"/etc/passwd", b"nowhere", b"."]), name[-255:], dir_fd=fd)
            elif kind == 2:
                os.mkfifo(name[-255:], dir_fd=fd)
            elif left:
                os.mkdir(name[-255:], dir_fd=fd)
                below = os.open(name[-255:], os.O_RDONLY, dir_fd=fd)
                tree(rng, below, left - 1)
                os.fchmod(below, rng.choice([0o700, 0o500, 0o000, 0o300]))
                os.close(below)
        except (FileExistsError, IsADirectoryError, PermissionError):
            continue


@pytest.fixture(autouse=True)
def _leaves_no_deep_tree(tmp_path: Path) -> Iterator[None]:
    """The next run of pytest could not remove it."""
    yield
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        assert Emptying(fd, math.inf).run()
    finally:
        os.close(fd)


@pytest.fixture
def removing(tmp_path: Path) -> Removals:
    return Removals(lambda: programs.place(tmp_path / "state") / programs.REMOVAL)


def gone(removing: Removals, path: Path) -> None:
    def look() -> bool:
        removing.look()
        return not path.exists()

    if not removing.take(path):
        until(look, "it is removed")
    assert not removing.messages()


def test_a_tree_deeper_than_any_stack_is_removed(tmp_path: Path, removing: Removals) -> None:
    root = tmp_path / "own"
    root.mkdir()
    deep(root)
    with pytest.raises((RecursionError, OSError)):
        shutil.rmtree(root)
    gone(removing, root)


def test_random_trees_are_removed_and_nothing_else(tmp_path: Path, removing: Removals) -> None:
    beside = tmp_path / "beside"
    beside.write_text("stays")
    for seed in range(rounds(30)):
        root = tmp_path / f"own-{seed}"
        root.mkdir()
        (root / "out").symlink_to(tmp_path)
        fd = os.open(root, os.O_RDONLY)
        tree(random.Random(seed), fd, 5)
        os.close(fd)
        gone(removing, root)
    assert beside.read_text() == "stays"
    assert Path("/etc/passwd").exists()


def test_a_wide_directory_is_removed(tmp_path: Path, removing: Removals) -> None:
    root = tmp_path / "own"
    root.mkdir()
    for number in range(3000):
        (root / f"{number}").mkdir() if number % 2 else (root / f"{number}").touch()
    gone(removing, root)


def test_what_is_small_and_plain_is_removed_at_once(tmp_path: Path, removing: Removals) -> None:
    root = tmp_path / "own"
    root.mkdir()
    (root / "steps").touch()
    assert removing.take(root)
    assert removing.take(root), "what is not there is gone"
    root.symlink_to("/etc")
    assert removing.take(root)
    assert Path("/etc/passwd").exists()


def test_what_cannot_be_removed_is_said_and_not_tried_again_and_again(tmp_path: Path, removing: Removals) -> None:
    root = tmp_path / "own"
    (root / "a" / "b").mkdir(parents=True)
    broken = Removals(lambda: tmp_path / "no such program")
    assert not broken.take(root)

    def look() -> bool:
        broken.look()
        return bool(broken.messages())

    until(look, "it is said")
    assert str(root) in broken.messages()[0]
    assert not broken.take(root)
    gone(removing, root)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_users_tree_is_removed_as_that_user(tmp_path: Path, removing: Removals) -> None:
    root = tmp_path / "own"
    (root / "a" / "b").mkdir(parents=True)
    for path in (root / "a" / "b", root / "a", root):
        os.chown(path, 12345, 12345)
    kept = root / "a" / "of-root"
    kept.mkdir()
    (kept / "file").touch()
    assert not removing.take(root)

    def look() -> bool:
        removing.look()
        return bool(removing.messages())

    until(look, "a user cannot remove what is root's")
    assert (kept / "file").exists() or any(path.name == "file" for path in root.rglob("*"))


@pytest.mark.usefixtures("hostile")
def test_a_job_for_which_a_part_of_the_agent_raises_is_set_aside_and_the_others_are_followed() -> None:
    seen: list[list[int]] = []
    ill = {2}

    def follow(jobs: list[DesiredJob]) -> None:
        if ill & {job.key.job for job in jobs}:
            raise KeyError("odd")
        seen.append([job.key.job for job in jobs])

    bounds, jobs = Boundaries(), [DesiredJob(Key(number, 1), run=True) for number in (1, 2, 3)]
    for _ in range(2):
        bounds.each("the saving", follow, jobs)
        assert seen[-1] == [1, 3]
        assert bounds.messages() == ("the saving of job 2-1: KeyError: 'odd'",)
    ill.clear()
    bounds.each("the saving", follow, jobs)
    assert (seen[-1], bounds.messages()) == ([1, 2, 3], ())


def _break_records(rng: random.Random, job: JobDir) -> None:
    """What a job of the agent's own user can do to the directory that is kept of it."""
    name = rng.choice([LAUNCH, shim_files.STARTED, shim_files.CLAIM, shim_files.COMMAND, shim_files.ASKED, FINISHED])
    text = rng.choice(["", "{", "[]", '{"gpus": 7}', "\x00\xff", "not a number", "9" * 5000, "[" * 3000])
    (job.path / name).write_text(text, errors="replace")


def _break_pages(rng: random.Random, job: JobDir) -> None:
    """What any job can do to the pages that it reports in."""
    own = job.path / OWN
    for path in (own / STEPS, wire.rank_path(own / STEPS, rng.randrange(3))):
        kind = rng.randrange(5)
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        path.unlink(missing_ok=True)
        if kind == 0:
            path.write_bytes(rng.randbytes(rng.randrange(8192)))
        elif kind == 1:
            path.mkdir()
        elif kind == 2:
            path.symlink_to(rng.choice(["/dev/zero", "/etc/passwd", path.name, "/"]))
        elif kind == 3:
            os.mkfifo(path)
        else:
            wire.create(path)
            path.write_bytes(path.read_bytes()[: rng.randrange(64)])


def _nest(rng: random.Random, job: JobDir) -> None:
    deep(job.path / OWN, rng.choice(NAMES), rng.choice([10, DEPTH]))


HARMS: Mapping[str, Callable[[random.Random, JobDir], None]] = {
    "records": _break_records,
    "pages": _break_pages,
    "trees": _nest,
}


@pytest.mark.live
@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.usefixtures("hostile")
async def test_an_agent_goes_on_whatever_one_job_does_to_its_directory(
    fake: FakeScheduler, state: Path, mark: dict[str, str], harm: str
) -> None:
    """Each seed: one job does harm, one does not; that one ends well, and the agent takes another."""
    async with running(state, fake, devices="cpu:1:1GB") as agent:
        for seed in range(rounds(12)):
            rng = random.Random(seed)
            evil, good = 10_000 + 2 * seed, 10_001 + 2 * seed
            fake.want(evil, "sleep", "1000", env=mark)
            await agent.until(lambda evil=evil: fake.launched(evil), "it runs")  # type: ignore[misc]
            HARMS[harm](rng, JobDir(state / "jobs" / f"{evil}-1"))
            fake.want(good, "true", env=mark)
            await agent.until(lambda good=good: fake.ends.get((good, 1)), "the other one ends")  # type: ignore[misc]
            if (evil, 1) not in fake.ends:  # it is, where the agent has set it aside already
                fake.end(evil)
            await agent.until(lambda evil=evil: fake.ends.get((evil, 1)), "its end is told")  # type: ignore[misc]
    assert all(fake.ends[10_001 + 2 * seed, 1]["exit_code"] == 0 for seed in range(rounds(12)))
