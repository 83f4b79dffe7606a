"""Cuts of random length and scope between real machines and their scheduler, over jobs that count.

    python -m tests.faults.cuts --cuts 200 --jobs 40

Each job writes a line a step with its attempt, node, process and number. What must hold in the end: no two attempts of
a job ran at once; each attempt made its steps once and in order, cut or not; and each further attempt was started on
another node than the one before it: where nothing was started elsewhere, the one that stood goes on.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from colane.cli import output

from .machines import Wired

STEP_S: Final = 0.5
LENGTHS_S: Final = (1.0, 6.0, 12.0, 25.0)
"""Of cuts, each drawn from half to one and a half of one of these: shorter than a lease and much longer."""
GAPS_S: Final = (1.0, 4.0, 10.0)
ALL_OF: Final = 12
"""One cut of so many is of all nodes."""
OWN_GPU_OF: Final = 8
"""One job of so many has a device, so that there is no room for it elsewhere."""
COUNTING: Final = (
    'n=0; while :; do n=$((n + 1)); echo "$COLANE_ATTEMPT $COLANE_NODE $$ $n $(date +%s.%N)" >>"$1"; '
    f"sleep {STEP_S}; done"
)


class Step(NamedTuple):
    """A line of a job."""

    attempt: int
    node: str
    pid: int
    number: int
    at_s: float


class Told(NamedTuple):
    """What came of it.

    Attributes:
        cuts: How many there were, by scope.
        jobs: Steps of each job.
        problems: What broke a law.
    """

    cuts: Counter[str]
    jobs: dict[int, list[Step]]
    problems: list[str]

    def moved(self) -> int:
        """How many attempts were started elsewhere."""
        return sum(steps[-1].attempt - 1 for steps in self.jobs.values())


def steps_of(path: Path) -> list[Step]:
    """What a job has written, without a line that it was about to write."""
    whole = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
    words = [line.split() for line in whole]
    return [Step(int(one[0]), one[1], int(one[2]), int(one[3]), float(one[4])) for one in words]


def problems_of(job: int, steps: Iterable[Step]) -> list[str]:
    """What a job did that it should not."""
    found = []
    for before, after in pairwise(steps):
        if after.attempt == before.attempt and (after.pid, after.number) != (before.pid, before.number + 1):
            found.append(f"job {job}: {after} follows {before}")
        elif after.attempt < before.attempt:
            found.append(f"job {job}: two attempts at once, {after} after {before}")
        elif after.attempt > before.attempt and (
            after.number != 1 or (after.node == before.node and after.attempt == before.attempt + 1)
        ):  # attempts between that were cut off before their first step were elsewhere
            found.append(f"job {job}: begun anew where it stood, {after} after {before}")
    return found


def cut_about(wired: Wired, jobs: int, cuts: int, seed: int = 0) -> Told:
    """Run jobs, cut and heal wires at random, and see what became of the jobs.

    Args:
        wired: Machines that are switched on.
        jobs: How many.
        cuts: How many; one of all nodes counts as one.
        seed: Of what is drawn.
    """
    random, told = Random(seed), Counter[str]()
    with wired.client() as client:
        files = dict[int, Path]()
        for number in range(jobs):
            path = wired.folder / f"job-{number}"
            needs = {"gpus": int(number % OWN_GPU_OF == 0), "cores": 0}
            words = ["sh", "-c", COUNTING, "count", str(path)]
            files[client.submit({"command": words, "workdir": "/", "name": f"count-{number}", **needs})] = path
        wired.until(lambda: all(steps_of(path) for path in files.values()), "all jobs run")
    cut_until_s, next_s = dict.fromkeys(range(len(wired.machines)), 0.0), dict.fromkeys(range(len(wired.machines)), 0.0)
    while told.total() < cuts or any(cut_until_s.values()):
        now_s = time.monotonic()
        for number, machine in enumerate(wired.machines):
            if cut_until_s[number] and now_s >= cut_until_s[number]:
                wired.heal(machine)
                cut_until_s[number], next_s[number] = 0.0, now_s + random.choice(GAPS_S) * random.uniform(0.5, 1.5)
            elif not cut_until_s[number] and now_s >= next_s[number] and told.total() < cuts:
                until_s = now_s + random.choice(LENGTHS_S) * random.uniform(0.5, 1.5)
                are_all = random.randrange(ALL_OF) == 0
                told["all nodes" if are_all else "one node"] += 1
                for other in cut_until_s if are_all else (number,):
                    wired.cut(wired.machines[other])
                    cut_until_s[other] = max(cut_until_s[other], until_s)
        time.sleep(0.1)
    with wired.client() as client:
        wired.until(lambda: not any(node["lost"] for node in client.nodes()), "all nodes are back")
        far = {job: len(steps_of(path)) for job, path in files.items()}
        wired.until(lambda: all(len(steps_of(path)) > far[job] + 2 for job, path in files.items()), "all jobs go on")
        found = {job: steps_of(path) for job, path in files.items()}
        problems = [problem for job, steps in found.items() for problem in problems_of(job, steps)]
        for job, steps in found.items():
            shown = client.job(job)
            if (shown["attempt"], shown["node"]) != (steps[-1].attempt, steps[-1].node):
                problems.append(f"job {job}: shown as attempt {shown['attempt']} on {shown['node']}, is {steps[-1]}")
            client.cancel(job)
    return Told(told, found, problems)


def main() -> int:
    """Return 1 where a law was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.cuts", description=__doc__)
    parser.add_argument("--cuts", type=int, default=200, help="how many (%(default)s)")
    parser.add_argument("--jobs", type=int, default=40, help="how many (%(default)s)")
    parser.add_argument("--nodes", type=int, default=5, help="how many (%(default)s)")
    parser.add_argument("--lease", type=float, default=8.0, help="seconds without a report that lose a node")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (%(default)s)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wired = Wired(Path(folder), nodes=asked.nodes, node_timeout_s=asked.lease, disk="512m", node_losses_max=1000)
        try:
            wired.switch_on()
            told = cut_about(wired, asked.jobs, asked.cuts, asked.seed)
        finally:
            wired.close()
    output.say("\n".join(told.problems))
    steps = sum(map(len, told.jobs.values()))
    output.say(f"{dict(told.cuts)}: {len(told.jobs)} jobs made {steps} steps, {told.moved()} were started elsewhere")
    output.say(f"{len(told.problems)} broke a law")
    return 1 if told.problems else 0


if __name__ == "__main__":
    sys.exit(main())
