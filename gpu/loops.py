"""Whether steps of scripts that know nothing of Colane are counted and timed right on a GPU, alone and in turns.

    python gpu/loops.py [--part PART] [--minutes 8] [--out DIR] [--small]

`shapes` runs training loops of many shapes in one lane, a step a turn: what they compute are kernels of a known time.
`captures` runs those that capture graphs with the adaptor and without, `beside` one that computes in the other's turn,
and `stays` compares what is booked of a job with graphs to what the GPU holds while it waits. `trainers` runs trainers
of libraries alone and then in one lane. `parked` has an idle job leave the GPU and come back.
Without a GPU it says so and ends with 0.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # so that the script can be run by its path as well
    sys.path.insert(0, str(ROOT))

from benchmarks.handoff import Lane, lane_of  # noqa: E402
from gpu.harness import Object, Run, Script, job_env, main  # noqa: E402
from tests.agent.waiting import until  # noqa: E402

from colane.cli.errors import FailureError  # noqa: E402

LOOPS: Final = ROOT / "tests" / "emulated" / "loops.py"
IDLER: Final = ROOT / "tests" / "emulated" / "idler.py"
TRAINERS: Final = ROOT / "gpu" / "trainers_job.py"

SHAPES: Final = (
    "plain", "reads_each_loss", "reads_tenth_loss", "accumulates", "gan", "mixed_precision", "lbfgs", "graph",
    "several_streams", "side_thread", "copies_ahead", "compiled", "thread_beside", "thread_before", "pool_beside",
)  # fmt: skip
CAPTURES: Final = (
    "graph", "graph_inference", "graph_sizes", "graph_pieces", "graph_by_hand", "graphed", "graphed_frozen",
    "captures_beside",
)  # fmt: skip
SMALL_CAPTURES: Final = CAPTURES[:2]
LEAKS: Final = "computes in the turns of others"
STAYS_SLACK_BYTES: Final = 96 * 2**20
SMALL_SHAPES: Final = ("plain", "several_streams", "graph")
STEPS: Final = 30
KERNEL_MS: Final = 4
"""Of a GPU that counts a billion cycles a second; twice as fast on most."""
FIRST: Final = 5
"""In the first steps optimizers of one iteration are told from several: some share an event."""
KERNELS_A_STEP: Final = {"graph": 8}
"""A replay of a graph counts as one kernel on an emulated GPU."""
OFF_MAX: Final = 0.02
"""A step has some work of its own beside its kernels: well below this."""

ROLES: Final = {"amp": None, "compiled": None, "transformers": "transformers", "lightning": "lightning"}
"""Trainers, and what they need."""
TRAINER_STEPS, SMALL_TRAINER_STEPS = 60, 12
IN_TURNS_OFF_MAX: Final = 0.1
"""Real steps vary from one run to the next."""
SETTLE_S, SMALL_SETTLE_S = 12.0, 2.0
"""In which jobs that are started at once import and set up what they need: an agent says that a job is paused as soon
as that is wanted."""
WAIT_S: Final = 90.0
STILL_STEPS, MORE_STEPS = 20, 3

CALIBRATE: Final = """
import sys, time, torch
torch.zeros(1, device="cuda")
for _ in range(3):
    torch.cuda.synchronize()
    began_s = time.perf_counter()
    for _ in range(100):
        torch.cuda._sleep(int(sys.argv[1]))
    torch.cuda.synchronize()
    took_s = (time.perf_counter() - began_s) / 100
print(took_s)
"""

GRAPHED: Final = """
import sys, torch
width, rows = map(int, sys.argv[1:])
net = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(4))).to("cuda")
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
x, graph = torch.randn(rows, width).to("cuda"), torch.cuda.CUDAGraph()
def step():
    optimizer.zero_grad(set_to_none=True)
    net(x).square().mean().backward()
    optimizer.step()
for _ in range(3):
    step()
torch.cuda.synchronize()
with torch.no_grad(), torch.cuda.graph(graph):
    net(x)
