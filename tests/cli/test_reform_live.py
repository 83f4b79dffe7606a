"""Ranks that go on as fewer inside their processes: no restart, one loss curve, each step once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from colane.agent.supervisor.shim_system import children as direct_children
from colane.api.jobs import JobObject
from tests.agent.waiting import until
from tests.cli.conftest import Colane, Up
from tests.cli.test_torchrun_live import alone
from tests.needs import needs, two_cores

needs("torch", "the job trains with PyTorch")
pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(600),
    two_cores,
]

LONG_S = 240.0
OPTIONS = ("--devices", "cpu:2:1GB", "--policy", "f-sched:rise_ratio_min=0,pays_back=no")

JOB = """
import os, sys, time
import torch
import torch.distributed as dist
import colane.adaptor as colane

notes, enough, saved, trap = sys.argv[1:5]
dist.init_process_group("gloo")
torch.manual_seed(1)
torch.set_num_threads(1)
bare = torch.nn.Linear(4, 1).double()
optimizer = torch.optim.SGD(bare.parameters(), lr=0.1)
rank = world = model = None

def rebuild():
    global rank, world, model
    if rank is not None and os.path.exists(trap):
        os.rename(trap, trap + "ped")
        exec(open(trap + "ped").read())
    rank, world = dist.get_rank(), dist.get_world_size()
    model = torch.nn.parallel.DistributedDataParallel(bare)

def load():
    if not os.path.exists(saved):
        return None
    state = torch.load(saved)
    bare.load_state_dict(state["model"])
    return state["steps"]

def write(steps):
    if rank == 0:
        torch.save({"model": bare.state_dict(), "steps": steps}, saved + ".new")
        os.replace(saved + ".new", saved)
    dist.barrier()

