"""A bundle for a machine without a network, and the plan of what is measured there: nothing is lost by what fails."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from benchmarks.handoff import Step
from gpu.harness import Run, read_result, write_result
from gpu.memory import judge_stage
from gpu.turns import gaps

from colane.devices import discover
from gpu import bundle, install, plan

SHAKY = """
import os, signal, sys
from pathlib import Path
from gpu.harness import Script, main

def fine(run):
    run.check("it holds", True)
    return {"found": 1}

def asserts(run):
    run.check("it held before", True)
    run.keep({"first": 1})
    assert 1 == 2, "one is not two"

def dies(run):
    known = run.kept()
    if "first" not in known:
        run.keep({"first": [1.5, float("nan")]})
        os.kill(os.getpid(), signal.SIGKILL)
    return {"first": known["first"], "second": 2}

parts = {"fine": fine, "asserts": asserts, "dies": dies}
SCRIPT = Script(name="shaky", about="", parts=parts, tiny_parts=list(parts), summary=lambda found, _: 1 / 0)
if __name__ == "__main__":
    sys.exit(main(SCRIPT))
"""


@pytest.fixture
def shaky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A script beside the real ones, and the words that run its parts."""
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "shaky.py").write_text(SHAKY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    steps = tuple(plan.Step("shaky", part, 1) for part in ("dies", "asserts", "fine"))
    monkeypatch.setattr(plan, "TINY", steps)
    return ["--tiny", "--out", str(tmp_path / "out"), "--state", str(tmp_path / "s"), "--minutes", "30", "--all"]


@pytest.mark.timeout(300)
def test_a_part_that_fails_or_is_killed_costs_no_other_and_keeps_what_it_had(shaky: list[str], tmp_path: Path) -> None:
    assert plan.main(shaky) == 1
    parts = read_result(tmp_path / "out" / plan.RESULTS_FILE)["parts"]["shaky"]
    assert {name: found["status"] for name, found in parts.items()} == {
        "dies": "failed", "asserts": "failed", "fine": "complete",
    }  # fmt: skip
    assert (parts["dies"]["first"], parts["dies"]["error"]) == ([1.5, None], "it ended with exit code -9")
    assert (parts["asserts"]["first"], parts["asserts"]["error"]) == (1, "AssertionError: one is not two")
    assert parts["asserts"]["checks"] == [{"name": "it held before", "passed": True, "detail": ""}]
    assert any("one is not two" in line for line in parts["asserts"]["trace"])
    assert "ZeroDivisionError" in read_result(tmp_path / "out" / "shaky.json")["summary_error"]
    # Elsewhere, with nothing but the one file of results, the killed part goes on from what it had.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "out" / plan.RESULTS_FILE).rename(elsewhere / plan.RESULTS_FILE)
    assert plan.main([*shaky[:2], str(elsewhere), *shaky[3:], "--plan", "shaky:dies"]) == 0
    dies = read_result(elsewhere / plan.RESULTS_FILE)["parts"]["shaky"]["dies"]
    assert (dies["status"], dies["first"], dies["second"]) == ("complete", [1.5, None], 2)


def test_what_was_never_tried_goes_before_what_ran_out_of_time_and_that_before_what_failed(tmp_path: Path) -> None:
    statuses = ("failed", "complete", "incomplete", None, "failed", None)
    steps = [plan.Step("a", f"p{at}", 1) for at in range(len(statuses))]
    for step, status in zip(steps, statuses, strict=True):
        if status:
            write_result(tmp_path / "a" / f"{step.part}.json", {"status": status})
    (tmp_path / "a" / "p4.json").write_text("half of")
    assert [step.part for step in plan.due(steps, tmp_path)] == ["p3", "p4", "p5", "p2", "p0"]


def test_what_decides_most_fits_into_fourteen_minutes_and_comes_first_of_all() -> None:
    assert sum(step.minutes for step in plan.DECIDING) * 60 + plan.SUMMARY_S + plan.PACK_S <= 14 * 60
    every = plan._chosen(plan._parse(["--all"]))
    assert every[: len(plan.DECIDING)] == plan.DECIDING
    assert {step.name for step in every} == {s.name for s in (*plan.DECIDING, *plan.FIRST, *plan.THEN)}
    assert len({step.name for step in every}) == len(every)
    usual = plan._chosen(plan._parse([]))
    assert usual[: len(plan.FIRST)] == plan.FIRST


def test_after_a_cut_what_it_cut_short_goes_first(tmp_path: Path) -> None:
    steps = [plan.Step("a", f"p{at}", 1) for at in range(3)]
    write_result(tmp_path / "a" / "p2.json", {"status": "incomplete"})
    assert [step.part for step in plan.due(steps, tmp_path, resume=True)] == ["p2", "p0", "p1"]


def test_a_p99_is_told_of_a_thousand_samples_only() -> None:
    def handovers(count: int) -> list[Step]:
        return [Step(float(at), at + 0.5, at % 2) for at in range(count)]

    assert gaps(handovers(1000))["gap_p99_s"] is None
    assert gaps(handovers(1001))["gap_p99_s"] == pytest.approx(0.5)
    assert gaps(handovers(1001))["handoffs"] == 1000


def test_the_report_says_which_commit_was_measured(tmp_path: Path) -> None:
    plan.pack(tmp_path)
    found = read_result(tmp_path / plan.RESULTS_FILE)["of"]
    assert set(found) == {"commit", "driver"}
    assert found["commit"] is None or len(found["commit"]) == 40


def test_the_first_parts_fit_the_budget_and_each_one_a_call() -> None:
    assert sum(step.limit_s for step in plan.FIRST) <= 25 * 60
    call_s = 8.5 * 60 - plan.SUMMARY_S - plan.PACK_S
    assert all(step.limit_s <= call_s for step in (*plan.DECIDING, *plan.FIRST, *plan.THEN))
    modules = {
        step.script: __import__(f"gpu.{step.script}", fromlist=["SCRIPT"])
        for step in plan.DECIDING + plan.FIRST + plan.THEN
    }
    assert all(step.part in modules[step.script].SCRIPT.parts for step in plan.DECIDING + plan.FIRST + plan.THEN)


def test_a_part_that_does_not_fit_is_passed_over_for_a_shorter_one(
    shaky: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "TINY", (plan.Step("shaky", "dies", 30), plan.Step("shaky", "fine", 1)))
    assert plan.main([*shaky[:-1], "--minutes", "10"]) == 0
    parts = read_result(tmp_path / "out" / plan.RESULTS_FILE)["parts"]["shaky"]
    assert {name: found["status"] for name, found in parts.items()} == {"fine": "complete"}


def test_without_time_left_nothing_is_started_and_bad_options_are_refused(shaky: list[str], tmp_path: Path) -> None:
    assert plan.main([*shaky[:-1], "--minutes", "2"]) == 0
    assert "parts" in read_result(tmp_path / "out" / plan.RESULTS_FILE)
    assert not (tmp_path / "out" / "shaky").exists()
    for words in (["--plan", "shaky:nonsense"], ["--minutes", "0"]):
        with pytest.raises(SystemExit):
            plan.main([*shaky, *words])


# -- the bundle


def wheel(folder: Path, name: str, version: str, *needs: str) -> Path:
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    metadata = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {need}" for need in needs)]
    with ZipFile(path, "w") as file:
        file.writestr(f"{name}/__init__.py", f"version = '{version}'\n")
        file.writestr(f"{info}/METADATA", "\n".join(["Metadata-Version: 2.1", *metadata, ""]))
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return path


def test_what_is_there_is_left_out_unless_a_newer_one_is_needed(tmp_path: Path) -> None:
    own = wheel(tmp_path, "own", "1.0", "old>=2", "good>=1,<2", 'never>=9; python_version < "3"', "any_name")
    found = {"own": own} | {name: wheel(tmp_path, name, "2.5") for name in ("old", "good", "any-name", "never", "new")}
    (tmp_path / "there").write_text("# pip freeze\nOld==1.9\ngood==1.5\nany.name @ file:///x\nnever==1\n-e .\n")
    kept, left_out = bundle.without(found, bundle.read_there(tmp_path / "there"), "3.12")
    assert sorted(kept) == ["new", "old", "own"]
    assert left_out == {"good": "1.5", "any-name": "", "never": "1"}


def test_a_list_that_names_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("\n# nothing\n")
    for path in (tmp_path / "there", tmp_path / "nowhere", tmp_path):
        with pytest.raises(bundle.BundleError, match="--there"):
            bundle.read_there(path)


def bundled(folder: Path, **changes: Any) -> Path:
    made = wheel(folder, "shipped", "3.1")
    digests = {made.name: hashlib.sha256(made.read_bytes()).hexdigest()}
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    (folder / install.MANIFEST).write_text(json.dumps({"python": python, "wheels": digests, **changes}))
    return folder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"python": "2.7"}, "for Python 2.7, this is"),
        ({"wheels": {"lost.whl": "0"}}, "lost.whl is missing or not as it"),
    ],
)
def test_a_bundle_that_cannot_serve_is_refused(changes: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(install.InstallError, match=message):
        install.install(bundled(tmp_path, **changes), tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_a_bundle_is_installed_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # scripts/test makes an environment without pip; the Python it was made from has one.
    monkeypatch.setattr(sys, "executable", getattr(sys, "_base_executable", sys.executable))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    site = install.install(bundled(tmp_path), tmp_path / "site")
    assert (site / "shipped" / "__init__.py").exists()
    (site / "shipped" / "__init__.py").unlink()
    assert install.install(tmp_path, site) == site
    assert not (site / "shipped" / "__init__.py").exists(), "what is complete is not installed again"


def test_no_bundle_where_one_was_named_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert install.main(["--wheels", str(tmp_path)]) == 2
    assert "holds no bundle.json" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# -- what memory is really held


def test_memory_is_judged_by_process_and_in_sum(tmp_path: Path) -> None:
    mib = 2**20
    processes = [{"device_bytes": 500 * mib, "reserved_bytes": 100 * mib}, {"device_bytes": 0, "reserved_bytes": mib}]
    for used, passed in ((520 * mib, [False, False, True]), (900 * mib, [False, False, False])):
        run = Run(
            part="x",
            gpus=discover("cpu:1:1GB").observe(),
            small=True,
            on_cpu=True,
            deadline_s=0,
            out_dir=tmp_path,
            state_dir=tmp_path,
        )
        judge_stage(run, {"stage": "context", "used_bytes": used, "processes": processes})
        assert [check.passed for check in run.checks] == passed
