"""Colane's simulator beside Gavel's own (Narayanan et al., OSDI 2020): CPU seconds and mean JCT in the same run.

Gavel's 1000-job traces on 12 V100, 12 P100 and 12 K80 in servers of four, with Gavel's measured throughputs. Gavel is
run from a checkout by a Python of yours that has `numpy scipy cvxpy ecos psutil`:

    python benchmarks/gavel.py --data DIR --gavel CHECKOUT --gavel-python PYTHON [--trace NAME ...]

Without `--gavel` only Colane's figures are printed. Each simulation is a process of its own on one thread. The ratio
compares the CPU seconds of the simulations alone, without imports and reading, with Gavel as it comes: rounds of 360 s,
1920 s between allocations, and a log, here thrown away. JCTs are compared where the two mean the same: when Gavel
allocates at every round, of 60 s (README.md here says what else differs).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colane.core.policy import Policy
from colane.lab.simulate.beliefs import Belief, make_beliefs
from colane.lab.simulate.ledger import STATES
from colane.lab.simulate.request import Request, load
from colane.lab.simulate.run import Inputs, simulate
from colane.model.job import JobState
from colane.scheduling.registry import create, preset

TRACES = ("gavel-1000s", "gavel-1000")
GPUS, GPUS_PER_SERVER = "12:12:12", "4:4:4"
RATIO_BOUND, JCT_BOUND = 50.0, 0.02
AGREEING_ROUND_S = 60
AGREEING = ("--quiet", "--reallocate-s", "0", "--time_per_iteration", str(AGREEING_ROUND_S))


@dataclass(frozen=True, slots=True)
class Pair:
    """A policy here and its nearest there.

    Attributes:
        ours: Takes the fastest GPU type that has room first, as Gavel's `fifo` does.
        theirs: Name of Gavel's.
        belief: What ours knows; Gavel's are told all speeds, and nothing of memory.
        is_same: Whether the decisions are meant to be the same, so that the bound on JCTs holds.
    """

    ours: Policy
    theirs: str
    belief: Belief
    is_same: bool


PAIRS = {
    "fifo": Pair(preset("fifo", gpu_types=("v100", "p100", "k80")), "fifo", Belief.NONE, is_same=True),
    "max-min": Pair(preset("max-min"), "max_min_fairness_perf", Belief.ORACLE, is_same=False),
    "max-min-lp": Pair(create("max-min:solver=lp"), "max_min_fairness_perf", Belief.ORACLE, is_same=False),
    "finish-time-fair": Pair(preset("finish-time-fair"), "finish_time_fairness_perf", Belief.ORACLE, is_same=False),
}


def main() -> int:
    """Run all pairs on all traces; 1 when a bound is missed."""
    options = _options()
    if options.alone:
        print(json.dumps(run_ours(options.data, options.trace[0], options.alone)))
        return 0
    missed = [_compare(options, trace, name) for trace in options.trace or TRACES for name in PAIRS]
    return int(any(missed))


def run_ours(data: Path, trace: str, policy: str) -> dict[str, Any]:
    """Simulate here, in this process."""
    path, belief = data / f"traces/{trace}.trace.gz", PAIRS[policy].belief
    loaded = load(Request(cluster="gavel-36", trace=str(path), tables=data, belief=belief, preemptible=True), seed=0)
    cluster, workload, world = loaded.cluster, loaded.workload, loaded.world
    beliefs = make_beliefs(belief, world, workload.jobs, cluster, noise=0.0, seed=0)
    given = Inputs(cluster=cluster, workload=workload, world=world, policy=PAIRS[policy].ours, beliefs=beliefs)
    start_s = time.process_time()
    rows = simulate(given).ledger.rows
    spent_s = time.process_time() - start_s
    ended = zip(rows.state, rows.submit_s, rows.end_s, strict=True)
    jct_s = [end - submit for state, submit, end in ended if STATES[state] is JobState.SUCCEEDED]
    return {"simulate_cpu_s": spent_s, "process_cpu_s": time.process_time(), "jct_s": jct_s}


def run_theirs(options: argparse.Namespace, trace: str, policy: str, *words: str) -> dict[str, Any]:
    """Simulate with Gavel."""
    with tempfile.NamedTemporaryFile(suffix=".trace") as unpacked:
        unpacked.write(gzip.decompress((options.data / f"traces/{trace}.trace.gz").read_bytes()))
        unpacked.flush()
        table = (options.gavel / "scheduler/simulation_throughputs.json").resolve()
        return _process(
            options.gavel_python, Path(__file__).with_name("gavel_peer.py"), options.gavel, *words,
            "-t", unpacked.name, "-p", policy, "--seed", "0", "-c", GPUS, "--num_gpus_per_server", GPUS_PER_SERVER,
            "--throughputs_file", table,
        )  # fmt: skip


def _process(*words: object) -> dict[str, Any]:
    one_thread = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryFile() as log:
        done = subprocess.run(list(map(str, words)), env=one_thread, stdout=subprocess.PIPE, stderr=log, check=False)
        if done.returncode:
            log.seek(0)
            sys.exit(f"{words[0]} failed: " + log.read().decode(errors="replace")[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _compare(options: argparse.Namespace, trace: str, name: str) -> bool:
    pair = PAIRS[name]
    ours = _process(sys.executable, __file__, "--alone", name, "--trace", trace, "--data", options.data)
    print(f"{trace}, {name}", _said("Colane", ours), sep="\n", flush=True)
    if options.gavel is None:
        return False
    theirs = run_theirs(options, trace, pair.theirs)
    print(_said(f"Gavel {pair.theirs}", theirs), flush=True)
    ratio = theirs["simulate_cpu_s"] / ours["simulate_cpu_s"]
    print(f"  {ratio:.0f} times faster (bound {RATIO_BOUND:g})", flush=True)
    gpu_group = run_theirs(
        options, trace, pair.theirs, "--reallocate-s", "0", "--time_per_iteration", str(AGREEING_ROUND_S)
    )
    print(_said(f"Gavel, allocating every {AGREEING_ROUND_S} s", gpu_group), flush=True)
    apart = statistics.mean(ours["jct_s"]) / statistics.mean(gpu_group["jct_s"]) - 1
    print(f"  mean JCT {apart:+.2%}" + (f" (bound {JCT_BOUND:.0%})" if pair.is_same else ""), flush=True)
    return ratio < RATIO_BOUND or (pair.is_same and abs(apart) > JCT_BOUND)


def _said(who: str, found: dict[str, Any]) -> str:
    jct_s = found["jct_s"]
    return (
        f"  {who}: {found['simulate_cpu_s']:.2f} CPU s, with imports and reading {found['process_cpu_s']:.2f}; "
        f"mean JCT {statistics.mean(jct_s):,.0f} s of {len(jct_s):,} jobs"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("COLANE_DATA", ".")))
    parser.add_argument("--gavel", type=Path, help="Checkout of Gavel.")
    parser.add_argument("--gavel-python", default=sys.executable, help="Python that runs it.")
    parser.add_argument("--trace", action="append", choices=TRACES)
    parser.add_argument("--alone", choices=sorted(PAIRS), help="Colane only, in this process; for one trace.")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
