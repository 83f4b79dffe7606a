"""`colane simulate` and `colane trace`, as a user meets them."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import select
import signal
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest

from colane.cli import app
from colane.lab.simulate.accuracy import BeliefErrors
from colane.lab.simulate.ledger import Ledger
from colane.lab.simulate.run import Run
from colane.lab.simulate.study import SeededRun, comparable
from tests.traces.formats import FILES

CONTRACT = (
    "policy", "jobs", "finished", "makespan_s", "jct_s", "queue_s", "run_span_s", "gpu_active_ratio",
    "gpu_utilization_ratio", "fragmentation_ratio", "slo_violations", "restarts", "slowdown_variance", "decisions",
    "decision_s", "events", "wall_s",
)  # fmt: skip
TIMINGS = ("decision_s", "wall_s")
HANGS_S = 1000.0
"""Of a command that hangs; behind all else on a busy machine it takes minutes."""
SAMPLE = ("simulate", "--world", "factors")
"""Whatever tables the environment names."""

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "fewest_running.py"


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def without_timings(found: dict[str, Any]) -> dict[str, Any]:
    runs = [{key: value for key, value in run.items() if key not in TIMINGS} for run in found["runs"]]
    return {**found, "runs": runs}


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sample")
    assert app.run([*SAMPLE, "--out", str(folder), "--decisions", str(folder / "decisions.jsonl")]) == 0
    return folder


def test_without_a_file_the_sample_runs_and_writes_the_contract(sample: Path) -> None:
    found = summary(sample)
    assert [run["policy"] for run in found["runs"]] == ["fifo", "colane"]
    for run in found["runs"]:
        assert tuple(run)[1:2] == ("seed",)
        assert [key for key in run if key in CONTRACT] == list(CONTRACT)
        assert run["jobs"] == run["finished"] == 60
        assert set(run["jct_s"]) == set(run["queue_s"]) == set(run["run_span_s"]) == {"mean", "p50", "p95", "p99"}
        assert set(run["decision_s"]) == {"mean", "p50", "p99", "max"}
        assert 0 < run["gpu_utilization_ratio"] <= run["gpu_active_ratio"] <= 1
    assert found["partial"] is False
    assert found["oracle"] is False
    assert "factors" in found["world"]


def test_every_job_has_a_row_whose_times_add_up(sample: Path) -> None:
    for policy in ("fifo", "colane"):
        with (sample / f"jobs-{policy}.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert [int(row["id"]) for row in rows] == list(range(1, 61))
        for row in rows:
            spent_s = float(row["queue_s"]) + float(row["run_span_s"])
            assert spent_s == pytest.approx(float(row["jct_s"]))
            assert row["state"] == "succeeded"
            assert len(row["gpus"].split()) == int(row["gpus_asked"])


NAMED = (
    "las:queues_gpu_s=3600/36000",
    "fifo:as_published=no",
    (
        "colane:awaits=no,consolidates=no,displaces_min=1.3,jobs_per_gpu_max=3,look_s_per_gpu=2,makes_way=no,"
        "makespan_weight=0.05,max_wait_s=86400,move_s=30,moves=no,objective=fair,parts=no,quantum_s=60"
    ),
)
"""Policies whose names a file's name cannot hold as they are."""


def test_every_output_can_be_written_of_every_policy_that_can_be_named(tmp_path: Path) -> None:
    policies = [word for name in NAMED for word in ("-p", name)]
    assert app.run([*SAMPLE, *policies, "--seeds", "2", "--out", str(tmp_path / "run")]) == 0
    names = {run["policy"] for run in summary(tmp_path / "run")["runs"]}
    assert len(names) == len(NAMED)
    assert len(list((tmp_path / "run").glob("jobs-*.csv"))) == 2 * len(NAMED)
    (tmp_path / "study.toml").write_text(
        f'cluster = "dgx1"\ntrace = "heavy-load:jobs=6,load=1"\npolicies = {json.dumps(NAMED)}\nworld = "neutral"\n'
        'loads = [0.5, 1.0]\nfiles = ["jobs", "stays", "timeline", "decisions"]\n'
    )
    assert app.run(["study", str(tmp_path / "study.toml"), "--out", str(tmp_path / "s"), "--processes", "1"]) == 0
    assert {path.name.count("_load") for path in (tmp_path / "s" / "cells").iterdir()} == {1}
    assert len(list((tmp_path / "s" / "cells").glob("*.npz"))) == 2 * len(NAMED)
    assert {path.parent for path in tmp_path.rglob("*.csv")} == {tmp_path / "run", tmp_path / "s"}


