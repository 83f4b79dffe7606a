"""From a submission to the start of its process on an idle device, through the real scheduler and agent.

    python benchmarks/submit_to_start.py

Paper A's scheduler and agent poll once a second, so a job waits half a second on average before anything looks at it;
the ratio is to that. Prints median and worst of many submissions, one at a time, and exits with 1 when the median
is over 100 ms.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from colane.client.client import Client
from colane.engines.local import LocalConfig, LocalEngine

BOUND_S = 0.1
POLLING_S = 0.5
"""Mean wait for a scheduler that looks once a second."""


def one(client: Client) -> float:
    """Submit one job and return the seconds until its process started."""
    asked_s = time.time()
    job = client.submit({"command": ["true"], "workdir": "/", "family": "true"})
    for _ in client.follow_log(job):
        pass  # ends with the job, and asks nothing meanwhile
    started_s = client.job(job)["first_start_s"]
    if started_s is None:
        raise SystemExit(f"job {job} has not started")
    return started_s - asked_s


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description="Seconds from a submission to its process's start.")
    parser.add_argument("--jobs", type=int, default=50)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = LocalConfig.of(Path(folder), "here", policy="fifo", devices="cpu:1:1GB")
        with LocalEngine(config) as stack, stack.client() as client:
            one(client)
            waits_s = [one(client) for _ in range(args.jobs)]
    print(
        f"submission to process start over {len(waits_s)} jobs: median {median(waits_s) * 1e3:.0f} ms, "
        f"longest {max(waits_s) * 1e3:.0f} ms; bound {BOUND_S * 1e3:.0f} ms; "
        f"{POLLING_S / median(waits_s):.0f} times quicker than looking once a second"
    )
    return int(median(waits_s) > BOUND_S)


if __name__ == "__main__":
    sys.exit(main())
