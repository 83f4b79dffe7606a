"""Short jobs through one scheduler and four agents: jobs a second, and what each part of the path costs a job.

Real processes on loopback, each job `true` on a device of its own; submitted in batches of 100, timed until the
scheduler has the last one's end. CPU time is that of the scheduler, of the four agents, and of all that they start
for jobs (fork servers, supervisors and the jobs themselves), the last where a group of the kernel's cpuacct can be
made (cgroup v1, as root): most of these processes have no parent that waits for them. `parallel` (GNU) and bare
`fork` and `exec` of the same command with as many at once are the bounds, and Slurm's slurmctld and slurmd a peer,
where they are installed (Debian: apt-get install parallel slurmctld slurmd slurm-client munge), in the same run;
`--no-peers` leaves Slurm and parallel out. Slurm is given 60 jobs at most, it takes some 0.2 s for each. Exits with 1
when a bound of CPU time is missed. Ended by SIGTERM or SIGINT, it ends all that it has started.

    python benchmarks/whole_path.py [--jobs 1000] [--no-peers] [--profile FILE]
"""

from __future__ import annotations

import argparse
import datetime as dt
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import slurm_peer

TOKEN = "benchmark"  # noqa: S105 - of a scheduler that lives for the measurement
AGENTS = 4
DEVICES = 2
BATCH = 100
SLURM_JOBS_MAX = 60
SCHEDULER_MAX_S, AGENT_MAX_S, JOBS_MIN_PER_S = 5e-3, 8e-3, 60.0

SCHEDULER = """
import sys
from pathlib import Path
from colane.server.config import ServerConfig
from colane.server.main import run_server

def main():
    run_server(ServerConfig(state_dir=Path(sys.argv[1]), port=0, policy="fifo-skip", token="benchmark"))
"""
AGENT = """
import sys
from pathlib import Path
from colane.agent.config import AgentConfig
from colane.agent.main import run_agent

def main():
    run_agent(AgentConfig(name=sys.argv[2], scheduler_url=sys.argv[3], state_dir=Path(sys.argv[1]),
                          token="benchmark", devices="cpu:2:1GB", ended_jobs_max=10))
"""
PLAIN = "main()"
PROFILED = """
import cProfile, time
profile = cProfile.Profile(time.process_time)
try:
    profile.runcall(main)
finally:
    profile.dump_stats(sys.argv[-1])
"""


