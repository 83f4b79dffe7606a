"""Commands against a real scheduler and agent, with real processes."""

from __future__ import annotations

import json
import os
import pty
import pwd
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from colane.client.client import Client
from colane.client.errors import Refused
from colane.model.versions import own_version
from tests.cli.conftest import COLANE, Colane, Gate, Up, environment, run_colane, until, until_gone

pytestmark = pytest.mark.live

STEPS = "import colane.adaptor as c; s = c.attach(total_steps=5); [s.step(loss=x / 2) for x in range(5)]"


def submitted(said: Any) -> int:
    """The job's id: the last word printed."""
    assert said.code == 0, said
    return int(said.out.split()[-1])


def test_a_command_runs_here_with_this_shells_environment(
    live: Colane, shared_up: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLANE_TEST_OF_SHELL", "from the shell")
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path / 'venv' / 'bin'}:{os.environ['PATH']}")
    code = (
        "import os, shutil; print(os.getcwd(), os.environ['COLANE_TEST_OF_SHELL'], os.environ['EXTRA'], "
        "shutil.which('python'), os.environ.get('COLANE_TOKEN'), os.environ['COLANE_JOB_ID'], sep='|')"
    )
    job = submitted(live("submit", "--env", "EXTRA=a=b", "--", "python", "-c", code))
    shared_up.wait_for(job, "succeeded", "failed")
    said = live("logs", str(job))
    where = f"{tmp_path}/venv/bin/python"
    assert said.out == f"{tmp_path}|from the shell|a=b|{where}|None|{job}\n"


def test_a_command_keeps_its_own_options(live: Colane, shared_up: Up) -> None:
    job = submitted(live("submit", "--name", "mine", "echo", "--name", "its own", "--gpus", "7"))
    assert shared_up.wait_for(job, "succeeded")["name"] == "mine"
    assert live("logs", str(job)).out == "--name its own --gpus 7\n"


def test_a_yaml_file(live: Colane, shared_up: Up, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        f"name: from-file\ncommand: [{sys.executable}, -c, 'import os; print(os.environ[\"A\"], os.getcwd())']\n"
        f"workdir: {tmp_path}\nenv:\n  A: 1.10\ngpus: 1\ngpu_memory: 100MB\ntime_limit: 5m\nretries: 1\n"
        f"labels: {{run: file}}\nuser: {_user()}\n"
    )
    job = submitted(live("submit", "--label", "also=this", str(file)))
    ended = shared_up.wait_for(job, "succeeded")
    assert ended["name"] == "from-file"
    assert ended["user"] == _user()
    assert ended["labels"] == {"run": "file", "also": "this"}
    assert ended["needs"]["gpu_memory_bytes"] == 100_000_000
    assert ended["needs"]["time_limit_s"] == 300
    assert live("logs", str(job)).out == f"1.10 {tmp_path}\n"


def test_a_job_without_gpus_runs_beside_training(live: Colane, shared_up: Up, tmp_path: Path) -> None:
    """Every device is busy, still it runs at once; it sees no GPU, and stands in every list."""
    devices = sum(len(node["gpus"]) for node in live("nodes", "--json").json)
    gates = [Gate(tmp_path / f"gate-{number}") for number in range(devices + 1)]
    training = [submitted(live("submit", "--no-share", "--", *gate.job)) for gate in gates[1:]]
    for job in training:
        shared_up.wait_for(job, "launching", "running", "running-protected")
    code = "import os; print(repr(os.environ['CUDA_VISIBLE_DEVICES']), len(os.sched_getaffinity(0)))"
    job = submitted(live("submit", "--gpus", "0", "--", sys.executable, "-c", code))
    ended = shared_up.wait_for(job, "succeeded", "failed")
    assert (ended["state"], ended["gpus"], ended["needs"]["gpus"]) == ("succeeded", [], 0)
    assert ended["node"] is not None
    assert live("logs", str(job)).out == f"'' {len(os.sched_getaffinity(0))}\n"
    waiting = submitted(live("submit", "--gpus", "0", "--", *gates[0].job))
    shared_up.wait_for(waiting, "launching", "running", "running-protected")
    assert ended["node"] in live("ps").out
    shown = live("nodes").out
    assert "no GPU" in shown
    assert shown.splitlines()[-1].startswith("mechanisms on: co-location, ")
    assert ", cores, " in shown.splitlines()[-1].partition("; off: ")[0]
    assert "no GPU" in live("show", str(waiting)).out
    for gate in gates:
        gate.open()
    for one in (*training, waiting):
        shared_up.wait_for(one, "succeeded")


