"""`colane study`: every cell is the simulation it says it is, and none is lost or mixed."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import psutil
import pytest

from colane.cli import app
from colane.lab.simulate.ledger import INTERVALS_MAX
from colane.lab.simulate.request import Request
from colane.lab.simulate.study import Interrupts, run_one
from colane.lab.studies import work as workroom
from colane.lab.studies.cells import decisions_of, inputs_kept, path_of, read_cell
from colane.lab.studies.file import CellKey, read_plan
from colane.lab.studies.run import look, results, simulate_missing, write_results
from colane.lab.studies.work import CellEnd
from colane.lab.traces import clusters
from colane.model.hardware import GpuId

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "study.md"

STUDY = """
cluster = "dgx1"
trace = "heavy-load:jobs=30,load=1.5"
policies = ["fifo", "srtf"]
seeds = 3
jobs = [5, 25]
files = ["jobs", "stays", "timeline"]
world = "neutral"
"""
KEYS = [CellKey(policy, 1.0, seed) for policy in ("fifo", "srtf") for seed in range(3)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "study.toml").write_text(STUDY)
    assert app.run(["study", str(folder / "study.toml"), "--out", str(folder / "out"), "--processes", "1"]) == 0
    return folder


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def tables(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.glob("*.*"))}


def test_each_row_is_the_simulation_it_names(whole: Path) -> None:
    found = rows(whole / "out" / "cells.csv")
    assert [CellKey(row["policy"], float(row["load"]), int(row["seed"])) for row in found] == KEYS
    request = Request(cluster="dgx1", trace="heavy-load:jobs=30,load=1.5")
    for row in found:
        ran = run_one(request, row["policy"], int(row["seed"])).ledger.rows
        jct_s = {job: end_s - submit_s for job, submit_s, end_s in zip(ran.id, ran.submit_s, ran.end_s, strict=True)}
        window_s = [jct_s[job] for job in range(6, 26)]  # ids are from 1, places from 0
        assert float(row["jct_mean_s"]) == pytest.approx(np.mean(window_s))
        assert (row["jobs"], row["finished"], row["unfinished"]) == ("20", "20", "0")


def test_a_policy_that_lacks_what_defines_it_is_said_first(whole: Path) -> None:
    said = json.loads((whole / "out" / "summary.json").read_text())["sentences"]
    assert said[0].startswith("srtf lacks what it is defined by: it knows no length of any job")
    assert 'belief = "profiled" tells lengths' in said[0]
    assert not any("lacks" in one for one in said[1:])
    known = {row["policy"]: row["no_length"] for row in rows(whole / "out" / "cells.csv")}
    assert known == {"fifo": "0", "srtf": "30"}


def test_the_tables_hold_every_job_and_add_up(whole: Path) -> None:
    jobs = rows(whole / "out" / "jobs.csv")
    assert len(jobs) == len(KEYS) * 30
    spent_s: dict[tuple[str, ...], float] = {}
    for stay in rows(whole / "out" / "stays.csv"):
        at = (stay["policy"], stay["seed"], stay["job"])
        spent_s[at] = spent_s.get(at, 0.0) + float(stay["end_s"]) - float(stay["start_s"])
    for job in jobs:
        assert float(job["queue_s"]) + float(job["run_span_s"]) == pytest.approx(float(job["jct_s"]))
        assert spent_s[job["policy"], job["seed"], job["job"]] == pytest.approx(float(job["run_span_s"]))
    timeline = rows(whole / "out" / "timeline.csv")
    assert max(float(row["active_gpus"]) for row in timeline) <= 8
    assert {row["waiting"] for row in timeline} > {"0.0", "1.0"}


def test_an_interrupted_study_goes_on_and_ends_with_the_same_bytes(
    whole: Path, study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["study", str(study), "--out", str(study.parent / "out"), "--processes", "1"]
    make, begun = workroom.make_cell, list[CellKey]()

    def interrupted(task: workroom.CellTask, interrupts: object) -> CellEnd:
        begun.append(task.key)
        if len(begun) == 3:
            signal.raise_signal(signal.SIGINT)  # as the third begins
        return make(task, interrupts)  # type: ignore[arg-type]

    monkeypatch.setattr(workroom, "make_cell", interrupted)
    assert app.run(words) == 130
    assert "3 of 6 simulations kept;" in capsys.readouterr().err  # so short a one ends before it looks
    assert len(rows(study.parent / "out" / "cells.csv")) == 3
    begun += begun  # no third any more
    assert app.run(words) == 0
    assert "3 of 6 simulations kept before" in capsys.readouterr().err
    assert tables(study.parent / "out") == tables(whole / "out")


def test_of_a_simulation_that_is_interrupted_nothing_is_kept(study: Path) -> None:
    study.write_text(STUDY.replace("jobs=30", "jobs=2000"))
    plan, out = read_plan(study), study.parent / "out"
    (task,) = workroom.tasks_of(plan, KEYS[:1], look(plan, out).inputs, out)
    interrupts = Interrupts()
    interrupts.came = True
    assert workroom.make_cell(task, interrupts) == CellEnd(KEYS[0])
    assert not out.exists()


KILLED = """
import os, signal, sys
from pathlib import Path
import psutil
from colane.lab.studies.file import read_plan
from colane.lab.studies.run import look, simulate_missing

