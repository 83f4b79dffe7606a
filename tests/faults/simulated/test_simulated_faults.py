"""Seeds of faults over every policy: no job lost, none twice at once, no device booked twice, all end."""

from __future__ import annotations

import asyncio
import gc
import os
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

from colane.agent.files.lease import Lease
from colane.agent.link import contact
from colane.agent.link.contact import Contact
from colane.agent.reconcile import Key
from colane.model.hardware import Drain
from colane.scheduling.registry import POLICIES
from colane.server.nodes import draining
from colane.server.nodes import liveness as leases
from colane.server.store.identity import History
from tests.faults.simulated.cluster import NODE_TIMEOUT_S, TRIED, CrashingStore, FaultyCluster, survive
from tests.faults.simulated.disk import VirtualAttempt, VirtualDisk
from tests.faults.simulated.drains import DrainFaults
from tests.faults.simulated.machine import Machine
from tests.faults.simulated.processes import VirtualClock

SEEDS = int(os.environ.get("COLANE_FAULT_SEEDS", "10"))
SEEDS_AT_ONCE = 5
"""Worlds of a test: what a test costs of itself is a third of a world."""
TRIED_MAX = 60
COPY_FIRST, OTHER_CLUSTER_FIRST = 57, 21
"""Seeds that show what few worlds do, and from where they are tried: the worlds before them took 30 s of a core."""
FOUND = (
    ("topo-aware", 50131, False), ("fcfs", 50343, False), ("finish-time-fair", 50343, False),
    ("salus-srtf", 910206, True),
)  # fmt: skip
"""Of 20,000 worlds those that broke a law: an end of a lost history was answered, and its agent no longer set apart; a
gang went on of which a part had ended with its node, and was then waited for in vain."""


def seeds_of(policy: str) -> int:
    """A policy with options of its own decides by the code of the one they are options of: a quarter of the seeds."""
    return SEEDS if policy in POLICIES else -(-SEEDS // 4)


@pytest.mark.parametrize(
    ("policy", "first"), [(policy, first) for policy in TRIED for first in range(0, seeds_of(policy), SEEDS_AT_ONCE)]
)
def test_laws_hold_whatever_fails(policy: str, first: int, tmp_path: Path) -> None:
    for seed in range(first, min(first + SEEDS_AT_ONCE, seeds_of(policy))):
        problems, story = survive(policy, seed, _folder(tmp_path, seed), has_faults_of_all=True)
        assert not problems, "\n".join([f"{policy} seed {seed}:", *problems, *story])


@pytest.mark.parametrize(("policy", "seed", "has_faults_of_all"), FOUND)
def test_laws_hold_where_they_once_did_not(policy: str, seed: int, tmp_path: Path, *, has_faults_of_all: bool) -> None:
    problems, story = survive(policy, seed, tmp_path, has_faults_of_all=has_faults_of_all)
    assert not problems, "\n".join([*problems, *story])


def test_a_lease_that_outlasts_the_patience_of_the_scheduler_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "lease_s", lambda *_: 2 * NODE_TIMEOUT_S)
    monkeypatch.setattr(Lease, "left_s", lambda *_: NODE_TIMEOUT_S)  # the scheduler would be as patient as that
    for seed in range(TRIED_MAX):
        problems, _ = survive("fifo", seed, _folder(tmp_path, seed))
        if problems:
            assert "at once" in problems[0]
            return
    pytest.fail("two attempts at once were not seen")


def test_a_lease_that_is_renewed_over_jobs_that_were_given_away_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Contact, "_left_over", lambda _: frozenset())
    for seed in range(TRIED_MAX):
        problems, _ = survive("fifo", seed, _folder(tmp_path, seed))
        if problems:
            assert "at once" in problems[0]
            return
    pytest.fail("that a halted job went on beside its next attempt was not seen")


@pytest.mark.parametrize("is_ordered", [False, True])
def test_a_scheduler_that_comes_back_has_cost_no_job_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_ordered: bool
) -> None:
    away_s, ends = 3 * NODE_TIMEOUT_S, set[str]()

    def fall(cluster: FaultyCluster) -> None:
        (cluster.upgrade_server if is_ordered else cluster.kill_server)(away_s)

    def end(machine: Machine, key: Key, attempt: VirtualAttempt, outcome: str) -> None:
        ends.add(outcome)
        _end(machine, key, attempt, outcome)

    _end = Machine._end
    monkeypatch.setattr(FaultyCluster, "_fault", fall)
    monkeypatch.setattr(Machine, "_end", end)
    for seed in range(SEEDS_AT_ONCE):
        cluster = FaultyCluster("fifo", seed, _folder(tmp_path, seed))
        with patch.object(contact, "since_boot_s", cluster.since_boot_s):
            try:
                assert cluster.run() == [], cluster.story
                lines = {line.kind for line in cluster.store.audit(0, 100_000)}
            finally:
                cluster.close()
        assert "node-lost" not in lines
    assert "exited" in ends
    assert "lease-run-out" not in ends


def test_a_copy_put_back_by_hand_that_is_not_noticed_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(History, "has", lambda *_: True)
    for seed in range(COPY_FIRST, COPY_FIRST + TRIED_MAX):
        problems, story = survive("fifo", seed, _folder(tmp_path, seed))
        if problems:
            assert "not ended" in problems[0]
            assert "put back by hand" in " ".join(story)
            return
    pytest.fail("a job that its agent takes for another was not seen")


def test_a_drain_that_is_not_kept_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "drain", lambda *_: None)
    problems, _ = survive("fifo", 0, _folder(tmp_path, 0))
    assert problems
    assert "is forgotten" in problems[0]


def test_a_job_that_outlasts_the_deadline_of_a_drain_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DrainFaults, "_drained", lambda _, now_s, **__: Drain("operator", "", now_s))
    for seed in range(TRIED_MAX):
        problems, _ = survive("fifo", seed, _folder(tmp_path, seed))
        if problems:
            assert "after the deadline" in problems[0]
            return
    pytest.fail("a job that outlasts the deadline was not seen")


def test_a_seed_repeats_what_happened(tmp_path: Path) -> None:
    stories = [survive("srtf", 3, _folder(tmp_path, number)) for number in range(2)]
    assert stories[0] == stories[1]
    assert len(stories[0][1]) > 5


def _folder(root: Path, number: int) -> Path:
    (root / str(number)).mkdir()
    return root / str(number)


def test_what_a_dead_process_has_not_begun_is_never_begun(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    begun: list[str] = []
    process = clock.process("one")

    async def work(name: str) -> None:
        begun.append(name)
        await asyncio.sleep(1000.0)

    process.start(partial(work, "main"))
    clock.run(clock.now_s + 1.0)
    process.spawn(work("late"))
    process.kill()
    clock.close()
    gc.collect()
    assert begun == ["main"]
    assert caplog.messages == []


def test_a_machine_that_takes_jobs_of_another_cluster_for_its_own_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CrashingStore, "be_of_another_cluster", lambda _: None)
    monkeypatch.setattr(VirtualDisk, "note", lambda *_: None)
    for seed in range(OTHER_CLUSTER_FIRST, OTHER_CLUSTER_FIRST + TRIED_MAX):
        problems, _ = survive("fifo", seed, _folder(tmp_path, seed))
        if problems:
            return
    pytest.fail("that a copy was put back was never missed")
