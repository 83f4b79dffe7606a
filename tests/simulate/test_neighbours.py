"""Slowdowns by neighbours on a socket are learnt from what runs, as live: beliefs come near the truth."""

from __future__ import annotations

from pathlib import Path

import pytest

from colane.core import Core
from colane.core.events import Outcome
from colane.lab.simulate.beliefs import Belief, examples, true_neighbours
from colane.lab.simulate.process import Process
from colane.lab.simulate.request import Request, inputs, load
from colane.lab.simulate.run import simulate
from colane.lab.simulate.world import Scope
from colane.perf.neighbours import NeighbourBeliefs

MACHINES = """\
groups: [{count: 5, gpus: 4, gpu_type: P100, gpu_memory: 16GB, sockets: 2, cores: 16, topology: minsky}]
"""
JOBS = 400


class Watch:
    """Notes for how many pairs of kinds something was measured, and the mean error over all that ever met, by job."""

    def __init__(self, core: Core) -> None:
        beliefs = core.state.beliefs.neighbours
        assert isinstance(beliefs, NeighbourBeliefs)
        self.beliefs = beliefs
        self.known: list[int] = []
        self.starts = 0

    def started(self, process: Process, co_runners: object) -> None:
        del process, co_runners
        self.starts += 1
        self.known.append(len(self.beliefs))

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        """Nothing."""


@pytest.mark.parametrize("belief", [Belief.NONE, Belief.ORACLE])
def test_beliefs_about_neighbours_come_near_the_truth(belief: Belief, data: Path, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(MACHINES)
    request = Request(cluster=str(cluster), trace=f"topology:jobs={JOBS},gap=20", tables=data, belief=belief)
    made = inputs(request, load(request, 0), "topo-aware", 0)
    assert made.world.scope is Scope.NODE
    watches: list[Watch] = []

    def watch(core: Core) -> list[Watch]:
        watches.append(Watch(core))
        return watches

    simulate(made, watchers=watch)
    (seen,) = watches
    truth = true_neighbours(made.world, examples(made.workload.jobs, made.cluster))
    if belief is Belief.ORACLE:
        assert seen.known == [len(truth)] * JOBS, "who knows learns nothing"
        return
    pairs = seen.beliefs.pairs()
    before = [abs(1.0 - truth.slowdown(*pair)) for pair in pairs]
    after = [abs(seen.beliefs.slowdown(*pair) - truth.slowdown(*pair)) for pair in pairs]
    assert seen.known[0] == 0 < seen.known[JOBS // 2] < len(pairs)
    assert sum(value > 0.01 for value in before) > 5, "there was something to learn"
    assert max(after) < 1e-6 < max(before)