def killed(end):
    print(*(child.pid for child in psutil.Process().children()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    plan, out = read_plan(Path(sys.argv[1])), Path(sys.argv[2])
    simulate_missing(plan, out, look(plan, out), 2, killed)
"""


def test_a_killed_study_leaves_no_process_and_no_part_of_a_file(whole: Path, study: Path) -> None:
    script, out = study.parent / "killed.py", study.parent / "out"
    script.write_text(KILLED)
    killed = subprocess.run([sys.executable, script, study, out], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    for pid in map(int, killed.stdout.split()):
        try:
            psutil.Process(pid).wait(timeout=120)
        except psutil.NoSuchProcess:
            continue
    plan = read_plan(study)
    found = look(plan, out)
    kept = [key for key in plan.cells if key not in found.missing]
    assert kept
    assert found.missing
    assert not found.stale
    ended = list[CellKey]()
    simulate_missing(plan, out, found, 1, lambda end: ended.append(end.key))
    assert sorted(ended) == sorted(found.missing)
    write_results(results(plan, out, found.inputs))
    assert tables(out) == tables(whole / "out")


WAITING = """
import os
from colane.model.plan import Plan

class Waiting:
    name = "waiting"
    told = False

    def plan(self, view):
        if not self.told:
            os.close(os.open("{pipe}", os.O_WRONLY))  # opens when the test reads
            self.told = True
        return Plan(based_on=view.version)
"""


def test_a_signal_to_the_command_alone_stops_its_processes_too(study: Path) -> None:
    pipe, out = study.parent / "pipe", study.parent / "out"
    os.mkfifo(pipe)
    (study.parent / "mine.py").write_text(WAITING.replace("{pipe}", str(pipe)))
    text = STUDY.replace('"fifo", "srtf"', '"mine.py:Waiting"').replace("jobs=30", "jobs=20000")
    study.write_text(text.replace("seeds = 3", "seeds = 1"))
    command = [sys.executable, "-m", "colane.cli", "study", str(study), "--out", str(out), "--processes", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        pipe.read_bytes()
        running.send_signal(signal.SIGINT)
        said = running.communicate()[1]
    assert running.returncode == 130, said
    assert "0 of 1 simulation kept;" in said
    assert "Traceback" not in said


def test_simulations_elsewhere_are_kept_as_those_of_this_machine(study: Path, tmp_path: Path) -> None:
    study.write_text(STUDY.replace('"timeline"]', '"timeline", "decisions"]'))
    plan, folders = read_plan(study), (tmp_path / "here", tmp_path / "there")
    for out, executor in zip(folders, (None, ThreadPoolExecutor(1)), strict=True):
        assert simulate_missing(plan, out, look(plan, out), 1, executor=executor).problems == ()
    here, there = ({path.name: path.read_bytes() for path in (out / "cells").iterdir()} for out in folders)
    assert len(here) == 2 * len(KEYS)
    assert there == here


class LostExecutor(ThreadPoolExecutor):
    """One whose machines die with every second call."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if args[0].key.seed == 1:
            future.set_exception(RuntimeError("the node died\nand this is why"))
            return future
        return super().submit(fn, *args, **kwargs)


def test_simulations_that_are_lost_elsewhere_are_told_and_the_others_kept(study: Path, tmp_path: Path) -> None:
    plan, out = read_plan(study), tmp_path / "out"
    found = look(plan, out)
    lost = [key for key in KEYS if key.seed == 1]
    worked = simulate_missing(plan, out, found, 1, executor=LostExecutor(1))
    assert sorted(worked.problems) == [f"{key}: was lost elsewhere: the node died" for key in lost]
    assert look(plan, out).missing == tuple(key for key in plan.cells if key.seed == 1)


class EndlessExecutor(Executor):
    """One that makes its first call alone."""

    def __init__(self) -> None:
        self.given: list[Future[Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if not self.given:
            future.set_result(fn(*args, **kwargs))
        self.given.append(future)
        return future


def test_an_interruption_leaves_what_runs_elsewhere(study: Path, tmp_path: Path) -> None:
    plan, out, there = read_plan(study), tmp_path / "out", EndlessExecutor()
    found = look(plan, out)
    worked = simulate_missing(plan, out, found, 1, lambda _: signal.raise_signal(signal.SIGINT), there)
    assert worked.was_interrupted
    assert [future.cancelled() for future in there.given] == [False, *[True] * (len(KEYS) - 1)]
    assert look(plan, out).missing == plan.cells[1:]


def test_what_has_changed_is_told_and_never_mixed(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, out = study.parent / "jobs.csv", study.parent / "out"
    assert app.run(["trace", "convert", "heavy-load:jobs=6,load=1", str(trace)]) == 0
    study.write_text('cluster = "dgx1"\ntrace = "jobs.csv"\npolicies = ["fifo"]\n')
    words = ["study", str(study), "--out", str(out), "--processes", "1"]
    assert app.run(words) == 0
    assert app.run(["trace", "convert", "heavy-load:jobs=7,load=1", str(trace)]) == 0
    capsys.readouterr()
    assert app.run(words) == 2
    assert "1 simulation kept in" in (said := capsys.readouterr().err)
    assert "had other inputs (trace)" in said
    assert rows(out / "cells.csv")[0]["jobs"] == "6"
    assert app.run([*words, "--again"]) == 0
    assert rows(out / "cells.csv")[0]["jobs"] == "7"


def test_nothing_is_claimed_of_a_policy_that_did_not_finish_the_same_jobs(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that only lets jobs join others never starts the first; means would be of other jobs than the baseline's."""
    example = Path(__file__).parents[2] / "docs" / "examples" / "fewest_running.py"
    own = study.with_name("own.py")
    own.write_text(example.read_text().replace("(Free(), BesideLightest())", "(BesideLightest(),)"))
    policies = f'policies = ["fifo", "srtf", "{own}:FewestRunning"]'
    study.write_text(STUDY.replace('policies = ["fifo", "srtf"]', policies) + "loads = [0.5, 1.0]\n")
    out = study.with_suffix("")
    assert app.run(["study", str(study), "--out", str(out), "--processes", "1"]) == 1
    said = " ".join(capsys.readouterr().out.split()).split("Nothing is claimed of ")[1:]
    silent = [f"fewest-running against FIFO at load {load}" for load in ("0.5", "1")]
    assert [line.partition(":")[0] for line in said] == silent
    assert "(20 never ended) and FIFO finished 20 of 20 jobs" in said[0]
    assert {row["policy"] for row in rows(out / "comparisons.csv")} == {"srtf"}


def test_a_damaged_cell_is_simulated_anew(whole: Path, study: Path) -> None:
    plan, out = read_plan(study), study.parent / "out"
    path_of(out, KEYS[0]).parent.mkdir(parents=True)
    for key in KEYS:
        path_of(out, key).write_bytes(path_of(whole / "out", key).read_bytes())
    kept = path_of(out, KEYS[1]).read_bytes()
    path_of(out, KEYS[1]).write_bytes(kept[: len(kept) // 2])
    assert inputs_kept(out, KEYS[1]) is None
    assert look(plan, out).missing == (KEYS[1],)


def test_a_policy_that_fails_is_told_and_the_others_go_on(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (study.parent / "mine.py").write_text(
        "class Mine:\n    name = 'mine'\n    def plan(self, view):\n        return 1 / 0\n"
    )
    study.write_text(STUDY.replace('"srtf"', '"mine.py:Mine"').replace("seeds = 3", "seeds = 1"))
    assert app.run(["study", str(study), "--out", str(study.parent / "out"), "--processes", "1"]) == 1
    said = capsys.readouterr()
    assert "mine, load 1, seed 0: " in said.err
    assert "ZeroDivisionError" in said.err
    assert [row["policy"] for row in rows(study.parent / "out" / "cells.csv")] == ["fifo"]


def test_decisions_of_every_seed_are_kept_where_they_are_asked_for(study: Path) -> None:
    out, asked = study.parent / "out", STUDY.replace('"timeline"', '"decisions"')
    words = ["study", str(study), "--out", str(out), "--processes", "1"]
    assert app.run(words) == 0
    study.write_text(asked)
    assert look(read_plan(study), out).missing == read_plan(study).cells, "they were not kept"
    assert app.run(words) == 0
    assert look(read_plan(study), out).missing == ()
    for key in KEYS:
        with gzip.open(decisions_of(out, key), "rt") as file:
            told = [json.loads(line) for line in file]
        assert sum(line["action"] == "start" for line in told) >= 30
        assert {line["policy"] for line in told} == {key.policy}
    assert not (out / "timeline.csv").exists()


def test_all_times_on_gpus_are_kept_however_many() -> None:
    request = Request(cluster="dgx1", trace="heavy-load:jobs=5,load=1")
    drawn, kept = (run_one(request, "fifo", 0, keeps_stays=keeps).ledger for keeps in (False, True))
    for ledger in (drawn, kept):
        for _ in range(INTERVALS_MAX):
            ledger.stay(1, 1, (GpuId("node", 0),), 0.0, 1.0)
    assert (len(drawn.stays), drawn.stays_dropped) == (INTERVALS_MAX, 5)
    assert (len(kept.stays), kept.stays_dropped) == (INTERVALS_MAX + 5, 0)


def test_a_kept_simulation_is_read_as_it_was_written(whole: Path) -> None:
    cell = read_cell(whole / "out", KEYS[0])
    assert cell.names[0]
    assert cell.measured.place.tolist() == list(range(30))
    assert json.loads((whole / "out" / "summary.json").read_text())["cells_asked"] == 6


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        ("policies", "polices", "polices: there is no such key; did you mean policies?"),
        ("seeds", "sedes", "sedes: there is no such key; did you mean seeds?"),
        ('"srtf"', '"srtff"', "policies: unknown policy 'srtff'; did you mean s"),
        ('"srtf"', '"fifo"', "policies: names 'fifo' twice"),
        ("seeds = 3", "seeds = 0", "seeds: must be a whole number from 1, got 0"),
        ("seeds = 3", "loads = [0]", "loads: must be above 0, got 0"),
        ("seeds = 3", "loads = []", "loads: must be a list of at least one, got []"),
        ("seeds = 3", "seeds = [1, 1]", "seeds: names 1 twice"),
        ("[5, 25]", "[25, 5]", "jobs: must be two places, the first before the second"),
        ("[5, 25]", "[5, 31]", "jobs: [5, 31] ends behind the trace, which has 30 jobs"),
        ("seeds = 3", 'baseline = "las"', "baseline: must be one of the policies, fifo, srtf; got 'las'"),
        ("seeds = 3", 'metrics = ["jct_mean"]', "did you mean jct_mean_s?"),
        (
            '"timeline"',
            '"timelines"',
            "jobs, stays, timeline, figures, decisions, foreseen; did you mean timeline?",
        ),
        ('"neutral"', '"netural"', "world: must be one of auto, neutral, factors, table; did you mean neutral?"),
        ("seeds = 3", "noise = -1", "noise: must be a number from 0 up"),
        ('"heavy-load:jobs=30,load=1.5"', '"sample"', "seeds: all would be alike"),
        ('"heavy-load:jobs=30,load=1.5"', '"nowhere.csv"\nbelief = "profiled"', "nowhere.csv: "),
        ('cluster = "dgx1"', "", "cluster: is missing"),
        ('"dgx1"', '"dgx7"', "dgx7: no such cluster"),
        ('cluster = "dgx1"', "cluster =", "is not TOML"),
    ],
)
def test_bad_input_is_one_line_that_names_the_key(
    study: Path, capsys: pytest.CaptureFixture[str], was: str, now: str, expected: str
) -> None:
    assert was in STUDY
    study.write_text(STUDY.replace(was, now))
    assert app.run(["study", str(study), "--out", str(study.parent / "out"), "--processes", "1"]) == 2
    said = capsys.readouterr().err
    assert expected in said
    assert said.count("\n") == 1
    assert not (study.parent / "out").exists()


def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert example is not None
    (tmp_path / "study.toml").write_text(example[1])
    out = tmp_path / "results"
    assert app.run(["study", str(tmp_path / "study.toml"), "--out", str(out), "--processes", "1"]) == 0
    plan = read_plan(tmp_path / "study.toml")
    assert len(rows(out / "cells.csv")) == len(plan.cells) == 18
    files = re.findall(r"^\| `([a-z.]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(files) == sorted(path.name for path in out.iterdir() if path.is_file())
    figures = sorted(path.name for path in (out / "figures").iterdir())
    names = ("jct_cdf_load0.8", "jct_cdf_load1.2", "jct_mean_s_over_load", "rho_max_ratio_over_load")
    assert figures == sorted(f"{name}.{form}" for name in names for form in ("svg", "pdf", "png"))
    for name in names:
        assert ET.parse(out / "figures" / f"{name}.svg").getroot().tag.endswith("svg")  # noqa: S314 - our own output
        assert (out / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        assert width_of(out / "figures" / f"{name}.png") == 892


def width_of(png: Path) -> int:
    """Pixels."""
    return int.from_bytes(png.read_bytes()[16:20], "big")


def test_figures_stand_in_a_papers_column(study: Path) -> None:
    """At 3.3 inches, 288 dots each; drawn once more, they are the same bytes."""
    text = re.sub(r"files = .*", 'files = ["figures"]\nfigure_inch = 3.3', STUDY)
    study.write_text(text)
    out = study.parent / "out"
    kept = []
    for _ in range(2):
        assert app.run(["study", str(study), "--out", str(out), "--processes", "1"]) == 0
        kept.append({path.name: path.read_bytes() for path in (out / "figures").iterdir()})
    assert kept[0] == kept[1]
    assert {width_of(out / "figures" / name) for name in kept[0] if name.endswith(".png")} == {950}


def test_how_good_quotes_were_is_a_row_for_each_horizon_and_a_figure(study: Path) -> None:
    text = re.sub(r"files = .*", 'files = ["foreseen", "figures"]', STUDY).replace("seeds = 3", "seeds = 1")
    study.write_text(text)
    out = study.parent / "out"
    assert app.run(["study", str(study), "--out", str(out), "--processes", "1"]) == 0
    found = rows(out / "foreseen.csv")
    shown = [row for row in found if (row["policy"], row["method"]) == ("fifo", "foreseen")]
    whole, *horizons = [row for row in shown if row["said"] != "known"]
    assert whole["said"] == "all"
    assert int(whole["quotes"]) == sum(int(row["quotes"]) for row in horizons) > 0
    assert 0 <= float(whole["holds"]) <= 1
    assert float(whole["score"]) > 0
    assert {"foreseen_load1.svg", "foreseen_load1.png"} <= {path.name for path in (out / "figures").iterdir()}


@pytest.mark.parametrize(
    "file", sorted((PAGE.parents[1] / "examples" / "studies").glob("*.toml")), ids=lambda p: p.stem
)
def test_the_recipes_are_studies_of_clusters_there_are(file: Path) -> None:
    plan = read_plan(file)
    assert clusters.load(plan.request.cluster).gpus in {64, 108, 128}
    assert f"`{file.name}`" in PAGE.with_name("published-figures.md").read_text()


BLOX_SHORTEST_S = {
    0: 2109, 3: 2117, 6: 2141, 7: 2175, 8: 2180, 9: 2197, 10: 2200, 14: 2257, 15: 2266, 16: 2266, 19: 2292, 20: 2298,
}  # fmt: skip
"""JCTs of `combined_plots/accept_all_placement_policy_3000_4000_Las_load_8.0_cdf.pdf` of Blox's repository, by rank."""


def test_the_jobs_drawn_for_blox_are_those_of_its_published_curve() -> None:
    draws = runpy.run_path(str(PAGE.parents[1] / "examples" / "studies" / "blox_jobs.py"))
    window = list(draws["jobs"](8.0))[3000:4001]
    in_rounds = draws["in_rounds"]  # the shortest jobs start in the round after they come, and run to its end
    jcts_s = sorted(in_rounds(submit_s, 300) - submit_s + in_rounds(run_s, 300) for _, submit_s, run_s, _ in window)
    assert {rank: jcts_s[rank] for rank in BLOX_SHORTEST_S} == BLOX_SHORTEST_S


def test_queues_are_what_las_does_otherwise_than_blox(monkeypatch: pytest.MonkeyPatch) -> None:
    """The published mean is 188,995 s, its percentiles 3,064, 16,465 and 159,741 s; `las` gives 127,526 s."""
    folder = PAGE.parents[1] / "examples" / "studies"
    monkeypatch.syspath_prepend(str(folder))
    jcts_s = runpy.run_path(str(folder / "blox_rounds.py"))["jcts_s"]
    by_time_s, in_queues_s = jcts_s(300), jcts_s(300, 12)
    assert [round(float(value)) for value in np.percentile(by_time_s, [10, 50, 90])] == [3064, 16465, 159741]
    assert by_time_s.mean() == pytest.approx(188_995, rel=0.001)
    assert in_queues_s.mean() == pytest.approx(138_058, rel=0.001)
    assert {rank: sorted(by_time_s)[rank] for rank in BLOX_SHORTEST_S} == BLOX_SHORTEST_S
