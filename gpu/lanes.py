"""What lanes and turns give and cost on a GPU: overhead alone, sets of paper A's models, resident models, caches.

    python gpu/lanes.py [--part PART] [--minutes 8] [--out DIR] [--tiny | --small]

`pairs-B` and `triples-B` put each set of models into one lane (turns) and into lanes of their own (the driver's time
slicing), in the same run as the models alone; `paper_a.py` has the same sets through MPS. A part that runs out of time
keeps what it has, and the next call goes on from there. `--tiny` runs all but `flush` on a cpu device. Without a GPU it
says so and ends with 0.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # so that the script can be run by its path as well
    sys.path.insert(0, str(ROOT))

from benchmarks.adaptor_step import job_environment  # noqa: E402
from benchmarks.handoff import Step, at, lane_of, overlaps  # noqa: E402
from gpu.harness import Object, PartFunction, Run, Script, job_env, main  # noqa: E402
from gpu.paper_a import BATCHES, MODELS  # noqa: E402

from colane.cli.errors import FailureError  # noqa: E402

JOB: Final = ROOT / "gpu" / "lanes_job.py"
QUANTUM_S: Final = 0.05
WATCH_S, SMALL_WATCH_S = 8.0, 1.0
SET_MAX_S: Final = 60.0
"""A set takes less than this, the starts of its jobs included."""
SMALL_MODELS: Final = ("resnet18", "vgg11")
SMALL_BATCH, SMALL_WIDTH = 2, 0.0625

SOLO_ROUNDS, SOLO_STEPS, SMALL_SOLO_STEPS = 5, 400, 60
SOLO_MAX_S: Final = 30.0
"""A round takes less than this."""
OVERHEAD_MAX: Final = 0.01
TURNS_LOSS_MAX: Final = 0.1
"""In turns a job is as much slower as there are jobs, and by this part more at most."""

RESIDENTS, SMALL_RESIDENTS = 42, 3
REQUESTS_PER_S: Final = 1.0
"""Of each resident model: 42 of them use a small part of a GPU's time, as servers do (paper B, 5.3)."""
SERVE_S, SMALL_SERVE_S = 60.0, 8.0
ADDED_MAX_S: Final = 5e-3

CACHE_GIB, SMALL_CACHE_GIB = 20.0, 0.03125
CACHE_WIDTH, SMALL_CACHE_WIDTH = 4096, 256
FLUSH_MAX_S: Final = 0.1
RETURNED_MIN: Final = 0.9
ALLOCATORS: Final = ("", "expandable_segments:True")


def overhead(run: Run) -> Object:
    """One job alone with the adaptor and without it, in turn: the difference, and the same losses."""
    words = ("solo", str(SMALL_SOLO_STEPS if run.small else SOLO_STEPS), "small" if run.small else "large")
    with tempfile.TemporaryDirectory() as folder:
        bare, adaptor = job_env(), job_environment(Path(folder))
        path = os.pathsep.join(filter(None, [adaptor["PYTHONPATH"], bare.get("PYTHONPATH")]))
        armed = {**bare, **adaptor, "PYTHONPATH": path}
        found = [(_ask(run, words, bare), _ask(run, words, armed))]
        while not run.small and len(found) < SOLO_ROUNDS and run.left_s > SOLO_MAX_S:
            found.append((_ask(run, words, bare), _ask(run, words, armed)))
        steps = _steps_seen(Path(folder) / "steps")
    run.check("the adaptor counted the steps", steps == len(found) * int(words[1]), steps)
    run.check("the losses are the same to the last bit", len({one["losses"] for both in found for one in both}) == 1)
    without_s, with_s = (min(both[i]["step_s"] for both in found) for i in (0, 1))
    ratio = with_s / without_s - 1
    if not run.small:
        run.check("solo overhead <= 1 %", ratio <= OVERHEAD_MAX, ratio)
    return {"step_s": without_s, "step_with_adaptor_s": with_s, "overhead_ratio": ratio, "rounds": found}


def _steps_seen(path: Path) -> int:
    from colane.adaptor import wire  # noqa: PLC0415 - only here

    seen = wire.read(path)
    return 0 if seen is None else seen.steps