while True:
    step()
    graph.replay()
"""
"""Trains, and keeps a graph whose pool its allocator cannot give back."""

QUIET: Final = ("/bin/sh", "-c", 'exec "$@" > "$0" 2>&1')
"""Runs the rest of its words, with its output in the file named first."""


def shapes(run: Run) -> Object:
    """Loops of many shapes in one lane, a step a turn."""
    kernel_s = _kernel_s(run)
    names = SMALL_SHAPES if run.small else SHAPES
    words = {name: (str(LOOPS), name, str(STEPS), str(_kernel_ms(run))) for name in names}
    found = {}
    for name, (end, said) in _in_turns(run, words).items():
        lines = said.strip().splitlines() or [""]
        seen = {"exit_code": end["exit_code"], "steps": end["progress"]["steps"], "said": lines[-1]}
        if end["exit_code"] == 0:
            each = KERNELS_A_STEP.get(name, int(lines[-1].split()[-1]) / (STEPS - 1))
            told = end["step_durations_s"][FIRST:]
            seen |= {"truth_s": each * kernel_s, "told_s": sum(told) / len(told) if told else None}
        found[name] = seen
        run.keep({"kernel_s": kernel_s, "shapes": found})
    for name, seen in found.items():
        run.check(f"{name}: it ran to its end", seen["exit_code"] == 0, seen)
        run.check(f"{name}: every step is counted", seen["steps"] == STEPS, seen["steps"])
        if not run.small and seen.get("told_s"):
            off = seen["told_s"] / seen["truth_s"] - 1
            run.check(f"{name}: in turns a step takes the time of the device, within 2 %", abs(off) <= OFF_MAX, off)
    return {"kernel_s": kernel_s, "shapes": found}


def captures(run: Run) -> Object:
    """Loops that capture graphs: with the adaptor they end as without, and come to the same weights."""
    found = {}
    for name in SMALL_CAPTURES if run.small else CAPTURES:
        words = (str(LOOPS), name, str(STEPS), str(_kernel_ms(run)))
        env = {**job_env(), "CUDA_VISIBLE_DEVICES": run.gpus[0].uuid}
        off = subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True, check=False)
        end, said = _in_turns(run, {name: words})[name]
        found[name] = {"off": off.returncode, "on": end["exit_code"], "said": said[-500:]}
        run.keep({"captures": found})
        run.check(f"{name}: it runs without the adaptor", off.returncode == 0, off.stderr[-500:])
        is_same = end["exit_code"] == off.returncode and off.stdout.strip() in said
        run.check(f"{name}: with the adaptor it ends as without", is_same, said[-500:])
    return {"captures": found}


def beside(run: Run) -> Object:
    """A job with a thread that asks for no turn is seen by the driver's samples, and the one beside it is not."""
    if run.memory_use.by_pid is None:
        return {"status": "incomplete", "because": "the driver counts processes in another namespace than this one"}
    with _lane(run) as lane:
        lane.fake.turns = {"rule": "fair", "quantum_s": 0.1}
        for job, name in ((1, "kernels_beside"), (2, "plain")):
            _want(lane, job, (str(LOOPS), name, "10000000", str(_kernel_ms(run))))
        began_s = time.monotonic()
        _wait(lambda: _progress(lane, 1).get("turn") == "ungated", "it is found", run.left_s)
        found = {"found_after_s": time.monotonic() - began_s, "messages": lane.fake.reports[-1]["messages"]}
        run.check("it is said", lane.fake.is_told(f"job 1 {LEAKS}"), found)
        run.check("the other is not blamed", not lane.fake.is_told(f"job 2 {LEAKS}"), found)
        for job in (1, 2):
            lane.fake.end(job)
        _wait(lambda: len(lane.fake.ends) == 2, "both are ended")
    return found


