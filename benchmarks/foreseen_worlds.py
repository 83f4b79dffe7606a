"""What comes of starts that are foreseen, on worlds made of Philly's trace: `colane simulate --foresee` on each.

    COLANE_DATA=DIR python benchmarks/foreseen_worlds.py [WORLD ...]

Jobs of one virtual cluster or of all, each a user, on one machine of so many GPUs, on which they wait; a part of them
tells its length. Where jobs share GPUs they are bursts with gangs, or Philly's sweeps, with the models and speeds of
Gavel's V100s. Judged are quotes of jobs that wait, those of the later half: how many held (of those that are known, and
by horizon), Winkler's score and the median error beside the best of three baselines that are widened likewise, and
Brier's score of starts within a minute. What starts in the decision in which it came is told so by a plan, and is no
quote: the last figures count it as said and held.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from colane.cli import app

DATA = Path(os.environ.get("COLANE_DATA", "."))
DAY_S = 86_400.0

Came = tuple[float, float, int, str]  # when a job comes, how long it runs alone, its GPUs and whose it is
Kind = tuple[str, str]  # a model and a batch size


class World(NamedTuple):
    """A world."""

    policy: str
    of: str  # virtual cluster, or kind of jobs that share
    gpus: int
    told: float = 0.0  # part of the jobs that tells its length
    load: float = 1.3  # where jobs share: GPU time asked for, each job alone, over what there is


LAS = "las:queues_gpu_s=28800"
WORLDS = {
    "fifo-700": World("fifo", "all", 700),
    "fifo-96": World("fifo", "6214e9", 96),
    "fifo-60": World("fifo", "6214e9", 60),
    "fifo-96-told": World("fifo", "6214e9", 96, 0.8),
    "las-60": World(LAS, "6214e9", 60),
    "las-64": World(LAS, "6c71a0", 64),
    "las-60-told": World(LAS, "6214e9", 60, 0.8),
    "srtf-60": World("srtf", "6214e9", 60, 1.0),
    "bursts-16": World("colane", "bursts", 16, 1.0, 0.9),
    "bursts-16-half": World("colane", "bursts", 16, 0.5, 0.9),
    "bursts-16-untold": World("colane", "bursts", 16, 0.0, 0.9),
    "sweeps-8": World("colane", "sweeps", 8, 1.0),
    "sweeps-8-untold": World("colane", "sweeps", 8),
    "sweeps-36": World("colane", "sweeps", 36, 1.0),
}

HEADS = (
    "world", "quotes", "80 % holds (known)", "by horizon", "score : best baseline", "median error",
    "of recent waits' score", "Brier : base", "above 0.9 true",
    "with those at once: Brier / base, holds, above 0.9 true",
)  # fmt: skip


def philly(of: str = "all") -> list[Came]:
    """Jobs of a virtual cluster that ran on GPUs, by submission."""
    with gzip.open(DATA / "traces/philly.csv.gz", "rt") as file:
        rows = [
            (
                datetime.fromisoformat(row["timestamp"]).timestamp(),
                float(row["duration"]),
                int(row["num_gpus"]),
                row["cluster"],
            )
            for row in csv.DictReader(file)
        ]
    return sorted(row for row in rows if row[1] > 0 and row[2] > 0 and of in {"all", row[3]})


def alone(world: World) -> Iterator[dict[str, Any]]:
    """Jobs that have their GPUs to themselves; of one model, as no more is known than whose they are."""
    rows = [row for row in philly(world.of) if row[2] <= world.gpus]
    tells = np.random.default_rng(2).random(len(rows)) < world.told
    for at, ((submit_s, took_s, gpus, user), told) in enumerate(zip(rows, tells, strict=True)):
        yield {
            "id": f"j{at}", "submit_s": submit_s - rows[0][0], "duration_s": took_s, "gpus": gpus, "model": "m",
            "batch_size": "", "user": user, "steps": round(max(1.0, took_s)) if told else "", "preemptible": 1,
        }  # fmt: skip


class Models:
    """Gavel's models on a V100, and how many steps each makes in a second on so many GPUs."""

    def __init__(self) -> None:
        with gzip.open(DATA / "A/gavel_v100_throughputs.json.gz", "rt") as file:
            table = json.load(file)
        self._table = table.get("v100", table)
        found = [re.match(r"\('(.*?)(?: \(batch size (\d+)\))?', 1\)", kind) for kind in self._table]
        self.all: list[Kind] = sorted({(one[1], one[2] or "") for one in found if one})
        self.of_gangs = [kind for kind in self.all if all(self.speed(kind, gpus) > 0 for gpus in (2, 4, 8))]

    def speed(self, kind: Kind, gpus: int) -> float:
        """Steps a second; 0 where that was not measured."""
        name = f"{kind[0]} (batch size {kind[1]})" if kind[1] else kind[0]
        return float(self._table.get(f"('{name}', {gpus})", {}).get("null", 0.0))


