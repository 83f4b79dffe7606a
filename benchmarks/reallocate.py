"""What a reallocation takes, from the decision to the first step at the new size, and where that time goes.

    python benchmarks/reallocate.py [--rounds 10] [--model torch|plain]

A job of one or two devices trains on both; a newcomer makes it shrink, and when that has ended it grows again: two
reallocations a round, through the real scheduler and agent, by policy `f-sched`. Each is split into

* tell: from the decision until the job has the signal (Colane's);
* checkpoint: until its state is saved: the rest of its step, writing, fsync (the job's);
* stop: until its process has ended (the job's: the interpreter's end);
* restart: until its new process runs: the end is noticed, told, decided upon, written down; launch (Colane's);
* launch: until the first step at the new size (the job's: the interpreter, imports, its model, its state).

Colane's own part is tell and restart. A machine that is busy stretches all of it, so starting a bare Python is timed in
the same run. Exits with 1 where the median is over 3 s, or Colane's own part over 0.2 s.
"""

from __future__ import annotations

import argparse
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from colane.agent.files.jobdir import JobDir
from colane.client.client import Client
from colane.engines.local import LocalConfig, LocalEngine

BOUND_S, OWN_BOUND_S = 3.0, 0.2
WAIT_MAX_S = 120.0
POLICY = "f-sched:rise_ratio_min=0,pays_back=no"

JOB = """
import os, signal, sys, time
notes = open(sys.argv[1] + "-" + os.environ["COLANE_ATTEMPT"], "a", buffering=1)
signal.signal(signal.SIGUSR1, lambda *_: notes.write(f"asked {time.time()}\\n"))
import colane.adaptor as colane
enough, saved, kind = sys.argv[2:5]
if kind == "torch":
    import torch
    from torch import nn
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters())
    state = lambda n: {"steps": n, "model": model.state_dict(), "optimizer": optimizer.state_dict()}

def train():
    if kind == "torch":
        optimizer.zero_grad()
        model(torch.randn(32, 256)).square().mean().backward()
        optimizer.step()

def load():
    if not os.path.exists(saved):
        return None
    if kind != "torch":
        return int(open(saved).read())
    found = torch.load(saved)
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    return found["steps"]

def write(number):
    with open(saved + ".new", "wb") as file:
        torch.save(state(number), file) if kind == "torch" else file.write(str(number).encode())
        file.flush()
        os.fsync(file.fileno())
    os.replace(saved + ".new", saved)
    notes.write(f"saved {time.time()}\\n")

steps, cores, is_first = colane.attach(), len(os.sched_getaffinity(0)), True
steps.restore(load)
while not os.path.exists(enough):
    train()
    time.sleep(0.02 / cores**2)
    steps.step()
    if is_first or steps.steps_done % 10 == 0:
        notes.write(f"step {time.time()} {steps.steps_done} {cores}\\n")
        is_first = False
    steps.save(write)
"""


class Split(NamedTuple):
    """Seconds of one reallocation."""

    tell: float
    checkpoint: float
    stop: float
    restart: float
    launch: float

    @property
    def own(self) -> float:
        """Colane's part."""
        return self.tell + self.restart


class Job:
    """An elastic job of two sizes, and what it noted."""

    def __init__(self, client: Client, folder: Path, name: str, model: str) -> None:
        self._client, self._notes = client, folder / f"notes-{name}"
        self._enough = folder / f"enough-{name}"
        words = [sys.executable, "-c", JOB, str(self._notes), str(self._enough), str(folder / f"saved-{name}"), model]
        self.id = client.submit(
            {"command": words, "workdir": "/", "family": "net", "gpus": "1..2", "checkpoint": "plain",
             "env": {**os.environ, "OMP_NUM_THREADS": "1"}}
        )  # fmt: skip

    def noted(self, attempt: int, what: str) -> list[list[str]]:
        """Lines of a kind that an attempt wrote."""
        path = self._notes.with_name(f"{self._notes.name}-{attempt}")
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [line.split() for line in lines if line.startswith(what)]

    def trains_on(self, devices: int) -> bool:
        """Whether it has made some ten steps with so many."""
        found = self._client.job(self.id)
        return len(found["gpus"]) == devices and len(self.noted(found["attempt"], "step")) > 1

    def end(self) -> None:
        """Let it end well."""
        self._enough.touch()
        until(lambda: self._client.job(self.id)["state"] == "succeeded")