def stays(run: Run) -> Object:
    """What is booked of a job with a graph while it runs alone is what its GPU holds of it once it waits."""
    before_bytes = run.used_bytes
    with _lane(run) as lane:
        sizes = ("64", "64") if run.small else ("4096", "65536")
        _want(lane, 1, ("-c", GRAPHED, *sizes), flush=True)
        _wait(lambda: _progress(lane, 1).get("steps", 0) > 150, "it steps", run.left_s)
        told = dict(_progress(lane, 1))
        lane.fake.change(1, paused=True)
        _wait(lambda: _progress(lane, 1).get("turn") == "paused", "it waits")
        time.sleep(SMALL_SETTLE_S)
        held_bytes = run.used_bytes - before_bytes
        lane.fake.end(1)
        _wait(lambda: (1, 1) in lane.fake.ends, "it is ended")
    found = {"told_bytes": told["persistent_bytes"], "peak_bytes": told["peak_bytes"], "held_bytes": held_bytes}
    off_bytes = found["told_bytes"] - held_bytes
    run.check("what is booked is what is held", abs(off_bytes) <= STAYS_SLACK_BYTES, found)
    return found


def trainers(run: Run) -> Object:
    """Trainers of libraries, one by one and then in turns."""
    steps = SMALL_TRAINER_STEPS if run.small else TRAINER_STEPS
    size = "small" if run.small else "large"
    names = [name for name, needs in ROLES.items() if needs is None or importlib.util.find_spec(needs)]
    run.notes += [f"{needs} is not installed" for name, needs in ROLES.items() if needs and name not in names]
    words = {name: (str(TRAINERS), name, str(steps), size) for name in names}
    alone = {name: _in_turns(run, {name: words[name]})[name] for name in names}
    run.keep({"alone": {name: _told(end, said) for name, (end, said) in alone.items()}})
    together = _in_turns(run, words)
    found = {name: {"alone": _told(*alone[name]), "in_turns": _told(*together[name])} for name in names}
    for name, both in found.items():
        for how, seen in both.items():
            run.check(f"{name}, {how}: it ran to its end", seen["exit_code"] == 0, seen["said"])
            run.check(f"{name}, {how}: every step is counted", seen["steps"] == steps, seen["steps"])
        if not run.small and both["alone"]["told_s"] and both["in_turns"]["told_s"]:
            off = both["in_turns"]["told_s"] / both["alone"]["told_s"] - 1
            run.check(f"{name}: in turns a step is told to take what it takes alone", abs(off) <= IN_TURNS_OFF_MAX, off)
    return {"steps": steps, "trainers": found}