def test_sizes_are_shown(live: Colane, shared_up: Up) -> None:
    job = submitted(live("submit", "--gpus", "1..3", "--", "true"))
    ended = shared_up.wait_for(job, "succeeded")
    assert ended["needs"]["sizes"] == [1, 2, 3]
    assert len(ended["gpus"]) == ended["needs"]["gpus"]
    assert "1..3 GPUs" in live("show", str(job)).out


def test_a_job_of_several_sizes_starts_at_the_largest_that_is_free(make_up: Callable[..., Up], tmp_path: Path) -> None:
    """Where the policy's option says so; its environment, its placement and `show` say what it got."""
    up, gate = make_up("--devices", "cpu:2:4GB", "--policy", "fifo:size=largest"), Gate(tmp_path / "gate")
    first = submitted(run_colane(["submit", "--", *gate.job], **up.env))
    up.wait_for(first, "launching", "running", "running-protected")
    code = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
    wide = ["submit", "--gpus", "1..2", "--", sys.executable, "-c", code]
    narrow = up.wait_for(submitted(run_colane(wide, **up.env)), "succeeded", "failed")
    gate.open()
    up.wait_for(first, "succeeded")
    whole = up.wait_for(submitted(run_colane(wide, **up.env)), "succeeded", "failed")
    assert [(one["state"], one["needs"]["gpus"], len(one["gpus"])) for one in (narrow, whole)] == [
        ("succeeded", 2, 1),
        ("succeeded", 2, 2),
    ]


def test_a_batch_is_taken_whole_or_not_at_all(live: Colane, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("- {command: 'true'}\n- command: 'true'\n  gpus: none\n- {command: 'true', prio: 1}\n")
    before = live("ps", "--all", "--json").json
    said = live("submit", str(file))
    assert said.code == 2
    assert f"{file}:3: gpus: must be a number of GPUs from 0 to 4096" in said.err
    assert f"{file}:4: prio: is not a known field; did you mean priority?" in said.err
    assert len(said.err.splitlines()) == 1
    assert [job["id"] for job in live("ps", "--all", "--json").json] == [job["id"] for job in before]


def test_data_that_is_not_where_a_job_runs_is_its_failure(live: Colane, shared_up: Up) -> None:
    job = submitted(live("submit", "--model", "vgg19", "--dataset-path", "/nowhere"))
    shared_up.wait_for(job, "failed")
    assert "--dataset-path /nowhere is not a directory on here" in live("logs", str(job)).out


def test_paper_a_objects(live: Colane, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    whole = {"model_name": "vgg20", "batch_size": -4, "dataset": "digits"}
    file.write_text(json.dumps(whole))
    said = live("submit", str(file))
    assert said.code == 2
    assert "batch_size" in said.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--gpus", "3", "--", "true"], "gpus:"),
        (["--gpu-type", "H900", "--", "true"], "--gpu-type: unknown 'H900'"),
        (["--gpu-memory", "lots", "--", "true"], "'--gpu-memory': must be a size such as 2GB"),
        (["--gpu-memory", "40GB", "--", "true"], "--gpu-memory: asks for 40000000000"),
        (["--time-limit", "soon", "--", "true"], "'--time-limit' / '-t': must be a duration such as 90"),
        (["--model", "vgg20", "--dataset", "digits"], "did you mean vgg"),
        (["--model", "vgg19", "--batch-size", "-4", "--dataset", "digits"], "--batch-size: must be at least 1, got -4"),
        (["--lr", "0.1", "--", "true"], "lr: belongs to built-in jobs"),
    ],
)
def test_what_can_never_run_is_refused_by_field(live: Colane, words: list[str], expected: str) -> None:
    said = live("submit", *words)
    assert said.code == 2, said
    assert len(said.err.splitlines()) == 1
    assert expected in said.err


