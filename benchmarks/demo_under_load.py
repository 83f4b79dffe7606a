"""What `colane demo --paper A` gives on a machine that others use: co-location must lose next to nothing there.

    python benchmarks/demo_under_load.py [--load 3] [--rounds 5] [--iters 300] [--behind-max 5] [--out DIR]

Starts so many processes that do nothing but burn a core, runs the demo's batch under FIFO and co-location beside them,
and prints both makespans of each round, what they differ by, and the load average. `--load 0` is the quiet machine.
Exit code 1 when co-location was more than so many percent behind FIFO in any round.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BURNER = "while True: pass"
HEAD = "| round | FIFO (s) | co-location (s) | makespan | mean run span | load average |\n|---|---|---|---|---|---|"


def main() -> int:
    """Run the rounds, print the table and the verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", type=int, default=3, help="processes that burn a core each")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iters", type=int, default=300, help="steps of each job")
    parser.add_argument("--behind-max", type=float, default=5.0, help="percent that co-location may be behind")
    parser.add_argument("--out", type=Path, help="keeps the reports, one folder a round")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, burning(given.load):
        out = given.out or Path(folder)
        print(HEAD, flush=True)
        changes = [shown(number, run(out / f"round-{number}", given.iters)) for number in range(1, given.rounds + 1)]
    worst, mean = max(changes), sum(changes) / len(changes)
    verdict = "kept" if worst <= given.behind_max else "NOT kept"
    print(f"\nmean {mean:+.1f} %, worst {worst:+.1f} %: the bound of {given.behind_max:+.0f} % is {verdict}")
    return int(worst > given.behind_max)


@contextmanager
def burning(count: int) -> Iterator[None]:
    """So many cores' worth of work that is not Colane's, as long as it is entered."""
    burners = [subprocess.Popen([sys.executable, "-c", BURNER]) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def run(out: Path, iters: int) -> Mapping[str, Any]:
    """Run the demo's batch once, and return its summary."""
    words = [sys.executable, "-m", "colane.cli", "demo", "--paper", "A", "--json", "--iters", str(iters)]
    done = subprocess.run([*words, "--out", str(out)], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the demo failed with exit code {done.returncode}")
    summary: Mapping[str, Any] = json.loads(done.stdout)
    return summary


def shown(number: int, summary: Mapping[str, Any]) -> float:
    """Print a row, and return by how many percent co-location's makespan differs from FIFO's."""
    fifo, together = summary["runs"]
    change = 100 * (together["makespan_s"] / fifo["makespan_s"] - 1)
    longer = 100 * (together["run_span_s"]["mean"] / fifo["run_span_s"]["mean"] - 1)
    times = f"{fifo['makespan_s']:.1f} | {together['makespan_s']:.1f} | {change:+.1f} %"
    print(f"| {number} | {times} | {longer:+.0f} % | {os.getloadavg()[0]:.1f} |", flush=True)
    return float(change)


if __name__ == "__main__":
    sys.exit(main())
