"""Does the live system decide as the simulated one? Jobs that only sleep, run both ways, compared start by start.

A real scheduler and agent run jobs of several families, lengths and sizes that come one after another; what they
measured is exported as `colane export` does and simulated under the same policy and settings. As the jobs sleep, the
machine's load hardly counts, so what differs was decided differently. Two starts count as in order if they are closer
than the time within which agents report. The machine must be quiet all the same: an agent learns no speed from cores
that other programs use by a quarter, and what is not learnt is decided otherwise.

    python benchmarks/as_simulated.py [-p colane -p fifo] [--jobs 24] [--seeds 1] [--devices cpu:2:4GB] [--keep DIR]
    python benchmarks/as_simulated.py -p colane --jobs 200 --lengths 5,6,8,20 --load 2.6    # 9 to 21 minutes

Prints the share of pairs of jobs whose starts are in the same order and the means, and what `colane replay` says of
its own trust in it. Exits with 1 when more than 5 % of the pairs that could differ do, or where replay is off by more
than 5 % in the makespan or the mean wait, or in the order of more than 5 % of all pairs.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, Final, NamedTuple

from colane.api.jobs import JobObject
from colane.cli.service.terminal import interruptible
from colane.engines.local import LocalConfig, LocalEngine
from colane.lab.commands.export import TimeWindow, export_jobs, run_of
from colane.lab.simulate.request import LIVE, Request, WorldKind, inputs, load
from colane.lab.simulate.run import simulate

BOUND_PERCENT: Final = 5.0
CLOSE_S: Final = 0.75
"""Agents report every half second, and a process takes a quarter to start."""

STEP_S: Final = {"a": 0.05, "b": 0.08, "c": 0.11, "d": 0.2}
"""Of each family."""

LOOK_EVERY_S: Final = 0.25


class Arrival(NamedTuple):
    """A job to submit, and when, in seconds after the first."""

    at_s: float
    request: dict[str, Any]


class Stay(NamedTuple):
    """When a job started last and ended, in seconds after the first was submitted, and how often it was started."""

    start_s: float
    end_s: float
    attempts: int
    gpus: str


def arrivals(seed: int, jobs: int, gpus: int, lengths_s: list[float], load: float) -> list[Arrival]:
    """Draw jobs that come at about that load, were each alone."""
    drawn, at_s, found = Random(seed), 0.0, []  # noqa: S311 - which jobs come
    for number in range(jobs):
        family, wide = drawn.choice(tuple(STEP_S)), 2 if gpus > 1 and drawn.random() < 0.2 else 1
        steps = round(drawn.choice(lengths_s) / STEP_S[family])
        words = [sys.executable, str(Path(__file__).with_name("sleeping_job.py")), str(steps), str(STEP_S[family])]
        found.append(Arrival(at_s, {
            "command": words, "workdir": "/", "name": f"{family}{number}", "family": family, "steps_total": steps,
            "gpus": wide, "gpu_memory_bytes": 10**9,
        }))  # fmt: skip
        at_s += drawn.expovariate(gpus * load / (1.2 * fmean(lengths_s)))
    return found


def run_live(policy: str, devices: str, coming: list[Arrival], export: Path, state: Path) -> tuple[list[Stay], Request]:
    """Run the jobs, and say how to simulate what they exported."""
    config = LocalConfig.of(state, "node", policy=policy, devices=devices, heartbeat=0.5)
    with LocalEngine(config) as stack, stack.client() as client:
        window_s = time.time()
        began_s, ids = time.monotonic(), []
        for at_s, request in coming:
            while (left_s := began_s + at_s - time.monotonic()) > 0:
                stack.watch(min(left_s, LOOK_EVERY_S))
            ids.append(client.submit(request))
        while client.live_jobs():
            stack.watch(LOOK_EVERY_S)
        ran = [client.job(each) for each in ids]
        made = export_jobs(client, {}, export)
        export_jobs(client, {}, export / "past", TimeWindow(window_s, time.time()))
        stays = _stays(ran)
        unmeasured = sorted(one["key"]["family"] for one in client.profiles() if one["step_s"] is None)
    if unmeasured:
        print(f"other programs kept the cores too busy to measure families {' '.join(unmeasured)}: not comparable")
    return stays, Request(
        cluster=str(made.cluster), trace=str(made.trace), measured=made.measured, world=WorldKind.TABLE,
        sharing="cpu", live=LIVE,
    )  # fmt: skip


def _stays(ran: list[JobObject]) -> list[Stay]:
    failed = [job for job in ran if job["state"] != "succeeded"]
    if failed:
        raise SystemExit(f"{len(failed)} jobs did not succeed: {failed[0]['name']}: {failed[0]['reason']}")
    first_s = min(job["submit_s"] for job in ran)
    spans = ((job, *run_of(job)) for job in ran)
    return [
        Stay(start_s - first_s, end_s - first_s, job["attempt"], " ".join(job["gpus"])) for job, start_s, end_s in spans
    ]


def run_simulated(policy: str, request: Request) -> list[Stay]:
    """Simulate what was exported, in the order of submission."""
    rows = simulate(inputs(request, load(request, 0), policy, 0)).ledger.rows
    first_s, order = min(rows.submit_s), sorted(range(len(rows.id)), key=lambda at: rows.id[at])
    return [
        Stay(rows.start_s[at] - first_s, rows.end_s[at] - first_s, rows.attempts[at], " ".join(map(str, rows.gpus[at])))
        for at in order
    ]


def differ(live: list[Stay], simulated: list[Stay]) -> tuple[int, int]:
    """Pairs whose starts are further apart than `CLOSE_S` both ways, and how many of them are in another order."""
    pairs = apart = 0
    for one, other in combinations(range(len(live)), 2):
        real_s = live[one].start_s - live[other].start_s
        ours_s = simulated[one].start_s - simulated[other].start_s
        if min(abs(real_s), abs(ours_s)) > CLOSE_S:
            pairs += 1
            apart += (real_s > 0) != (ours_s > 0)
    return pairs, apart


def _write(path: Path, coming: list[Arrival], live: list[Stay], simulated: list[Stay]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("job", "steps", "submit_s", *Stay._fields, *(f"simulated_{name}" for name in Stay._fields)))
        for job, real, ours in zip(coming, live, simulated, strict=True):
            writer.writerow((job.request["name"], job.request["steps_total"], job.at_s, *real, *ours))


def one(policy: str, seed: int, options: argparse.Namespace, folder: Path) -> bool:
    """Run one draw both ways, print how they compare, and tell whether they are alike."""
    lengths_s = [float(text) for text in options.lengths.split(",")]
    coming = arrivals(seed, options.jobs, int(options.devices.split(":")[1]), lengths_s, options.load)
    export = folder / "export" if options.keep is None else options.keep / f"{policy}-{seed}"
    live, request = run_live(policy, options.devices, coming, export, folder / "state")
    simulated = run_simulated(policy, request)
    _write(export / "jobs.csv", coming, live, simulated)
    pairs, apart = differ(live, simulated)
    jct_s = [
        fmean(stay.end_s - job.at_s for stay, job in zip(stays, coming, strict=True)) for stays in (live, simulated)
    ]
    starts = [sum(stay.attempts for stay in stays) for stays in (live, simulated)]
    print(
        f"{policy}, draw {seed}: {apart} of {pairs} pairs start in another order; starts {starts[0]}, simulated "
        f"{starts[1]}; mean jct {jct_s[0]:.2f} s, simulated {jct_s[1]:.2f} ({100 * (jct_s[1] / jct_s[0] - 1):+.1f} %)",
        flush=True,
    )
    return replays(policy, export / "past") and apart <= BOUND_PERCENT / 100 * pairs


def replays(policy: str, past: Path) -> bool:
    """Print what `colane replay` says of the policy on its own past, and tell whether that is near."""
    words = ["colane", "replay", "--past", str(past), "--ruled", policy, "-p", policy, "--json"]
    told = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["trust"]
    errors: dict[str, float] = {name: 100 * error for name, error in told["errors"].items()}
    same_percent = 100 * float(told["same_order_ratio"])
    figures = ", ".join(f"{name.removesuffix('_s')} {error:+.1f} %" for name, error in errors.items())
    print(
        f"replay of {told['jobs']} jobs: {figures}; {same_percent:.1f} % of pairs start in the same order", flush=True
    )
    return max(abs(errors["makespan_s"]), abs(errors["mean_wait_s"]), 100 - same_percent) <= BOUND_PERCENT


def main() -> int:
    """Run all draws of all policies."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-p", "--policy", action="append", help="may be repeated; colane and fifo by default")
    parser.add_argument("--jobs", type=int, default=24)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--devices", default="cpu:2:4GB")
    parser.add_argument("--lengths", default="2,4,8,16", metavar="S,S", help="of jobs alone, drawn alike")
    parser.add_argument("--load", type=float, default=1.3)
    parser.add_argument("--keep", type=Path, help="a folder for what each draw exports")
    options, alike = parser.parse_args(), True
    for policy in options.policy or ("colane", "fifo"):
        for seed in range(options.seeds):
            with tempfile.TemporaryDirectory(prefix="colane-as-simulated-") as folder, interruptible():
                alike &= one(policy, seed, options, Path(folder))
    return int(not alike)


if __name__ == "__main__":
    sys.exit(main())
