"""Arrays from the shell: one line, each element with its index, and every index once though the scheduler is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from colane.client.errors import SchedulerUnreachable
from tests.cli.conftest import Colane, Gate, Up, until

pytestmark = pytest.mark.live

MakeUp = Callable[..., Up]
TELL = "echo $COLANE_ARRAY_ID $COLANE_ARRAY_INDEX of $COLANE_ARRAY_COUNT, $COLANE_ARRAY_MIN to $COLANE_ARRAY_MAX"


def submitted(live: Colane, *words: str) -> str:
    said = live("submit", *words)
    assert said.code == 0, said
    return said.out.split()[-1]


def test_each_element_is_told_its_index_and_has_a_log_of_its_own(live: Colane) -> None:
    array = submitted(live, "-a", "0-8:4,20", "--gpus", "0", "--", "sh", "-c", TELL)
    said = live("wait", array)
    assert (said.code, said.out) == (
        0, f"job {array} succeeded: 4 elements: 4 succeeded, 0 failed, 0 cancelled\n",
    )  # fmt: skip
    for index in (0, 4, 8, 20):
        assert live("logs", f"{array}[{index}]").out == f"{array} {index} of 4, 0 to 20\n"
    assert f"job {array}[20] has succeeded" in live("why", f"{array}[20]").out
    assert f"element    8 of array {array}, id {int(array) + 3}" in live("show", f"{array}[8]").out
    last = submitted(live, "--gpus", "0", "--", "sh", "-c", "echo last")
    assert live("wait", "@~1", "@").out.count("succeeded: 4 elements") == 1
    assert (live("logs", "@").out, live("logs", "@~1[4]").out) == ("last\n", f"{array} 4 of 4, 0 to 20\n")
    assert live("why", "@").out.startswith(f"job {last} has succeeded")
    assert "@~999 is no job: " in live("why", "@~999").err


def test_the_last_job_is_meant_though_it_has_ended_and_an_older_one_runs(live: Colane, gate: Gate) -> None:
    older = submitted(live, "--gpus", "0", "--", *gate.job)
    last = submitted(live, "-a", "1-2", "--gpus", "0", "--", "sh", "-c", "echo $COLANE_ARRAY_INDEX")
    assert live("wait", "@").code == 0
    assert live("cancel", "@").out == f"job {last}: succeeded\n"
    assert live("why", "@").out.startswith(f"job {last} has succeeded")
    assert live("show", "@").out.split()[:2] == ["job", last]
    assert live("logs", "@[2]").out == "2\n"
    behind = submitted(live, "--gpus", "0", "--after", "ok:@", "--", "true")
    assert live("wait", behind).code == 0
    assert live("cancel", "@~2").out.startswith(f"job {older}: ")


def test_an_array_is_one_line_that_says_how_its_elements_stand(live: Colane, gate: Gate) -> None:
    array = submitted(live, "--array", "0-99%1", "--gpus", "0", "--name", "sweep", "--", *gate.job)
    lines = [line for line in live("ps").out.splitlines() if "sweep" in line]
    assert len(lines) == 1
    assert lines[0].split()[0] == f"{array}[0-99%1]"
    assert lines[0].endswith("1 running, 99 waiting, 0 of 100 ended")
    names = [line.split()[0] for line in live("ps", "--elements").out.splitlines() if "sweep" in line]
    assert names == [f"{array}[0-99%1]", f"{array}[0]"]
    assert "JobArrayTaskLimit: 1 of 100 elements running, no more than 1 may at once" in live("why", array).out
    assert f"it comes behind 6 elements of array {array}" in live("why", f"{array}[7]").out
    assert live("cancel", f"{array}[3,7-9]").out == (
        f"job {array}[3,7-9]: running: 1 running, 95 waiting, 4 of 100 ended (4 cancelled)\n"
    )
    assert live("cancel", f"{array}[50]").out == f"job {array}[50]: cancelled\n"
    assert live("wait", f"{array}[7-9]", "--timeout", "60s").code == 1
    held = live("suspend", f"{array}[1-2]")
    assert held.out == f"job {array}[1]: queued (held)\njob {array}[2]: queued (held)\n"
    gate.open()
    assert live("wait", f"{array}[0]").code == 0
    assert live("release", f"{array}[1,2]").code == 0
    told = live("events", "--job", f"{array}[1]", "--after", "0").out.splitlines()
    assert [line.split(f"job {array}[1] (sweep) ")[1].split(":")[0] for line in told][-3:] == ["queued"] * 3
    assert live("suspend", array).out.startswith(f"job {array}: held; ")
    line = next(line for line in live("ps").out.splitlines() if "sweep" in line)
    assert " held: " in line
    said = live("cancel", array)
    assert said.code == 0
    assert live("wait", array).out.startswith(f"job {array} cancelled")


def test_what_is_asked_of_elements_that_are_not_there(live: Colane) -> None:
    array = submitted(live, "--array", "0-3", "--gpus", "0", "--hold", "--", "true")
    for words in (["why"], ["show"], ["logs"], ["wait"], ["suspend"], ["release"], ["requeue"]):
        said = live(*words, f"{array}[4]")
        assert (said.code, said.err) == (2, f"colane: array {array} has no element 4: it has 0-3\n")
    said = live("cancel", f"{array}[2-4]")
    assert (said.code, f"array {array} has no element 4: it has 0-3" in said.err) == (2, True)
    assert live("show", f"{array}[1-2]").err == f"colane: {array}[1-2] names 2 jobs, and one is asked for\n"
    said = live("why", f"{int(array) + 1}[0]")
    assert said.err == f"colane: job {int(array) + 1} is no array: name it without [0]\n"
    assert "must be elements of an array, as 12[3,7-9]" in live("why", f"{array}[").err
    assert live("cancel", array).out == f"job {array}: cancelled\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0-99%0", "--array: %0 lets no element run: give at least %1, or leave it out"),
        ("5-1", "--array: 5-1 goes down: write 1-5"),
        ("0-1e9", "--array: must be indexes as 0-99"),
        ("-1", "--array: must be indexes as 0-99"),
        ("0-5,3", "--array: names indexes twice: 0-5 and 3 overlap"),
        ("", "--array: must be indexes as 0-99"),
    ],
)
def test_what_is_no_array_is_named_with_its_option(live: Colane, text: str, message: str) -> None:
    said = live("submit", f"--array={text}", "--gpus", "0", "--", "true")
    assert said.code == 2
    assert said.err.startswith(f"colane: {message}")
    assert said.err.count("\n") == 1


def test_every_index_runs_once_though_the_scheduler_is_killed(make_up: MakeUp, tmp_path: Path) -> None:
    up, told = make_up("--devices", "cpu:2"), tmp_path / "told"
    script = f"echo $COLANE_ARRAY_INDEX >> '{told}'; sleep 0.05"
    with up.client as client:
        array = client.submit({
            "command": ["sh", "-c", script], "gpus": 0, "array": "0-49%4", "workdir": str(tmp_path),
            "env": {"PATH": os.environ["PATH"]},
        })  # fmt: skip
    for number in (5, 15, 30):
        until(partial(_has_told, told, number), "some of them")
        scheduler = next(pid for pid in up.processes() if b"colane.cli\0server\0" in _command(pid))
        os.kill(scheduler, signal.SIGKILL)
    until(lambda: _state(up, array) == "succeeded", "the end of all")
    assert sorted(map(int, told.read_text().split())) == list(range(50))
    with up.client as client:
        elements = client.job(array)["elements"]
        assert elements is not None
        assert (elements["succeeded"], elements["waiting"], elements["running"]) == (50, 0, 0)
        assert len(list(client.finished_jobs())) == 51
    assert up.end(signal.SIGINT)[0] == 0


def _has_told(told: Path, least: int) -> bool:
    return told.exists() and len(told.read_text().split()) >= least


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _state(up: Up, job: int) -> str:
    """Its state; empty while the scheduler does not answer."""
    try:
        with up.client as client:
            return client.job(job)["state"]
    except SchedulerUnreachable:
        return ""
