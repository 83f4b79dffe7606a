"""What an agent costs: CPU time with 8 running jobs, and the time from a nudge to the start of a process.

    python benchmarks/agent_idle.py [--seconds 20] [--starts 30]

A real agent process with its default heartbeat, real jobs, and a scheduler's double served from this process.
Bounds: below 1 % of a core with 8 running jobs; a median of less than 50 ms from `POST /run` to the process.
Exits with 1 when a bound is broken.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.agent.agents import served  # noqa: E402
from tests.agent.fake_scheduler import FakeScheduler  # noqa: E402
from tests.agent.waiting import until  # noqa: E402

JOBS = 8
CPU_RATIO_MAX = 0.01
START_MEDIAN_MAX_S = 0.05

AGENT = """
import sys
from pathlib import Path
from colane.agent.config import AgentConfig
from colane.agent.main import run_agent
run_agent(AgentConfig(name="node-1", scheduler_url=sys.argv[1], state_dir=Path(sys.argv[2]), stop_jobs=True))
"""


def cpu_s(pid: int) -> float:
    """CPU time of one process so far, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_idle(fake: FakeScheduler, pid: int, seconds: float) -> float:
    """Ratio of a core that the agent takes with all jobs running."""
    for job in range(1, JOBS + 1):
        fake.want(job, "sleep", "100000", env={"PATH": os.environ["PATH"]})
    until(lambda: all(fake.launched(job) for job in range(1, JOBS + 1)))
    begun_s, begun_cpu_s = time.monotonic(), cpu_s(pid)
    threading.Event().wait(seconds)
    return (cpu_s(pid) - begun_cpu_s) / (time.monotonic() - begun_s)


def measure_start(fake: FakeScheduler, address: str, job: int, client: httpx.Client) -> float:
    """Seconds from the nudge to the fork of the job's process."""
    fake.want(job, "true", env={"PATH": os.environ["PATH"]})
    nudged_s = time.time()
    client.post(f"{address}/run", json={}).raise_for_status()
    end = until(lambda: fake.ends.get((job, 1)))
    started_s: float = end["start_s"]
    return started_s - nudged_s


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long the idle agent is watched")
    parser.add_argument("--starts", type=int, default=30, help="how many starts are timed")
    arguments = parser.parse_args()
    fake = FakeScheduler()
    with tempfile.TemporaryDirectory() as state, served(fake) as url:
        agent = subprocess.Popen([sys.executable, "-c", AGENT, url, state])
        try:
            until(lambda: fake.reports)
            cpu_ratio = measure_idle(fake, agent.pid, arguments.seconds)
            node = fake.nodes["node-1"]
            known, address = {"Authorization": f"Bearer {node['secret']}"}, node["address"]
            with httpx.Client(trust_env=False, headers=known) as client:
                jobs = range(100, 100 + arguments.starts)
                starts_s = sorted(measure_start(fake, address, job, client) for job in jobs)
            rss_bytes = int(Path(f"/proc/{agent.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
        finally:
            agent.terminate()
            agent.wait()
    median_s = statistics.median(starts_s)
    print(f"agent with {JOBS} running jobs: {cpu_ratio:.2%} of a core, {rss_bytes / 1e6:.0f} MB")
    print(f"nudge to process start: median {median_s * 1e3:.1f} ms, longest {starts_s[-1] * 1e3:.1f} ms")
    return int(cpu_ratio > CPU_RATIO_MAX or median_s > START_MEDIAN_MAX_S)


if __name__ == "__main__":
    sys.exit(main())