def _ask(run: Run, words: Sequence[str], env: Mapping[str, str], **more: str) -> dict[str, Any]:
    """Run a job that prints what it found."""
    visible = {} if run.on_cpu else {"CUDA_VISIBLE_DEVICES": run.gpus[0].uuid}
    command = [sys.executable, str(JOB), *words]
    whole = {**env, **visible, **more}
    done = subprocess.run(command, env=whole, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FailureError(f"{' '.join(words)} failed: {done.stderr.strip().splitlines()[-1:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def flush(run: Run) -> Object:
    """What it costs to give cached memory back at a yield, with both of PyTorch's ways to allocate."""
    size_gib = SMALL_CACHE_GIB if run.small else min(CACHE_GIB, run.gpus[0].memory_bytes / 2**30 / 3)
    width = SMALL_CACHE_WIDTH if run.small else CACHE_WIDTH
    found = {}
    for allocator in ALLOCATORS:
        seen = _ask(run, ("cache", str(size_gib), str(width)), job_env(), PYTORCH_CUDA_ALLOC_CONF=allocator)
        cost_s = max(one["flush_s"] + one["next_s"] - seen["step_s"] for one in seen["flushes"])
        least = min(one["returned_bytes"] for one in seen["flushes"])
        name = allocator or "default"
        part = least / max(seen["ephemeral_bytes"], 1)
        if not run.small:
            run.check(f"{name}: a flush and the slower step after it cost <= 100 ms", cost_s <= FLUSH_MAX_S, cost_s)
            run.check(f"{name}: 90 % of E come back", part >= RETURNED_MIN, part)
        found[name] = {**seen, "cost_s": cost_s, "returned_ratio": part}
    return found


def resident(run: Run) -> Object:
    """Models that wait for requests in one lane, against one alone: what the others add to an answer's time."""
    count, serve_s = (SMALL_RESIDENTS, SMALL_SERVE_S) if run.small else (RESIDENTS, SERVE_S)
    alone, together = (_latencies_s(run, jobs, serve_s) for jobs in (1, count))
    added = {name: at(together, part) - at(alone, part) for name, part in (("p50", 0.5), ("p99", 0.99))}
    if not run.small:
        run.check(f"{count} models add < 5 ms, p50", added["p50"] < ADDED_MAX_S, added["p50"])
        run.check(f"{count} models add < 5 ms, p99", added["p99"] < ADDED_MAX_S, added["p99"])
    return {
        "models": count,
        "requests": len(together),
        "alone_p50_s": at(alone, 0.5),
        "alone_p99_s": at(alone, 0.99),
        **{f"added_{name}_s": value for name, value in added.items()},
    }


def _latencies_s(run: Run, count: int, serve_s: float) -> list[float]:
    """Times from a request to its answer, shortest first."""

    def command(notes: Path) -> Sequence[str]:
        model = _models(run)[int(notes.name) % len(_models(run))]
        return (sys.executable, str(JOB), "serve", str(notes), model, "1", str(_width(run)), str(REQUESTS_PER_S))

    with lane_of("fair", 0.0, command, run.devices) as lane:
        lane.start(count)
        for job in lane.jobs:
            lane.fake.change(job, kind="inference")
        steps = lane.watch(serve_s)
        lane.end()
    if not steps:
        raise FailureError("no request was answered")
    return sorted(step.ended_s - step.began_s for step in steps)


def sets(run: Run, size: int, batch: int) -> Object:
    """Every set of so many models: alone, in turns in one lane, and side by side."""
    known, batch = run.kept(), SMALL_BATCH if run.small else batch
    alone: dict[str, float] = known.get("alone_step_s", {})
    found: dict[str, Object] = known.get("sets", {})
    for model in _models(run):
        if model not in alone and run.left_s > SET_MAX_S * (not run.small):
            alone[model] = _step_s(_watch(run, (model,), batch, 1))[1]
    wanted = [names for names in combinations(_models(run), size) if "+".join(names) not in found]
    for names in wanted:
        if run.left_s > SET_MAX_S * (not run.small) and set(names) <= alone.keys():
            found["+".join(names)] = _one_set(run, names, batch, [alone[name] for name in names])
            run.keep({"batch": batch, "quantum_s": QUANTUM_S, "alone_step_s": alone, "sets": found})
    is_whole = len(alone) == len(_models(run)) and all("+".join(names) in found for names in wanted)
    status = "complete" if is_whole else "incomplete"
    return {"status": status, "batch": batch, "quantum_s": QUANTUM_S, "alone_step_s": alone, "sets": found}


def _one_set(run: Run, names: Sequence[str], batch: int, alone_s: Sequence[float]) -> Object:
    turns = _watch(run, names, batch, 1)
    side_by_side = _watch(run, names, batch, len(names))
    name = "+".join(names)
    run.check(f"{name}: no two run at once in turns", overlaps(turns) == 0, overlaps(turns))
    found = {"turns": _compare(turns, alone_s), "time_slicing": _compare(side_by_side, alone_s)}
    if not run.small:
        worst = max(found["turns"]["slowdowns"])
        run.check(f"{name}: turns cost <= 10 %", worst <= len(names) * (1 + TURNS_LOSS_MAX), worst)
    return found


def _compare(steps: Sequence[Step], alone_s: Sequence[float]) -> Object:
    """Step times against those alone; delta is paper A's, equation 4.1."""
    together_s = list(_step_s(steps).values())
    if len(together_s) != len(alone_s):
        raise FailureError(f"{len(together_s)} of {len(alone_s)} jobs have stepped")
    slowdowns = [now_s / before_s for now_s, before_s in zip(together_s, alone_s, strict=True)]
    return {"step_s": together_s, "slowdowns": slowdowns, "delta": sum(alone_s) / max(together_s)}


def _step_s(steps: Sequence[Step]) -> dict[int, float]:
    """Time each job takes for a step, waiting included."""
    by_job: dict[int, list[Step]] = {}
    for step in steps:
        by_job.setdefault(step.job, []).append(step)
    spans = {job: (mine[-1].ended_s - mine[0].ended_s, len(mine) - 1) for job, mine in sorted(by_job.items())}
    return {job: span_s / count for job, (span_s, count) in spans.items() if count}


def _watch(run: Run, names: Sequence[str], batch: int, lanes: int) -> list[Step]:
    def command(notes: Path) -> Sequence[str]:
        model = names[int(notes.name) - 1]
        return (sys.executable, str(JOB), "train", str(notes), model, str(batch), str(_width(run)))

    with lane_of("fair", 0.0 if run.small else QUANTUM_S, command, run.devices) as lane:
        lane.start(len(names), lanes=lanes)
        steps = lane.watch(SMALL_WATCH_S * len(names) if run.small else WATCH_S)
        lane.end()
    return steps


def _models(run: Run) -> Sequence[str]:
    return SMALL_MODELS if run.small else MODELS


def _width(run: Run) -> float:
    return SMALL_WIDTH if run.small else 1.0


def summary(results: Mapping[str, Object], _out: Path) -> Object:
    """The table of all sets: slowdown of each job and delta, in turns and under time slicing."""
    rows = [
        {"batch": part["batch"], "set": name, "way": way, "delta": one["delta"], "slowdowns": one["slowdowns"]}
        for part in results.values()
        for name, ways in part.get("sets", {}).items()
        for way, one in ways.items()
    ]
    return {"sets": rows}


PARTS: Final[Mapping[str, PartFunction]] = {
    "overhead": overhead,
    "flush": flush,
    "resident": resident,
    **{f"pairs-{batch}": partial(sets, size=2, batch=batch) for batch in BATCHES},
    **{f"triples-{batch}": partial(sets, size=3, batch=batch) for batch in BATCHES},
}
SCRIPT: Final = Script(
    name="lanes",
    about="What lanes and turns give and cost on a GPU.",
    parts=PARTS,
    tiny_parts=("overhead", "resident", f"pairs-{BATCHES[0]}"),
    summary=summary,
)

if __name__ == "__main__":
    sys.exit(main(SCRIPT))
