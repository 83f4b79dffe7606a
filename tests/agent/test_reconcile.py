from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.agent.processes import ProcessId
from colane.agent.reconcile import (
    Act,
    Action,
    AttemptPhase,
    Desired,
    DesiredJob,
    Evidence,
    Key,
    phase_of,
    reconcile,
)

BOOT = "b00t"
SHIM = ProcessId(100, 5000, BOOT)


@pytest.mark.parametrize(
    ("evidence", "phase"),
    [
        (Evidence(None, None, has_ended=False, spawned=False), AttemptPhase.PREPARED),
        (Evidence(None, None, has_ended=False, spawned=True), AttemptPhase.STARTING),
        (Evidence(SHIM, SHIM, has_ended=False, spawned=True), AttemptPhase.RUNNING),
        (Evidence(SHIM, SHIM, has_ended=False, spawned=False), AttemptPhase.RUNNING),
        (Evidence(SHIM, None, has_ended=False, spawned=False), AttemptPhase.LOST),
        # the pid lives on as another process: another start time, or the same pid and ticks in another boot
        (Evidence(SHIM, SHIM._replace(start_ticks=5001), has_ended=False, spawned=False), AttemptPhase.LOST),
        (Evidence(SHIM, SHIM._replace(boot_id="other"), has_ended=False, spawned=False), AttemptPhase.LOST),
        (Evidence(SHIM, None, has_ended=True, spawned=False), AttemptPhase.ENDED),
        (Evidence(SHIM, SHIM, has_ended=True, spawned=False), AttemptPhase.ENDED),
    ],
)
def test_phases(evidence: Evidence, phase: AttemptPhase) -> None:
    assert phase_of(evidence) is phase


def desired(*jobs: tuple[int, int, bool], generation: int = 5) -> Desired:
    return Desired(generation, tuple(DesiredJob(Key(job, attempt), run=run) for job, attempt, run in jobs))


