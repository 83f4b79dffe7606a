"""A scheduler may die after any event: what its records give back is what it had."""

from __future__ import annotations

from typing import Any

import pytest

from colane.core.cluster.state import ClusterState
from colane.core.config import CoreConfig
from colane.core.events import Event, Outcome
from colane.model.job import JobId
from colane.scheduling.registry import POLICIES, create
from colane.server.board.read_model import ReadModel, read_board
from colane.server.board.turn import Turn
from colane.server.store.attempts import ATTEMPTS_MAX
from colane.server.writer.driver import restore_state
from colane.server.writer.ledger import compose
from tests.core.audit import audit
from tests.core.worlds import World
from tests.memory_store import MemoryStore

EVENTS = 60


class Recorded(World):
    """A world whose outcomes are written down as the live service writes them."""

    def __post_init__(self) -> None:
        self.store, self.read_model = MemoryStore(), ReadModel()
        super().__post_init__()

    def step(self, *events: Event) -> Outcome:
        outcome = super().step(*events)
        turn = Turn(self.read_model, self.now_s, JobId(self._next), self.core.state.progress, events=list(events))
        hardware = {name: self.core.state.nodes[name].node for name in outcome.nodes}
        entry = compose(turn, outcome, hardware, self.policy.name, lambda _job: None)
        self.store.commit(entry.transaction)
        entry.apply(self.read_model)
        return outcome

    def restored(self) -> tuple[ReadModel, ClusterState]:
        read_model = read_board(self.store)
        return read_model, restore_state(self.store, read_model, CoreConfig())


def held(state: ClusterState) -> dict[str, Any]:
    """All that is booked, queued and believed."""
    return {
        "jobs": dict(sorted(state.jobs.items())),
        "nodes": {
            name: (known.node, sorted(known.jobs), known.cores_booked, known.cores_free, known.host_memory_free_bytes,
                   known.host_bandwidth_free)
            for name, known in state.nodes.items()
        },
        "bookings": {gpu: sorted((b.job, b.lane) for b in load.bookings) for gpu, load in state.gpus.items()},
        "returning": set(state.returning),
        "draining": set(state.draining),
        "profiles": state.beliefs.profiles,
        "used": state.usage.used,
    }  # fmt: skip


def tells_of_attempts(read_model: ReadModel) -> None:
    """The last attempts of each job by number, all over but the one whose place the job has now."""
    for job in read_model.jobs.values():
        known = read_model.attempts.get(job.id, ())
        assert [one.number for one in known] == [*range(1, job.attempt + 1)][-ATTEMPTS_MAX:]
        assert all(one.end_s is not None and one.why for one in known[:-1])
        if known:
            assert (known[-1].end_s is None) == (job.placement is not None)
            assert job.placement is None or known[-1].node == job.placement.node


@pytest.mark.parametrize("name", sorted(POLICIES))
@pytest.mark.parametrize("seed", range(3))
def test_restarted_after_any_event_nothing_differs(name: str, seed: int) -> None:
    world = Recorded(create(name), seed, drains=True)
    for _ in range(EVENTS):
        world.step(world.random_event())
        read_model, state = world.restored()
        assert held(state) == held(world.core.state)
        assert (read_model.jobs, read_model.nodes, read_model.counters) == (
            world.read_model.jobs,
            world.read_model.nodes,
            world.read_model.counters,
        )
        assert {node: jobs for node, jobs in read_model.on_node.items() if jobs} == {
            node: jobs for node, jobs in world.read_model.on_node.items() if jobs
        }
        assert read_model.attempts == world.read_model.attempts
        tells_of_attempts(world.read_model)
        audit(state)
