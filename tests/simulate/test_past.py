"""`colane replay`, `colane whatif`: the jobs of a time again, and what a change would do to them."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from colane.cli import app
from colane.cli.errors import FailureError, MisuseError
from colane.client.client import Event
from colane.lab.commands.export import TimeWindow, export_jobs, node_events, parse_window
from colane.lab.commands.replay import (
    PastFigures,
    ReplayedJob,
    _unshared,
    drawn,
    recorded,
    same_order_ratio,
    shares_of,
    trust,
    with_nodes,
)
from colane.lab.simulate.request import LIVE, Request, inputs, load
from colane.lab.simulate.run import simulate
from colane.lab.traces.read import read
from colane.lab.traces.tables.measured import ENDED_S, HAD_S, STARTED_S
from colane.lab.traces.workload import TraceJob
from colane.model.job import JobId
from colane.model.job_spec import JobSpec

from .test_replay import FakeScheduler, _record

NOW_S = 960.0


class OneDevice(FakeScheduler):
    """Ten jobs of one family, 100 s each, one after another on one device; the seventh runs, three wait."""

    def finished_jobs(self, labels: object = None) -> list[dict[str, Any]]:
        del labels
        return [self._opaque(number, 100.0) for number in range(6)]

    def live_jobs(self) -> list[dict[str, Any]]:
        unknown = {"steps_total": None, "left_s": None}
        running = self._opaque(6, 60.0) | {"state": "running", "facts": unknown}
        waiting = [
            self._opaque(number, 0.0)
            | {"state": "queued", "start_s": None, "end_s": None, "gpus": [], "facts": unknown}
            for number in (7, 8, 9)
        ]
        return [running, *waiting]

    @staticmethod
    def _opaque(number: int, span_s: float) -> dict[str, Any]:
        submit_s, start_s = 300.0 + number, 300.0 + 100 * number
        made = _record(number + 1, "a", submit_s, span_s, 0, waited_s=start_s - submit_s)
        return made | {"progress": None, "steps": 0}


def _exported(folder: Path, window: TimeWindow) -> tuple[TraceJob, ...]:
    made = export_jobs(OneDevice(), {}, folder, window, NOW_S)  # type: ignore[arg-type]
    jobs = read(str(made.trace), "colane").jobs
    assert len(jobs) == made.jobs
    return jobs


def test_a_time_holds_what_was_left_of_what_ran_and_all_that_waits(tmp_path: Path) -> None:
    jobs = _exported(tmp_path, TimeWindow(760.0, NOW_S))  # five and six start at 700 and 800
    assert [job.spec.name for job in jobs] == [f"job-{number}" for number in range(5, 11)]
    assert [job.submit_s for job in jobs] == [0.0] * 6
    assert jobs[0].duration_s == pytest.approx(40.0), "60 of its 100 s were over"
    assert STARTED_S not in jobs[0].spec.labels, "it is no start of this time"
    assert [float(jobs[1].spec.labels[name]) for name in (STARTED_S, ENDED_S)] == [40.0, 140.0]
    assert [job.spec.labels.get(HAD_S) for job in jobs] == [None, None, "60.0", "0.0", "0.0", "0.0"]
    assert [job.duration_s for job in jobs[2:]] == [pytest.approx(100.0)] * 4, "the middle of what others took"


class GivenUp(OneDevice):
    """The same, and one of the ninth's kind that was cancelled after it had waited for 200 s."""

    def finished_jobs(self, labels: object = None) -> list[dict[str, Any]]:
        never = self._opaque(10, 0.0) | {"state": "cancelled", "start_s": None, "end_s": 510.0, "gpus": []}
        return [*super().finished_jobs(labels), never | {"facts": {"steps_total": None, "left_s": None}}]


@pytest.mark.parametrize("policy", ["fifo", "srtf", "colane"])
def test_one_that_was_cancelled_while_it_waited_is_so_again_where_it_has_not_started(
    tmp_path: Path, policy: str
) -> None:
    made = export_jobs(GivenUp(), {}, tmp_path, TimeWindow(300.0, NOW_S), NOW_S)  # type: ignore[arg-type]
    assert made.left_out == 0
    jobs = list(read(str(made.trace), "colane").jobs)
    (given_up,) = [job for job in jobs if job.cancelled_s is not None]
    assert (given_up.spec.name, given_up.submit_s, given_up.cancelled_s) == ("job-11", 10.0, 200.0)
    began = {one.name: one.start_s for one in _times(tmp_path, policy)}
    assert math.isnan(began.pop("job-11"))
    assert len(began) == 10
    assert not any(map(math.isnan, began.values())), "all others start"
    patient = [replace(job, cancelled_s=2000.0) if job is given_up else job for job in jobs]
    began = {one.name: one.start_s for one in _times(tmp_path, policy, patient)}
    assert began["job-11"] < 2000.0


