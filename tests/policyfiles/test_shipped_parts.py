"""A user's policy made of the parts that are shipped decides as the shipped one: simulated, and in the service."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from colane.cli import app
from colane.core import ClusterState, Core
from colane.core.events import Launched, NodeRegistered, Submitted, Tick
from colane.model.job import JobId, JobSpec
from colane.perf.beliefs import Beliefs
from colane.policyfiles.guard import GuardedPolicy, guarded
from colane.scheduling.registry import NAMES
from tests.core.worlds import make_node

FILE = """
from dataclasses import fields

from colane.scheduling.engine.loop import Composed
from colane.scheduling.registry import create


def composed(name):
    parts = {part.name: getattr(create(name), part.name) for part in fields(Composed) if part.name != "name"}
    return Composed("own-" + name, **parts)


class Created:
    def __init__(self, name):
        self._made = create(name)
        self.name, self.turns = "created-" + name, self._made.turns
        self.min_runtime_before_preemption_s = self._made.min_runtime_before_preemption_s
        self.awaits_first_steps = self._made.awaits_first_steps

    def plan(self, view):
        return self._made.plan(view)


"""
SIMULATE = (
    "simulate",
    "--world",
    "factors",
    "--trace",
    "heavy-load:jobs=25,load=2",
    "--policy-budget",
    "60s",
    "--json",
)
WAYS = ("Own", "Created")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every preset's parts put together anew, and every policy by its name, each behind a name of the user's."""
    path = tmp_path_factory.mktemp("own") / "mine.py"
    lines = [f"{way}{place} = {call}" for place, name in enumerate(NAMES) for way, call in _made(name)]
    path.write_text(FILE + "\n".join(lines) + "\n")
    return path


def _made(name: str) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("Own", f"composed({name!r})"), ("Created", f"Created({name!r})")


@pytest.mark.parametrize("name", NAMES)
def test_it_is_simulated_as_the_shipped_one(name: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = list(NAMES).index(name)
    chosen = ["-p", f"{name}:as_published=no", *(word for way in WAYS for word in ("-p", f"{file}:{way}{place}"))]
    assert app.run([*SIMULATE, *chosen]) == 0, capsys.readouterr().err
    shipped, *own = json.loads(capsys.readouterr().out)["runs"]
    assert shipped["finished"] == 25
    for run in own:
        assert run["policy"] in {f"own-{name}", f"created-{name}"}
        assert {key: run[key] for key in ("finished", "queue_s")} == {
            key: shipped[key] for key in ("finished", "queue_s")
        }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_it_serves_jobs(name: str, way: str, file: Path) -> None:
    policy = guarded(f"{file}:{way}{list(NAMES).index(name)}", budget_s=60.0)
    assert isinstance(policy, GuardedPolicy)
    core = Core(policy, ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", 1))], 0.0)
    jobs = [JobId(number) for number in (1, 2, 3)]
    for job in jobs:
        priority = int(job)
        core.step([Submitted(job, JobSpec(name=str(job), family="net", preemptible=True, priority=priority))], 1.0)
        core.step([Launched(one.id, one.attempt, 7, 1.0) for one in core.state.running.values()], 2.0)
        outcome = core.step([Tick()], 5000.0 * priority)
        policy.settle(outcome.rejected)
        assert policy.problem == ""
    assert core.state.running, "a job runs"