def test_every_decision_is_a_line_with_its_reason(sample: Path) -> None:
    lines = [json.loads(line) for line in (sample / "decisions.jsonl").read_text().splitlines()]
    assert len(lines) == sum(run["decisions"] for run in summary(sample)["runs"])
    assert {line["action"] for line in lines} == {"start", "park", "move", "set-cores", "remark"}
    shared = [line for line in lines if line["reason"]["why"] == "shares-best"]
    assert shared
    assert all("of its speed alone" in line["sentence"] and line["policy"] == "colane" for line in shared)


def test_the_page_is_whole_and_needs_nothing_from_outside(sample: Path) -> None:
    page = (sample / "report.html").read_text()
    for word in ("fifo", "colane", "figure-jct_cdf", "figure-gantt", "figure-queue_over_time", "World: factors"):
        assert word in page
    assert "<script" not in page
    assert "src=" not in page


def test_the_same_inputs_give_the_same_bytes(sample: Path, tmp_path: Path) -> None:
    again = [*SAMPLE, "--out", str(tmp_path), "--decisions", str(tmp_path / "decisions.jsonl")]
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    subprocess.run([sys.executable, "-m", "colane.cli", *again], check=True, env=environment, capture_output=True)
    names = sorted(path.name for path in sample.iterdir())
    assert names == sorted(path.name for path in tmp_path.iterdir())
    for name in names:
        if name != "summary.json":
            assert (sample / name).read_bytes() == (tmp_path / name).read_bytes(), name
    assert without_timings(summary(sample)) == without_timings(summary(tmp_path))


def test_hash_seeds_do_not_decide_where_gpu_types_differ(data: Path) -> None:
    trace = str(data / "traces/gavel-1000s.trace.gz")
    words = ["simulate", "-c", "gavel-36", "-t", trace, "-p", "max-min", "--oracle", "--tables", str(data), "--json"]
    command, outputs = [sys.executable, "-m", "colane.cli", *words], []
    for seed in ("3", "6"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(command, check=True, env=environment, capture_output=True)
        outputs.append(without_timings(json.loads(done.stdout)))
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize(("guard", "acts"), [("off", False), ("10%", True)])
def test_the_guard_separates_jobs_that_are_slower_than_foreseen_where_it_is_asked_for(
    tmp_path: Path, guard: str, acts: bool
) -> None:
    decisions = tmp_path / "decisions"
    words = ["simulate", "-c", "minsky", "-t", "poisson:jobs=20,gap=60", "-p", "colocate", "--world", "table"]
    assert app.run([*words, "--guard", guard, "--decisions", str(decisions)]) == 0
    made = [json.loads(line) for line in decisions.read_text().splitlines()]
    slow = [one["reason"]["facts"] for one in made if one["reason"]["why"] == "turns-instead"]
    assert bool(slow) is acts
    assert all(facts["measured"] > 1.1 * facts["predicted"] for facts in slow)


def test_seeds_run_in_processes_and_give_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "-c", "minsky", "-t", "sweep:jobs=12,duration=50,spread=0.5", "-p", "fifo", "-p", "sjf"]
    words += ["--world", "neutral", "--oracle", "--seeds", "3", "--seed", "5", "--out", str(tmp_path), "--json"]
    assert app.run(words) == 0
    printed = json.loads(capsys.readouterr().out)
    runs = [(run["policy"], run["seed"]) for run in printed["runs"]]
    assert runs == [(policy, seed) for policy in ("fifo", "sjf") for seed in (5, 6, 7)]
    fifo, sjf = printed["policies"]
    assert fifo["mean_jct_s"]["ci95"] > 0
    assert sjf["mean_jct_s"]["mean"] < fifo["mean_jct_s"]["mean"]
    jct_s = {(run["policy"], run["seed"]): run["jct_s"]["mean"] for run in printed["runs"]}
    means = {one["metric"]: one["mean"] for one in printed["differences"]}
    assert means["mean_jct_s"] == pytest.approx(sum(jct_s["sjf", s] - jct_s["fifo", s] for s in (5, 6, 7)) / 3)
    assert printed["sentences"][0].startswith("sjf against FIFO, paired over 3 seeds: ")
    assert "Seed 5 of 3." in (tmp_path / "report.html").read_text()
    assert printed["oracle"] is True
    assert "ORACLE" in " ".join(printed["notes"])