rebuild()
steps = colane.attach()
done = steps.restore(load)
steps.reforms(rebuild)
while True:
    over = torch.tensor([int(os.path.exists(enough))])
    dist.all_reduce(over, op=dist.ReduceOp.MAX)
    if over.item():
        break
    batch = torch.randn(8, 4, generator=torch.Generator().manual_seed(done), dtype=torch.float64)[rank::world]
    optimizer.zero_grad()
    loss = (model(batch) - 1).pow(2).mean()
    loss.backward()
    optimizer.step()
    time.sleep(0.08 / world**2)
    done += 1
    if rank == 0:
        weight = bare.weight.sum().item()
        with open(notes, "a") as lines:
            lines.write(f"{done} {world} {weight:.12f} {os.getpid()} {time.time()}\\n")
    steps.step()
    steps.save(write)
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)
"""


class Note(NamedTuple):
    """What rank 0 writes down of a step."""

    step: int
    world: int
    weight: float
    pid: int
    at_s: float


class Scene:
    """A job on two devices, and a newcomer that wants one of them."""

    def __init__(self, up: Up, colane: Colane, root: Path) -> None:
        self.up, self._colane, self._root = up, colane, root
        (root / "train.py").write_text(JOB)

    def path(self, what: str, job: int) -> Path:
        return self._root / f"{what}-{job}"

    def submit(self, job: int) -> None:
        words = [str(self.path(what, job)) for what in ("notes", "enough", "saved", "trap")]
        options = ("--gpus", "1..2", "--ranks", "per-gpu", "--family", "net", "--retries", "1")
        script = str(self._root / "train.py")
        said = self._colane(
            "submit",
            *options,
            "--checkpoint-lead",
            "20s",
            "--checkpoint",
            "plain",
            "--",
            sys.executable,
            script,
            *words,
        )
        assert (said.code, said.out.split()[-1]) == (0, str(job)), said

    def lines(self, job: int) -> list[str]:
        path = self.path("notes", job)
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def notes(self, job: int) -> list[Note]:
        lines = [line.split() for line in self.lines(job)]
        return [Note(int(a), int(b), float(c), int(d), float(e)) for a, b, c, d, e in lines]

    def world(self, job: int) -> int:
        return int(self.lines(job)[-1].split()[1]) if self.lines(job) else 0

    def show(self, job: int) -> JobObject:
        with self.up.client as client:
            return client.job(job)

    def two_then_one_each(self, trap: str = "") -> None:
        """The newcomer makes job 1 shrink; `trap` is what rank 0 does between its new group and its first step."""
        if trap:
            self.path("trap", 1).write_text(trap)
        self.submit(1)
        until(lambda: len(self.lines(1)) > 30 and self.world(1) == 2, "job 1 trains on two devices", LONG_S)
        self.submit(2)
        until(lambda: self.world(2) == 1 and self.world(1) == 1, "each has one device", LONG_S)

    def ends(self, job: int) -> JobObject:
        self.path("enough", job).touch()
        ended = self.up.wait_for(job, "succeeded", "failed")
        assert ended["state"] == "succeeded", self._colane("logs", str(job)).out[-3000:]
        return ended

    def has_learnt_all(self, job: int) -> None:
        made = self.notes(job)
        assert [note.step for note in made] == list(range(1, len(made) + 1)), "each step once"
        assert [note.weight for note in made] == pytest.approx(alone(len(made)), abs=1e-9)


@pytest.fixture
def scene(make_up: Callable[..., Up], colane: Colane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scene:
    up = make_up(*OPTIONS)
    for name, value in {**up.env, "GLOO_SOCKET_IFNAME": "lo"}.items():
        monkeypatch.setenv(name, value)
    return Scene(up, colane, tmp_path)


def test_ranks_go_on_as_fewer_in_their_processes_and_are_restarted_to_be_more(scene: Scene) -> None:
    scene.two_then_one_each()
    shrunk = scene.show(1)
    assert (shrunk["attempt"], len(shrunk["gpus"])) == (1, 1)
    assert "reformed" in [line["why"] for line in shrunk["story"]]
    assert len({note.pid for note in scene.notes(1)}) == 1, "one process from the beginning"
    scene.ends(2)
    until(lambda: scene.world(1) == 2, "job 1 has both devices again", LONG_S)
    assert scene.ends(1)["attempt"] == 2
    scene.has_learnt_all(1)
    scene.has_learnt_all(2)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_killed_or_frozen_on_the_way_is_restarted_as_fewer_from_what_it_saved(
    scene: Scene, number: signal.Signals
) -> None:
    scene.two_then_one_each(f"os.kill(os.getpid(), {int(number)})")
    shrunk = scene.show(1)
    assert (shrunk["attempt"], len(shrunk["gpus"]), shrunk["failures"]) == (2, 1, 0)
    why = {signal.SIGKILL: "checkpoint-died", signal.SIGSTOP: "checkpoint-timed-out"}[number]
    whys = [line["why"] for line in shrunk["story"]]
    assert why in whys
    assert "reformed" not in whys
    for job in (1, 2):
        scene.ends(job)
        scene.has_learnt_all(job)


def children(up: Up, who: str) -> list[int]:
    """The scheduler or the agent of a `colane up`."""
    return [
        pid for pid in direct_children(up.process.pid) if who in Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    ]


@pytest.mark.parametrize("who", ["server", "agent"])
def test_who_decides_or_carries_out_is_killed_on_the_way_and_finds_the_job_gone_on_as_fewer(
    scene: Scene, who: str
) -> None:
    trapped, goes_on = Path(f"{scene.path('trap', 1)}ped"), scene.path("goes-on", 1)
    scene.path("trap", 1).write_text(f"while not os.path.exists({str(goes_on)!r}): time.sleep(0.01)")
    scene.submit(1)
    until(lambda: len(scene.lines(1)) > 30 and scene.world(1) == 2, "job 1 trains on two devices", LONG_S)
    scene.submit(2)
    until(trapped.exists, "its ranks form their group anew", LONG_S)
    (killed,) = children(scene.up, who)
    os.kill(killed, signal.SIGKILL)
    goes_on.touch()
    until(lambda: scene.world(1) == scene.world(2) == 1, "each has one device", LONG_S)
    assert children(scene.up, who) not in ([], [killed]), "it was started anew"
    assert scene.show(1)["attempt"] == 1
    assert "reformed" in [line["why"] for line in scene.show(1)["story"]]
    for job in (2, 1):
        scene.ends(job)
        scene.has_learnt_all(job)
