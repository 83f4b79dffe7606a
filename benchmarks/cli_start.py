"""How long the command line takes to answer: `colane --help`, and `colane ps` against a running scheduler.

    python benchmarks/cli_start.py [--runs 15] [--limit-ms 300]

Wall time is what a user waits; CPU time is what other load on the machine does not stretch. Exit code 1 when a median
is over the limit. `python -X importtime -m colane.cli ps` shows which import takes how long.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from colane.engines.local import LocalConfig, LocalEngine

COMMANDS = (["--help"], ["--version"], ["ps"], ["nodes"])


def once(words: Sequence[str], env: dict[str, str]) -> tuple[float, float]:
    """Return wall and CPU milliseconds of one command."""
    before, start_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "colane.cli", *words], env=env, stdout=subprocess.DEVNULL, check=True)
    wall_s, after = time.perf_counter() - start_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall_s * 1000, cpu_s * 1000


def measure(url: str, token: str, runs: int) -> dict[str, tuple[float, float]]:
    """Return the median wall and CPU milliseconds of each command, the first run of each left out."""
    # As installed: a checkout under PYTHONDONTWRITEBYTECODE would compile our modules at every start.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env |= {"COLANE_URL": url, "COLANE_TOKEN": token}
    medians = {}
    for words in COMMANDS:
        once(words, env)
        walls, cpus = zip(*(once(words, env) for _ in range(runs)), strict=True)
        medians[" ".join(["colane", *words])] = (statistics.median(walls), statistics.median(cpus))
    return medians


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--limit-ms", type=float, default=300.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = LocalConfig.of(Path(folder), "bench", devices="cpu:1")
        with LocalEngine(config) as stack:
            medians = measure(stack.url, stack.token or "", given.runs)
    print("| command | wall, median (ms) | CPU, median (ms) |\n|---|---|---|")
    for name, (wall_ms, cpu_ms) in medians.items():
        print(f"| `{name}` | {wall_ms:.0f} | {cpu_ms:.0f} |")
    return int(any(wall_ms > given.limit_ms for wall_ms, _ in medians.values()))


if __name__ == "__main__":
    sys.exit(main())
