"""Ranks under the real shim: all or none, and one for all."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from colane.agent import processes
from colane.agent.supervisor import programs, ranks
from tests.agent.shims import GRACE_S, QUICK_GRACE_S, Supervised, program, run
from tests.agent.waiting import until, until_gone

pytestmark = pytest.mark.live

STUBBORN = 'trap "" TERM; while :; do sleep 1000; done'


def start(
    root: Path, bindings: list[str], *command: str, marker: str, first_rank: int = 0, grace_s: float = GRACE_S
) -> Supervised:
    numbers = (str(grace_s), str(first_rank), "OMP_NUM_THREADS,MKL_NUM_THREADS")
    words = [*program(root, programs.RANKS), *numbers, *bindings, "--", *command]
    return run(root, *words, marker=marker)


def test_each_rank_knows_itself(tmp_path: Path, marker: str) -> None:
    say = 'echo "$RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $OMP_NUM_THREADS $MKL_NUM_THREADS" > rank-$LOCAL_RANK'
    record = start(tmp_path, ["::3", "::"], "sh", "-c", say, marker=marker, first_rank=4).end()
    assert record["exit_code"] == 0
    assert [(tmp_path / f"rank-{n}").read_text().split() for n in range(2)] == [
        ["4", "0", "2", "3", "3"],
        ["5", "1", "2"],
    ]


def test_ranks_run_on_their_cores(tmp_path: Path, marker: str) -> None:
    cores = sorted(os.sched_getaffinity(0))
    bindings = [f"{cores[0]}:0:", f"{cores[-1]}:0:"]
    say = "grep Cpus_allowed_list /proc/self/status > rank-$RANK"
    assert start(tmp_path, bindings, "sh", "-c", say, marker=marker).end()["exit_code"] == 0
    assert [int((tmp_path / f"rank-{n}").read_text().split()[1]) for n in range(2)] == [cores[0], cores[-1]]


@pytest.mark.parametrize(
    ("ends", "said", "outcome"),
    [
        ("exit 3", "rank 1 ended with exit code 3; the other ranks of the job are stopped", ("exited", 3, None)),
        ("kill -9 $$", "rank 1 was killed by signal SIGKILL", ("signalled", None, signal.SIGKILL)),
        ("kill -15 $$", "rank 1 was killed by signal SIGTERM", ("signalled", None, signal.SIGTERM)),
        ("kill -11 $$", "rank 1 was killed by signal SIGSEGV", ("signalled", None, signal.SIGSEGV)),
    ],
)
def test_a_rank_that_dies_ends_the_gang(
    tmp_path: Path, marker: str, ends: str, said: str, outcome: tuple[str, int | None, int | None]
) -> None:
    script = f"if [ $RANK = 1 ]; then {ends}; fi; exec sleep 1000"
    supervised = start(tmp_path, ["::", "::", "::"], "sh", "-c", script, marker=marker)
    record = supervised.end()
    assert (record["outcome"], record["exit_code"], record["signal"]) == outcome
    assert said in supervised.output().decode()
    assert not record["stopped"]


def test_ranks_that_do_not_obey_are_killed(tmp_path: Path, marker: str) -> None:
    script = f"if [ $RANK = 0 ]; then exit 7; fi; {STUBBORN}"
    started = start(tmp_path, ["::", "::"], "sh", "-c", script, marker=marker, grace_s=QUICK_GRACE_S)
    assert started.end()["exit_code"] == 7


def test_a_rank_that_ends_well_ends_no_other(tmp_path: Path, marker: str) -> None:
    os.mkfifo(tmp_path / "gate")
    script = "if [ $RANK = 0 ]; then exit 0; fi; cat gate; echo through"
    supervised = start(tmp_path, ["::", "::"], "sh", "-c", script, marker=marker)
    until(lambda: len(processes.read_tree(supervised.main.pid).processes) == 3, "rank 0 to end")
    (tmp_path / "gate").write_text("")
    assert supervised.end()["exit_code"] == 0
    assert supervised.output() == b"through\n"


def test_the_first_failure_counts(tmp_path: Path, marker: str) -> None:
    script = "trap 'exit 9' TERM; if [ $RANK = 1 ]; then exit 3; fi; while :; do sleep 0.01; done"
    supervised = start(tmp_path, ["::", "::"], "sh", "-c", script, marker=marker)
    assert supervised.end()["exit_code"] == 3
    assert supervised.output().count(b"colane:") == 1


def test_stopping_is_heard_once_by_every_rank(tmp_path: Path, marker: str) -> None:
    script = "trap 'echo told >> told-$RANK; exit 0' TERM; touch up-$RANK; while :; do sleep 0.01; done"
    supervised = start(tmp_path, ["::", "::"], "sh", "-c", script, marker=marker)
    until(lambda: len(list(tmp_path.glob("up-*"))) == 2, "both ranks")
    supervised.stop()
    record = supervised.end()
    assert record["stopped"]
    assert [(tmp_path / f"told-{n}").read_text() for n in range(2)] == ["told\n", "told\n"]
    told = supervised.output().replace(b"Terminated\n", b"")  # a shell tells of its `sleep`, which was told as well
    assert told == b"colane: cancelled by a test\n"


def test_ranks_that_do_not_catch_it_die_of_it_at_once(tmp_path: Path, marker: str) -> None:
    """They train on through the whole grace time otherwise, and what they did then is lost."""
    supervised = start(tmp_path, ["::", "::"], "sh", "-c", "touch up-$RANK; exec sleep 1000", marker=marker)
    until(lambda: len(list(tmp_path.glob("up-*"))) == 2, "both ranks")
    supervised.stop()
    record = supervised.end()
    assert (record["stopped"], record["signal"]) == (True, signal.SIGTERM)
    assert supervised.output() == b"colane: cancelled by a test\n"


def test_no_rank_outlives_its_starter(tmp_path: Path, marker: str) -> None:
    supervised = start(tmp_path, ["::", "::"], "sh", "-c", STUBBORN, marker=marker)
    starter = supervised.main
    found = until(lambda: processes.read_tree(starter.pid).processes[1:], "the ranks")
    processes.kill([starter])
    for rank in found:
        until_gone(rank)
    assert supervised.end()["signal"] == signal.SIGKILL


@pytest.mark.parametrize(
    ("bindings", "command", "why"),
    [
        (["::", "::"], ["/no/such/program"], "rank 0, command '/no/such/program': No such file or directory"),
        (["::", "4095::"], ["touch", "started"], "rank 1: Invalid argument"),
    ],
)
def test_all_ranks_start_or_none(
    tmp_path: Path, marker: str, bindings: list[str], command: list[str], why: str
) -> None:
    supervised = start(tmp_path, bindings, *command, marker=marker)
    assert supervised.end()["exit_code"] == ranks.NOT_STARTED
    output = supervised.output().decode()
    assert output.startswith("colane: no rank was started: ")
    assert why.partition(":")[2].strip() in output


def test_the_compiled_copy_runs_without_the_package(tmp_path: Path, marker: str) -> None:
    words = [*program(tmp_path, programs.RANKS), str(GRACE_S), "0", "::", "--", "true"]
    assert run(tmp_path, *words, marker=marker).end()["exit_code"] == 0


@pytest.mark.parametrize(("rank", "code"), [("[ $RANK != 0 ]", 0), ("true", 76)])
def test_ranks_that_take_leave_end_no_other_unless_none_goes_on(
    tmp_path: Path, marker: str, rank: str, code: int
) -> None:
    script = f"if {rank}; then touch gone-$RANK; exit 76; fi; until [ -e on ]; do sleep 0.01; done"
    supervised = start(tmp_path, ["::", "::", "::"], "sh", "-c", script, marker=marker)
    until(lambda: len(list(tmp_path.glob("gone-*"))) >= 2, "two ranks take leave")
    (tmp_path / "on").touch()
    assert supervised.end()["exit_code"] == code
    assert b"colane:" not in supervised.output()