def _line(number: int, kind: str, at_s: float, **body: Any) -> Event:
    return Event(number, kind, {"node": "n", "at_s": at_s, **body})


COURSE = {"name": "course", "users": ["ann"], "from_s": 140.0, "to_s": 180.0, "by": "op"}
LATER = {**COURSE, "name": "later", "from_s": 190.0, "to_s": 300.0}


def _kept(number: int, at_s: float, *kept: dict[str, Any]) -> Event:
    return _line(number, "node-reserved", at_s, reservations=[one["name"] for one in kept], kept=list(kept))


@pytest.mark.parametrize(
    ("lines", "events"),
    [
        ([], []),
        ([_line(2, "node-registered", 50.0), _line(3, "node-registered", 150.0)], []),
        ([_line(1, "node-registered", 150.0)], [(0.0, "lost"), (50.0, "back")]),
        ([_line(7, "node-drained", 50.0, reason="disk", deadline_s=None)], [(0.0, "drain")]),
        ([_line(7, "node-lost", 50.0), _line(8, "node-returned", 120.0)], [(0.0, "lost"), (20.0, "back")]),
        ([_line(7, "node-drained", 120.0, reason="disk", deadline_s=180.0), _line(8, "node-undrained", 150.0)],
         [(20.0, "drain"), (50.0, "undrain")]),
        ([_line(7, "node-lost", 120.0), _line(8, "node-lost", 130.0), _line(9, "node-returned", 140.0),
          _line(10, "node-lost", 900.0)], [(20.0, "lost"), (40.0, "back")]),
        ([_line(7, "node-lost", 120.0) ._replace(body={"node": "gone", "at_s": 120.0})], []),
        ([_line(7, "job-ended", 120.0)], []),
        ([_kept(7, 50.0, COURSE)], [(0.0, "reserve")]),
        ([_kept(7, 50.0, COURSE), _kept(8, 60.0)], []),
        ([_kept(7, 50.0, COURSE), _kept(8, 150.0)], [(0.0, "reserve"), (50.0, "unreserve")]),
        ([_kept(7, 120.0, COURSE), _kept(8, 130.0, COURSE, LATER)], [(20.0, "reserve"), (30.0, "reserve")]),
        ([_kept(7, 120.0, COURSE), _kept(8, 185.0, LATER)], [(20.0, "reserve"), (85.0, "reserve")]),
        ([_kept(7, 120.0, COURSE), _kept(8, 130.0, COURSE | {"to_s": 170.0})],
         [(20.0, "reserve"), (30.0, "unreserve"), (30.0, "reserve")]),
        ([_kept(7, 250.0, COURSE)], []),
        ([_line(7, "node-reserved", 120.0, reservations=["course"])], []),
    ],
)  # fmt: skip
def test_what_happened_to_nodes_within_a_time_is_what_a_cluster_file_can_say(
    lines: list[Event], events: list[tuple[float, str]], tmp_path: Path
) -> None:
    found = list(node_events(lines, {"n": ()}, TimeWindow(100.0, 200.0)))
    assert [(one["at"], one["event"]) for one in found] == events
    file = {"name": "x", "groups": [{"name": "n", "gpus": 1, "gpu_type": "cpu", "gpu_memory": "8GB"}], "events": found}
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(file))
    read_back = load(Request(cluster=str(path), trace="poisson:jobs=2,gap=1"), 0).cluster.events
    assert [(one.at_s, one.kind.value) for one in read_back] == events


def test_a_lost_node_is_lost_again_in_the_replay(tmp_path: Path) -> None:
    scheduler = OneDevice()
    whole = export_jobs(scheduler, {}, tmp_path / "whole", TimeWindow(300.0, NOW_S), NOW_S)  # type: ignore[arg-type]
    assert "events" not in yaml.safe_load(whole.cluster.read_text())
    scheduler.lines = [_line(5, "node-lost", 650.0), _line(6, "node-returned", 700.0)]
    export_jobs(scheduler, {}, tmp_path / "lost", TimeWindow(300.0, NOW_S), NOW_S)  # type: ignore[arg-type]
    ends = [max(one.end_s for one in _times(tmp_path / name, "fifo")) for name in ("whole", "lost")]
    assert ends[1] >= ends[0] + 50.0