def test_one_seed_of_many_is_the_run_of_that_seed_alone(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "-c", "minsky", "-t", "sweep:jobs=9,duration=50,spread=0.5", "-p", "fifo", "--json"]
    assert app.run([*words, "--seeds", "2", "--seed", "1"]) == 0
    both = json.loads(capsys.readouterr().out)["runs"]
    assert app.run([*words, "--seed", "2"]) == 0
    alone = json.loads(capsys.readouterr().out)["runs"]
    assert without_timings({"runs": both[1:]}) == without_timings({"runs": alone})


def test_jobs_and_decisions_of_every_seed_are_those_of_its_run_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["simulate", "-c", "minsky", "-t", "sweep:jobs=9,duration=50,spread=0.5", "-p", "sjf", "-p", "fifo"]
    both, alone = tmp_path / "both", tmp_path / "alone"
    seeds = ["--seeds", "2", "--seed", "1"]
    assert app.run([*words, *seeds, "--out", str(both), "--decisions", str(both / "all.jsonl")]) == 0
    assert app.run([*words, "--seed", "2", "--out", str(alone), "--decisions", str(alone / "all.jsonl")]) == 0
    capsys.readouterr()
    assert (both / "all-seed-2.jsonl").read_bytes() == (alone / "all.jsonl").read_bytes()
    assert {path.name for path in both.glob("all*")} == {"all-seed-1.jsonl", "all-seed-2.jsonl"}
    for policy in ("sjf", "fifo"):
        assert (both / f"jobs-{policy}-seed-2.csv").read_bytes() == (alone / f"jobs-{policy}.csv").read_bytes()
        assert (both / f"jobs-{policy}.csv").exists()


def test_the_story_of_a_job_is_told_with_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([*SAMPLE, "-p", "fifo", "--explain", "job-20"]) == 0
    said = capsys.readouterr().out
    story = said[said.index("job 20 under fifo:") :].splitlines()[1:]
    assert "submitted" in story[0]
    assert any("waits in order behind" in line or "needs" in line for line in story)
    assert "is free" in " ".join(story)
    assert "exited with code 0" in story[-1]


def test_the_story_is_told_to_programs_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([*SAMPLE, "-p", "fifo", "--explain", "job-14", "--json"]) == 0
    story = json.loads(capsys.readouterr().out)["stories"]["fifo"]
    assert [chapter["state"] for chapter in story][0 :: len(story) - 1] == ["queued", "succeeded"]
    launched = next(chapter for chapter in story if chapter["state"] == "launching")
    assert launched["sentence"].startswith("started on dgx1-0")