def test_ps_show_why_of_running_and_waiting_jobs(live: Colane, shared_up: Up, gate: Gate) -> None:
    words = ("--name", "holder", "--gpus", "2", "--time-limit", "5h", "-l", "t=ps")
    first = submitted(live("submit", *words, "--", *gate.job))
    shared_up.wait_for(first, "launching")
    second = submitted(live("submit", "--name", "waiter", "--no-share", "-l", "t=ps", "--", "true"))
    try:
        listed = live("ps", "--label", "t=ps")
        header, *rows = listed.out.splitlines()
        assert header.split() == ["ID", "NAME", "USER", "STATE", "GPUS", "STEPS", "STEPS/S", "TIME", "ETA", "REASON"]
        assert rows[0].split()[:5] == [str(first), "holder", _user(), "running", "here/0,here/1"]
        assert rows[1].split()[:4] == [str(second), "waiter", _user(), "queued"]
        assert rows[1].split()[-1] == "no-free-gpu"
        as_json = live("ps", "--label", "t=ps", "--json").json
        assert [job["id"] for job in as_json] == [first, second]
        assert {"state", "gpus", "steps_per_s", "eta_s", "why", "reason"} <= set(as_json[0])
        assert live("ps", "--label", "t=ps", "--user", "nobody-else").err == (
            "no job of those asked for waits or runs; ended ones: colane ps --all\n"
        )
        why = live("why", str(second))
        assert f"job {second} is queued: Resources: needs 1 GPU on one node" in why.out
        assert f"job {first} (holder, {_user()}): running on here/0, here/1" in why.out
        assert "\n  it would start in about 5 h, as far as is known\n" in why.out
        said = live("why", str(second), "--json").json
        assert (said["jobs"], 4 * 3600 < said["starts_in_s"] <= 5 * 3600) == ([first], True)
        assert live("why", str(first), "--format", "{starts_in_s}").out == "-\n"
        shown = live("show", str(first)).out
        for expected in ("holder", "launching", "2 GPUs", "here/0, here/1", "t=ps", "process", "queued"):
            assert expected in shown
        assert live("show", str(first), "--json").json["story"][0]["state"] == "queued"
        nodes = live("nodes").out
        columns = ["NODE", "GPU", "TYPE", "MEMORY", "CORES", "SHARING", "STATE", "VERSION", "JOBS"]
        assert nodes.splitlines()[0].split() == columns
        assert nodes.splitlines()[1].split()[-3:] == ["busy", own_version(), str(first)]
        assert live("nodes", "--json").json[0]["gpus"][0]["memory_bytes"] == 4_000_000_000
    finally:
        gate.open()
    shared_up.wait_for(second, "succeeded")
    assert "holder" in live("ps", "--all", "--label", "t=ps").out


def _user() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


def test_progress_of_a_job_that_steps(live: Colane, shared_up: Up) -> None:
    job = submitted(live("submit", "--", sys.executable, "-c", STEPS))
    shared_up.wait_for(job, "succeeded")
    shown = live("show", str(job)).out
    assert "5/5" in shown
    assert "loss       2" in shown
    assert "steps/s" in shown


def test_show_says_what_a_job_runs_and_where_also_after_its_end(live: Colane, shared_up: Up, tmp_path: Path) -> None:
    words = ["sh", "-c", "echo $0", "a b", "--api-key", "0123456789abcdef"]
    job = submitted(live("submit", "--workdir", str(tmp_path), "--", *words))
    shared_up.wait_for(job, "succeeded")
    shown = live("show", str(job)).out
    assert "sh -c 'echo $0' 'a b' --api-key ***" in shown
    assert str(tmp_path) in "".join(shown.split())
    assert live("show", str(job), "--json").json["workdir"] == str(tmp_path)