def _told(end: Mapping[str, Any], said: str) -> Object:
    """What the agent says of a trainer, and it of itself; the median of the last half leaves its compiler out."""
    lines = said.strip().splitlines() or [""]
    told = sorted(end["step_durations_s"][len(end["step_durations_s"]) // 2 :])
    return {
        "exit_code": end["exit_code"],
        "steps": end["progress"]["steps"],
        "told_s": told[len(told) // 2] if told else None,
        "said": lines[-3:],
    }


def parked(run: Run) -> Object:
    """A job that stands still leaves the GPU to another, and comes back once it would go on."""
    found: Object = {}
    with _lane(run) as lane, tempfile.TemporaryDirectory() as folder:
        pipe = Path(folder) / "lines"
        os.mkfifo(pipe)
        with os.fdopen(os.open(pipe, os.O_RDWR), "w", buffering=1) as lines:
            _want(lane, 1, (str(IDLER), str(pipe), "reads"))
            _wait(lambda: _progress(lane, 1).get("steps") == STILL_STEPS, "it has trained")
            _wait(lambda: (lane.fake.seen(1) or {}).get("use", {}).get("busy_ratio") == 0, "its GPU is idle")
            held_bytes = run.used_bytes
            began_s = time.monotonic()
            lane.fake.change(1, paused=True, to_host=True, at_rest=True)
            _wait(lambda: _progress(lane, 1).get("on_host_bytes"), "its memory is on the host")
            found |= {
                "held_bytes": held_bytes,
                "left_after_s": time.monotonic() - began_s,
                "left_bytes": run.used_bytes,
            }
            run.check("the GPU is free", found["left_bytes"] < held_bytes / 2, found)
            _want(lane, 2, (str(LOOPS), "plain", str(STEPS), str(_kernel_ms(run))))
            end = _wait(lambda: lane.fake.ends.get((2, 1)), "another runs there")
            run.check("another ran there to its end", (end["exit_code"], end["progress"]["steps"]) == (0, STEPS), end)
            run.check("meanwhile it did not ask", _progress(lane, 1).get("rest") == "possible", _progress(lane, 1))
            began_s = time.monotonic()
            lines.write(f"{MORE_STEPS}\n")
            _wait(lambda: _progress(lane, 1).get("rest") == "asks", "it would go on")
            found["asked_after_s"] = time.monotonic() - began_s
            lane.fake.change(1, paused=False, to_host=False, at_rest=False)
            _wait(lambda: _progress(lane, 1).get("steps") == STILL_STEPS + MORE_STEPS, "it goes on")
            found["back_after_s"] = time.monotonic() - began_s
            lane.fake.end(1)
            _wait(lambda: (1, 1) in lane.fake.ends, "it is ended")
    return found


# -- what all parts do


def _kernel_ms(run: Run) -> float:
    return 0.5 if run.small else KERNEL_MS


def _kernel_s(run: Run) -> float:
    """What one kernel of the loops takes here."""
    cycles = str(int(_kernel_ms(run) * 1e6))
    env = {**job_env(), "CUDA_VISIBLE_DEVICES": run.gpus[0].uuid}
    done = subprocess.run(
        [sys.executable, "-c", CALIBRATE, cycles], env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise FailureError(f"a kernel could not be timed: {done.stderr.strip().splitlines()[-1:]}")
    return float(done.stdout)


@contextmanager
def _lane(run: Run) -> Iterator[Lane]:
    with lane_of("fair", 0.0, lambda _: (), run.devices) as lane:
        yield lane


def _want(lane: Lane, job: int, words: Sequence[str], **turn: object) -> Path:
    """Place a job whose output goes into a file."""
    notes = lane.folder / f"said-{job}"
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    lane.fake.want(job, *QUIET, str(notes), sys.executable, *words, env=env, turn=turn)
    return notes


def _in_turns(run: Run, words: Mapping[str, Sequence[str]]) -> dict[str, tuple[Mapping[str, Any], str]]:
    """Run jobs in one lane, which all begin once each is set up: the end of each, and what it said."""
    with _lane(run) as lane:
        jobs = dict(enumerate(words, start=1))
        paths = {job: _want(lane, job, words[name], paused=True) for job, name in jobs.items()}
        if len(jobs) > 1:
            _wait(lambda: all(_progress(lane, job).get("turn") == "paused" for job in jobs), "each is paused")
            time.sleep(SMALL_SETTLE_S if run.small else SETTLE_S)
        lane.fake.resume(*jobs)
        bound_s = max(run.left_s - 10.0, 1.0)
        _wait(lambda: all((job, 1) in lane.fake.ends for job in jobs), "all end", bound_s)
        return {name: (lane.fake.ends[job, 1], paths[job].read_text(errors="replace")) for job, name in jobs.items()}


def _progress(lane: Lane, job: int) -> Mapping[str, Any]:
    return (lane.fake.launched(job) or {}).get("progress") or {}


def _wait(look: Any, what: str, deadline_s: float = WAIT_S) -> Any:  # noqa: ANN401 - what is looked for
    try:
        return until(look, deadline_s=deadline_s)
    except AssertionError as error:
        raise FailureError(f"waited in vain: {what}") from error


SCRIPT: Final = Script(
    name="loops",
    about="Whether steps of scripts that know nothing of Colane are counted and timed right on a GPU.",
    parts={
        "captures": captures,
        "stays": stays,
        "beside": beside,
        "shapes": shapes,
        "trainers": trainers,
        "parked": parked,
    },
    tiny_parts=(),
)

if __name__ == "__main__":
    sys.exit(main(SCRIPT))
