"""After the live part: what the same policies do where there is more to decide, simulated from what was recorded."""

from __future__ import annotations

import gzip
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from colane.lab.report import style
from colane.lab.report.metrics import percent_change
from colane.lab.report.prose import duration, percent
from colane.lab.report.records import JobTime
from colane.lab.report.time_plots import mean_bars
from colane.lab.simulate.beliefs import Belief
from colane.lab.simulate.request import LIVE, Request
from colane.lab.simulate.study import loaded_once, run_one
from colane.lab.simulate.table_files import DATA_VARIABLE, folder_of
from colane.lab.studies.reported import simulated_run
from colane.lab.traces.tables import SHIPPED
from colane.model.words import count

PHILLY: Final = Path("traces/philly.csv.gz")
CLUSTER, DAY, NODES = "6c71a0", "2017-10-05", 8
"""A busy day of one of Philly's virtual clusters, on a quarter of its nodes, so that jobs wait."""

V100_SEEDS: Final = (0, 1)
V100_JOBS: Final = "poisson:jobs=120,gap=300"
"""More than 36 GPUs take while jobs come: with less there is little to decide."""

FIFO, COLOCATION, COLANE, UNTOLD = "FIFO", "co-location", "colane", "colane, no lengths"
POLICIES: Final = {FIFO: "fifo", COLOCATION: "colocate", COLANE: "colane", UNTOLD: "colane"}


class DemoScene(NamedTuple):
    """Jobs on machines, and what of `POLICIES` decides there."""

    title: str  # in the picture
    where: str  # begins a sentence
    request: Request
    bars: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)


class DemoOutcome(NamedTuple):
    """What came of a scene."""

    scene: DemoScene
    times: dict[str, list[JobTime]]  # of each bar, all seeds in one order

    def mean_s(self, bar: str) -> float:
        """From submission to end."""
        return sum(map(_whole_s, self.times[bar])) / len(self.times[bar])

    def against_fifo(self, bar: str) -> str:
        """As `15 h 40 min (-16 %)`."""
        change = percent_change(self.mean_s(FIFO), self.mean_s(bar))
        return f"{duration(self.mean_s(bar))} under {bar} ({percent(change)})"

    def longer(self) -> tuple[int, float]:
        """How many jobs take longer under `colane` than under FIFO, and the most by which one does."""
        pairs = zip(self.times[FIFO], self.times[COLANE], strict=True)
        more_s = [_whole_s(after) - _whole_s(before) for before, after in pairs]
        return sum(more > 1.0 for more in more_s), max(more_s)


def _whole_s(time: JobTime) -> float:
    """From submission to end."""
    return sum(time.spent)


def run(folder: Path, data: Path | None = None) -> list[DemoOutcome]:
    """Simulate both scenes, in as many processes as there are cores.

    The day is written into the folder, to be read by each process. Recorded traces are those of `COLANE_DATA` where
    none are named.
    """
    tables = Request(cluster="v100-36", trace=V100_JOBS, tables=SHIPPED, preemptible=True, live=LIVE)
    v100s = DemoScene("36 V100s", "On 36 V100s, at speeds measured by Gavel's authors", tables,
                  (FIFO, COLOCATION, COLANE), V100_SEEDS)  # fmt: skip
    scenes, pool = (v100s, _day(folder, folder_of(data))), ProcessPoolExecutor(mp_context=get_context("spawn"))
    try:
        runs = {
            (scene.title, bar, seed): pool.submit(_times, scene.request, bar, seed)
            for scene in scenes
            for bar in reversed(scene.bars)  # those of `colane` take longest
            for seed in scene.seeds
        }
        return [
            DemoOutcome(scene, {bar: [time for seed in scene.seeds for time in runs[scene.title, bar, seed].result()]
                            for bar in scene.bars})
            for scene in scenes
        ]  # fmt: skip
    finally:
        pool.shutdown(cancel_futures=True)


def _times(request: Request, bar: str, seed: int) -> list[JobTime]:
    """Where the time of every job went, by number."""
    told = replace(request, belief=Belief.NONE if bar == UNTOLD else request.belief)
    found = simulated_run(run_one(told, POLICIES[bar], seed), seed, loaded_once(told, seed))
    return list(found.times.values())


def _day(folder: Path, data: Path | None) -> DemoScene:
    """The recorded day; the jobs that are packaged where it is not at hand."""
    if data is None or not (data / PHILLY).is_file():
        request = Request(cluster="paper-b", trace=str(SHIPPED / "B/calibrated_trace_100.csv"), tables=SHIPPED,
                          preemptible=True, live=LIVE)  # fmt: skip
        where = f"No recorded day is at hand ({DATA_VARIABLE} names no folder with {PHILLY}); made up to Salus' times"
        return DemoScene("one P100", f"{where}, on one P100", request, (FIFO, COLOCATION, COLANE))
    with gzip.open(data / PHILLY, "rt", encoding="utf-8") as file:
        head, *rows = file.read().splitlines()
    trace, cluster = folder / "day.csv", folder / "day.yaml"
    kept = [row for row in rows if row.startswith(DAY) and row.endswith(f",{CLUSTER}")]
    trace.write_text("\n".join([head, *kept]) + "\n", encoding="utf-8")
    group = {"name": "n", "count": NODES, "gpus": 8, "gpu_type": "philly", "gpu_memory": "24GB", "pool": CLUSTER}
    cluster.write_text(yaml.safe_dump({"name": "day", "groups": [group]}), encoding="utf-8")
    request = Request(cluster=str(cluster), trace=str(trace), belief=Belief.PROFILED, preemptible=True, live=LIVE)
    where = f"On {NODES} nodes of 8 GPUs with a recorded day of Philly ({DAY}, lengths told within some 10 %)"
    return DemoScene(f"{NODES} nodes, a day", where, request, (FIFO, COLOCATION, COLANE, UNTOLD))


def sentences(outcomes: list[DemoOutcome]) -> list[str]:
    """One for each scene, and what it costs."""
    said = []
    for one in outcomes:
        jobs = count(len(one.times[FIFO]), "job")
        others = ", ".join([one.against_fifo(bar) for bar in one.scene.bars[1:]])
        said.append(f"{one.scene.where}, {jobs} take {duration(one.mean_s(FIFO))} on average under FIFO, {others}.")
    costs = [(*one.longer(), len(one.times[FIFO]), one.scene.title) for one in outcomes]
    parts = [f"{longer} of {jobs} on {name}, by {duration(most_s)} at most" for longer, most_s, jobs, name in costs]
    return [*said, f"Some jobs take longer under colane than under FIFO: {'; '.join(parts)}."]


def draw(outcomes: list[DemoOutcome], path: Path) -> Path:
    """Write the picture: where the time of a job goes, on average."""
    return style.save(mean_bars({one.scene.title: one.times for one in outcomes}), path)
