"""Ranks that form their group anew as fewer, without an agent: its part, the page and the signal, is done here."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from colane.adaptor import reforming, wire
from colane.agent.gate.page import ControlPage
from tests.adaptor.forks import Forks
from tests.agent.waiting import until
from tests.needs import needs

needs("torch", "the ranks are PyTorch's")
pytestmark = pytest.mark.timeout(300)

LONG_S = 120.0

JOB = """
import os, sys
import torch
import torch.distributed as dist
import colane.adaptor as colane

state, trap, fails = sys.argv[1:4]
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 1)
built = []

def rebuild():
    numbers = [dist.get_rank(), dist.get_world_size(), os.environ["WORLD_SIZE"], os.environ["LOCAL_WORLD_SIZE"]]
    built.append(torch.nn.parallel.DistributedDataParallel(model))
    print("built", *numbers, steps.batch_size(1), flush=True)

def write(number):
    if os.path.exists(fails) and dist.get_rank() == 0:
        os.remove(fails)
        raise OSError(28, "No space left on device")
    if dist.get_rank() == 0:
        with open(state, "w") as file:
            file.write(str(number))
    if os.path.exists(trap) and dist.get_rank() == 1:
        os.kill(os.getpid(), 9)

steps = colane.attach(total_steps=10**9)
steps.restore(lambda: None)
steps.reforms(rebuild)
rebuild()
while True:
    model.zero_grad()
    built[-1](torch.randn(8, 4)).sum().backward()
    steps.step()
    steps.save(write)
"""


class Gang:
    """Three ranks as an agent starts them."""

    def __init__(self, root: Path, forks: Forks) -> None:
        self.root, self.page = root, root / "steps"
        wire.create(self.page)
        port = self._port()
        shared = {
            "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo", wire.STEPS_FILE_ENV: str(self.page),
            "COLANE_BATCH": "global", "COLANE_BATCH_SIZE": "12", "COLANE_BATCH_SIZE_PER_GPU": "4",
        }  # fmt: skip
        (root / "train.py").write_text(JOB)
        words = [str(root / name) for name in ("state", "trap", "fails")]
        numbers: list[dict[str, str]] = [{"RANK": str(n), "LOCAL_RANK": str(n)} for n in range(3)]
        self.ranks = [
            forks.start(
                root / "train.py", *words, env={**os.environ, **shared, **one}, cwd=root, stem=f"{one['RANK']}-"
            )
            for one in numbers
        ]

    def _port(self) -> int:
        from colane.agent.launch.gang import find_port  # noqa: PLC0415 - as an agent finds it

        return find_port(frozenset())

    def steps(self, rank: int = 0) -> wire.Steps | None:
        path = wire.rank_path(self.page, rank)
        return wire.read(path) if path.exists() else None

    def made(self) -> int:
        seen = self.steps()
        return seen.steps if seen is not None else 0

    def steps_on(self) -> None:
        made = self.made()
        until(lambda: self.made() > made + 5, f"steps: {self.said()}", LONG_S)

    def ask(self, ranks: int) -> None:
        """As the agent does: first the page, then the signal to all."""
        page = ControlPage(self.page)
        page.want_ranks(ranks)
        page.close()
        for rank in self.ranks:
            if rank.poll() is None:
                rank.send_signal(signal.SIGUSR1)

    def formed(self) -> int:
        seen = self.steps()
        return seen.ranks if seen is not None else 0

    def codes(self) -> list[int | None]:
        return [rank.poll() for rank in self.ranks]

    def goes_on(self, ranks: int, codes: list[int | None]) -> bool:
        """Whether so many have formed their group, and the others are gone."""
        return self.formed() == ranks and self.codes() == codes

    def said(self) -> list[str]:
        return [rank.out + rank.errors for rank in self.ranks]


@pytest.fixture
def gang(tmp_path: Path, forks: Forks) -> Iterator[Gang]:
    made = Gang(tmp_path, forks)
    yield made
    for rank in made.ranks:
        rank.send_signal(signal.SIGKILL)
        rank.wait()


def test_ranks_go_on_as_two_then_as_one_and_leave_when_no_number_is_said(gang: Gang) -> None:
    gang.steps_on()
    assert all(seen.reforms for seen in map(gang.steps, range(3)) if seen is not None)
    for ranks, left in ((2, [None, None, reforming.LEFT]), (1, [None, reforming.LEFT, reforming.LEFT])):
        before = gang.made()
        gang.ask(ranks)
        until(partial(gang.goes_on, ranks, left), f"{ranks} ranks: {gang.said()}", LONG_S)
        gang.steps_on()
        seen = gang.steps()
        assert seen is not None
        assert seen.steps_saved is not None
        assert seen.steps_saved >= before
        assert len(seen.durations_s) < seen.steps, "how long steps of three took says nothing of fewer"
    assert gang.said()[0].splitlines() == ["built 0 3 3 3 4", "built 0 2 2 2 6", "built 0 1 1 1 12"]
    assert gang.said()[1].splitlines() == ["built 1 3 3 3 4", "built 1 2 2 2 6"]
    gang.ask(0)
    until(lambda: gang.codes()[0] == 75, "it leaves, its state saved", LONG_S)


def test_all_stay_where_one_cannot_save(gang: Gang) -> None:
    gang.steps_on()
    (gang.root / "fails").touch()
    gang.ask(2)
    until(lambda: not (gang.root / "fails").exists(), "the first rank has tried", LONG_S)
    gang.steps_on()
    assert (gang.formed(), gang.codes()) == (0, [None, None, None])
    gang.ask(2)
    until(lambda: gang.formed() == 2, "they go on as two", LONG_S)


def test_a_rank_that_stays_leaves_with_its_state_saved_where_another_is_gone(gang: Gang) -> None:
    gang.steps_on()
    (gang.root / "trap").touch()
    gang.ask(2)
    until(lambda: None not in gang.codes(), "no rank is left", LONG_S)
    codes = gang.codes()
    assert (codes[0], codes[1]) == (75, -signal.SIGKILL), gang.said()
    assert int((gang.root / "state").read_text()) > 5