def test_refused_jobs_are_counted_named_and_kept_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("id,submit_s,duration_s,gpus\nbig,0,10,16\nsmall,0,10,1\n")
    out = tmp_path / "out"
    assert app.run(["simulate", "-c", "dgx1", "-t", str(trace), "-p", "fifo", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "fifo: refused before the start: 1 of 2 jobs, such as job big of line 2" in said
    assert "needs 16 GPUs on one node, the largest has 8  job big of line 2" in said
    assert "job big" in (out / "refused.csv").read_text()
    assert summary(out)["runs"][0]["finished"] == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("submit_s,duration_s\n", "holds no jobs"),
        ("submit_s,duration_s\n0,nan\n", "jobs.csv:2: column 'duration_s'"),
        ("submit_s,duration_s\nsoon,5\n", "jobs.csv:2: column 'submit_s'"),
        ("id,submit_s,duration_s\na,0,5\na,1,5\n", "jobs.csv:3: column 'id'"),
        ("submit_s,durations\n0,5\n", "did you mean duration_s"),
    ],
)
def test_a_bad_trace_is_one_line_with_file_and_line(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text(text)
    assert app.run(["simulate", "-t", str(trace)]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert words in said


def test_bad_rows_can_be_skipped_and_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("submit_s,duration_s\n0,5\n1,soon\n2,5\n")
    assert app.run(["simulate", "-t", str(trace), "-p", "fifo", "--skip-bad-rows"]) == 0
    assert "1 bad row skipped" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-p", "colocat"], "did you mean colocate"),
        (["-p", "FIFO"], "did you mean fifo"),
        (["-c", "dgx"], "did you mean dgx2 or dgx1"),
        (["--world", "tabel"], "did you mean table?"),
        (["--belief", "profile"], "did you mean profiled?"),
        (["-t", "sweep:jos=3"], "did you mean jobs?"),
        (["-t", "sweep:jobs=few"], "must be a whole number from 1 to 10000000, got 'few'"),
        (["-t", "poisson:jobs=1000000000000"], "must be a whole number from 1 to 10000000, got '1000000000000'"),
        (["-p", "colane:jobs_per_gpu_max=0"], "jobs_per_gpu_max must be a number from 1 to 48, got '0'"),
        (["--time-scale", "0"], "--time-scale: must be a number above 0"),
        (["--explain", "nobody"], "there is no job 'nobody'"),
        (["--trace", "poison:jobs=3"], "neither a file nor a generator (did you mean poisson?)"),
        (["--time-scale", "inf"], "--time-scale: must be a number above 0"),
        (["--stop-s", "inf"], "--stop-s: must be a finite number"),
        (["--seeds", "2", "--explain", "1"], "leave --seeds away"),
        (["-t", "/nowhere.csv", "--seeds", "2"], "/nowhere.csv: cannot be read"),
        (
            ["--world", "table", "--tables", "/nowhere"],
            "/nowhere: there is no such file or directory of",
        ),
        (["--tables", "/"], "holds no measured table"),
        (["-t", "poisson:gap=nan"], "poisson: gap: must be a duration such as 90"),
        (["-t", "sweep:duration=inf"], "sweep: duration: must be a duration such as 90"),
        (["-t", "heavy-tailed:mean=0"], "heavy-tailed: mean: must be more than 0, got '0'"),
        (["-t", "heavy-tailed:span=-5"], "heavy-tailed: span: must be a duration such as 90"),
    ],
)
def test_misuse_is_one_line_that_names_the_fix(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["simulate", *words]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert expected in said


def test_too_little_memory_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(*_given: object, **_named: object) -> None:
        raise MemoryError

    monkeypatch.setattr("colane.lab.simulate.request.make_workload", fails)
    assert app.run([*SAMPLE, "-t", "sweep:jobs=3"]) == 1
    assert (
        capsys.readouterr()
        .err.strip()
        .endswith("colane: not enough memory for this; ask for less, as with fewer jobs, or free some")
    )


def test_a_job_that_waits_for_ever_is_named_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Under a policy that only lets jobs join others the first of them never starts."""
    example = EXAMPLE.read_text()
    own, trace = tmp_path / "own.py", tmp_path / "trace.csv"
    own.write_text(example.replace("(Free(), BesideLightest())", "(BesideLightest(),)"))
    trace.write_text("id,submit_s,duration_s,gpus\n1,0,100,1\n2,1,100,1\n")
    assert app.run(["simulate", "-t", str(trace), "-c", "v100-36", "-p", "fifo", "-p", f"{own}:FewestRunning"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "2 jobs never ended: nothing was left to happen that could start more. The first is 1: Resources:" in said
    assert "at most 16 GB left" in said
    assert "Nothing is claimed of fewest-running against FIFO: fewest-running finished 0 of 2 jobs (2 never" in said
    assert "against FIFO: all jobs are done" not in said


def test_any_pool_lets_every_job_run_on_any_node(tmp_path: Path) -> None:
    words = ["-c", "philly", "-t", "sweep:jobs=5,duration=60", "-p", "fifo", "--any-pool", "--out", str(tmp_path)]
    assert app.run(["simulate", *words]) == 0
    assert summary(tmp_path)["runs"][0]["finished"] == 5


def test_jobs_that_ran_on_gpu_types_they_did_not_name_are_counted(tmp_path: Path) -> None:
    trace, cluster = tmp_path / "openb.csv", tmp_path / "c.yaml"
    times = "creation_time,deletion_time,scheduled_time"
    head = f"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,{times}"
    named = ["A|B", "C|D", "B", "A|B|D", "D|E"]
    pods = [f"p{number},0,0,1,1000,{types},LS,Succeeded,0,50,0" for number, types in enumerate(named)]
    trace.write_text("\n".join([head, *pods, ""]))
    groups = (f"{{name: {name}, gpus: 1, gpu_type: {name}, gpu_memory: 1GB}}" for name in "AB")
    cluster.write_text(f"groups: [{', '.join(groups)}]")
    words = ["simulate", "-t", str(trace), "-c", str(cluster), "-p", "fifo", "--out", str(tmp_path / "out")]
    assert app.run(words) == 0
    said = "2 of 4 jobs that may have one of several GPU types last ran on another, as none is enforced."
    assert f"fifo: {said}" in summary(tmp_path / "out")["notes"]


def test_decisions_go_to_a_directory_that_is_made(tmp_path: Path) -> None:
    file = tmp_path / "new" / "decisions.jsonl"
    assert app.run([*SAMPLE, "-p", "fifo", "--decisions", str(file)]) == 0
    assert file.read_text().count("\n") == 60


def seeded(seed: int, policy: str, *, interrupted: bool = False) -> SeededRun:
    ledger = Ledger(interrupted=interrupted)
    errors = BeliefErrors(array("d"), array("d"), 0, 0)
    return SeededRun(
        seed,
        Run(
            policy=policy, ledger=ledger, refused=(), jobs=1, submitted=1, gpus=1, span_s=1.0, offered_load=None,
            errors=errors, profiles=(), measurements=(), wall_s=1.0,
        ),
    )  # fmt: skip


def test_after_ctrl_c_only_seeds_are_compared_that_every_policy_finished() -> None:
    both = [seeded(0, "fifo"), seeded(0, "colocate")]
    begun = [seeded(1, "fifo"), seeded(1, "colocate", interrupted=True), seeded(2, "fifo")]
    assert comparable([*both, *begun], ["fifo", "colocate"]) == both
    assert comparable(begun, ["fifo", "colocate"]) == begun


def test_ctrl_c_between_runs_is_partial_too(tmp_path: Path) -> None:
    # The signal reaches the parent alone: the runs that have begun end, the others are never begun.
    words = ["simulate", "-t", "heavy-load:jobs=800", "-c", "paper-d", "-p", "fifo", "--seeds", "40"]
    command = [sys.executable, "-c", INTERRUPTED_SEEDS, *words, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S, check=False)
    assert done.returncode == 130, done.stderr
    found = summary(tmp_path)
    assert found["partial"] is True
    assert 0 < len(found["runs"]) < 40
    assert "of 40 runs" in found["notes"][0]


INTERRUPTED_SEEDS = """
import os, signal, sys
from colane.cli import app
from colane.lab.commands import simulate

sent = []

def count(done, total):
    if done and not sent:
        sent.append(done)
        os.kill(os.getpid(), signal.SIGINT)

if __name__ == "__main__":
    simulate._count = count
    sys.exit(app.run(sys.argv[1:]))
"""


def test_ctrl_c_writes_what_there_is_and_marks_it_partial(tmp_path: Path) -> None:
    # It says that it runs by its first decisions, which are far more than a buffer holds.
    decisions = tmp_path / "decisions.jsonl"
    words = ["simulate", "-c", "paper-d", "-t", "heavy-load:jobs=20000", "-p", "fifo", "-p", "colocate"]
    words += ["--out", str(tmp_path / "out"), "--decisions", str(decisions)]
    with subprocess.Popen([sys.executable, "-m", "colane.cli", *words], stderr=subprocess.PIPE) as process:
        while not (decisions.exists() and decisions.stat().st_size) and process.poll() is None:
            select.select([], [], [], 0.01)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=HANGS_S)
    assert process.returncode == 130
    found = summary(tmp_path / "out")
    assert found["partial"] is True
    assert [run["policy"] for run in found["runs"]] == ["fifo"]
    assert 0 < found["runs"][0]["finished"] < 20000
    assert found["notes"][0].startswith("Partial")
    assert "Partial" in (tmp_path / "out" / "report.html").read_text()


def test_a_trace_is_judged_and_converted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["trace", "check", "sample", "--cluster", "paper-a", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    assert {one["code"] for one in found} >= {"never-fits", "offered-load", "span"}
    out = tmp_path / "converted.csv"
    assert app.run(["trace", "convert", "sweep:jobs=4,duration=9", str(out)]) == 0
    assert app.run(["trace", "check", str(out)]) == 0
    packed = tmp_path / "converted.csv.gz"
    assert app.run(["trace", "convert", str(out), str(packed)]) == 0
    assert gzip.decompress(packed.read_bytes()) == out.read_bytes()
    assert app.run(["trace", "check", str(packed)]) == 0
    assert app.run(["trace", "convert", str(out), str(out)]) == 2
    assert "is the trace itself" in capsys.readouterr().err
    broken = tmp_path / "broken.csv"
    broken.write_text("submit_s,duration_s\n0,5\n1,soon\n")
    assert app.run(["trace", "check", str(broken)]) == 1
    assert "bad-rows" in capsys.readouterr().out
    assert app.run(["trace", "check", str(tmp_path / "nowhere.csv")]) == 2


@pytest.mark.parametrize(("policy", "stops"), [("las:queues_gpu_s=60/600", True), ("sjf", False)])
def test_waiting_in_all_stands_beside_waiting_to_the_first_start(
    capsys: pytest.CaptureFixture[str], policy: str, stops: bool
) -> None:
    """A policy that stops jobs starts all soon, and lets them wait later."""
    words = ["-c", "dgx1", "-t", "heavy-load:jobs=40,load=1.5", "-p", "fifo", "-p", policy, "--world", "neutral"]
    assert app.run(["simulate", *words, "--checkpoints", "--belief", "profiled", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    for run in told["runs"]:
        assert run["queue_s"]["mean"] <= run["wait_s"]["mean"] + 1e-6 <= run["jct_s"]["mean"]
    (sentence,) = (one for one in told["sentences"] if " against " in one)
    assert (" to its first start, " in sentence and " in all on average" in sentence) is stops
    other = told["runs"][1]
    assert (other["wait_s"]["mean"] > 1.05 * other["queue_s"]["mean"]) is stops


def test_the_preemptive_example_takes_turns(capsys: pytest.CaptureFixture[str]) -> None:
    """All it stops goes on and ends, none of its plans is refused, and short jobs end sooner than by arrival."""
    own = f"{EXAMPLE.with_name('least_served.py')}:LeastServed:quantum_s=300"
    words = ["-c", "dgx1", "-t", "heavy-load:jobs=40,load=1.5", "-p", "fifo", "-p", own, "--world", "neutral"]
    assert app.run(["simulate", *words, "--checkpoints", "--json"]) == 0
    fifo, served = json.loads(capsys.readouterr().out)["runs"]
    assert (served["finished"], served["refused_plans"], fifo["restarts"]) == (40, 0, 0)
    assert served["restarts"] > 10
    assert served["queue_s"]["mean"] < 0.5 * fifo["queue_s"]["mean"]


TWO_NODES = """
name: two
groups:
  - {name: n, count: 2, gpus: 4, gpu_type: V100, gpu_memory: 16GB, cores: 16}
"""


def test_the_migrating_example_makes_room_for_a_wide_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two jobs on each of two nodes: they come together when one of four GPUs arrives, which by arrival waits."""
    (tmp_path / "two.yaml").write_text(TWO_NODES)
    jobs = [f"s{n},{n},{300 if n in {0, 1, 4, 5} else 6000},1,1" for n in range(8)]
    (tmp_path / "jobs.csv").write_text(
        "\n".join(["id,submit_s,duration_s,gpus,preemptible", *jobs, "wide,400,600,4,0\n"])
    )
    own = f"{EXAMPLE.with_name('makes_room.py')}:MakesRoom"
    words = ["-c", str(tmp_path / "two.yaml"), "-t", str(tmp_path / "jobs.csv"), "-p", "fifo", "-p", own]
    assert app.run(["simulate", *words, "--stop-s", "5", "--explain", "wide", "--world", "neutral", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    fifo, made = told["runs"]
    assert (made["finished"], made["refused_plans"], made["restarts"], fifo["restarts"]) == (9, 0, 2, 0)
    assert made["queue_s"]["mean"] == pytest.approx(5 / 9)
    assert fifo["queue_s"]["mean"] > 600
    why = [str(one) for one in told["stories"][own]]
    assert any("GPUs are kept for it and come free by stopping jobs 3, 4" in one for one in why)


REFUSED = """
from dataclasses import dataclass, field
from colane.model.placement import Placement, Slot, Turns
from colane.model.plan import Plan, Start
from colane.model.reason import Reason, Why
from colane.model.hardware import GpuId


@dataclass(frozen=True)
class Nowhere:
    name: str = "nowhere"
    turns: Turns = field(default_factory=Turns)
    min_runtime_before_preemption_s: float = 0.0

    def plan(self, view):
        places = Placement((Slot(GpuId("no-such-node", 0), 0),), ())
        waiting = [job for pool in view.pools for job in view.queue(pool)]
        return Plan(view.version, tuple(Start(job, places, Reason(Why.FREE_GPU, {"gpu": "x"})) for job in waiting))
"""


def test_a_policy_all_of_whose_plans_are_refused_ends_in_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(REFUSED)
    words = ["-c", "dgx1", "-t", "poisson:jobs=5,gap=10", "-p", f"{tmp_path / 'own.py'}:Nowhere"]
    assert app.run(["simulate", *words, "--world", "neutral"]) == 1
    said = capsys.readouterr().out
    assert re.search(r"nowhere started no job: its \d+ plans? could not be carried out, the first at 0 s: ", said)


def test_a_policy_that_starts_nothing_ends_in_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether it plans nothing, or there is no job that it could start."""
    (tmp_path / "own.py").write_text(REFUSED.replace("tuple(Start", "() and tuple(Start"))
    (tmp_path / "jobs.csv").write_text("id,submit_s,duration_s,gpus,pool\na,0,9,1,elsewhere\n")
    for words in (
        ["-t", "poisson:jobs=5,gap=10", "-p", f"{tmp_path / 'own.py'}:Nowhere"],
        ["-t", str(tmp_path / "jobs.csv"), "-p", "fifo"],
    ):
        assert app.run(["simulate", "-c", "dgx1", *words, "--world", "neutral"]) == 1
        assert "started no job." in capsys.readouterr().out


def test_recorded_failures_are_not_played_and_that_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "cluster_log.csv"
    trace.write_text(FILES["helios"])
    words = ["-c", "dgx1", "-t", str(trace), "-p", "fifo", "--world", "neutral", "--any-pool", "--multi-node", "--json"]
    assert app.run(["simulate", *words]) == 0
    notes = json.loads(capsys.readouterr().out)["notes"]
    said = "Workload: recorded as 1 FAILED; here each runs as long as it did there, once, and succeeds."
    assert said in notes