@pytest.mark.parametrize("policy", ["fifo", "easy-backfill", "colane"])
@pytest.mark.parametrize("is_told_whole", [True, False])
def test_a_reserved_node_is_reserved_again_in_the_replay(tmp_path: Path, policy: str, is_told_whole: bool) -> None:
    """Ten jobs of 100 s without limits wait from 300 s on; from 500 to 650 s the device is kept for another user."""
    kept = {**COURSE, "from_s": 500.0, "to_s": 650.0}
    scheduler = OneDevice()
    scheduler.lines = [_kept(5, 250.0, kept) if is_told_whole else _line(5, "node-reserved", 250.0, reservations=[])]
    scheduler.nodes = lambda: [FakeScheduler.nodes(scheduler)[0] | {"reservations": [kept]}]  # type: ignore[method-assign]
    export_jobs(scheduler, {}, tmp_path, TimeWindow(300.0, NOW_S), NOW_S)  # type: ignore[arg-type]
    began_s = [one.start_s for one in _times(tmp_path, policy)]
    assert len(began_s) == 10
    assert min(began_s) >= 350.0, "none might have ended before"
    scheduler.lines = [_kept(5, 250.0, kept), _kept(6, 400.0)]
    scheduler.nodes = lambda: FakeScheduler.nodes(scheduler)  # type: ignore[method-assign]
    export_jobs(scheduler, {}, tmp_path / "cancelled", TimeWindow(300.0, NOW_S), NOW_S)  # type: ignore[arg-type]
    assert min(one.start_s for one in _times(tmp_path / "cancelled", policy)) == pytest.approx(100.0, abs=2.0)


def test_without_sharing_is_a_fresh_simulation_of_jobs_that_share_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export_jobs(FakeScheduler(), {}, tmp_path, TimeWindow(50.0, NOW_S), NOW_S)  # type: ignore[arg-type]
    assert app.run(["whatif", "--past", str(tmp_path), "--ruled", "colane", "--no-share", "--json"]) == 0
    _, told = json.loads(capsys.readouterr().out)["tried"]
    jobs = load(_request(tmp_path), 0).workload.jobs
    assert all(job.spec.share for job in jobs)
    fresh = _times(tmp_path, "colane", [replace(job, spec=replace(job.spec, share=False)) for job in jobs])
    assert told["figures"]["mean_jct_s"] == pytest.approx(PastFigures.of(fresh).mean_jct_s, rel=1e-12)
    request = _request(tmp_path)
    alone = _unshared(request, load(request, 0)).workload.jobs  # in this world nothing would share
    assert [job.id for job in alone] == [job.id for job in jobs]
    assert not any(job.spec.share for job in alone)
    first, second = sorted(fresh, key=lambda one: one.start_s)
    assert second.start_s >= first.end_s, "one after another"


def test_what_sharing_did_for_users_sums_to_what_it_did_for_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _exported(tmp_path, TimeWindow(300.0, NOW_S))
    text = (tmp_path / "trace.csv").read_text().splitlines()
    at = text[0].split(",").index("user")
    rows = [line.split(",") for line in text[1:]]
    for number, row in enumerate(rows):
        row[at] = ("ann", "bob", "cyd")[number % 3]
    (tmp_path / "trace.csv").write_text("\n".join([text[0], *map(",".join, rows)]) + "\n")
    words = ["replay", "--past", str(tmp_path), "--ruled", "colane", "--by-user"]
    assert app.run([*words, "--json"]) == 0
    *users, every = json.loads(capsys.readouterr().out)["users"]
    assert [one["user"] for one in users] == ["ann", "bob", "cyd"]
    assert (every["user"], every["jobs"]) == ("all", 6)
    for name in ("jobs", "gpu_h", "took_h", "slowed"):
        assert every[name] == pytest.approx(sum(one[name] for one in users))
    assert every["alone_h"][0] == pytest.approx(sum(one["alone_h"][0] for one in users))
    assert every["gpu_h"] == pytest.approx(6 * 100 / 3600)
    assert every["alone_h"][1] <= every["alone_h"][0] <= every["alone_h"][2]
    assert app.run(words) == 0
    assert "ALONE IN FIFO" in capsys.readouterr().out


