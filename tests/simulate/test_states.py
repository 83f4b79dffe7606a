"""A simulation that is cut, kept and begun again goes on as if nothing had been: every policy, odd worlds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.api.states import StateError, read, write
from colane.cli import app
from colane.core.policy import Policy
from colane.cpu.config import TuningConfig
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.factors import FactorsWorld
from colane.lab.simulate.run import Inputs, Run, simulate
from colane.lab.simulate.world import NeutralWorld
from colane.lab.traces.node_events import NodeEvent, NodeEventKind
from colane.lab.traces.workload import TraceJob
from colane.model.limits import Limits, Quotas
from colane.scheduling.registry import POLICIES, create
from tests.examples import examples

from .scenes import Restless, cluster, job, random_cluster, random_jobs, workload

NAMES = [*sorted(POLICIES), "colane:arrays=yes", "colane:lanes=own", "restless"]
SEEDS = st.integers(min_value=0, max_value=2**32 - 1)
HEAD = write(None).split(b"\n")[0] + b"\n"


def policy(name: str) -> Policy:
    return Restless() if name == "restless" else create(name)


def odd(one: TraceJob, random: Random) -> TraceJob:
    """A job that is held, given up, fails, has a deadline or a limit, is elastic or without GPUs, now and then."""
    spec = one.spec
    changes: list[dict[str, object]] = [
        {"held_s": float(random.choice((1, 9)))},
        {"cancelled_s": float(random.choice((0, 5, 40)))},
        {"failed_s": (1.0, 3.0)},
        {"spec": replace(spec, deadline_s=400.0, time_limit_s=150.0)},
        {"spec": replace(spec, sizes=(1, 2) if spec.gpus == 1 else ())},
        {"spec": replace(spec, gpus=0, cores=2, gpu_memory_bytes=None, steps_total=None)},
        {"spec": replace(spec, user=random.choice(("ann", "bob")), priority=random.choice((0, 3)))},
        {"spec": replace(spec, user="ann")},
    ]
    return replace(one, **random.choice(changes))  # type: ignore[arg-type]


def inputs(name: str, seed: int) -> Inputs:
    """A small world, with nodes that go, limits, costs, tuned cores, separated jobs, ticks and quotes, now and then."""
    random = Random(seed)
    machines, has_steps = random_cluster(seed), random.random() < 0.6
    jobs = [odd(one, random) for one in random_jobs(seed, with_steps=has_steps)]
    gone = machines.nodes[-1].name
    events = (
        NodeEvent(5.0, gone, NodeEventKind.DRAIN, 20.0), NodeEvent(40.0, gone, NodeEventKind.LOST),
        NodeEvent(90.0, gone, NodeEventKind.BACK),
    )  # fmt: skip
    driver = random.choice(
        (DriverConfig(), DriverConfig(launch_s=3.0, restart_s=2.0, stop_s=1.0), DriverConfig(park_s=1.0, stop_s=4.0))
    )
    has_events, tick_s = random.random() < 0.4, random.choice((None, 11.0))
    return Inputs(
        cluster=machines,
        workload=workload(*jobs),
        world=FactorsWorld(random.choice((0.5, 0.9))) if has_steps else NeutralWorld(),
        policy=policy(name),
        driver=replace(driver, node_events=events if has_events else (), tick_s=tick_s),
        limits=Quotas(users={"ann": Limits(running=1)}) if random.random() < 0.4 else Quotas(),
        tuning=TuningConfig() if random.random() < 0.3 else None,
        guard_margin_ratio=random.choice((None, 0.1)),
        guard_after_s=3.0,
        foresees=random.random() < 0.1,
    )


def results(done: Run) -> tuple[object, ...]:
    ledger = done.ledger
    return (
        ledger.rows, ledger.curve, ledger.stays, ledger.events, ledger.moments, ledger.decisions, ledger.flaws,
        ledger.time_spent, ledger.lost_s, ledger.paused_s, ledger.idle_s, ledger.interrupted, done.errors,
        done.profiles, done.measurements, done.guards, done.foretold, done.stuck, done.submitted, done.span_s,
    )  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@examples(6)
@given(seed=SEEDS, part=st.floats(0, 1))
def test_what_is_cut_kept_and_begun_again_ends_as_what_was_not(name: str, seed: int, part: float) -> None:
    whole = simulate(inputs(name, seed))
    cut = simulate(replace(inputs(name, seed), lasts_s=part * whole.span_s))
    if cut.state is None:  # nothing was left
        assert repr(results(cut)) == repr(results(whole))
        return
    assert cut.ledger.interrupted
    rest = simulate(replace(inputs(name, seed), begun=cut.state))
    assert repr(results(rest)) == repr(results(whole))


def test_another_policy_goes_on_with_what_is_there() -> None:
    jobs = [job(n, n - 1.0, s, gpus=2, time_limit_s=2 * s) for n, s in ((1, 100.0), (2, 50.0), (3, 5.0))]
    begin = Inputs(
        cluster=cluster(2), workload=workload(*jobs), world=NeutralWorld(), policy=create("fifo"), lasts_s=10.0
    )
    state = simulate(begin).state
    first_s = {}
    for name in POLICIES:
        done = simulate(replace(begin, policy=create(name), begun=state, lasts_s=float("inf")))
        first_s[name] = dict(zip(done.ledger.rows.id, done.ledger.rows.first_start_s, strict=True))
        assert sorted(done.ledger.rows.id) == [1, 2, 3], name
        assert done.ledger.flaws == []
    assert first_s["fifo"] == {1: 0.0, 2: 100.0, 3: 150.0}
    assert first_s["sjf"][3] < first_s["sjf"][2]


def by_name(module: str, name: str) -> bytes:
    """A state that has something of a module called, by a name that may lead on from it."""
    words = b"".join(b"\x8c" + bytes([len(word)]) + word.encode() for word in (module, name))
    return HEAD + b"\x80\x04" + words + b"\x93)R."


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is no state"),
        (b"colane-state 0.0.1\nabc", r"was written by Colane 0\.0\.1"),
        (write({"a": 1})[:-3], "is damaged"),
        (HEAD + b"cos\nsystem\n(S'true'\ntR.", r"it names os\.system"),
        (HEAD + b"cbuiltins\neval\n(S'1'\ntR.", r"it names builtins\.eval"),
        (HEAD + b"ccolane.lab.simulate.run\nsimulate\n)R.", r"it names colane\.lab\.simulate\.run\.simulate"),
        (by_name("colane.lanes.turns", "math"), r"it names colane\.lanes\.turns\.math"),
        (by_name("colane.perf.calibration", "np.loadtxt"), r"it names colane\.perf\.calibration\.np\.loadtxt"),
        (by_name("colane.server.store.sqlite", "SqliteStore"), r"it names colane\.server"),
    ],
)
def test_what_is_no_state_is_refused_and_nothing_is_run(data: bytes, said: str) -> None:
    with pytest.raises(StateError, match=said):
        read(data)


def test_what_cannot_be_kept_is_named() -> None:
    with pytest.raises(StateError, match="cannot be kept"):
        write({"a": lambda: 1})


WORDS = ["simulate", "-c", "dgx1", "-t", "poisson:jobs=40,gap=20", "-p", "colane", "--json"]


def test_commands_cut_a_simulation_and_go_on_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told(*words: str) -> dict[str, Any]:
        assert app.run([*words]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return {name: value for name, value in found["runs"][0].items() if name not in {"decision_s", "wall_s"}}

    state = str(tmp_path / "cut.state")
    whole, cut = told(*WORDS), told(*WORDS, "--for", "300", "--state", state)
    assert cut != whole
    assert told("simulate", "--from", state, "--json") == whole
    assert told("simulate", "--from", state, "-p", "fifo", "--json") != whole


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*WORDS, "--state", "x.state"], "--state: is of one run that is cut: say --for"),
        ([*WORDS, "-p", "fifo", "--for", "9", "--state", "x.state"], "one --policy"),
        ([*WORDS, "--for", "soon"], "--for: must be a duration"),
        ([*WORDS, "--for", "99d", "--state", "x.state"], "all jobs had ended before that"),
        (["simulate", "--from", "none.state"], "none.state: cannot be read: No such file"),
        (["simulate", "--from", "/etc/hostname"], "is no state of Colane's"),
        (["whatif", "--past", "/etc/hostname", "--nodes", "+1"], "is no state of Colane's"),
    ],
)
def test_what_cannot_be_kept_or_begun_is_told_in_a_line(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert app.run(words) not in {0, 130}
    assert said in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())