NESTED = """
import subprocess, sys, os, json
colane = [sys.executable, "-m", "colane.cli"]
def run(*words):
    done = subprocess.run([*colane, *words], capture_output=True, text=True)
    return [done.returncode, done.stdout.strip(), done.stderr.strip()]
print(json.dumps([
    run("submit", "--name", "inner", "--gpus", "0", "--", "printenv", "COLANE_JOB_ID", "COLANE_TOKEN_FILE"),
    run("logs", os.environ["COLANE_JOB_ID"]), run("token", "make"), run("token", "list"),
    open(os.environ["COLANE_TOKEN_FILE"]).read(), "COLANE_TOKEN" in os.environ]))
"""


def test_a_job_uses_colane_with_a_token_of_its_own(live: Colane, shared_up: Up) -> None:
    outer = submitted(live("submit", "--gpus", "0", "--", sys.executable, "-c", NESTED))
    assert shared_up.wait_for(outer, "succeeded", "failed")["state"] == "succeeded", live("logs", str(outer))
    submit, logs, make, listed, token, has_other = json.loads(live("logs", str(outer)).out)
    inner = int(submit[1].split()[-1])
    assert (submit[0], logs[0], listed[0], has_other) == (0, 0, 0, False)
    assert make == [2, "", f"colane: a job makes no tokens; you are job {outer} of user {_user()}"]
    ended = shared_up.wait_for(inner, "succeeded")
    assert (ended["user"], ended["name"]) == (_user(), "inner")
    said_id, said_file = live("logs", str(inner)).out.split()
    assert (said_id, f"/{inner}-1/own/token" in said_file) == (str(inner), True)
    with Client(shared_up.url, token) as as_job, pytest.raises(Refused, match="its attempt has ended"):
        as_job.queued()
    kept = [path for path in shared_up.state.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]
    assert [path.name for path in kept if not path.name.startswith("log")] == [], "it printed it itself"


def test_a_job_that_hangs_is_shown_to_make_no_step(live: Colane, shared_up: Up, gate: Gate) -> None:
    code = f"import colane.adaptor as c; s = c.attach(); [s.step() for _ in range(50)]; open({str(gate.path)!r}).read()"
    job = submitted(live("submit", "--name", "hangs", "--", sys.executable, "-c", code))
    shared_up.wait_for(job, "running-protected")
    until(lambda: "no step for" in live("why", str(job)).out, "it is told of")
    row = next(line for line in live("ps").out.splitlines() if "hangs" in line)
    assert re.search(r" 50 +0 .*no step for [0-9.]+ s", row), row
    assert re.search(r"steps/s +0, no step for [0-9.]+ s \(usually [0-9.e-]+ s\)", live("show", str(job)).out)
    assert re.search(rf"job {job} is running(-protected)?: no step for [0-9.]+ s \(usually", live("why", str(job)).out)
    gate.open()
    shared_up.wait_for(job, "succeeded")


def test_following_a_log_to_its_end(live: Colane, shared_up: Up, gate: Gate) -> None:
    job = submitted(live("submit", "--", *gate.job))
    shared_up.wait_for(job, "launching")
    threading.Thread(target=gate.open).start()
    said = live("logs", "-f", str(job))
    assert said.out == "at the gate\nthrough the gate\n"


@pytest.mark.parametrize(("lines", "expected"), [(0, ""), (1, "c\n"), (2, "b\nc\n"), (9, "a\nb\nc\n")])
def test_last_lines_of_a_log(live: Colane, shared_up: Up, lines: int, expected: str) -> None:
    job = submitted(live("submit", "--", "printf", "a\\nb\\nc\\n"))
    shared_up.wait_for(job, "succeeded")
    assert live("logs", "-n", str(lines), str(job)).out == expected