def test_one_that_took_longer_than_alone_was_slowed() -> None:
    labels = {STARTED_S: "0", ENDED_S: "150"}
    spec = JobSpec(name="job-7", family="f", labels=labels, gpus=2, user="ann")
    job = TraceJob(id=JobId(1), submit_s=0.0, spec=spec, duration_s=100.0)
    draws = [[ReplayedJob("job-7", 0.0, start_s, start_s + 100.0)] for start_s in (10.0, 30.0)]
    (ann, every) = shares_of([job], draws)
    assert (ann["slowed"], ann["slowed_ratio"], ann["gpu_h"]) == (1, 1.5, 300 / 3600)
    assert ann["slowed_jobs"] == [{"job": 7, "ratio": 1.5}]
    assert ann["alone_h"] == pytest.approx((120 / 3600, 110 / 3600, 130 / 3600))
    assert every == {**ann, "user": "all", "slowed_jobs": []}


def test_without_a_time_it_is_what_has_ended(tmp_path: Path) -> None:
    assert [job.outcome for job in _exported(tmp_path, TimeWindow())] == ["succeeded"] * 6


def test_this_moment_is_what_runs_and_waits(tmp_path: Path) -> None:
    jobs = _exported(tmp_path, TimeWindow(NOW_S, NOW_S))
    assert [job.outcome for job in jobs] == ["running", "queued", "queued", "queued"]
    assert jobs[0].duration_s == pytest.approx(40.0)


def test_lengths_that_nothing_tells_are_drawn_of_longer_ones_and_others_stay(tmp_path: Path) -> None:
    jobs = _exported(tmp_path, TimeWindow(310.0, NOW_S))
    spread = [replace(job, duration_s=10.0 * job.id) if HAD_S not in job.spec.labels else job for job in jobs]
    draws = [drawn(spread, seed) for seed in range(20)]
    assert drawn(spread, 3) == draws[3]
    for name in ("job-8", "job-10"):
        assert len({job.duration_s for draw in draws for job in draw if job.spec.name == name}) > 1
    known = [job for job in spread if HAD_S not in job.spec.labels]
    assert all([job for job in draw if HAD_S not in job.spec.labels] == known for draw in draws)


def test_the_policy_that_ruled_is_trusted_on_its_own_past(tmp_path: Path) -> None:
    _exported(tmp_path, TimeWindow(300.0, NOW_S))
    loaded = load(_request(tmp_path), 0)
    near = trust(recorded(loaded.workload.jobs), _times(tmp_path, "fifo"))
    assert near.jobs == 6
    assert near.is_trusted, near
    assert near.same_order_ratio == 1.0