def until(look: Callable[[], Any]) -> None:
    """Look until it is so."""
    deadline_s = time.monotonic() + WAIT_MAX_S
    while not look():
        if time.monotonic() > deadline_s:
            raise SystemExit("the job is not resized; see the scheduler's log")
        select.select([], [], [], 0.02)


def record_of(agent_dir: Path, attempt: str) -> JobDir:
    """The directory of an attempt, which is moved when the scheduler knows its end."""
    ended = agent_dir / "ended" / attempt
    return JobDir(ended if ended.exists() else agent_dir / "jobs" / attempt)


def splits(client: Client, job: Job, agent_dir: Path) -> list[Split]:
    """All reallocations of a job, by its story, its notes and its supervisors' records."""
    story = client.job(job.id)["story"]
    decided = [line["at_s"] for line in story if line["state"] == "checkpointing"]
    found = []
    for attempt, decided_s in enumerate(decided, start=1):
        (_, asked_s), (_, saved_s) = job.noted(attempt, "asked")[0], job.noted(attempt, "saved")[0]
        ended, started = (record_of(agent_dir, f"{job.id}-{number}") for number in (attempt, attempt + 1))
        end, start = ended.exit_record(), started.started()
        assert end is not None and start is not None  # noqa: PT018
        first_s = float(job.noted(attempt + 1, "step")[0][1])
        marks = [decided_s, float(asked_s), float(saved_s), end["end_s"], start["start_s"], first_s]
        found.append(Split(*[max(0.0, after - before) for before, after in pairwise(marks)]))
    return found


ONE_STEP = """
import torch
from torch import nn
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.Adam(model.parameters())
model(torch.randn(32, 256)).square().mean().backward()
optimizer.step()
"""


class Bare(NamedTuple):
    """The same without Colane: seconds from start to end of a process.

    Attributes:
        empty: Of a Python that does nothing.
        one_step: Of one that makes one step: what the job's stop and launch cannot go below by much.
    """

    empty: float
    one_step: float


def bare(model: str) -> Bare:
    """Run both now."""
    return Bare(*[run_s(script) for script in ("", ONE_STEP if model == "torch" else "")])


def run_s(script: str) -> float:
    """How long Python takes for a script, from its start to its end."""
    began_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", script], check=True)
    return time.perf_counter() - began_s


def measure(rounds: int, model: str) -> tuple[list[Split], list[Bare]]:
    """Reallocate twice a round."""
    peers: list[Bare] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = LocalConfig.of(folder / "state", "here", policy=POLICY, devices="cpu:2:1GB")
        with LocalEngine(config) as stack, stack.client() as client:
            job = Job(client, folder, "elastic", model)
            until(lambda: job.trains_on(2))
            for number in range(rounds):
                newcomer = Job(client, folder, f"newcomer-{number}", "plain")
                until(lambda: job.trains_on(1))
                newcomer.end()
                until(lambda: job.trains_on(2))
                peers.append(bare(model))
            job.end()
            return splits(client, job, folder / "state" / "agent"), peers


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description="What a reallocation takes.")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--model", choices=("torch", "plain"), default="torch")
    args = parser.parse_args()
    found, peers = measure(args.rounds, args.model)
    whole = median(sum(split) for split in found)
    print(f"{args.model}: {len(found)} reallocations, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for name in Split._fields:
        values = [getattr(split, name) for split in found]
        print(f"  {name:10} median {median(values) * 1e3:7.0f} ms, longest {max(values) * 1e3:7.0f} ms")
    own = median(split.own for split in found)
    print(f"  decision to first step: median {whole:.2f} s, longest {max(map(sum, found)):.2f} s; bound {BOUND_S:g} s")
    print(
        f"  Colane's own part: median {own * 1e3:.0f} ms, longest {max(split.own for split in found) * 1e3:.0f} ms; "
        f"bound {OWN_BOUND_S * 1e3:.0f} ms; a bare Python takes {median(peer.empty for peer in peers) * 1e3:.0f} ms"
    )
    one_step_s = median(peer.one_step for peer in peers)
    ratio = whole / one_step_s
    print(f"  a bare process that makes one such step: {one_step_s:.2f} s; a reallocation takes {ratio:.2f} of it")
    return int(whole > BOUND_S or own > OWN_BOUND_S)


if __name__ == "__main__":
    sys.exit(main())
