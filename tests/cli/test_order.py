"""Jobs in an order, from the shell: what waits for what, until when a shell waits, and with which code it leaves."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.conftest import Colane, Gate, Up

pytestmark = pytest.mark.live


def submitted(live: Colane, *words: str) -> str:
    said = live("submit", *words)
    assert said.code == 0, said
    return said.out.split()[-1]


def test_a_pipeline_of_three_runs_in_its_order(live: Colane, gate: Gate) -> None:
    first = submitted(live, "--", *gate.job)
    second = submitted(live, "--after", "ok:@", "--", "sh", "-c", "exit 3")
    third = submitted(live, "--after", f"fail:{second},any:{first}", "--", "echo", "third")
    never = submitted(live, "--after", f"ok:{second}", "--", "echo", "never")
    assert f"job {first} has succeeded" in live("why", second).out
    assert live("change", second, "--time-limit", "1h").code == 0
    shown = live("show", second).out
    assert re.search(r"needs +1 GPU, after ok:@\n", shown), "as declared, without the limit that it got since"
    assert re.search(rf"in force +at most 1 h, after ok:{first}\n", shown)
    assert live("wait", second, "--timeout", "0.2s").code == 124
    gate.open()
    said = live("wait", first, second, third, never)
    assert said.code == 3
    assert [line.split(":")[0] for line in said.out.splitlines()] == [
        f"job {first} succeeded", f"job {second} failed", f"job {third} succeeded", f"job {never} cancelled",
    ]  # fmt: skip
    assert f"so ok:{second} never comes true" in said.out
    assert live("logs", third).out.endswith("third\n")
    assert live("wait", first, third, "--json").json[1]["state"] == "succeeded"


def test_a_held_job_starts_when_it_is_released(live: Colane, shared_up: Up) -> None:
    job = submitted(live, "--hold", "--", "true")
    assert shared_up.wait_for(int(job), "queued")["suspended"] is True
    assert live("release", job).code == 0
    assert shared_up.wait_for(int(job), "succeeded")["state"] == "succeeded"


def test_a_begin_that_has_passed_is_told(live: Colane) -> None:
    passed = "--begin 2020-01-01T08:00 has passed: the job may start at once"
    assert passed in live("submit", "--begin", "2020-01-01T08:00", "--", "true").err
    assert "has passed" not in live("submit", "--begin", "now+1h", "--", "true").err


def test_what_has_happened_to_a_job_is_told_in_order(live: Colane) -> None:
    job = submitted(live, "--name", "told", "--", "true")
    assert live("wait", job).code == 0
    lines = live("events", "--job", job, "--after", "0").out.splitlines()
    assert [line.split("  ", 1)[1].split(":")[0] for line in lines][0::len(lines) - 1] == [
        f"job {job} (told) queued", f"job {job} (told) succeeded",
    ]  # fmt: skip
    assert live("events", "--job", job, "--last", "2").out.splitlines() == lines[-2:]
    assert live("wait", submitted(live, "--", "true")).code == 0
    assert live("events", "--job", job).out.splitlines() == lines
    newest = [json.loads(line)["number"] for line in live("events", "--json", "--last", "3").out.splitlines()]
    assert newest == [newest[0], newest[0] + 1, newest[0] + 2]
    assert live("events", "--last", "0").out == ""
    said = live("events", "--job", job, "--after", "0", "--format", "{job} {kind} {state}").out.splitlines()
    assert (said[0], f"{job} attempt-ended -" in said) == (f"{job} job queued", True)
    assert live("wait", job, "--format", "{id}={state}").out == f"{job}=succeeded\n"
    assert live("usage", "--format", "{user} {waiting}").out.split()[1].isdecimal()
    assert "there is no 'nothing'" in live("events", "--format", "{nothing}").err


def test_a_condition_that_is_none_is_named_with_its_option(live: Colane) -> None:
    said = live("submit", "--after", "ok:99999", "--", "true")
    assert (said.code, said.err) == (2, "colane: --after: there is no job 99999\n")
    said = live("wait", "99999")
    assert said.code == 2
    assert live("wait", "1", "--timeout", "soon").code == 2
