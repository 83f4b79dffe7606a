"""What was, kept by a real service, exported and simulated again: each kind of thing that happened happens again.

Each scene is lived through on a clock of its own: jobs come, start and end as its agents say. What is exported of it,
simulated under the policy that ruled, starts and ends each job as it did; and no longer does without what tells of that
kind of thing.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from colane.cli import app
from colane.client.client import Event
from colane.core.events import NodeLost
from colane.lab.commands.export import Exported, TimeWindow, export_jobs, request_of
from colane.lab.commands.replay import recorded
from colane.lab.simulate.request import inputs, load
from colane.lab.simulate.run import simulate
from colane.lab.traces import clusters
from colane.model.limits import GroupQuota, Limits, QosQuota, Quotas
from colane.server.board.clock import Clocks
from colane.server.board.turn import Turn
from colane.server.config import FileRules
from colane.server.writer.limits import quotas_of
from colane.settings.input_file import InputFileError
from tests.memory_store import MemoryStore
from tests.server.harness import World, finished, launched, node, report, world
from tests.server.test_state import Told, told

NOON_S: Final = 1_790_769_600.0  # on 30 September 2026, 12 hours before the month ends
BEGIN_S, END_S = 100.0, 400.0
CHECKPOINT = {"preemptible": True}


@dataclass
class Life:
    """A service whose clock is set, and what its agents say."""

    w: World
    clock: list[float]
    rules: list[Quotas]
    attempts: dict[int, tuple[str, int]] = field(default_factory=dict)

    @property
    def now_s(self) -> float:
        return NOON_S + self.clock[0]

    def at(self, now_s: float) -> None:
        assert now_s >= self.clock[0]
        self.clock[0] = now_s

    async def node(self, name: str, gpus: int = 1) -> None:
        await self.w.good("POST", "/node", node(name, gpus))

    async def submit(self, **fields: Any) -> int:
        return await self.w.submit(**{"share": False, "user": "ann", **fields})

    async def start(self, job: int, **told: Any) -> None:
        """Its agent has started it."""
        found = await self.w.good("GET", f"/job/{job}")
        self.attempts[job] = found["gpus"][0].split("/")[0], found["attempt"]
        await self.report(job, **told)

    async def report(self, job: int, **told: Any) -> None:
        on, attempt = self.attempts[job]
        await self.w.good("POST", f"/node/{on}/report", report(launched(job, attempt, **told), at_s=self.now_s))

    async def end(self, job: int, *then: int, **how: Any) -> None:
        """It has ended; these start."""
        on, attempt = self.attempts[job]
        body = finished(job, attempt, node=on, end_s=self.now_s, **how)
        await self.w.good("POST", "/finished_job", body)
        for other in then:
            await self.start(other)

    async def limit(self, quotas: Quotas) -> None:
        self.rules.append(quotas)
        await self.w.good("POST", "/config/reload", {})


async def lived(deeds: Callable[[Life], Awaitable[None]], **settings: Any) -> Told:
    """What a client is told at the end of a life."""
    clock, rules = [0.0], [settings.get("quotas", Quotas())]
    clocks = Clocks(wall=lambda: NOON_S + clock[0], steady=lambda: clock[0])
    settings = {"node_timeout_s": 1e9, "tick_s": 0.01, "read": lambda: FileRules(rules[-1]), **settings}
    async with world(clocks=clocks, **settings) as w:
        await deeds(Life(w, clock, rules))
        answers = await told(w)
        lines = [Event(one.number, one.kind, {"at_s": one.at_s, **one.body}) for one in w.service.store.audit(0, 10**6)]
    answers.events = lambda *_: lines  # type: ignore[method-assign]
    return answers


def again(folder: Path, policy: str = "fifo") -> dict[str, tuple[float, float]]:
    """When each job starts and ends, seconds after the time began."""
    request = request_of(folder)
    loaded = load(request, 0)
    rows = simulate(inputs(request, loaded, policy, 0, as_published=False)).ledger.rows
    names = {job.id: job.spec.name for job in loaded.workload.jobs}
    return {names[job]: (a, b) for job, a, b in zip(rows.id, rows.first_start_s, rows.end_s, strict=True)}  # type: ignore[index]


def was(folder: Path) -> dict[str, tuple[float, float]]:
    return {one.name: (one.start_s, one.end_s) for one in recorded(load(request_of(folder), 0).workload.jobs)}


# -- scenes: two or three jobs of one GPU each, of which something decides when the later ones start


async def open_at_both_ends(life: Life) -> None:
    await life.node("n1")
    first, second, third, fourth = [await life.submit() for _ in range(4)]
    await life.start(first)
    life.at(200.0)
    await life.end(first, second)
    life.at(250.0)
    await life.end(second, third)
    life.at(380.0)
    assert fourth


async def cancelled(life: Life) -> None:
    await life.node("n1", 2)
    life.at(110.0)
    first, wide, third = await life.submit(), await life.submit(gpus=2), await life.submit()
    await life.start(first)
    life.at(150.0)
    await life.w.good("DELETE", f"/job/{wide}")
    await life.start(third)
    life.at(210.0)
    await life.end(third)
    life.at(300.0)
    await life.end(first)


async def node_comes(life: Life) -> None:
    await life.node("n1")
    life.at(110.0)
    first, second = await life.submit(), await life.submit()
    await life.start(first)
    life.at(150.0)
    await life.node("n2")
    await life.start(second)
    life.at(210.0)
    await life.end(second)
    life.at(300.0)
    await life.end(first)


async def node_drained(life: Life) -> None:
    await life.node("n1")
    life.at(50.0)
    await life.node("n2")
    await life.w.good("POST", "/node/n2/drain", {"reason": "a fan"})
    life.at(110.0)
    first, second = await life.submit(), await life.submit()
    await life.start(first)
    life.at(170.0)
    await life.w.good("DELETE", "/node/n2/drain")
    await life.start(second)
    life.at(230.0)
    await life.end(second)
    life.at(300.0)
    await life.end(first)


async def node_lost(life: Life) -> None:
    await life.node("n1")
    await life.node("n2")
    life.at(110.0)
    await life.w.good("POST", "/node/n1/report", report(at_s=life.now_s))
    await life.w.good("POST", "/node/n2/report", report(at_s=life.now_s))
    first, second = await life.submit(), await life.submit()
    await life.start(first)
    await life.start(second)
    stays = next(job for job in (first, second) if life.attempts[job][0] == "n1")
    goes = first + second - stays
    life.at(231.0)

    def lose(turn: Turn) -> None:
        turn.events.append(NodeLost("n2"))

    await life.w.service.driver.change(lose)
    life.at(250.0)
    await life.end(stays, goes)
    life.at(395.0)
    await life.end(goes)


async def quotas(life: Life) -> None:
    await life.node("n1", 2)
    life.at(110.0)
    first, second = await life.submit(), await life.submit()
    await life.start(first)
    life.at(150.0)
    await life.limit(Quotas(users={"ann": Limits(running=2)}))
    await life.start(second)
    life.at(250.0)
    await life.end(first)
    life.at(300.0)
    await life.end(second)


async def budgets(life: Life) -> None:
    await life.node("n1")
    early, first, second = await life.submit(), await life.submit(), await life.submit()
    await life.start(early)
    life.at(3000.0)
    await life.end(early, first)
    life.at(4000.0)
    await life.end(first)
    life.at(12 * 3600.0)
    await life.w.line(lambda line: line.body.get("job") == second and line.body.get("state") == "assigned")
    await life.start(second)
    life.at(12 * 3600.0 + 500.0)
    await life.end(second)


async def priorities(life: Life) -> None:
    await life.node("n1")
    life.at(110.0)
    first = await life.submit()
    await life.start(first)
    life.at(120.0)
    second, third = await life.submit(), await life.submit(priority=5)
    life.at(150.0)
    await life.end(first, third)
    life.at(250.0)
    await life.end(third, second)
    life.at(300.0)
    await life.end(second)


async def changed_limit(life: Life) -> None:
    await life.node("n1", 2)
    life.at(110.0)
    first, wide = await life.submit(time_limit_s=100.0), await life.submit(gpus=2, time_limit_s=100.0)
    third = await life.submit(time_limit_s=200.0)
    await life.w.good("POST", f"/job/{third}/change", {"time_limit_s": 60.0})
    await life.start(first)
    await life.start(third)
    life.at(150.0)
    await life.end(third)
    life.at(210.0)
    await life.end(first, wide)
    life.at(250.0)
    await life.end(wide)


async def retries(life: Life) -> None:
    await life.node("n1")
    life.at(110.0)
    first, second = await life.submit(retries=1), await life.submit()
    await life.start(first)
    life.at(150.0)
    await life.end(first, first, exit_code=1)
    life.at(250.0)
    await life.end(first, second)
    life.at(300.0)
    await life.end(second)


async def start_latency(life: Life) -> None:
    await life.node("n1")
    life.at(110.0)
    first, second = await life.submit(), await life.submit()
    life.at(130.0)
    await life.start(first)
    life.at(200.0)
    await life.end(first)
    life.at(220.0)
    await life.start(second)
    life.at(300.0)
    await life.end(second)


async def stop_costs(life: Life) -> None:
    await life.node("n1")
    life.at(110.0)
    first = await life.submit(**CHECKPOINT)
    await life.start(first)
    life.at(120.0)
    await life.node("n2")
    life.at(150.0)
    await life.w.good("POST", "/node/n1/drain", {"reason": "a fan", "deadline_s": 0})
    life.at(180.0)
    await life.end(first, first, outcome="signalled", exit_code=None, signal=15)
    life.at(280.0)
    await life.end(first)


async def used_by_others(life: Life) -> None:
    """Others have half of the device: a step takes 2 s. The third, which is to make half as many, waits at the end."""
    await life.node("n1")
    life.at(110.0)
    first, second, _ = [await life.submit(family="f", steps_total=steps) for steps in (51, 51, 26)]
    await life.start(first)
    for job, end_s in ((first, 212.0), (second, 314.0)):
        life.at(end_s)
        await life.report(job, progress=halved(life.now_s))
        await life.end(job, *([second] if job == first else []))


def halved(now_s: float) -> dict[str, float]:
    """51 steps within 102 s, of which others had half."""
    spent = {"at_s": now_s, "steps": 51, "first_step_s": now_s - 100, "last_step_s": now_s}
    return {**spent, "step_mean_s": 2.0, "step_median_s": 2.0, "others_ratio": 0.5}


async def reservations(life: Life) -> None:
    await life.node("n1")
    life.at(110.0)
    body = {"nodes": "n1", "users": ["bob"], "from": "now+20s", "to": "now+90s", "name": "course"}
    await life.w.good("POST", "/reservations", body)
    first, second = await life.submit(), await life.submit(user="bob")
    await life.start(second)
    life.at(180.0)
    await life.end(second)
    life.at(200.0)
    await life.w.line(lambda line: line.body.get("job") == first and line.body.get("state") == "assigned")
    await life.start(first)
    life.at(300.0)
    await life.end(first)


# -- what tells of each kind, taken out of an export


def no_events(*kinds: str) -> Callable[[Path], None]:
    def take_out(folder: Path) -> None:
        path = folder / "cluster.yaml"
        found = yaml.safe_load(path.read_text())
        kept = [one for one in found["events"] if one["event"] not in kinds]
        assert kept != found["events"]
        path.write_text(yaml.safe_dump({**found, "events": kept}))

    return take_out


def no_costs(name: str) -> Callable[[Path], None]:
    def take_out(folder: Path) -> None:
        path = folder / "cluster.yaml"
        found = yaml.safe_load(path.read_text())
        found["costs"].pop(name)
        path.write_text(yaml.safe_dump(found))

    return take_out


def no_column(*names: str) -> Callable[[Path], None]:
    def take_out(folder: Path) -> None:
        path = folder / "trace.csv"
        with path.open() as file:
            rows = list(csv.DictReader(file))
        assert any(row[name] for row in rows for name in names)
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, [name for name in rows[0] if name not in names], extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)

    return take_out


def no_first(folder: Path) -> None:
    path = folder / "trace.csv"
    head, _, *others = path.read_text().splitlines(keepends=True)
    path.write_text("".join([head, *others]))


def no_used(folder: Path) -> None:
    path = folder / "cluster.yaml"
    found = yaml.safe_load(path.read_text())
    for one in found["events"]:
        one.pop("used", None)
    path.write_text(yaml.safe_dump(found))


class Scene(NamedTuple):
    """One life; what is taken out so that it is no longer what was."""

    deeds: Callable[[Life], Awaitable[None]]
    without: Callable[[Path], None]
    settings: dict[str, Any] = {}  # noqa: RUF012 - as they are given
    window: TimeWindow = TimeWindow(NOON_S + BEGIN_S, NOON_S + END_S)
    policy: str = "fifo"


BUDGET = {"quotas": Quotas(users={"ann": Limits(gpu_hours_per_month=1)})}
SCENES: Final = {
    "open at both ends": Scene(open_at_both_ends, no_first),
    "cancelled while it waited": Scene(cancelled, no_column("cancelled_s")),
    "a node that comes": Scene(node_comes, no_events("lost", "back")),
    "a drained node": Scene(node_drained, no_events("drain", "undrain")),
    "a lost node": Scene(node_lost, no_events("lost")),
    "quotas": Scene(quotas, no_events("limits"), {"quotas": Quotas(users={"ann": Limits(running=1)})}),
    "budgets": Scene(budgets, no_events("limits"), BUDGET, TimeWindow(NOON_S + 2000, NOON_S + 50_000)),
    "what was used of budgets": Scene(budgets, no_used, BUDGET, TimeWindow(NOON_S + 2000, NOON_S + 50_000)),
    "priorities": Scene(priorities, no_column("priority")),
    "changed time limits": Scene(changed_limit, no_column("changed_limit_s"), policy="easy-backfill"),
    "failures and retries": Scene(retries, no_column("failed_s")),
    "start latency": Scene(start_latency, no_costs("launch")),
    "stop costs": Scene(stop_costs, no_costs("stop")),
    "reservations": Scene(reservations, no_events("reserve")),
}


def _differ(folder: Path, policy: str) -> float:
    """By how many seconds a start or an end is off, at most."""
    lived_s, now_s = was(folder), again(folder, policy)
    assert lived_s
    gaps = [abs(a - b) for name in lived_s for a, b in zip(lived_s[name], now_s[name], strict=True)]
    return max([math.inf if math.isnan(gap) else gap for gap in gaps])


@pytest.mark.parametrize("name", SCENES)
async def test_what_happened_happens_again_and_does_not_without_what_tells_of_it(name: str, tmp_path: Path) -> None:
    scene = SCENES[name]
    answers = await lived(scene.deeds, policy=scene.policy, **scene.settings)
    made = exported(answers, tmp_path, scene)
    assert _differ(tmp_path, scene.policy) < 1.0
    scene.without(tmp_path)
    assert _differ(tmp_path, scene.policy) > 10.0, made


def exported(answers: Told, folder: Path, scene: Scene) -> Exported:
    return export_jobs(answers, {}, folder, scene.window, scene.window.until_s)  # type: ignore[arg-type]


async def test_lengths_are_as_they_were_where_others_used_devices(tmp_path: Path) -> None:
    scene = Scene(used_by_others, no_first)
    made = exported(await lived(scene.deeds, policy="fifo"), tmp_path, scene)
    assert made.others_ratio == 0.5
    (there,) = clusters.load(made.cluster).nodes
    assert there.gpus[0].others_ratio == 0.5
    assert there.gpus[0].is_disturbed, "what others leave of it is shared as it was then"
    begun_s, ended_s = again(tmp_path)["job-3"]
    assert ended_s - begun_s == pytest.approx(52.0)


async def test_what_never_starts_waits_again(tmp_path: Path) -> None:
    """One whose only node is drained waits to the end; one that named another goes there."""

    async def waits(life: Life) -> None:
        await life.node("n2")
        await life.w.good("POST", "/node/n2/drain", {"reason": "a fan"})
        await open_at_both_ends(life)
        await life.submit(nodes="n2")
        await life.submit(nodes="not:n2")

    scene = Scene(waits, no_first)
    made = exported(await lived(scene.deeds, policy="fifo"), tmp_path, scene)
    assert (made.jobs, made.open, made.left_out) == (6, 4, 0)
    found = again(tmp_path)
    assert math.isnan(found["job-5"][0])
    assert not math.isnan(found["job-6"][0])


async def test_limits_are_told_at_a_start_with_others_and_whenever_they_are_read_again() -> None:
    store, told_limits = MemoryStore(), list[Any]()
    one, two = Limits(running=1), Limits(running=2)
    lab = GroupQuota(Limits(gpus=4), frozenset({"ann"}), guaranteed_gpus=2)
    whole = Quotas(Limits(queued=9), {"ann": one}, {"lab": lab}, {"night": QosQuota(Limits(gpus=3), Limits(gpus=1))})
    lives = (Quotas(), Quotas(users={"ann": one}), Quotas(users={"ann": one}), whole, Quotas())
    for quotas in lives:
        async with world(store, quotas=quotas, read=lambda: FileRules(Quotas(users={"ann": two}))) as w:
            await w.good("POST", "/node", node())
            if quotas is lives[-2]:
                await w.good("POST", "/config/reload", {})
    told_limits = [line.body["limits"] for line in store.audit(0, 10**6) if line.kind == "settings-read"]
    assert told_limits == [
        {"user": {"ann": {"running": 1}}},
        {
            "default": {"queued": 9},
            "user": {"ann": {"running": 1}},
            "group": {"lab": {"gpus": 4, "members": ["ann"], "guaranteed_gpus": 2}},
            "qos": {"night": {"gpus": 3, "gpus_per_user": 1}},
        },
        {"user": {"ann": {"running": 2}}},
        {},
    ]
    assert replace(quotas_of("there", told_limits[1]), default=whole.default, users=whole.users) == whole


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({}, "column 'events[0].limits': must be tables, as {user: {ann: {gpus: 4}}}"),
        ({"limits": {"user": {"ann": {"gpu": 4}}}}, "events[0].limits: user.ann.gpu: did you mean gpus"),
        ({"limits": {"users": {}}}, "there is no table 'users'"),
        ({"limits": {"group": {"root": {"gpus": 1}}}}, "group.root: name the users of the trace in it"),
        ({"limits": {}, "used": {"ann": -1}}, "column 'events[0].used': must be GPU-hours by user, as {ann: 12.5}"),
        ({"limits": {}, "used": ["ann"]}, "column 'events[0].used': must be GPU-hours by user, as {ann: 12.5}"),
        ({"limits": {}, "users": ["ann"]}, "column 'events[0].users': belongs to reserve, not to limits"),
        ({"event": "drain", "node": "n", "limits": {}}, "column 'events[0].limits': belongs to limits, not to drain"),
    ],
)
def test_limits_that_cannot_be_are_named(event: dict[str, Any], said: str, tmp_path: Path) -> None:
    group = {"name": "n", "gpus": 1, "gpu_type": "V100", "gpu_memory": "16GB"}
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump({"groups": [group], "events": [{"at": 0, "event": "limits", **event}]}))
    with pytest.raises(InputFileError) as found:
        clusters.load(path)
    assert said in str(found.value)


async def test_what_if_changes_the_limits_that_were_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scene = SCENES["quotas"]
    exported(await lived(scene.deeds, policy="fifo", **scene.settings), tmp_path, scene)
    words = ["whatif", "--past", str(tmp_path), "--ruled", "fifo", "--quota", "ann.running=2", "--json"]
    assert app.run(words) == 0
    as_it_was, freed = (row["figures"]["mean_wait_s"] for row in json.loads(capsys.readouterr().out)["tried"])
    assert (as_it_was, freed) == (pytest.approx(20.0), pytest.approx(0.0))