TABLE = {
    "a new job is started": (desired((7, 1, True)), {}, [(Act.START, 7, 1)]),
    "a launch that a crash broke off is taken up": (
        desired((7, 1, True)),
        {(7, 1): AttemptPhase.PREPARED},
        [(Act.START, 7, 1)],
    ),
    "what is on its way is left alone": (desired((7, 1, True)), {(7, 1): AttemptPhase.STARTING}, []),
    "what runs is left alone": (desired((7, 1, True)), {(7, 1): AttemptPhase.RUNNING}, []),
    "what has ended is told, not started again": (
        desired((7, 1, True)),
        {(7, 1): AttemptPhase.ENDED},
        [(Act.REPORT, 7, 1)],
    ),
    "what the scheduler knows to have ended is not started again": (
        desired((7, 1, True)),
        {(7, 1): AttemptPhase.DELIVERED},
        [],
    ),
    "what lost its supervisor is buried, not started again": (
        desired((7, 1, True)),
        {(7, 1): AttemptPhase.LOST},
        [(Act.REAP, 7, 1)],
    ),
    "a job that shall end is stopped": (desired((7, 1, False)), {(7, 1): AttemptPhase.RUNNING}, [(Act.STOP, 7, 1)]),
    "a job that is not wanted is stopped": (desired(), {(7, 1): AttemptPhase.RUNNING}, [(Act.STOP, 7, 1)]),
    "also before it has begun": (
        desired((8, 1, False)),
        {(7, 1): AttemptPhase.PREPARED, (8, 1): AttemptPhase.STARTING},
        [(Act.STOP, 7, 1), (Act.STOP, 8, 1)],
    ),
    "the end of a job that shall end but never came is told": (desired((7, 1, False)), {}, [(Act.REJECT, 7, 1)]),
    "told once": (desired((7, 1, False)), {(7, 1): AttemptPhase.DELIVERED}, []),
    "an unwanted end is told too": (desired(), {(7, 1): AttemptPhase.ENDED}, [(Act.REPORT, 7, 1)]),
    "an old attempt is stopped, and the new one waits for its end": (
        desired((7, 2, True)),
        {(7, 1): AttemptPhase.RUNNING},
        [(Act.STOP, 7, 1)],
    ),
    "also while the old one's remains are about": (
        desired((7, 2, True)),
        {(7, 1): AttemptPhase.LOST},
        [(Act.REAP, 7, 1)],
    ),
    "the new attempt starts when the old one has ended": (
        desired((7, 2, True)),
        {(7, 1): AttemptPhase.ENDED},
        [(Act.REPORT, 7, 1), (Act.START, 7, 2)],
    ),
    "an attempt newer than wanted is stopped as well": (
        desired((7, 1, True)),
        {(7, 2): AttemptPhase.RUNNING},
        [(Act.STOP, 7, 2)],
    ),
    "jobs do not stand in each other's way; ends go first, then in order": (
        desired((9, 1, True), (8, 1, True), (7, 1, False)),
        {(7, 1): AttemptPhase.RUNNING, (6, 2): AttemptPhase.ENDED, (5, 1): AttemptPhase.LOST},
        [(Act.REAP, 5, 1), (Act.REPORT, 6, 2), (Act.STOP, 7, 1), (Act.START, 8, 1), (Act.START, 9, 1)],
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_table(name: str) -> None:
    wanted, observed, expected = TABLE[name]
    phases = {Key(*key): phase for key, phase in observed.items()}
    assert reconcile(wanted, phases) == [Action(act, Key(job, attempt)) for act, job, attempt in expected]


def test_while_the_scheduler_is_silent_only_ends_are_seen_to() -> None:
    phases = {
        Key(1, 1): AttemptPhase.RUNNING,
        Key(2, 1): AttemptPhase.ENDED,
        Key(3, 1): AttemptPhase.LOST,
        Key(4, 1): AttemptPhase.PREPARED,
    }
    assert reconcile(None, phases) == [Action(Act.REPORT, Key(2, 1)), Action(Act.REAP, Key(3, 1))]


def test_an_older_wish_changes_nothing() -> None:
    phases = {Key(1, 1): AttemptPhase.RUNNING, Key(2, 1): AttemptPhase.ENDED}
    assert reconcile(desired((9, 1, True), generation=4), phases, followed=5) == [Action(Act.REPORT, Key(2, 1))]
    assert Action(Act.STOP, Key(1, 1)) in reconcile(desired(generation=5), phases, followed=5)


keys = st.builds(Key, st.integers(1, 4), st.integers(1, 3))
worlds = st.dictionaries(keys, st.sampled_from(AttemptPhase))
wishes = st.dictionaries(keys, st.booleans()).map(
    lambda runs: Desired(1, tuple(DesiredJob(key, run=run) for key, run in runs.items()))
)

AFTER = {
    Act.START: AttemptPhase.RUNNING,
    Act.STOP: AttemptPhase.ENDED,
    Act.REAP: AttemptPhase.ENDED,
    Act.REPORT: AttemptPhase.DELIVERED,
    Act.REJECT: AttemptPhase.DELIVERED,
}


@given(wishes, worlds)
def test_it_comes_to_rest_with_what_was_wanted(wanted: Desired, world: dict[Key, AttemptPhase]) -> None:
    world = {key: AttemptPhase.RUNNING if phase is AttemptPhase.STARTING else phase for key, phase in world.items()}
    started: list[Key] = []
    for _ in range(8):
        actions = reconcile(wanted, world)
        assert len({key for _, key in actions}) == len(actions), "one thing at a time for each attempt"
        started += [key for act, key in actions if act is Act.START]
        world |= {key: AFTER[act] for act, key in actions}
    assert reconcile(wanted, world) == []
    assert len(set(started)) == len(started), "an attempt is started once"
    running = {key for key, phase in world.items() if phase is AttemptPhase.RUNNING}
    assert running <= {job.key for job in wanted.jobs if job.run}
    assert all(job.key in world for job in wanted.jobs if not _waits(job.key, wanted))


def _waits(key: Key, wanted: Desired) -> bool:
    """Two attempts of one job are never wanted at once by a real scheduler; here the later ones wait."""
    return any(other.key.job == key.job and other.key != key and other.run for other in wanted.jobs)