@contextmanager
def process(
    program: str, *words: str, profile: Path | None, group: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Start a part of the path, counted for a group, and end it."""
    enter = "" if group is None else f"Path({str(group / 'cgroup.procs')!r}).write_text('0')\n"
    code = program + enter + (PLAIN if profile is None else PROFILED)
    command = [sys.executable, "-c", code, *words, *([] if profile is None else [str(profile)])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        try:
            yield started
        finally:
            slurm_peer.end(started)


def cpu_s(pids: Sequence[int]) -> float:
    """CPU time of processes so far, without their children."""
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return sum(each.user + each.system for each in times)


@contextmanager
def account() -> Iterator[Path | None]:
    """Make a group that CPU time is counted for, and take it away; None where that is not possible."""
    group = Path(f"/sys/fs/cgroup/cpuacct/colane-whole-path-{os.getpid()}")
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        yield group
    finally:
        until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def usage_s(group: Path | None) -> float:
    """CPU time of all that was ever in a group; not a number without one."""
    return float("nan") if group is None else int((group / "cpuacct.usage").read_text()) / 1e9


def jobs_through(jobs: int, folder: Path, profile: Path | None) -> tuple[float, float, float, float]:
    """Return the seconds that so many jobs took, CPU seconds of the scheduler, of all agents, of what these start."""
    with ExitStack() as stack:
        group = stack.enter_context(account())
        first = stack.enter_context(process(SCHEDULER, str(folder / "scheduler"), profile=profile))
        assert first.stdout is not None
        url = first.stdout.readline().split(" on ", 1)[1].split(" ", 1)[0].strip()
        agents = [
            stack.enter_context(
                process(
                    AGENT, str(folder / f"n{number}"), f"n{number}", url, group=group,
                    profile=None if profile is None or number else profile.with_suffix(".agent"),
                )
            )
            for number in range(AGENTS)
        ]  # fmt: skip
        http = stack.enter_context(httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60))
        until(lambda: http.get("/health").json()["nodes"] == AGENTS)
        run(http, BATCH)
        pids = [agent.pid for agent in agents]
        before, start_s = (cpu_s([first.pid]), cpu_s(pids), usage_s(group)), time.perf_counter()
        run(http, jobs)
        took_s = time.perf_counter() - start_s
        agents_s = cpu_s(pids) - before[1]
        return took_s, cpu_s([first.pid]) - before[0], agents_s, usage_s(group) - before[2] - agents_s


def run(http: httpx.Client, jobs: int) -> None:
    """Submit jobs and wait for the last one's end."""
    job = {"command": ["true"], "workdir": "/", "gpu_memory_bytes": 10**8}
    for begin in range(0, jobs, BATCH):
        http.post("/jobs", json=[job] * min(BATCH, jobs - begin)).raise_for_status()

    def is_done() -> bool:
        health = http.get("/health").json()
        return bool(health["queued"] == health["running"] == 0)

    until(is_done)


def until(holds: object) -> None:
    """Wait for what `holds` says; asked rarely, so that asking costs the scheduler little."""
    assert callable(holds)
    while not holds():
        time.sleep(0.1)


def others(jobs: int, folder: Path, *, peers: bool = True) -> Iterator[tuple[str, float, float]]:
    """Yield the bounds: their names, seconds and CPU seconds for so many jobs with as many at once."""
    at_once = AGENTS * DEVICES
    commands: dict[str, list[str]] = {"fork and exec": ["xargs", "-a", "jobs", "-n1", f"-P{at_once}", "true"]}
    if peers and shutil.which("parallel"):
        commands["GNU parallel"] = ["parallel", "--will-cite", f"-j{at_once}", "-a", "jobs", "true"]
    (folder / "jobs").write_text("".join(f"{number}\n" for number in range(jobs)))
    for name, command in commands.items():
        before, start_s = children_s(), time.perf_counter()
        subprocess.run(command, cwd=folder, check=True)
        yield name, time.perf_counter() - start_s, children_s() - before


def slurm_of(jobs: int, folder: Path) -> slurm_peer.PeerResult | None:
    """Return what Slurm takes for each job, where it is installed."""
    folder.mkdir()
    if not slurm_peer.is_there():
        return None
    given = min(jobs, SLURM_JOBS_MAX)
    return slurm_peer.PeerResult(*(whole / given for whole in slurm_peer.jobs_through(given, AGENTS * DEVICES, folder)))


def children_s() -> float:
    """CPU time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000, help="jobs through the whole path (%(default)s)")
    parser.add_argument("--no-peers", action="store_true", help="leave Slurm and GNU parallel out")
    parser.add_argument("--profile", type=Path, help="profile the scheduler into this file, one agent into FILE.agent")
    arguments = parser.parse_args()
    jobs, peers = arguments.jobs, not arguments.no_peers
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # leaves through all that ends processes
    with tempfile.TemporaryDirectory() as name:
        bounds = list(others(jobs, Path(name), peers=peers))
        slurm = slurm_of(jobs, Path(name) / "slurm") if peers else None
        took_s, scheduler_s, agents_s, started_s = jobs_through(jobs, Path(name), arguments.profile)
    load = os.getloadavg()[0]
    print(f"{dt.datetime.now(dt.UTC):%Y-%m-%d}, {os.cpu_count()} cores, load {load:.1f}, {jobs} jobs `true`\n")
    print("| path | jobs/s | CPU a job |\n| --- | --- | --- |")
    for bound, bound_s, bound_cpu_s in bounds:
        print(f"| {bound} | {jobs / bound_s:.0f} | {bound_cpu_s / jobs * 1e3:.2f} ms |")
    if slurm is not None:
        print(f"| Slurm, one slurmd | {1 / slurm.took_s:.0f} | |")
        print(f"| its slurmctld | | {slurm.slurmctld_s * 1e3:.2f} ms |")
        print(f"| its slurmd, without a stepd for each job | | {slurm.slurmd_s * 1e3:.2f} ms |")
    print(f"| colane | {jobs / took_s:.0f} (bound {JOBS_MIN_PER_S:g} on idle cores) | |")
    print(f"| its scheduler | | {scheduler_s / jobs * 1e3:.2f} ms (bound {SCHEDULER_MAX_S * 1e3:g}) |")
    print(f"| its agents | | {agents_s / jobs * 1e3:.2f} ms (bound {AGENT_MAX_S * 1e3:g}) |")
    if not math.isnan(started_s):
        print(f"| what its agents start: fork servers, supervisors, jobs | | {started_s / jobs * 1e3:.2f} ms |")
    return 0 if scheduler_s / jobs <= SCHEDULER_MAX_S and agents_s / jobs <= AGENT_MAX_S else 1


if __name__ == "__main__":
    sys.exit(main())
