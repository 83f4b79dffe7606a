"""What taking turns costs on a GPU: the gap at a handoff, the sum of speeds, what comes after a kill.

    python gpu/turns.py [--part PART] [--minutes 8] [--out DIR] [--tiny | --small]

A real agent and training jobs that note when each step began and, the GPU idle again, ended. The same jobs run alone,
in turns in one lane, and in two lanes (the driver's time slicing) in the same run. `--tiny` runs all of it on a cpu
device. Without a GPU it says so and ends with 0.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # so that the script can be run by its path as well
    sys.path.insert(0, str(ROOT))

from benchmarks.handoff import (  # noqa: E402
    Command,
    Lane,
    Step,
    after_kill_s,
    at,
    handoffs_s,
    lane_of,
    lost_ratio,
    overlaps,
)
from gpu.harness import Object, Run, Script, main  # noqa: E402

from colane.cli.errors import FailureError  # noqa: E402

JOB: Final = ROOT / "gpu" / "turns_job.py"
QUANTUM_S: Final = 0.1
WATCH_S, SMALL_WATCH_S = 12.0, 1.5
KILLS, SMALL_KILLS = 10, 2
KILL_QUANTUM_S: Final = 1.0
"""A job on a GPU waits for its turn before its first step: with a longer one the second would not have started."""
GAP_P50_MAX_S, GAP_P99_MAX_S = 1e-3, 5e-3
P99_SAMPLES_MIN: Final = 1000
"""Of fewer the slowest ten are a handful: no p99 is told."""
SPEEDS_MIN: Final = 0.98
AFTER_KILL_MAX_S: Final = 1.5
"""A killed process of 60 GB is torn down by the driver before the kernel tells of its end; the gate adds little."""
SHARE_OFF_MAX: Final = 0.05
FIGURES: Final = (
    "handoffs", "gap_p50_s", "gap_p99_s", "lost_ratio", "turns_speeds_ratio", "slicing_speeds_ratio", "shares",
    "next_step_p50_s", "next_step_max_s",
)  # fmt: skip


def training(run: Run) -> Command:
    """The job of this run."""
    size = "small" if run.small else "large"
    return lambda notes: (sys.executable, str(JOB), str(notes), size)


def watch(run: Run, quantum_s: float, jobs: int, lanes: int = 1) -> list[Step]:
    """Steps of some jobs side by side."""
    with lane_of("fair", quantum_s, training(run), run.devices) as lane:
        lane.start(jobs, lanes=lanes)
        steps = lane.watch(SMALL_WATCH_S if run.small else WATCH_S)
        lane.end()
    return steps


def speed(steps: Sequence[Step]) -> float:
    """Steps per second of all jobs together."""
    return len(steps) / (max(step.ended_s for step in steps) - steps[0].began_s)


def gaps(steps: Sequence[Step]) -> Object:
    """How long the device stands idle at a handoff."""
    times_s = handoffs_s(steps)
    if not times_s:
        raise FailureError("two jobs in one lane ran and the lane was never handed over")
    return {
        "handoffs": len(times_s),
        "gap_p50_s": at(times_s, 0.5),
        "gap_p99_s": at(times_s, 0.99) if len(times_s) >= P99_SAMPLES_MIN else None,
        "gap_max_s": times_s[-1],
        "lost_ratio": lost_ratio(steps),
        "overlaps": overlaps(steps),
    }


def pair(run: Run) -> Object:
    """One job alone, two in turns, two in lanes of their own."""
    alone, turns, slices = (watch(run, QUANTUM_S, jobs, lanes) for jobs, lanes in ((1, 1), (2, 1), (2, 2)))
    found = {
        "quantum_s": QUANTUM_S,
        "alone_steps_per_s": speed(alone),
        "turns_speeds_ratio": speed(turns) / speed(alone),
        "slicing_speeds_ratio": speed(slices) / speed(alone),
        **gaps(turns),
    }
    run.check("no two jobs run at once", found["overlaps"] == 0, found["overlaps"])
    if not run.small:
        run.check("idle gap p50 <= 1 ms", found["gap_p50_s"] <= GAP_P50_MAX_S, found["gap_p50_s"])
        if found["gap_p99_s"] is not None:
            run.check("idle gap p99 <= 5 ms", found["gap_p99_s"] <= GAP_P99_MAX_S, found["gap_p99_s"])
        ratio = found["turns_speeds_ratio"]
        run.check("sum of speeds >= 98 % of one alone", ratio >= SPEEDS_MIN, ratio)
    return found


def by_step(run: Run) -> Object:
    """Two jobs that hand over after every step."""
    found = gaps(watch(run, 0.0, 2))
    run.check("no two jobs run at once", found["overlaps"] == 0, found["overlaps"])
    return found


def thirds(run: Run) -> Object:
    """Three equal jobs."""
    steps = watch(run, 0.0 if run.small else QUANTUM_S, 3)
    busy = dict.fromkeys(sorted({step.job for step in steps}), 0.0)
    for step in steps:
        busy[step.job] += step.ended_s - step.began_s
    shares = [busy_s / sum(busy.values()) for busy_s in busy.values()]
    run.check("three jobs had turns", len(shares) == 3, shares)
    if not run.small:
        run.check("a third each, within 5 points", all(abs(s - 1 / 3) <= SHARE_OFF_MAX for s in shares), shares)
    return {"shares": shares}


def kills(run: Run) -> Object:
    """The holder is killed; the next goes on."""
    with lane_of("fair", KILL_QUANTUM_S, training(run), run.devices) as lane:
        lane.start(2)
        times_s = sorted(_kill(lane) for _ in range(SMALL_KILLS if run.small else KILLS))
        lane.end()
    if not run.small:
        run.check("next step within 1.5 s of a killed holder's end", at(times_s, 0.5) <= AFTER_KILL_MAX_S, times_s)
    return {"kills": len(times_s), "next_step_p50_s": at(times_s, 0.5), "next_step_max_s": times_s[-1]}


def _kill(lane: Lane) -> float:
    waited_s = after_kill_s(lane)
    lane.start(1)
    return waited_s


def summary(results: Mapping[str, Object], _out: Path) -> Object:
    """The numbers of all parts."""
    return {"figures": {part: {n: found[n] for n in FIGURES if n in found} for part, found in results.items()}}


PARTS: Final = {"pair": pair, "by-step": by_step, "thirds": thirds, "kills": kills}
SCRIPT: Final = Script(
    name="turns",
    about="What taking turns costs on a GPU.",
    parts=PARTS,
    tiny_parts=list(PARTS),
    summary=summary,
)

if __name__ == "__main__":
    sys.exit(main(SCRIPT))
