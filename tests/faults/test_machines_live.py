"""Real processes on machines with networks of their own: cut off, frozen, switched off, disks full.

Never two attempts of a job at once, none is lost, and none waits longer than it must.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import pytest

from colane.api.jobs import JobObject
from colane.client.client import Client
from colane.client.errors import Refused
from colane.verbs.of_jobs import RESUME, SUSPEND
from tests.disks import fill

from .machines import MachineInSpace, Wired, needs_namespaces
from .test_pauses import COUNTING

pytestmark = [pytest.mark.live, pytest.mark.faults]

AGENT_TESTS = Path(__file__).parents[1] / "agent"
Act = Callable[[], None]
NODE_TIMEOUT_S = 8.0
"""On a busy machine an agent may be late by more, too: then there is one attempt more, and still never two at once."""
RANKS = """
rank=${NODE_RANK:-0}
exec 9>>"$2/lock-$rank"
flock -n 9 || { echo "twice $rank" >"$1"; exit 1; }
echo "began $COLANE_ATTEMPT $rank" >"$1"; while [ ! -e "$2/enough" ]; do sleep 0.1; done; echo "ended $rank" >"$1"
"""
"""Each rank of a gang holds a lock while it runs."""
GONE_ON_MAX = 2
"""A machine that stood still goes on for the moment until its supervisors have looked: so many lines at most."""


@pytest.fixture
def wired(tmp_path: Path) -> Iterator[Wired]:
    needs_namespaces()
    made = Wired(tmp_path, nodes=2, node_timeout_s=NODE_TIMEOUT_S)
    try:
        made.switch_on()
        yield made
    finally:
        made.close()


@pytest.fixture
def urgent(tmp_path: Path) -> Iterator[Wired]:
    """The same under a policy that parks jobs for more urgent ones."""
    needs_namespaces()
    policy = f"{AGENT_TESTS / 'urgent_policy.py'}:Urgent"
    made = Wired(tmp_path, nodes=2, node_timeout_s=NODE_TIMEOUT_S, policy=policy)
    try:
        made.switch_on()
        yield made
    finally:
        made.close()


def submit(client: Client, *words: object, **fields: Any) -> int:
    name, script, *rest = map(str, words)
    return client.submit({"name": name, "command": ["sh", "-c", script, name, *rest], "workdir": "/", **fields})


def until_refused(client: Client, accepted: list[int], **fields: Any) -> Refused:
    """Submit until one is refused."""
    while True:
        try:
            accepted.append(submit(client, "short", "true", **fields))
        except Refused as refused:
            return refused


def count(wired: Wired, lines: int) -> int:
    with wired.client() as client:
        return submit(client, "count", COUNTING, wired.pipe, lines)


def ended(wired: Wired, job: int) -> JobObject:
    with wired.client() as client:
        wired.until(lambda: client.job(job)["end_s"] is not None, f"job {job} ends")
        return client.job(job)


def node_of(wired: Wired, job: int) -> MachineInSpace:
    with wired.client() as client:
        name = client.job(job)["node"]
    return next(machine for machine in wired.machines if machine.name == name)


def moves_on(told: Iterator[str]) -> None:
    """The first attempt falls silent, and the second speaks alone from then on."""
    list(takewhile(is_of_first, told))
    assert not any(map(is_of_first, islice(told, 6))), "two attempts at once"


def is_of_first(line: str) -> bool:
    return line.startswith("1 ")


def test_a_machine_that_is_cut_off(wired: Wired) -> None:
    job, told = count(wired, 1000), wired.told()
    assert next(told) == "1 1"
    cut = node_of(wired, job)
    wired.cut(cut)
    moves_on(told)
    wired.heal(cut)
    with wired.client() as client:
        wired.until(lambda: [node["lost"] for node in client.nodes()] == [False, False], "it is back")
        assert not any(map(is_of_first, islice(told, 4))), "two attempts at once"
        client.cancel(job)
    assert ended(wired, job)["attempt"] >= 2


def test_a_machine_that_stood_still(wired: Wired) -> None:
    job, told = count(wired, 1000), wired.told()
    assert next(told) == "1 1"
    frozen = node_of(wired, job)
    frozen.freeze()
    moves_on(told)
    frozen.thaw()
    with wired.client() as client:
        wired.until(lambda: [node["lost"] for node in client.nodes()] == [False, False], "it is back")
        after = list(islice(told, 12))
        assert sum(map(is_of_first, after)) <= GONE_ON_MAX, after
        assert not any(map(is_of_first, after[-4:])), after
        client.cancel(job)
    assert ended(wired, job)["attempt"] >= 2


def test_a_machine_that_is_switched_off_and_on(wired: Wired) -> None:
    job, told = count(wired, 8), wired.told()
    assert next(told) == "1 1"
    off = node_of(wired, job)
    off.switch_off()
    wired.start(off)
    record = ended(wired, job)
    assert record["state"] == "succeeded", wired.logs()
    assert record["attempt"] >= 2
    last = (line for line in told if line.startswith(f"{record['attempt']} "))
    assert [line.split()[1] for line in islice(last, 8)] == [f"{number}" for number in range(1, 9)]


def strike_of(wired: Wired, fault: str, struck: MachineInSpace, accepted: list[int]) -> tuple[Act, Act]:
    """A fault of a machine, and its mending."""

    def heal_while_the_store_is_away() -> None:
        filler = wired.disk(wired.scheduler) / "filler"
        fill(filler)
        with wired.client() as client:
            assert until_refused(client, accepted, gpus=0).status == 503
            wired.heal(struck)
            assert until_refused(client, accepted, gpus=0).status == 503
        filler.unlink()

    return {
        "cut": (lambda: wired.cut(struck), lambda: wired.heal(struck)),
        "freeze": (struck.freeze, struck.thaw),
        "store away": (lambda: wired.cut(struck), heal_while_the_store_is_away),
        "switch off": (struck.switch_off, lambda: wired.start(struck)),
    }[fault]


@pytest.mark.parametrize("fault", ["cut", "freeze", "store away", "switch off"])
def test_a_gang_over_two_machines_goes_on_or_begins_as_one(wired: Wired, tmp_path: Path, fault: str) -> None:
    with wired.client() as client:
        job = submit(client, "gang", RANKS, wired.pipe, tmp_path, gpus=2, multi_node=True)
    told = wired.told()
    assert {next(told), next(told)} == {"began 1 0", "began 1 1"}
    accepted = list[int]()
    strikes, mends = strike_of(wired, fault, wired.machines[1], accepted)
    strikes()
    with wired.client() as client:
        wired.until(lambda: client.job(job)["state"] == "queued", "it stands")
    mends()
    seen: set[str] = set()
    if fault == "switch off":
        while not any({f"began {number} 0", f"began {number} 1"} <= seen for number in range(2, 20)):
            seen.add(next(told))
    else:
        with wired.client() as client:
            wired.until(lambda: client.job(job)["state"] == "running", "it goes on")
            assert client.job(job)["attempt"] == 1
    (tmp_path / "enough").touch()
    while not {"ended 0", "ended 1"} <= seen:
        seen.add(next(told))
    assert not any(line.startswith("twice") for line in seen), wired.logs()
    assert {ended(wired, each)["state"] for each in (job, *accepted)} == {"succeeded"}, wired.logs()


PARKED = {
    "suspended": [AGENT_TESTS / "turn_job.py", "{notes}", "0.1", "0"],
    "parked": [AGENT_TESTS / "turn_job.py", "{notes}", "0.1", "0"],
    "parked ranks": [AGENT_TESTS / "gang_job.py", "{notes}", "0.1"],
}
"""Ranks of a job over several machines cannot be stopped at one step: those here are on one."""


@pytest.mark.parametrize("fault", ["cut", "freeze", "store away"])
@pytest.mark.parametrize("how", PARKED)
def test_a_parked_job_stays_so_and_goes_on(urgent: Wired, tmp_path: Path, how: str, fault: str) -> None:
    """It waits as before its machine was silent, and makes its next step where it stood once it may."""
    notes = tmp_path / "notes"
    words = [str(word).format(notes=notes) for word in PARKED[how]]

    def made() -> list[int]:
        return [int(line.split()[0]) for line in notes.read_text().splitlines()] if notes.exists() else []

    def told() -> tuple[str, bool]:
        return client.job(job)["state"], client.job(job)["on_host_bytes"] is not None

    with urgent.client() as client:
        env = {"PATH": os.environ["PATH"]}
        job = client.submit({"name": how, "command": [sys.executable, *words], "workdir": "/", "env": env})
        urgent.until(lambda: len(made()) > 3 and client.job(job)["state"] != "launching", "it steps, as is known")
        if how == "suspended":
            client.act(SUSPEND, job)
        others = [
            submit(client, "urgent", 'while [ ! -e "$1" ]; do sleep 0.1; done', tmp_path / "enough", priority=1)
            for _ in range(1 if how == "suspended" else 2)
        ]
        stands = "paused", how != "suspended"
        urgent.until(lambda: told() == stands and all(client.job(one)["start_s"] for one in others), "it waits")
        accepted = list[int]()
        strikes, mends = strike_of(urgent, fault, node_of(urgent, job), accepted)
        strikes()
        urgent.until(lambda: client.job(job)["state"] == "queued", "its node is lost")
    steps = made()
    mends()
    with urgent.client() as client:
        urgent.until(lambda: told() == stands, "it waits as before")
        assert made() == steps
        (tmp_path / "enough").touch()
        if how == "suspended":
            client.act(RESUME, job)
        urgent.until(lambda: len(made()) > len(steps) + 3, "it steps again")
        assert client.job(job)["attempt"] == 1
        client.cancel(job)
    assert ended(urgent, job)["state"] == "cancelled"
    assert made() == list(range(1, len(made()) + 1)), "each step was made once"
    ends = [ended(urgent, one) for one in (*others, *accepted)]
    assert {(end["state"], end["attempt"]) for end in ends} == {("succeeded", 1)}, urgent.logs()


def test_a_machine_whose_disk_is_full(wired: Wired) -> None:
    """Its job goes on and ends on record, others run elsewhere, and it comes back when there is room."""
    job, told = count(wired, 5), wired.told()
    assert next(told) == "1 1"
    full = node_of(wired, job)
    filler = wired.disk(full) / "filler"
    fill(filler)
    assert list(islice(told, 4)) == [f"1 {number}" for number in range(2, 6)]
    run_elsewhere(wired, full)
    filler.unlink()
    assert ended(wired, job)["state"] == "succeeded", wired.logs()
    fill(filler)
    run_elsewhere(wired, full)
    with wired.client() as client:
        wired.until(lambda: "No space left" in str(client.node(full.name)), "it says why")
        filler.unlink()
        wired.until(lambda: all(gpu["healthy"] for gpu in client.node(full.name)["gpus"]), "it is back")


def run_elsewhere(wired: Wired, full: MachineInSpace) -> None:
    """More jobs than a full machine could fail, of which none does."""
    with wired.client() as client:
        jobs = [submit(client, "short", "true") for _ in range(6)]
        for job in jobs:
            record = ended(wired, job)
            assert (record["state"], record["failures"]) == ("succeeded", 0), wired.logs()
            assert record["node"] != full.name


def test_a_scheduler_whose_disk_is_full(wired: Wired) -> None:
    """Submissions are refused, what runs goes on, and its end is known once there is room."""
    job, told = count(wired, 8), wired.told()
    assert next(told) == "1 1"
    filler = wired.disk(wired.scheduler) / "filler"
    fill(filler)
    with wired.client() as client:
        accepted: list[int] = []
        assert until_refused(client, accepted).status == 503
        assert list(islice(told, 7)) == [f"1 {number}" for number in range(2, 9)]
        filler.unlink()
        for each in (job, *accepted):
            record = ended(wired, each)
            assert (record["state"], record["attempt"]) == ("succeeded", 1), wired.logs()
