"""What it costs to foresee the starts of 10,000 jobs that wait on 1,000 nodes of 8 GPUs: CPU seconds of one look.

python benchmarks/foreseen.py [WAITING [NODES]]
"""

from __future__ import annotations

import sys
from random import Random
from time import process_time

from colane.foresee.foreseer import Foreseer
from colane.foresee.scene import PoolScene, PresentJob


def look(waiting: int, nodes: int) -> tuple[float, int]:
    """CPU seconds, and how many starts were said."""
    random, foreseer, present = Random(1), Foreseer(), list[PresentJob]()  # noqa: S311 - no secret
    gpus = 8 * nodes
    for job in range(2000):
        owner, at_s = f"user-{job % 200}", 300.0 * job
        foreseer.submitted(job, owner, 1, at_s)
        scene = PoolScene(at_s, gpus, [PresentJob(job, owner, 1, 0.0, None, None, None, False, False, (0.0,))])
        for said in foreseer.say(scene, [job]):
            foreseer.keep(said)
        foreseer.started(job, at_s + random.lognormvariate(6, 2))
        foreseer.ended(job, random.lognormvariate(8, 2), at_s + 10_000)
    for job in range(2000, 2000 + gpus + waiting):
        owner, asks = f"user-{job // 50 % 200}", random.choice((1, 1, 1, 2, 4))
        runs = job < 2000 + gpus
        one = PresentJob(job, owner, 1 if runs else asks, 900.0 * runs, None, None, None, runs, runs, (0.0,))
        foreseer.submitted(job, owner, one.gpus, 600_000.0 + job)
        present.append(one)
    began_s = process_time()
    found = foreseer.board(PoolScene(700_000.0, gpus, present))
    return process_time() - began_s, len(found)


if __name__ == "__main__":
    asked = [int(one) for one in sys.argv[1:]]
    jobs, machines = (asked + [10_000, 1_000][len(asked) :])[:2]
    cpu_s, said = look(jobs, machines)
    print(f"{said:,} starts said on {machines:,} nodes: {cpu_s:.2f} s of CPU")