def test_trust_is_lost_where_what_was_is_not_what_is_simulated() -> None:
    was = [ReplayedJob(f"{n}", 0.0, 100.0 * n, 100.0 * n + 100) for n in range(5)]
    late = [ReplayedJob(f"{n}", 0.0, 200.0 * (4 - n), 200.0 * (4 - n) + 200) for n in range(5)]
    near = trust(was, late)
    assert not near.is_trusted
    assert near.errors["makespan_s"] == pytest.approx(1.0)
    assert near.same_order_ratio == 0.0
    assert same_order_ratio(was, was) == 1.0
    assert PastFigures.of(was).mean_wait_s == 200.0


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las", "easy-backfill", "pack", "colane"])
def test_more_nodes_are_a_fresh_simulation_of_that_cluster(
    policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Byte for byte: every column of every job, the cluster over time, and what is told of it."""
    past, other = tmp_path / "past", tmp_path / "other"
    for folder in (past, other):
        _exported(folder, TimeWindow(300.0, NOW_S))
    file = yaml.safe_load((past / "cluster.yaml").read_text())
    (group,) = file["groups"]
    file["groups"] += [{**group, "name": name} for name in ("more0", "more1")]
    (other / "cluster.yaml").write_text(yaml.safe_dump(file, sort_keys=False))
    told = []
    for words in (["whatif", "--past", str(past), "--nodes", "+2"], ["replay", "--past", str(other), "-p", policy]):
        assert app.run([*words, "--ruled", policy, "--json"]) == 0
        told.append(json.loads(capsys.readouterr().out)["tried"])
    as_it_is, changed = told[0]
    (fresh,) = told[1]
    assert json.dumps([changed["ended"], changed["figures"]]) == json.dumps([fresh["ended"], fresh["figures"]])
    assert changed["figures"] != as_it_is["figures"]
    loaded, anew = load(_request(past), 0), load(_request(other), 0)
    named = tuple(replace(node, name=re.sub(r"^(more\d)-0$", r"\1", node.name)) for node in anew.cluster.nodes)
    anew = replace(anew, cluster=replace(anew.cluster, nodes=named))
    ours, theirs = (
        simulate(inputs(_request(past), one, policy, 0, as_published=False)).ledger
        for one in (replace(loaded, cluster=with_nodes(loaded.cluster, "+2")), anew)
    )
    for name in ("id", "state", "submit_s", "first_start_s", "start_s", "end_s", "attempts", "gpu_s", "alone_s"):
        assert getattr(ours.rows, name).tobytes() == getattr(theirs.rows, name).tobytes(), name
    assert (ours.rows.gpus, ours.curve, ours.stays) == (theirs.rows.gpus, theirs.curve, theirs.stays)


def test_a_limit_on_a_user_takes_back_what_nodes_bring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _exported(tmp_path, TimeWindow(300.0, NOW_S))
    words = ["whatif", "--past", str(tmp_path), "--ruled", "fifo", "--nodes", "+2", "--quota", "u.running=1", "--json"]
    assert app.run(words) == 0
    told = json.loads(capsys.readouterr().out)["tried"][1]
    assert told["name"] == "--nodes +2, u.running=1"
    assert told["differences"]["mean_wait_s"][0] == pytest.approx(0.0, abs=0.01)


def test_a_wait_that_is_off_is_not_trusted_though_the_rest_is_near() -> None:
    was = [ReplayedJob(f"{n}", 0.0, 10.0, 1000.0) for n in range(3)]
    assert not trust(was, [one._replace(start_s=20.0) for one in was]).is_trusted
    assert trust(was, was).is_trusted


def test_the_same_past_gives_the_same_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _exported(tmp_path, TimeWindow(300.0, NOW_S))
    told = []
    for _ in range(2):
        assert app.run(["replay", "--past", str(tmp_path), "--ruled", "fifo", "-p", "srtf", "--json"]) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
    assert [row["name"] for row in json.loads(told[0])["tried"]] == ["fifo", "srtf"]


class Empty(FakeScheduler):
    """Nothing has run and nothing waits."""

    def finished_jobs(self, labels: object = None) -> list[dict[str, Any]]:
        del labels
        return []

    def live_jobs(self) -> list[dict[str, Any]]:
        return []


class SetBack(OneDevice):
    """The clock was set back by 250 s while the fourth ran."""

    def finished_jobs(self, labels: object = None) -> list[dict[str, Any]]:
        return [
            one | {"start_s": one["start_s"] - 250.0 * (n > 3), "end_s": one["end_s"] - 250.0 * (n > 2)}
            for n, one in enumerate(super().finished_jobs(labels))
        ]


class Shrinks(OneDevice):
    """The one that runs has made more steps than it says now that it makes in all."""

    def live_jobs(self) -> list[dict[str, Any]]:
        running, *waiting = super().live_jobs()
        shrunk = {"steps": 500, "facts": {"steps_total": 10, "left_s": 0.0}}
        return [running | shrunk, *waiting]


class NeverDrains(OneDevice):
    """Another waits for more GPUs than there are."""

    def live_jobs(self) -> list[dict[str, Any]]:
        *others, last = super().live_jobs()
        return [*others, last | {"needs": last["needs"] | {"gpus": 64}}]


class Trimmed(OneDevice):
    """The store keeps what happened to nodes since the middle of the time, and three of the jobs."""

    def finished_jobs(self, labels: object = None) -> list[dict[str, Any]]:
        return super().finished_jobs(labels)[3:]


def test_of_an_empty_history_nothing_is_said(tmp_path: Path) -> None:
    for window in (TimeWindow(300.0, NOW_S), TimeWindow(NOW_S, NOW_S)):
        with pytest.raises(FailureError, match="no job has run and ended yet in this time"):
            export_jobs(Empty(), {}, tmp_path, window, NOW_S)  # type: ignore[arg-type]


@pytest.mark.parametrize(("scheduler", "ended"), [(SetBack, 10), (Shrinks, 10), (NeverDrains, 9), (Trimmed, 7)])
@pytest.mark.parametrize("words", [["replay", "-p", "srtf"], ["whatif", "--nodes", "+1"]])
def test_what_is_wrong_with_a_past_does_no_harm(
    words: list[str], scheduler: type[FakeScheduler], ended: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = scheduler()
    asked.lines = [_line(11, "node-lost", 650.0), _line(12, "node-returned", 651.0)]
    export_jobs(asked, {}, tmp_path, TimeWindow(300.0, NOW_S), NOW_S)  # type: ignore[arg-type]
    status = app.run([*words, "--past", str(tmp_path), "--ruled", "fifo", "--json"])
    text = capsys.readouterr()
    assert status == 0, text.err
    told = json.loads(text.out)
    assert [row["ended"] for row in told["tried"]] == [ended, ended]
    assert all(math.isfinite(value) and value >= 0 for row in told["tried"] for value in row["figures"].values())


def test_a_policy_file_that_raises_is_named_with_its_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _exported(tmp_path / "past", TimeWindow(300.0, NOW_S))
    own = tmp_path / "own.py"
    own.write_text("class Raises:\n    name = 'raises'\n    def plan(self, view):\n        raise KeyError('oh')\n")
    for words in (["whatif", "-p", f"{own}:Raises"], ["replay", "-p", f"{own}:Raises"]):
        assert app.run([*words, "--past", str(tmp_path / "past"), "--ruled", "fifo"]) != 0
        said = capsys.readouterr().err
        assert "KeyError" in said
        assert "own.py" in said
        assert "Traceback" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["whatif"], "say what is to change"),
        (["whatif", "--nodes", "two"], "--nodes: must be as +2"),
        (["whatif", "--nodes=-1"], "leaves none"),
        (["whatif", "--nodes", "big:+1"], "there is no pool 'big'; known: default"),
        (["whatif", "--quota", "ann=4"], "--quota: must be as ann.gpus=4"),
        (["whatif", "-p", "fiffo"], "did you mean fifo"),
        (["replay", "-p", "fiffo"], "did you mean fifo"),
    ],
)
def test_mistakes_are_told_in_a_line(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _exported(tmp_path, TimeWindow(300.0, NOW_S))
    assert app.run([*words, "--past", str(tmp_path), "--ruled", "fifo"]) != 0
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_a_folder_that_is_no_past_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["replay", "--past", str(tmp_path)]) != 0
    assert "has no cluster.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("since", "until", "window"),
    [
        (None, None, TimeWindow()),
        ("1h", None, TimeWindow(1e9 - 3600, 1e9)),
        ("now", None, TimeWindow(1e9, 1e9)),
        ("2h", "1h", TimeWindow(1e9 - 7200, 1e9 - 3600)),
        ("2001-09-08T00:00:00+00:00", "1h", TimeWindow(999907200.0, 1e9 - 3600)),
    ],
)
def test_times_are_how_long_ago_or_of_the_calendar(since: str | None, until: str | None, window: TimeWindow) -> None:
    assert parse_window(since, until, 1e9) == window


@pytest.mark.parametrize(("since", "until"), [("soon", None), (None, "1h"), ("1h", "2h"), ("2001-09-10", None)])
def test_other_times_are_refused(since: str | None, until: str | None) -> None:
    with pytest.raises(MisuseError, match=r"--(since|until): must be|say --since"):
        parse_window(since, until, 1e9)


def test_nodes_go_from_the_end_of_their_pool() -> None:
    cluster = load(Request(cluster="v100-36", trace="poisson:jobs=2,gap=1"), 0).cluster
    names = [node.name for node in cluster.nodes]
    assert [node.name for node in with_nodes(cluster, "-2").nodes] == names[:-2]
    more = with_nodes(cluster, "default:+2")
    assert more.gpus == cluster.gpus + 8
    assert len({node.name for node in more.nodes}) == len(names) + 2


def _request(folder: Path) -> Request:
    return Request(
        cluster=str(folder / "cluster.yaml"), trace=str(folder / "trace.csv"), trace_format="colane",
        measured=folder / "measured.json", live=LIVE,
    )  # fmt: skip


def _times(folder: Path, policy: str, jobs: list[TraceJob] | None = None) -> list[ReplayedJob]:
    loaded = load(_request(folder), 0)
    if jobs is not None:
        loaded = replace(loaded, workload=replace(loaded.workload, jobs=tuple(jobs)))
    run = simulate(inputs(_request(folder), loaded, policy, 0, as_published=False))
    rows, by_id = run.ledger.rows, {int(job.id): job for job in loaded.workload.jobs}
    return [
        ReplayedJob(by_id[job].spec.name, by_id[job].submit_s, start_s, end_s)
        for job, start_s, end_s in zip(rows.id, rows.first_start_s, rows.end_s, strict=True)
    ]