def test_a_job_is_submitted_again_with_what_this_shell_has_now(
    live: Colane, shared_up: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_SHELL", "then")
    words = ["--workdir", str(tmp_path), "--gpus", "0", "--label", "t=again", "--", "sh", "-c", "echo $FROM_SHELL; pwd"]
    first = submitted(live("submit", *words))
    shared_up.wait_for(first, "succeeded")
    monkeypatch.setenv("FROM_SHELL", "now")
    said = live("again", str(first))
    assert said.err == f"note: as job {first} in {tmp_path}, with the environment of this shell\n"
    second = submitted(said)
    ended = shared_up.wait_for(second, "succeeded")
    assert (ended["labels"], ended["needs"]["gpus"]) == ({"t": "again"}, 0)
    assert live("logs", str(first)).out == f"then\n{tmp_path}\n"
    assert live("logs", str(second)).out == f"now\n{tmp_path}\n"
    third = submitted(live("resubmit", str(first), "--gpus", "1", "--label", "more=yes", "--comment", "larger"))
    asked = shared_up.wait_for(third, "succeeded")
    assert (asked["labels"], asked["needs"]["gpus"], asked["comment"]) == ({"t": "again", "more": "yes"}, 1, "larger")
    refused = live("again", "999999")
    assert (refused.code, refused.err) == (2, "colane: there is no job 999999\n")


def test_the_logs_of_all_attempts_are_kept_and_joined(live: Colane) -> None:
    code = "echo this is $COLANE_ATTEMPT; printf more; exit $COLANE_ATTEMPT"
    said = live("submit", "--wait", "--retries", "1", "--", "sh", "-c", code)
    between = "[attempt 1 on here ended: exited with code 1; attempt 2 follows]\n"
    whole = f"this is 1\nmore\n{between}this is 2\nmore"
    assert (said.code, said.out) == (2, whole)
    job = said.err.split()[2]
    for words, expected in (
        ([], whole),
        (["-f"], whole),
        (["-n", "2"], "this is 2\nmore"),
        (["-n", "3"], f"more\n{between}this is 2\nmore"),
        (["--attempt", "1"], "this is 1\nmore"),
        (["--attempt", "1", "-n", "1", "-f"], "more"),
        (["-a", "2"], "this is 2\nmore"),
    ):
        assert live("logs", *words, job).out == expected, words
    refused = live("logs", "--attempt", "3", job)
    assert (refused.code, refused.err) == (2, f"colane: --attempt: job {job} has had 2 attempts, got 3\n")


@pytest.mark.parametrize(
    ("command", "code", "state"),
    [
        (["sh", "-c", "echo out; exit 3"], 3, "failed"),
        (["sh", "-c", "kill -9 $$"], 137, "failed"),
        (["true"], 0, "succeeded"),
    ],
)
def test_waiting_gives_the_jobs_exit_code(live: Colane, command: list[str], code: int, state: str) -> None:
    said = live("submit", "--wait", "--", *command)
    assert said.code == code, said
    assert f" {state}: " in said.err
    assert said.out == ("out\n" if code == 3 else "")


def test_a_program_that_is_not_here_is_refused_where_jobs_run_here_alone(live: Colane, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("#!/bin/sh\ntrue\n")
    batch = tmp_path / "jobs.yaml"
    batch.write_text("- command: 'true'\n- command: [no-such-program]\n")
    for words, expected in (
        (["no-such-program", "--lr", "1"], "command: there is no program 'no-such-program' in PATH here"),
        ([str(tmp_path / "gone.sh")], "gone.sh here"),
        ([str(tmp_path / "train.sh")], "may not be run: chmod +x"),
    ):
        said = live("submit", "--", *words)
        assert (said.code, expected in said.err, said.out) == (2, True, ""), said.err
    said = live("submit", str(batch))
    assert (said.code, "jobs.yaml" in said.err, "no-such-program" in said.err) == (2, True, True)


def test_a_directory_that_is_not_here_is_refused_where_jobs_run_here_alone(live: Colane, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    batch, gone = tmp_path / "jobs.yaml", tmp_path / "gone"
    batch.write_text(f"- command: 'true'\n- command: 'true'\n  workdir: {gone}\n")
    for workdir, expected in (
        (gone, f"workdir: there is no directory {gone} here: make it (mkdir -p {gone})"),
        (tmp_path / "file", "file is no directory here: name another"),
    ):
        said = live("submit", "--workdir", str(workdir), "--", "true")
        assert (said.code, expected in said.err, said.out) == (2, True, ""), said.err
    said = live("submit", str(batch))
    assert (said.code, "jobs.yaml:3: workdir: there is no directory" in said.err) == (2, True), said.err
    gone.mkdir()
    assert live("submit", str(batch)).code == 0


def test_all_jobs_of_a_user_are_cancelled(live: Colane) -> None:
    job = submitted(live("submit", "--hold", "--", "true"))
    owner = live("show", str(job), "--json").json["user"]
    assert "no job of somebody-else waits or runs" in live("cancel", "-u", "somebody-else").err
    assert live("show", str(job), "--json").json["state"] == "queued"
    assert f"job {job}: cancelled" in live("cancel", "-u", owner).out


def test_waiting_for_a_batch(live: Colane, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("- command: 'true'\n- command: [sh, -c, exit 4]\n")
    said = live("submit", "--wait", "--json", str(file))
    assert said.code == 4
    assert [job["state"] for job in said.json] == ["succeeded", "failed"]


def test_cancelling(live: Colane, shared_up: Up, gate: Gate, tmp_path: Path) -> None:
    running = submitted(live("submit", "--gpus", "2", "-l", "t=cancel", "--", *gate.job))
    shared_up.wait_for(running, "launching")
    waiting = submitted(live("submit", "--gpus", "2", "-l", "t=cancel", "--", "true"))
    said = live("cancel", "--label", "t=cancel")
    assert said.code == 0
    assert f"job {waiting}: cancelled" in said.out
    assert f"job {running}: " in said.out
    ended = shared_up.wait_for(running, "cancelled")
    assert ended["reason"] == f"cancelled by {_user()}"
    again = live("cancel", str(running), str(waiting))
    assert again.code == 0
    assert again.out == f"job {running}: cancelled\njob {waiting}: cancelled\n"
    assert live("cancel", str(waiting), "--json").json == [{"id": waiting, "state": "cancelled"}]
    until_gone(tmp_path / "gate")


def test_cancelling_what_is_not_there(live: Colane) -> None:
    said = live("cancel", "999998", "999999")
    assert said.code == 2
    assert said.err == "colane: there is no job 999998, 999999\n"
    assert live("cancel", "--label", "t=nothing").err == "no job waits or runs with this label\n"


@pytest.mark.parametrize("words", [["show"], ["why"], ["logs"], ["logs", "-f"]])
def test_unknown_jobs(live: Colane, words: list[str]) -> None:
    said = live(*words, "999999")
    assert said.code == 2
    assert said.err == "colane: there is no job 999999\n"


def test_report(live: Colane, shared_up: Up, tmp_path: Path) -> None:
    for run in ("a", "b"):
        job = submitted(live("submit", "-l", f"run={run}", "-l", "t=report", "--", "true"))
        shared_up.wait_for(job, "succeeded")
    out = tmp_path / "report"
    said = live("report", "--label", "run", "--only", "t=report", "--out", str(out))
    assert said.code == 0, said
    assert str(out / "report.html") in said.out
    assert "<html" in (out / "report.html").read_text()
    numbers = live("report", "--label", "run", "--only", "t=report", "--out", str(out), "--json").json
    assert [run["name"] for run in numbers["runs"]] == ["a", "b"]
    assert live("report", "--only", "t=never").code == 1


def test_on_a_terminal_tables_fit_its_width(shared_up: Up) -> None:
    reader, writer = pty.openpty()
    words = [*COLANE, "nodes"]
    pid = os.posix_spawn(
        words[0],
        words,
        environment(**shared_up.env, COLUMNS="70", TERM="xterm-256color"),
        file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_DUP2, writer, 2)],
    )
    os.close(writer)
    drawn = b""
    while True:
        try:
            drawn += os.read(reader, 2**16)
        except OSError:  # how Linux says that the last writer has closed a terminal
            break
    os.close(reader)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    text = drawn.decode()
    assert "\x1b[" in text
    assert "MEMORY" in text


def test_the_entry_point_works_as_a_process(shared_up: Up) -> None:
    said = run_colane(["ps", "--json"], **shared_up.env)
    assert said.code == 0
    assert isinstance(json.loads(said.out), list)


def test_a_scheduler_is_found_by_its_state_directory(shared_up: Up) -> None:
    said = run_colane(["nodes", "--json"], COLANE_STATE=str(shared_up.state))
    assert said.json[0]["name"] == "here"


def test_health_is_what_ps_says(live: Colane, shared_up: Up) -> None:
    with shared_up.client as client:
        assert client.health()["policy"] == "colane"
    assert live("ps").code == 0


def test_what_policies_may_know_and_do_is_said_by_options(live: Colane, shared_up: Up) -> None:
    sharing = ["--preemptible", "--kind", "inference", "--latency", "50ms", "--weight", "2", "--group", "vision"]
    placing = ["--anti-collocation", "--utility-min", "0.5", "--comm-weight", "3", "--comm-pattern", "ring"]
    job = submitted(live("submit", *sharing, *placing, "--", "true"))
    needs = shared_up.wait_for(job, "succeeded")["needs"]
    assert {name: needs[name] for name in ("preemptible", "kind", "latency_s", "weight", "group")} == {
        "preemptible": True, "kind": "inference", "latency_s": 0.05, "weight": 2.0, "group": "vision",
    }  # fmt: skip
    assert {name: needs[name] for name in ("multi_node", "anti_collocation", "utility_min")} == {
        "multi_node": True, "anti_collocation": True, "utility_min": 0.5,
    }  # fmt: skip
    assert (needs["comm_weight"], needs["comm_pattern"]) == (3, "ring")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--latency", "soon"], "'--latency': must be a duration such as"),
        (["--kind", "dance"], "'--kind': must be training or inference, got 'dance'"),
        (["--weight", "0"], "weight: must be more than 0.0, got 0.0"),
        (["--utility-min", "2"], "--utility-min: must be at most 1.0, got 2.0"),
        (["--comm-weight", "9"], "--comm-weight: must be at most 4, got 9"),
        (["--comm-pattern", "star"], "'--comm-pattern': must be all, ring or pipeline, got 'star'"),
    ],
)
def test_what_policies_may_know_is_bounded(live: Colane, words: list[str], expected: str) -> None:
    said = live("submit", *words, "--", "true")
    assert said.code == 2, said
    assert len(said.err.splitlines()) == 1
    assert expected in said.err


