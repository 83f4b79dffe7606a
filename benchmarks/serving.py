"""What sharing a lane adds to answers: servers with few requests and one training job, under a real agent.

    python benchmarks/serving.py [--seconds 40] [--servers 2] [--rate 5] [--how request]

Each server answers so many requests a second, at random times that the same seed gives it in each run, with a model of
PyTorch; `--how` is how it says so: by `request`, by `step`, or not at all (`plain`). First each server runs in a lane
of its own without training, then all of them in one lane with a training job whose steps take 2 ms. What sharing adds
is the difference of the 99 % of answers, from the request on. Bound (paper B): 5 ms.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.handoff import STEP_S, at, lane_of  # noqa: E402
from tests.agent.waiting import until  # noqa: E402

ADDED_MAX_S = 5e-3
START_MAX_S = 300.0
SERVER = str(ROOT / "benchmarks" / "serving_job.py")
TRAINING = 1
QUANTUM_S = 0.05


def measure(servers: int, rate: float, seconds: float, how: str, *, trains: bool) -> tuple[list[float], float, int]:
    """Times of all answers, shortest first, the part of the time in which training stepped, and the steps it made."""
    with lane_of("fair", QUANTUM_S) as lane:
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        if trains:
            lane.start(1)
        for number in range(2, servers + 2):
            command = (sys.executable, SERVER, str(lane.folder / f"server-{number}"), str(rate), how, str(number))
            slot = {"gpu": 0, "lane": 1 if trains else number}
            lane.fake.want(number, *command, env=env, turn={"slots": [slot], "kind": "inference"})
        notes = [lane.folder / f"server-{number}" for number in range(2, servers + 2)]
        until(lambda: all(note.exists() and note.stat().st_size for note in notes), deadline_s=START_MAX_S)
        from_s = time.monotonic()
        steps = lane.watch(seconds)
        to_s = time.monotonic()
        lane.jobs += list(range(2, servers + 2))
        lane.end()
        found = [tuple(map(float, line.split())) for note in notes for line in note.read_text().split("\n")[:-1]]
    took = sorted(ended_s - began_s for began_s, ended_s in found if began_s >= from_s and ended_s <= to_s)
    busy_s = sum(step.ended_s - step.began_s for step in steps)
    return took, busy_s / (to_s - from_s), len(steps)


def line(name: str, took: Sequence[float]) -> str:
    """As people read it."""
    parts = ", ".join(
        f"{part} {at(took, ratio) * 1e3:.2f} ms" for part, ratio in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
    )
    return f"{name:<32} {len(took):>6} answers: {parts}, most {took[-1] * 1e3:.2f} ms"


def main() -> int:
    """Measure and print; 1 where the bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--rate", type=float, default=5.0)
    parser.add_argument("--how", choices=("request", "step", "plain"), default="request")
    given = parser.parse_args()
    alone, *_ = measure(given.servers, given.rate, given.seconds, given.how, trains=False)
    print(line("without training, own lanes", alone), flush=True)
    shared, part, steps = measure(given.servers, given.rate, given.seconds, given.how, trains=True)
    print(line(f"in a lane with {STEP_S * 1e3:.0f} ms steps", shared))
    added_s = at(shared, 0.99) - at(alone, 0.99)
    print(f"training stepped {part:.1%} of the time, {steps / given.seconds:.0f} steps a second")
    print(f"p99 added: {added_s * 1e3:.2f} ms, at most {ADDED_MAX_S * 1e3:.0f} ms")
    return int(added_s > ADDED_MAX_S)


if __name__ == "__main__":
    sys.exit(main())
