"""What a user reads when he errs: one line that names what and the fix, never a traceback."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from colane.cli import app
from colane.cli.errors import MisuseError
from colane.client.locate import find_token
from colane.lab.commands import report
from tests.cli.conftest import COLANE, Colane, environment, run_colane
from tests.report.test_parsing import item


def lines(text: str) -> list[str]:
    return text.splitlines()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ps", "--limit", "some"], "--limit: must be all, or a number of jobs from 1 to 10000, got 'some'"),
        (["ps", "--limit", "0"], "--limit: must be all, or a number of jobs"),
        (["stat"], "No such command 'stat'; see colane ps and colane nodes"),
        (["nvtop"], "No such command 'nvtop'; see colane top"),
        (["quota"], "see colane usage"),
        (["node", "drain"], "No such command 'drain'; use colane drain"),
        (["restart", "7"], "colane again JOB"),
        (["squeue"], "see colane ps"),
        (["glossary", "quux"], "'quux' is not in it"),
        (["sumbit"], "did you mean submit? (see colane --help)"),
        (["ps", "--users"], "No such option: --users"),
        (
            ["show", "seven"],
            "'JOB': must be the number of a job, as 'colane ps --all' shows it, got 'seven'",
        ),
        (["show", "0"], "must be the number of a job"),
        (["cancel", "7", "x"], "must be the number of a job"),
        (["show"], "Missing argument 'JOB'"),
        (["cancel"], "name jobs, or --all, --user NAME or --label NAME=VALUE"),
        (["cancel", "--all", "7"], "one of the four"),
        (["cancel", "-u", "root", "--all"], "one of the four"),
        (["cancel", "--label", "run"], "--label: must be NAME=VALUE, got 'run'"),
        (["submit"], "give a command (colane submit -- python train.py), a job file, or --model NAME"),
        (["submit", "nowhere.yaml"], "nowhere.yaml: there is no such file"),
        (["submit", "--model", "vgg19", "--", "python", "x.py"], "--model or a command, not both"),
        (["submit", "--env", "X", "--", "true"], "--env: must be NAME=VALUE, got 'X'"),
        (["submit", "--gpu", "1", "--", "true"], "No such option: --gpu; did you mean --gpus? (see"),
        (["submit", "--time", "10", "--", "true"], "did you mean --time-limit?"),
        (["submit", "--memory", "1GB", "--", "true"], "did you mean --host-memory or --gpu-memory?"),
        (["submit", "--partition", "x", "--", "true"], "did you mean --pool?"),
        (["submit", "--gres", "gpu:1", "--", "true"], "did you mean --gpus?"),
        (["submit", "--batchsize", "8", "--model", "vgg11"], "did you mean --batch-size?"),
        (["why", "7["], "'JOB': must be elements of an array, as 12[3,7-9], got '7['"),
        (["submit", "--nothing-like-it", "--", "true"], "--nothing-like-it (see colane submit --help)"),
        (["logs", "7", "--tail", "5"], "did you mean --lines?"),
        (["ps", "--state", "running"], "did you mean --all?"),
        (["report", "--output", "x"], "did you mean --out?"),
        (["up", "--polic", "fifo"], "did you mean --policy?"),
        (["ps", "--usr", "x"], "did you mean --user?"),
        (["submit", "--priority", "high", "--", "true"], "'--priority': must be a whole number (see"),
        (["submit", "--weight", "much", "--", "true"], "'--weight': must be a number (see"),
        (["submit", "--mem", "10", "--", "true"], "--host-memory: say 10MB or 10GB; 10 alone would count bytes"),
        (["submit", "--host-bandwidth", "20", "--", "true"], "say 20MB/s or 20GB/s; 20 alone would count bytes/s"),
        (["submit", "/tmp"], "/tmp is a directory and no program"),  # noqa: S108 - only named
        (["cancel", "all"], "all jobs are meant by --all"),
        (["submit", "--gpus", "many", "--", "true"], "Invalid value for '--gpus'"),
        (["server", "--keep-finished", "forever"], "--keep-finished: must be all, a duration such as 30d, or a number"),
        (["up", "--keep-finished", "-1"], "--keep-finished: must be all, a duration such as 30d, or a number"),
        (["up", "--quantum", "soon"], "--quantum: must be a duration such as 90"),
        (["server", "--quantum", "1x"], "--quantum: must be a duration such as 90"),
        (["up", "--turns", "best"], "Invalid value for '--turns': must be fifo, srtf,"),
        (["up", "--share-between", "friends"], "--share-between"),
        (["up", "--guard", "much"], "--guard: must be a percentage such as 30%, or off, got 'much'"),
        (["server", "--guard", "-5%"], "--guard: must be a percentage such as 30%, or off, got '-5%'"),
        (["server", "--guard-after", "soon"], "--guard-after: must be a duration such as 90"),
        (["up", "--lease", "1s"], "--lease: must be from 10s to 30d, got 1s"),
        (["server", "--lease", "soon"], "--lease: "),
        (["up", "--memory-factors", "0.9,1"], "--memory-factors: must be two numbers from 1 to 10, as 1.1,1.05"),
        (["server", "--memory-factors", "1.1"], "--memory-factors: must be two numbers from 1 to 10, as 1.1,1.05"),
        (["up", "--yield-bound", "0"], "--yield-bound: must be more than 0"),
        (["agent", "--yield-bound", "soon"], "--yield-bound: must be a duration such as 90"),
        (["report", "--label", "run=a"], "did you mean --only run=a?"),
        (["adaptor", "install", "--python", "/none/python"], "--python: there is no program /none/python"),
        (["adaptor", "install", "--python", "/bin/true"], "/bin/true is no Python of version 3.8 or later"),
        (["up", "--mps", "maybe"], "--mps"),
        (["up", "--port", "70000"], "less than or equal to 65535"),
        (["demo", "--iters", "0"], "must be greater than or equal to 1"),
        (["demo", "--devices", "tpu:4"], "--devices tpu:4: unknown kind of device 'tpu'"),
    ],
)
def test_misuse_is_one_line_and_code_2(colane: Colane, words: list[str], expected: str) -> None:
    said = colane(*words)
    assert said.code == 2, said
    assert len(lines(said.err)) == 1
    assert said.err.startswith("colane: ")
    assert expected in said.err
    assert not said.out


@pytest.mark.parametrize("words", [["ps"], ["show", "7"], ["nodes"], ["submit", "--", "true"], ["report"]])
def test_no_scheduler_is_a_failure_that_names_how_to_start_one(colane: Colane, words: list[str]) -> None:
    said = colane(*words)
    assert said.code == 1
    assert len(lines(said.err)) == 1
    assert "no scheduler answers at http://127.0.0.1:1" in said.err
    assert "colane up" in said.err


@pytest.mark.parametrize("url", ["notaurl", "ftp://x", "http://", "http://x:port", "http://a b", "localhost:8642"])
def test_a_url_that_is_none_is_named(colane: Colane, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("COLANE_URL", url)
    said = colane("ps")
    assert said.code == 2
    assert f"COLANE_URL: must be a URL such as http://head:8642, got {url!r}" in said.err


def test_where_the_scheduler_is_can_be_said_before_the_command(
    colane: Colane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLANE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("COLANE_TOKEN_FILE", "unread")
    monkeypatch.setenv("COLANE_TOKEN", "of-the-variable")
    assert "no scheduler answers at http://127.0.0.1:2 " in colane("--url", "http://127.0.0.1:2", "ps").err
    (tmp_path / "token").write_text("of-the-flag\n")
    assert colane(f"--token-file={tmp_path}/token", "ps").code == 1
    assert find_token("http://127.0.0.1:2") == "of-the-flag"
    assert "'--ca-file': file 'nowhere' does not exist" in colane("--ca-file", "nowhere", "ps").err
    assert "--url; it stands before the command: colane --url ... ps" in colane("ps", "--url", "http://x").err


def test_the_glossary_explains_words(colane: Colane) -> None:
    assert colane("glossary", "lane").out.startswith("lane  a part of a GPU")
    whole = colane("glossary")
    assert whole.code == 0
    assert {"run span", "family", "speed-up"} <= {line.partition("  ")[0] for line in whole.out.splitlines()}
    assert "makespan" in colane("glossary", "--json").json


def test_options_behind_a_file_are_not_taken_for_a_command(colane: Colane, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("command: 'true'\n")
    said = colane("submit", str(file), "--gpus", "2")
    assert said.code == 2
    assert f"colane submit --gpus 2 {file}" in said.err


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["server", "--policy", "fifi"], 2, "did you mean fifo"),
        (["server", "--host", "0.0.0.0"], 2, "a token is needed: set COLANE_TOKEN"),  # noqa: S104 - refused
        (["up", "--policy", "fifi"], 2, "did you mean fifo"),
        (["up", "--devices", "cpu:0"], 2, "the number of devices must be at least 1"),
        (["up", "--devices", "cpu:9999"], 2, "so at most cpu:"),
    ],
)
def test_services_refuse_in_one_line(tmp_path: Path, words: list[str], code: int, expected: str) -> None:
    said = run_colane([*words, "--port", "0", "--state", str(tmp_path)])
    assert said.code == code, said
    assert len(lines(said.err)) == 1, said.err
    assert expected in said.err


def test_a_reader_that_goes_away_is_no_error() -> None:
    with subprocess.Popen(
        [*COLANE, "--help"], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""


def test_version(colane: Colane) -> None:
    said = colane("--version")
    assert said.code == 0
    assert said.out.startswith("colane ")
    assert said.out.endswith((" (as source)\n", " (compiled)\n"))


def test_without_words_it_shows_help(colane: Colane) -> None:
    said = colane()
    assert "Usage: colane" in said.out + said.err


PYTHON_TYPES = re.compile("<(bool|int|float|str|path|list)")


def test_groups_of_commands_speak_of_no_python_types(colane: Colane) -> None:
    assert not PYTHON_TYPES.search(colane("--help").out + colane("trace", "--help").out)


def leaves(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every command by its full name."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


@pytest.mark.parametrize(
    ("name", "command"), [pytest.param(*each, id=each[0]) for each in leaves(get_command(app.make_app()))]
)
def test_each_command_says_what_it_does_with_an_example(colane: Colane, name: str, command: Any) -> None:
    said = colane(*name.split(), "--help")
    assert said.code == 0
    assert not PYTHON_TYPES.search(said.out)
    assert command.help
    assert f"colane {name}" in (command.epilog or "")
    assert "\N{HORIZONTAL ELLIPSIS}" not in said.out, "a word is cut off"


def test_help_imports_nothing_heavy() -> None:
    """What takes long to import would be waited for at every command."""
    heavy = "{'fastapi', 'uvicorn', 'matplotlib', 'numpy', 'torch', 'pydantic', 'httpx', 'psutil', 'yaml'}"
    code = f"import sys; from colane.cli.app import make_app; make_app(); print(*({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_service_imports_nothing_of_the_lab() -> None:
    """All that `colane up`, its scheduler and its agent could ever import, whatever they are asked."""
    code = (
        "import sys, pkgutil; from importlib import import_module\n"
        "rooms = 'cli.service cli.nodes cli.jobs server agent engines client settings policyfiles'.split()\n"
        "for room in map(import_module, map('colane.{}'.format, rooms)):\n"
        "    for found in pkgutil.walk_packages(room.__path__, room.__name__ + '.'):\n"
        "        if found.name.rpartition('.')[2] not in {'ray_driver', 'ray_keeper'}:\n"
        "            import_module(found.name)\n"
        "from colane.cli.app import make_app; make_app(('up', 'server', 'agent'))\n"
        "assert 'colane.server.assembly' in sys.modules and 'colane.agent.loop' in sys.modules\n"
        "print(*(name for name in sys.modules if name.startswith(('colane.lab', 'matplotlib', 'pandas'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_asking_the_scheduler_imports_no_library_that_draws() -> None:
    code = (
        "import sys; from colane.client.client import Client; from colane.client.errors import SchedulerError\n"
        "try: Client('http://127.0.0.1:1').health()\n"
        "except SchedulerError: print(*({'rich', 'pygments', 'fastapi', 'numpy'} & set(sys.modules)))\n"
        "import httpx._main; print(httpx.main is not httpx._main.main)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]


def test_a_label_that_no_job_has_is_named_with_those_there_are() -> None:
    with pytest.raises(MisuseError, match="no finished job has a label 'rum'; there are run"):
        report.grouped([item()], [], "rum")
    assert [group.name for group in report.grouped([item()], [], "run")] == ["fifo"]


def test_mere_bytes_are_refused_by_their_line_of_the_file(colane: Colane, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("- command: [ls]\n- command: [ls]\n  host_memory: 64\n")
    said = colane("submit", str(file))
    assert said.code == 2
    assert f"{file}:3: host_memory: say 64MB or 64GB" in said.err