def test_a_process_for_each_gpu(live: Colane) -> None:
    """Both ranks see each other's world; the job's log is theirs together."""
    said = live("submit", "--gpus", "2", "--ranks", "per-gpu", "--wait", "--", "sh", "-c", "echo $RANK of $WORLD_SIZE")
    assert said.code == 0, said.err
    assert sorted(said.out.split("\n")[:2]) == ["0 of 2", "1 of 2"]
    assert live("submit", "--gpus", "2", "--ranks", "two", "--", "true").code == 2


def test_why_of_a_failed_job_shows_the_end_of_its_error(live: Colane, shared_up: Up) -> None:
    job = submitted(live("submit", "--", sys.executable, "-c", "raise ValueError('the \x1b[1mcause\x1b[0m of it')"))
    shared_up.wait_for(job, "failed")
    said = live("why", str(job))
    assert f"job {job} has failed: exited with code 1" in said.out
    assert said.out.splitlines()[-1] == "  | ValueError: the cause of it"
    assert "ValueError: the cause of it" in live("why", str(job), "--json").json["last_lines"]


def test_a_job_over_its_host_memory_ends_as_out_of_memory(live: Colane, shared_up: Up) -> None:
    code = "held = bytearray(300_000_000); import time; time.sleep(60)"
    job = submitted(live("submit", "--mem", "100MB", "--", sys.executable, "-S", "-c", code))
    assert shared_up.wait_for(job, "out-of-memory", "failed", "succeeded")["state"] == "out-of-memory"
    assert "MB of host memory and had asked for 100 MB (--host-memory)" in live("why", str(job)).out
