"""What people see of jobs that share devices, and suspending and resuming real processes."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from colane.cli.errors import FailureError
from colane.cli.jobs import objects as jobs
from colane.cli.jobs import show
from colane.cli.jobs.ps import SHARING, _sharing, table
from colane.cli.jobs.show import place
from colane.cli.jobs.suspend import state_text, suspend
from colane.cli.nodes.command import members
from colane.client.told import facts_of
from colane.core.config import CoreConfig
from colane.server.config import core_config
from colane.settings.setting import SettingError
from colane.settings.sources import gather
from colane.settings.table import SERVER
from colane.verbs.of_jobs import SUSPEND, JobVerb
from tests.cli.conftest import Colane, Up, until

LOOP = """
import os, sys, time
import colane.adaptor as colane
steps = colane.attach()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.005)
    steps.step()
"""


def sharing(**fields: Any) -> Any:
    known = {
        "lane_mates": [2],
        "others": [],
        "share_asked_ratio": 0.5,
        "slowdown_predicted": 2.0,
        "slowdown_measured": 2.14,
    }
    sample, job = {"turn": "waiting", "turn_share_ratio": 0.481}, {"sharing": {**known, **fields}, "lanes": [0]}
    asked = fields.get("share_asked_ratio", 0.5)
    shares = {"share_got_ratio": 0.481, "share_asked_ratio": asked, "gpus": ["n/0"]}
    return {**job, "progress": sample, "why": "stepping", "state": "running", "facts": told(**shares)}


def told(**facts: Any) -> Any:
    """What an older scheduler tells, which is nothing, and these facts."""
    empty: Any = {}
    return {**facts_of(empty), **facts}


def test_share_and_slowdown_say_what_was_had_and_what_was_promised() -> None:
    assert jobs.share_text(sharing()) == "48 % (50 %)"
    assert jobs.share_text(sharing(share_asked_ratio=None)) == "48 %"
    untold: Any = {"facts": told()}
    assert jobs.share_text(untold) == ""
    assert jobs.slowdown_text(sharing()) == "2.14 (2.00)"
    assert jobs.slowdown_text(sharing(slowdown_measured=None)) == "- (2.00)"
    assert jobs.slowdown_text(sharing(slowdown_predicted=None)) == "2.14"
    alone: Any = {"sharing": None, "progress": None}
    assert jobs.slowdown_text(alone) == ""


def server(took_s: float | None, objective_s: float | None = 0.1) -> Any:
    sample = {"answers": 1204, "idle_s": 61.0, "latency_p50_s": 0.0012, "latency_p95_s": 0.002, "latency_p99_s": took_s}
    return {"needs": {"latency_s": objective_s, "kind": "inference"}, "progress": sample, "state": "running"}


def test_how_long_answers_take_is_judged_by_the_objective() -> None:
    assert jobs.latency_text(server(0.0042)) == "4.2 ms (100 ms)"
    assert jobs.latency_text(server(1.25)) == "1.25 s (100 ms)!"
    assert jobs.latency_text(server(0.0042, None)) == "4.2 ms"
    assert jobs.latency_text(server(None)) == ""
    said = dict(show._answers(server(0.0042), server(0.0042)["progress"]))
    assert said == {
        "answers": "1,204; of the last half within 1.2 ms, 95 % within 2 ms, 99 % within 4.2 ms; within its objective",
        "idle": "1 min 1 s without a request",
    }
    assert dict(show._answers(server(0.2), server(0.2)["progress"]))["answers"].endswith("; above its objective")


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("state", ["running", "paused"])
def test_a_server_has_its_latency_whether_it_shares_or_not(state: str, shares: bool) -> None:
    found = server(0.0042) | {"sharing": sharing()["sharing"] if shares else None, "state": state, "lanes": [0]}
    cells = _sharing(found | {"why": "", "booked_cores": [], "saved_s": None})
    named = dict(zip([column.heading for column in SHARING], cells, strict=True))
    assert named["LATENCY"] == "4.2 ms (100 ms)"


def test_the_guards_word_is_shown_as_long_as_it_is_true() -> None:
    assert jobs.is_slow(sharing() | {"why": "slow-together"})
    assert not jobs.is_slow(sharing(slowdown_measured=1.9) | {"why": "slow-together"})
    assert not jobs.is_slow(sharing())


def test_a_device_names_its_lanes_where_jobs_share_it() -> None:
    def job(number: int, lane: int, *, paused: bool = False) -> dict[str, Any]:
        return {"id": number, "slots": [{"gpu": 0, "lane": lane}], "paused": paused}

    def on(*there: dict[str, Any]) -> Any:
        return {"jobs": there}

    assert members(on(), 0) == ""
    assert members(on(job(7, 0)), 0) == "7"
    assert members(on(job(7, 0)), 1) == ""
    several = on(job(7, 1), job(3, 0, paused=True), job(5, 1))
    assert members(several, 0) == "lane 0: 3(paused), lane 1: 7 5"
    on_host = {**job(4, 0, paused=True), "on_host": True}
    assert members(on(on_host), 0) == "on the host: 4"
    assert members(on(job(7, 0), on_host), 0) == "7, on the host: 4"


def test_columns_of_sharing_are_left_out_where_there_is_nothing_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    plain = {"id": 1, "name": "a", "user": "me", "gpus": ["n/0"], "submit_s": 0.0, "end_s": None, "sharing": None}
    table([sharing() | plain])
    assert "LANE" not in capsys.readouterr().out
    table([sharing() | plain | {"sharing": sharing()["sharing"]}, sharing() | plain])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[4:9] == ["GPUS", "LANE", "TURN", "SHARE", "SLOWDOWN"]
    assert "waiting  48 % (50 %)  2.14 (2.00)" in lines[1]


def test_a_job_that_never_reaches_a_boundary_is_told_of_all_the_same() -> None:
    note = "shares a lane and has reached no step boundary for 600 s: it runs beside its lane, without turns"
    sample = {"turn": "ungated", "turn_share_ratio": 0.0, "turn_wait_s": 0.0, "turn_service_s": 0.0, "note": note}
    fields = dict(show._progress(sharing() | {"progress": sample, "steps": 0}))
    assert fields["note"] == note
    assert fields["turn"].startswith("ungated; 0 % of the time it wanted the lane")


def test_how_long_turns_last_and_what_passing_them_on_takes_is_shown() -> None:
    sample: Any = {"turn": "running", "turn_share_ratio": 0.5, "turn_wait_s": 1.0, "turn_service_s": 1.0}
    chosen = {"turn_quantum_s": 0.0198, "turn_handoff_s": 0.0002}
    assert show._turn(sample | chosen).endswith("; turns of 19.8 ms, passed on in 0.2 ms")
    assert show._turn(sample | chosen | {"turn_quantum_s": 0.0}).endswith("; turns of one step, passed on in 0.2 ms")
    assert show._turn(sample | {"turn_quantum_s": None, "turn_handoff_s": 0.0002}) == show._turn(sample)


def test_the_guard_is_on_unless_it_is_switched_off() -> None:
    def config(guard: str | None = None, after: str | None = None, factors: str | None = None) -> CoreConfig:
        flags = {"guard": guard, "guard_after": after, "memory_factors": factors}
        return core_config(gather(SERVER, flags, environment={}))

    assert replace(config(), contention=None, tuning=None) == CoreConfig()
    assert not config("off").guard
    assert (config("50%", "5m").guard_margin_ratio, config("50%", "5m").guard_after_s) == (0.5, 300.0)
    assert config("12.5").guard_margin_ratio == 0.125
    assert config(factors="1, 1.2").memory_factors == (1.0, 1.2)
    with pytest.raises(SettingError, match="--guard: must be a percentage"):
        config("nan")


def test_memory_on_the_host_is_shown() -> None:
    here: Any = {"node": "n", "gpus": ["n/0"], "booked_cores": [], "on_host_bytes": None}
    assert place(here) == "n/0"
    assert place(here | {"booked_cores": [1], "on_host_bytes": 3 * 10**10}) == (
        "n/0, cores 1, 30 GB of its GPU memory on the host"
    )


def test_what_became_of_memory_that_was_to_be_moved_is_said() -> None:
    paused: Any = {
        "state": "paused",
        "suspended": True,
        "suspended_via": "host",
        "on_host_bytes": None,
        "gpus": ["n/0"],
    }
    assert state_text(paused) == "paused, its GPU memory is being moved to the host"
    assert state_text(paused | {"on_host_bytes": 30 * 10**9}) == "paused, 30 GB of GPU memory on the host"
    back = paused | {"on_host_bytes": 30 * 10**9, "suspended": False}
    assert state_text(back) == "paused, 30 GB of GPU memory on the host; waits for n/0"
    assert state_text(paused | {"suspended_via": "lane"}) == "paused"


class Told:
    """A scheduler whose job 7 is first being moved, then as a test says."""

    def __init__(self, **then: Any) -> None:
        moving = {"id": 7, "state": "paused", "suspended": True, "suspended_via": "host", "on_host_bytes": None}
        self.views = [{**moving, "gpus": ["n/0"], "why": "suspended-to-host", "reason": "..."}]
        self.views.append({**self.views[0], **then})
        self.asked: list[tuple[int, bool]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def act(self, verb: JobVerb, job: int, *, to_host: bool) -> None:
        assert verb is SUSPEND
        self.asked.append((job, to_host))

    def job(self, _job: int) -> dict[str, Any]:
        return self.views.pop(0) if len(self.views) > 1 else self.views[0]


def test_suspending_to_the_host_waits_for_the_outcome(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = Told(on_host_bytes=30 * 10**9, why="moved-to-host")
    monkeypatch.setattr(jobs, "client", lambda: told)
    suspend([jobs.JobName(7)], to_host=True)
    assert told.asked == [(7, True)]
    assert capsys.readouterr().out == "job 7: paused, 30 GB of GPU memory on the host\n"
    text = "its GPU memory stays on the GPU: 2 processes of it use the GPU; suspended by ann"
    monkeypatch.setattr(jobs, "client", lambda: Told(suspended_via="lane", why="not-moved", reason=text))
    with pytest.raises(FailureError, match=f"^job 7 is suspended, but {text}$"):
        suspend([jobs.JobName(7)], to_host=True)
    assert capsys.readouterr().out == "job 7: paused\n"


@pytest.mark.live
def test_a_job_is_suspended_at_a_step_and_goes_on_where_it_was(live: Colane, shared_up: Up, tmp_path: Path) -> None:
    done = tmp_path / "done"
    said = live("submit", "--", sys.executable, "-c", LOOP, str(done))
    number = int(said.out.split()[-1])

    def steps() -> int:
        with shared_up.client as client:
            return int(client.job(number)["steps"])

    def turn() -> str:
        with shared_up.client as client:
            sample = client.job(number)["progress"]
            return sample["turn"] if sample else ""

    until(lambda: steps() > 10, "the first steps")
    host = live("suspend", "--to-host", str(number))
    assert host.code == 1
    assert host.err == (
        f"colane: job {number} runs on a cpu device, whose memory is the host's: suspend it without --to-host\n"
    )
    assert live("suspend", str(number)).out == f"job {number}: paused\n"
    until(lambda: turn() == "paused", "the boundary")
    parked = steps()
    assert "suspended" in live("ps").out
    assert live("suspend", str(number)).out == f"job {number}: paused\n"
    again = live("suspend", "999999")
    assert (again.code, again.err) == (2, "colane: there is no job 999999\n")
    assert live("resume", str(number), "--json").json == [
        {"id": number, "state": "running", "suspended": False, "suspended_via": "lane", "on_host_bytes": None}
    ]
    until(lambda: steps() > parked + 10, "further steps")
    done.touch()
    assert shared_up.wait_for(number, "succeeded", "failed")["state"] == "succeeded"
    ended = live("suspend", str(number))
    assert (ended.code, ended.err) == (1, f"colane: job {number} has already ended: succeeded\n")


@pytest.mark.live
def test_a_job_that_launches_leaves_its_gpus_when_suspended(live: Colane, shared_up: Up) -> None:
    number = int(live("submit", "--", "sleep", "600").out.split()[-1])
    shared_up.wait_for(number, "launching")
    assert live("suspend", str(number)).out == f"job {number}: stopping\n"
    shared_up.wait_for(number, "queued")
    live("cancel", str(number))
    shared_up.wait_for(number, "cancelled")
