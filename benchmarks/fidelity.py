"""Does the simulator predict what the live system then does? A batch on cpu devices, live and simulated, compared.

Starts a real scheduler and agent (as `colane up` does), submits twenty training jobs at once, exports what ran as
`colane export` does, simulates the export under the same policy, and prints makespan and mean jct of both.
Bound: 5 % for each. Needs torch and scikit-learn (`colane[workloads]`).

A virtual machine may be given less CPU time than it asks for, now and then: each round says how much of it was stolen
meanwhile, which nothing simulated can know.

    python benchmarks/fidelity.py [--policy fifo] [--rounds 10] [--steps 150] [--devices cpu:2] [--keep DIR]

What a round exported is kept in DIR, to simulate a round again that differs; `jobs.csv` beside it has when and where
each job ran live and simulated.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from colane.api.jobs import JobObject
from colane.cli.service.terminal import interruptible
from colane.engines.local import LocalConfig, LocalEngine
from colane.lab.commands.export import export_jobs, run_of
from colane.lab.simulate.ledger import Ledger
from colane.lab.simulate.request import Request, WorldKind, inputs, load
from colane.lab.simulate.run import simulate

BOUND_PERCENT = 5.0
KINDS = ("vgg11", "resnet18", "vgg19")
JOBS = 20
LOOK_EVERY_S = 0.25
ENV_NAMES = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV")


class Outcome(NamedTuple):
    """What a batch took."""

    makespan_s: float
    jct_s: float


class Round(NamedTuple):
    """One live run and its simulation.

    Attributes:
        live: What it took.
        simulated: What it should have taken.
        stolen_percent: Of the CPU time asked for while it ran, what the host of this virtual machine gave to others.
    """

    live: Outcome
    simulated: Outcome
    stolen_percent: float

    def errors_percent(self) -> tuple[float, float]:
        """Of makespan and mean jct, against the live run."""
        pairs = zip(self.simulated, self.live, strict=True)
        makespan, jct = (100 * (ours - real) / real for ours, real in pairs)
        return makespan, jct


def main() -> int:
    """Run the rounds and print the table."""
    options = _options()
    rounds = []
    for number in range(1, options.rounds + 1):
        with tempfile.TemporaryDirectory(prefix="colane-fidelity-") as folder, interruptible():
            done = one_round(options, Path(folder), _kept(options.keep, number) or Path(folder) / "export")
        rounds.append(done)
        print(_line(f"round {number}", done), flush=True)
    return _verdict(rounds)


def _kept(folder: Path | None, number: int) -> Path | None:
    return None if folder is None else folder / f"round-{number}"


def one_round(options: argparse.Namespace, folder: Path, export: Path) -> Round:
    """Live, export, simulate."""
    config = LocalConfig.of(folder / "state", "node", policy=options.policy, devices=options.devices, heartbeat=0.5)
    before = psutil.cpu_times()
    with LocalEngine(config) as stack, stack.client() as scheduler:
        ids = scheduler.submit_batch(list(_batch(options.steps)))
        while any(job["id"] in ids for job in scheduler.live_jobs()):
            stack.watch(LOOK_EVERY_S)
        stolen_percent = _stolen_percent(before)
        ran = [scheduler.job(each) for each in ids]
        made = export_jobs(scheduler, {}, export)
    request = Request(
        cluster=str(made.cluster), trace=str(made.trace), measured=made.measured, world=WorldKind.TABLE, sharing="cpu"
    )
    ledger = simulate(inputs(request, load(request, 0), options.policy, 0, as_published=False)).ledger
    jct_s = [end_s - submit_s for end_s, submit_s in zip(ledger.rows.end_s, ledger.rows.submit_s, strict=True)]
    simulated = Outcome(max(ledger.rows.end_s) - min(ledger.rows.submit_s), statistics.fmean(jct_s))
    _write_jobs(ran, ledger, export / "jobs.csv")
    return Round(_outcome(ran), simulated, stolen_percent)


def _stolen_percent(before: Any) -> float:  # noqa: ANN401 - psutil names no type for it
    now = psutil.cpu_times()
    spent = {name: getattr(now, name) - getattr(before, name) for name in ("user", "nice", "system", "steal")}
    return float(100 * spent["steal"] / max(sum(spent.values()), 1e-9))


def _write_jobs(ran: list[JobObject], ledger: Ledger, path: Path) -> None:
    """One line a job, live and simulated: seconds since the first was submitted, and the GPUs it last ran on."""
    first_s = min(job["submit_s"] for job in ran)
    ordered = sorted(ran, key=lambda job: (job["submit_s"], job["id"]))
    rows = ledger.rows
    places = {id: place for place, id in enumerate(rows.id)}
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("model", "steps", "start_s", "end_s", "gpus", "attempts",
                         "simulated_start_s", "simulated_end_s", "simulated_gpus", "simulated_attempts"))  # fmt: skip
        for number, job in enumerate(ordered, 1):
            at = places[number]
            live = run_of(job)[0] - first_s, run_of(job)[1] - first_s, " ".join(job["gpus"]), job["attempt"]
            ours = rows.start_s[at], rows.end_s[at], " ".join(map(str, rows.gpus[at])), rows.attempts[at]
            writer.writerow((job["family"].split()[0], job["steps"], *live, *ours))


def _batch(steps: int) -> Iterator[dict[str, Any]]:
    env = {name: value for name, value in os.environ.items() if name in ENV_NAMES} | {"OMP_NUM_THREADS": "1"}
    for number in range(JOBS):
        yield {
            "model_name": KINDS[number % len(KINDS)], "name": f"job-{number}", "dataset": "digits", "batch_size": 8,
            "width": 0.125, "iters": steps * (1 + number % 2), "workers": 0, "seed": 1, "env": env,
            "python": sys.executable, "workdir": str(Path.cwd()),
        }  # fmt: skip


def _outcome(jobs: list[JobObject]) -> Outcome:
    failed = [job for job in jobs if job["state"] != "succeeded"]
    if failed:
        raise SystemExit(f"{len(failed)} jobs did not succeed: {failed[0]['name']}: {failed[0]['reason']}")
    first_s = min(job["submit_s"] for job in jobs)
    jct_s = statistics.fmean(run_of(job)[1] - job["submit_s"] for job in jobs)
    return Outcome(max(run_of(job)[1] for job in jobs) - first_s, jct_s)


def _line(name: str, done: Round) -> str:
    makespan, jct = done.errors_percent()
    live, ours = done.live, done.simulated
    return (
        f"{name}: makespan live {live.makespan_s:.2f} s, simulated {ours.makespan_s:.2f} s ({makespan:+.1f} %); "
        f"mean jct live {live.jct_s:.2f} s, simulated {ours.jct_s:.2f} s ({jct:+.1f} %); "
        f"{done.stolen_percent:.0f} % of CPU time stolen"
    )


def _verdict(rounds: list[Round]) -> int:
    worst = 0.0
    for name, errors in zip(
        ("makespan", "mean jct"), zip(*(r.errors_percent() for r in rounds), strict=True), strict=True
    ):
        spread = statistics.stdev(errors) if len(errors) > 1 else 0.0
        print(f"{name}: mean error {statistics.fmean(errors):+.2f} %, spread {spread:.2f} points, "
              f"largest {max(map(abs, errors)):.2f} % (bound {BOUND_PERCENT:g} %)")  # fmt: skip
        worst = max(worst, *map(abs, errors))
    return int(worst > BOUND_PERCENT)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--policy", default="fifo")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--devices", default="cpu:2")
    parser.add_argument("--keep", type=Path, help="a folder for what each round exports")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