def sweeps(gpus: int, load: float, models: Models) -> list[tuple[Came, Kind, bool]]:
    """Some of Philly's jobs, blocks of 20 kept, so close that their load is as wanted.

    A job is of its user's last model within an hour, with a probability of 0.85, else of one of its user's six.
    """
    most, jobs, first, every, cap_s, seed = (
        (8, 2400, 20_000, 4, 3 * DAY_S, 1) if gpus > 8 else (4, 1600, 40_000, 5, DAY_S, 3)
    )
    rows = [row for row in philly() if row[2] <= most][first : first + jobs * every]
    rows = [row for at, row in enumerate(rows) if at // 20 % every == 0]
    work = sum(min(took_s, cap_s) * asks for _, took_s, asks, _ in rows)
    closer = work / gpus / load / (rows[-1][0] - rows[0][0])
    random, own, last = np.random.default_rng(seed), dict[str, list[Kind]](), dict[str, tuple[float, Kind]]()
    found: list[tuple[Came, Kind, bool]] = []
    for at_s, took_s, asks, user in rows:
        submit_s = (at_s - rows[0][0]) * closer
        own.setdefault(user, [models.all[k] for k in random.choice(len(models.all), 6, replace=False)])
        if user not in last or submit_s - last[user][0] > 3600 or random.random() > 0.85:
            kind = own[user][random.integers(6)]
        else:
            kind = last[user][1]
        last[user] = submit_s, kind
        random.random()
        found.append(((submit_s, min(took_s, cap_s), asks, user), kind, True))
    return found


def bursts(gpus: int, load: float, models: Models) -> list[tuple[Came, Kind, bool]]:
    """Bursts of jobs of 20 families by six users, half of them gangs of up to 8 GPUs, more by day than by night."""
    random = np.random.default_rng(5)
    families = [
        (models.all[k], random.normal(8.2, 0.8), int(random.choice([1, 1, 1, 2, 4, 8])))
        for k in random.choice(len(models.all), 20, replace=True)
    ]
    rows: list[tuple[Came, Kind]] = []
    at_s = 0.0
    while len(rows) < 2600:
        family = random.integers(20)
        kind, middle, asks = families[family]
        for _ in range(int(random.geometric(0.25))):
            rows.append(((at_s, float(np.exp(random.normal(middle, 0.7))), min(asks, gpus), f"u{family % 6}"), kind))
            at_s += random.exponential(20)
        at_s += random.exponential(1.0) * 600 * (1.6 if at_s / DAY_S % 1 < 0.5 else 0.6)
    closer = sum(came[1] * came[2] for came, _ in rows) / gpus / load / rows[-1][0][0]
    return [((came[0] * closer, *came[1:]), kind, bool(random.random() < 0.5)) for came, kind in rows]


def shared(world: World) -> Iterator[dict[str, Any]]:
    """Jobs that share GPUs; those that do not tell their length have a step for each that they make in it."""
    models, random = Models(), np.random.default_rng(16)
    made = (bursts if world.of == "bursts" else sweeps)(world.gpus, world.load, models)
    for at, ((submit_s, took_s, gpus, user), wanted, preemptible) in enumerate(made):
        other = models.of_gangs[models.all.index(wanted) * 7 % len(models.of_gangs)]
        kind = wanted if models.speed(wanted, gpus) else other
        speed = models.speed(kind, gpus)
        tells = random.random() < world.told
        yield {
            "id": f"j{at}", "submit_s": round(submit_s, 1), "duration_s": round(took_s if tells else took_s * speed, 1),
            "gpus": gpus, "model": kind[0], "batch_size": kind[1], "user": user,
            "steps": max(1, int(took_s * speed)) if tells else "", "preemptible": int(preemptible),
        }  # fmt: skip


def judged(world: World, folder: Path) -> str:
    """Simulate it, and return the row of the table."""
    rows = list((shared if world.policy == "colane" else alone)(world))
    with (folder / "jobs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    machine = folder / "machine.yaml"
    machine.write_text(f"groups:\n  - {{name: n, gpus: {world.gpus}, gpu_type: V100, gpu_memory: 16GB}}\n")
    truth = "table" if world.policy == "colane" else "factors" if world.told else "neutral"
    asked = ["simulate", "-t", str(folder / "jobs.csv"), "-c", str(machine), "-p", world.policy, "--world", truth]
    if app.run([*asked, "--foresee", "-o", str(folder / "out")]):
        sys.exit("the simulation failed")
    (run,) = json.loads((folder / "out/summary.json").read_text())["runs"]
    by = {one["method"]: one for one in run["foreseen"]}
    best = min(
        [by[name] for name in ("work ahead", "recent waits", "plan by mean lengths")], key=lambda one: one["score"]
    )
    one, recent = by["foreseen"], by["recent waits"]["score"]
    by_horizon = [f"{part['holds'] or 0:.0%} of {part['quotes']}" for part in one["horizons"]]
    cells = [
        f"{one['quotes']}", f"{one['holds']:.0%} ({one['known']['holds'] or 0:.0%} of {one['known']['quotes']})",
        ", ".join(by_horizon),
        f"{one['score']:.2f} : {best['score']:.2f} = {one['score'] / best['score']:.2f}",
        f"{one['median_error']:.0%} : {best['median_error']:.0%}", f"{one['score'] / recent:.2f}",
        f"{one['brier']:.3f} : {one['brier_base']:.3f}", *at_once(folder / "out", one["quotes"]),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def at_once(folder: Path, quotes: int) -> tuple[str, str]:
    """Of the later half of submissions: what was said to start at once did, of those that waited and of all.

    Of all, those that started in their decision counted in, Brier over base and held, too.
    """
    (path,) = folder.glob("quotes-*.csv")
    said = {row["job"]: row for row in csv.DictReader(path.open()) if row["method"] == "foreseen" and row["start_s"]}
    waited = list(said.values())[-quotes:]
    (path,) = folder.glob("jobs-*.csv")
    since_s = float(waited[0]["at_s"])
    jobs = [row for row in csv.DictReader(path.open()) if float(row["submit_s"]) >= since_s and row["first_start_s"]]
    sooner = sum(float(row["first_start_s"]) <= float(row["submit_s"]) for row in jobs) * len(waited)
    sooner //= max(1, sum(float(row["first_start_s"]) > float(row["submit_s"]) for row in jobs))
    chance = np.array([*[float(row["at_once"]) for row in waited], *[1.0] * sooner])
    came = np.array([*[float(row["start_s"]) <= 60 for row in waited], *[1.0] * sooner])
    held = [float(row["p10_s"]) <= float(row["start_s"]) <= float(row["p90_s"]) for row in waited]
    brier = float(((chance - came) ** 2).mean() / max(1e-9, came.var()))
    waits, all_ = (
        f"{true.mean():.0%} of {len(true)}" if len(true := came[:many][chance[:many] > 0.9]) else "-"
        for many in (len(waited), len(came))
    )
    return waits, f"{brier:.2f}, {(sum(held) + sooner) / len(came):.0%}, {all_}"


def main() -> None:
    """Print a row for each world."""
    print(f"| {' | '.join(HEADS)} |")
    print(f"|{'---|' * len(HEADS)}", flush=True)
    for name in sys.argv[1:] or WORLDS:
        with TemporaryDirectory() as folder:
            told = sys.stdout
            with (Path(folder) / "told.txt").open("w") as sys.stdout:
                row = judged(WORLDS[name], Path(folder))
            sys.stdout = told
            print(f"| {name} {row}", flush=True)


if __name__ == "__main__":
    main()
