"""How all stands in a live cluster, as one file that simulations go on from: nothing of it begins anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from colane.api.states import LiveState, read
from colane.cli import app
from colane.cli.errors import FailureError
from colane.client.client import Event
from colane.client.errors import Refused
from colane.lab.commands.export import export_state
from colane.lab.simulate.ledger import STATES
from colane.lab.simulate.request import KeptRun, inputs, load
from colane.lab.simulate.run import Run, simulate
from colane.model.choices import See
from colane.model.job import JobState
from colane.model.limits import Limits, Quotas
from tests.server.harness import World, launched, node, report, world
from tests.server.test_users import guest

STEPS = {"at_s": 5.0, "steps": 40, "first_step_s": 1.0, "last_step_s": 5.0, "step_mean_s": 0.1, "step_median_s": 0.1}


class Told:
    """What a client would be told now."""

    def __init__(self, answers: dict[str, Any], state: bytes) -> None:
        self._answers, self._state = answers, state

    def state(self) -> bytes:
        return self._state

    def finished_jobs(self, labels: object = None) -> list[Any]:
        del labels
        return list(self._answers["finished_jobs"])

    def events(self, after: int, until: int) -> list[Event]:
        del after, until
        return []

    def __getattr__(self, name: str) -> Any:
        return lambda: self._answers[name]


async def told(w: World) -> Told:
    names = ("finished_jobs", "live_jobs", "nodes", "profiles", "measurements", "health")
    return Told({name: await w.good("GET", f"/{name}") for name in names}, (await w.http.get("/state")).content)


async def all_kinds(w: World) -> None:
    """Job 1 runs and has made 40 of 100 steps; 2 waits for its GPU, 3 for a limit; 4 is held; node n2 is drained."""
    await w.good("POST", "/node", node("n1"))
    await w.good("POST", "/node", node("n2"))
    await w.good("POST", "/node/n2/drain", {"reason": "a fan"})
    for user, more in (("ann", {"steps_total": 100}), ("bob", {}), ("ann", {}), ("bob", {})):
        await w.submit(share=False, user=user, time_limit_s=60, **more)
    await w.good("POST", "/node/n1/report", report(launched(1, progress=STEPS)))
    await w.good("POST", "/job/4/suspend", {})


def run(kept: KeptRun) -> Run:
    return simulate(inputs(kept.goes_on, load(kept.goes_on, 0), "fifo", 0, as_published=False))


async def test_a_simulation_goes_on_from_how_all_stands(tmp_path: Path) -> None:
    limits = Quotas(users={"ann": Limits(running=1)})
    async with world(policy="fifo", quotas=limits) as w:
        await all_kinds(w)
        kept = export_state(await told(w), tmp_path / "state")  # type: ignore[arg-type]
        live = {int(job.id): job for job in w.service.read_model.jobs.values()}
    assert kept.policy == "fifo"
    now_s = read(kept.state).now_s
    done = run(KeptRun.read(tmp_path / "state"))
    rows = done.ledger.rows
    states = dict(zip(rows.id, (STATES[code] for code in rows.state), strict=True))
    starts = dict(zip(rows.id, rows.first_start_s, strict=True))
    ends = dict(zip(rows.id, rows.end_s, strict=True))
    # Nothing tells how long 2 and 3 take: an hour is taken, and their limit ends them.
    assert states == {1: JobState.SUCCEEDED, 2: JobState.TIMED_OUT, 3: JobState.TIMED_OUT, 4: JobState.QUEUED}
    assert starts[1] == live[1].first_start_s
    assert ends[1] - now_s == pytest.approx(0.6 * (kept.workload.jobs[0].duration_s or 0.0))  # 60 of 100 steps are left
    assert starts[2] >= ends[1]  # the drained node takes none
    assert rows.attempts[list(rows.id).index(1)] == 1
    assert all(gpu.node == "n1" for gpus in rows.gpus for gpu in gpus)
    assert dict(zip(rows.id, rows.submit_s, strict=True)) == {one.id: one.submit_s for one in live.values()}
    again = run(KeptRun.read(tmp_path / "state"))
    assert repr((again.ledger.rows, again.ledger.curve)) == repr((done.ledger.rows, done.ledger.curve))


async def test_what_if_begins_from_how_all_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with world(policy="fifo") as w:
        await all_kinds(w)
        export_state(await told(w), tmp_path / "state")  # type: ignore[arg-type]
    words = ["whatif", "--past", str(tmp_path / "state"), "--json"]
    found: dict[str, Any] = {}
    for more in (
        ["--nodes", "+1"],
        ["--nodes", "big:+1"],
        ["--quota", "ann.running=1"],
        ["--no-share"],
        ["-p", "srtf"],
    ):
        status = app.run([*words, *more])
        text = capsys.readouterr()
        found[more[-1]] = json.loads(text.out)["tried"] if status == 0 else text.err
    as_it_is, with_one = found["+1"]
    assert as_it_is["ended"] == with_one["ended"] == 3
    assert with_one["figures"]["mean_wait_s"] < as_it_is["figures"]["mean_wait_s"]
    assert "there is no pool 'big'" in found["big:+1"]
    assert found["--no-share"][1]["figures"] == found["--no-share"][0]["figures"]  # none shares


async def test_users_who_may_see_their_own_alone_are_told_no_state() -> None:
    async with world(policy="fifo", see=See.OWN) as w:
        await all_kinds(w)
        bob = await guest(w, "b", user="bob")
        status, said = await bob.ask("GET", "/state")
        assert status == 403
        assert "states tell of all users' jobs" in str(said)


async def test_asking_changes_nothing_and_no_command_is_told() -> None:
    async with world(policy="colane") as w:
        await all_kinds(w)
        before = w.service.driver.core.state
        await w.submit(command=["sh", "-c", "echo a-secret"], env={"TOKEN": "a-secret"})
        data = (await w.http.get("/state")).content
        standing = read(data)
        assert isinstance(standing, LiveState)
        assert b"a-secret" not in data
        assert w.service.driver.core.state is before
        assert set(standing.state.jobs) == set(before.jobs)
        assert standing.limits == w.service.driver.core.config.limits


async def test_an_older_scheduler_is_named(tmp_path: Path) -> None:
    async with world(policy="fifo") as w:
        await all_kinds(w)
        answers = await told(w)

    def state() -> bytes:
        raise Refused(404, ())

    answers.state = state  # type: ignore[method-assign]
    with pytest.raises(FailureError, match="the scheduler is older and tells no state"):
        export_state(answers, tmp_path / "state")  # type: ignore[arg-type]
