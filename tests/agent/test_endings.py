"""However a job is started and whatever ends it: each trainer is told once, and has the whole time to save."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from colane.agent.files.jobdir import write_json
from colane.agent.files.logs import read_log
from colane.agent.supervisor import programs, shim, shim_files
from tests.agent.shims import Supervised, program, run
from tests.agent.waiting import until

pytestmark = pytest.mark.live

SAVE_S = 1.6
"""More than what a job leaves running has when its main process has ended."""
GRACE_S = 14.0
PYTHON = sys.executable
TRAINER = Path(__file__).with_name("saving_trainer.py")


class Kind(NamedTuple):
    """A way to start training: its command in a folder, and the names of its trainers."""

    command: Callable[[Path], Sequence[str]]
    trainers: Sequence[str] = ("main",)


def _trainer(root: Path, *more: str) -> tuple[str, ...]:
    return (PYTHON, str(TRAINER), str(root), "main", str(SAVE_S), *more)


def _shell(root: Path, script: str) -> tuple[str, ...]:
    (root / "train.sh").write_text(script.format(train=" ".join(_trainer(root))))
    return ("bash", "train.sh")


def _make(root: Path) -> tuple[str, ...]:
    (root / "Makefile").write_text(f"all:\n\t{' '.join(_trainer(root))}\n\techo never reached\n")
    return ("make", "-s")


def _torchrun(root: Path) -> tuple[str, ...]:
    return (PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *_trainer(root)[1:])


def _ranks(root: Path) -> tuple[str, ...]:
    words = (*program(root, programs.RANKS), "0.3", "0", "", "::", "::", "--")
    return (*words, *_trainer(root))


LAUNCHER = (
    "import signal, subprocess, sys; gone = []; signal.signal(signal.SIGTERM, lambda *_: gone.append(1)); "
    "subprocess.run(sys.argv[1:])"
)
"""A launcher that catches SIGTERM, and neither ends nor passes it on."""

KINDS: Mapping[str, Kind] = {
    "python": Kind(_trainer),
    "python with a worker": Kind(lambda root: _trainer(root, "forks"), ("main", "worker")),
    "script": Kind(lambda root: _shell(root, "set -e\n{train}\necho never reached\n")),
    "script with a trap": Kind(lambda root: _shell(root, "trap 'echo trapped' TERM\n{train}\nexit $?\n")),
    "script that passes it on": Kind(
        lambda root: _shell(root, "trap 'kill -TERM $pid' TERM\n{train} &\npid=$!\nwait $pid\nwait $pid\n")
    ),
    "pipe": Kind(lambda root: _shell(root, "{train} | tee copy\n")),
    "make": Kind(_make),
    "timeout": Kind(lambda root: ("timeout", "1000", *_trainer(root))),
    "launcher": Kind(lambda root: (PYTHON, "-c", LAUNCHER, *_trainer(root))),
    "ranks": Kind(_ranks, ("0", "1")),
    "torchrun": Kind(_torchrun, ("0", "1")),
    "mp.spawn": Kind(lambda root: _trainer(root, "spawns"), ("0", "1")),
}


class Way(NamedTuple):
    """A way out: what is done, the signal that trainers are to get, and what the record says."""

    go: Callable[[Supervised], None]
    told: str = "SIGTERM"
    outcome: str = ""
    asks_by: str = ""
    says: str = ""


def _order(job: Supervised) -> None:
    job.stop("reached its time limit of 60 s")


def _end_with_agent(job: Supervised) -> None:
    job.job.order_end({"cause": "its agent was told to end", "outcome": shim.STOPPED})
    job.stop_from_outside()


WAYS: Mapping[str, Way] = {
    "ordered": Way(_order, says="reached its time limit of 60 s"),
    "asked first": Way(_order, "SIGUSR1", asks_by="SIGUSR1", says="reached its time limit of 60 s"),
    "with its agent": Way(_end_with_agent, outcome=shim.STOPPED, says="its agent"),
    "shutdown": Way(Supervised.stop_from_outside, outcome=shim.STOPPED, says="from outside of Colane"),
}
SLOW = {"torchrun", "mp.spawn"}
"""They import PyTorch in each process: two ways are enough."""


def _start(root: Path, kind: Kind, way: Way, marker: str) -> Supervised:
    (root / "agent" / "jobs").mkdir(parents=True)
    env = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    if way.asks_by:
        env |= {shim.SIGNAL_ENV: way.asks_by, shim.LEAD_ENV: "30"}
    settings = {"grace_s": GRACE_S, "env": env, "workdir": str(root)}
    return run(root / "agent" / "jobs", *kind.command(root), marker=marker, **settings)


def _told(root: Path, name: str) -> list[str]:
    path = root / f"told-{name}"
    return path.read_text().split() if path.exists() else []


@pytest.mark.parametrize("name", KINDS)
def test_each_trainer_is_told_once_and_saves(tmp_path: Path, marker: str, name: str) -> None:
    kind = KINDS[name]
    ways = {way: WAYS[way] for way in WAYS if name not in SLOW or way in {"ordered", "asked first"}}
    roots = {way: tmp_path / way.replace(" ", "-") for way in ways}
    jobs = {way: _start(roots[way], kind, ways[way], marker) for way in ways}
    for root in roots.values():
        for one in kind.trainers:
            until(partial(_told, root, one), "the trainers train")
    for way, job in jobs.items():
        ways[way].go(job)
    savers = [one for one in kind.trainers if one != "worker"]
    for way, job in jobs.items():
        record, root = job.end(), roots[way]
        for one in savers:
            assert _told(root, one) == ["ready", ways[way].told, "saved"], (way, job.output())
        assert "saved" not in _told(root, "worker"), "a handler that saves runs once"
        assert record["stopped"]
        assert ways[way].says in record["detail"], way
        assert record["outcome"] == ways[way].outcome or not ways[way].outcome
        output = job.output().decode()
        assert output.count("state is written") == len(savers), "its output is read to the end"
        assert "never reached" not in output
        assert f"colane: {record['detail']}" in output
        assert ("asks it to save" in output) == bool(ways[way].asks_by)


FILTER = (
    "import signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}); "
    "open('filters', 'x'); text = sys.stdin.read(); told = signal.sigtimedwait({signal.SIGTERM}, 0.2); "
    "print('told too early' if told else text, end='')"
)
"""Passes on what it has read a while after its last writer has gone; as tee, it would die of SIGTERM."""


@pytest.mark.parametrize("writer", ["{train}", "bash -c 'echo state is written; exec sleep 1000'"])
def test_what_reads_from_a_pipe_passes_on_the_last_lines(tmp_path: Path, marker: str, writer: str) -> None:
    """Whether its writer saves or dies of the signal."""
    (tmp_path / "filter.py").write_text(FILTER)
    command = _shell(tmp_path, f"{writer} | tee copy | {PYTHON} filter.py\necho never reached\n")
    job = run(tmp_path, *command, marker=marker, grace_s=GRACE_S, workdir=str(tmp_path))
    copy, filters = tmp_path / "copy", tmp_path / "filters"
    until(lambda: _told(tmp_path, "main") if "train" in writer else copy.exists() and copy.read_text(), "it writes")
    until(filters.exists, "it reads")
    job.stop()
    job.end()
    lines = job.output().decode().splitlines()
    assert lines[-1] == "state is written"
    assert not {"told too early", "never reached"} & {*lines}


def test_a_job_that_does_not_end_is_killed_at_the_end_of_lead_and_grace(tmp_path: Path, marker: str) -> None:
    code = (
        "import os, signal, time\n"  # a handler that prints while 'ready' is being printed would fail
        "for n in (signal.SIGUSR1, signal.SIGTERM): signal.signal(n, lambda n, _: os.write(1, b'%d\\n' % n))\n"
        "print('ready', flush=True)\nwhile True: time.sleep(10)"
    )
    env = {"PATH": "/usr/bin:/bin", shim.SIGNAL_ENV: "SIGUSR1", shim.LEAD_ENV: "0.4"}
    job = run(tmp_path, PYTHON, "-c", code, marker=marker, grace_s=0.6, env=env)
    until(lambda: b"ready" in job.output())
    began_s = time.monotonic()
    job.stop()
    job.stop()  # an order that is repeated changes nothing
    record = job.end()
    assert time.monotonic() - began_s >= 1.0
    assert record["signal"] == signal.SIGKILL
    lines = [line for line in job.output().decode().splitlines() if not line.startswith("colane:")]
    assert lines == ["ready", str(int(signal.SIGUSR1)), str(int(signal.SIGTERM))]


def test_a_job_that_dies_before_its_supervisor_is_told_to_end_has_not_failed(tmp_path: Path, marker: str) -> None:
    """As Slurm ends a pilot: SIGTERM to each process in it, in some order."""
    tries = (_dies_first(tmp_path / str(number), marker) for number in range(9))
    record = next((one for one in tries if one["stopped"]), None)  # a busy machine may be late with the second signal
    assert record is not None
    assert (record["outcome"], record["detail"]) == (shim.STOPPED, shim.FROM_OUTSIDE)


def _dies_first(root: Path, marker: str) -> Mapping[str, Any]:
    root.mkdir()
    job = run(root, "sleep", "1000", marker=marker)
    main = job.main
    os.kill(main.pid, signal.SIGTERM)
    until(lambda: not Path(f"/proc/{main.pid}").exists(), "it is reaped")
    with suppress(ProcessLookupError):
        job.stop_from_outside()
    return job.end()


def test_a_job_that_does_not_catch_the_signal_it_named_is_not_waited_for(tmp_path: Path, marker: str) -> None:
    env = {"PATH": "/usr/bin:/bin", shim.SIGNAL_ENV: "SIGUSR1", shim.LEAD_ENV: "1000"}
    job = run(tmp_path, "sleep", "1000", marker=marker, grace_s=1000.0, env=env)
    job.stop()
    assert job.end()["signal"] == signal.SIGTERM


def test_a_job_that_was_asked_to_save_by_sigterm_gets_it_once(tmp_path: Path, marker: str) -> None:
    """As Lightning's: its lead is over, and its end is ordered."""
    env = {"PATH": "/usr/bin:/bin", shim.SIGNAL_ENV: "SIGTERM", shim.LEAD_ENV: "5"}
    job = run(tmp_path, *_trainer(tmp_path), marker=marker, grace_s=GRACE_S, env=env)
    until(lambda: _told(tmp_path, "main"), "it trains")
    main = job.main
    asked = {"number": 1, "at_s": time.time(), "signal": "SIGTERM", "told": [[main.pid, main.start_ticks]]}
    write_json(job.job.path / shim_files.ASKED, asked)
    os.kill(main.pid, signal.SIGTERM)
    until(lambda: len(_told(tmp_path, "main")) > 1, "it was told")
    job.stop()
    assert job.end()["exit_code"] == 0
    assert _told(tmp_path, "main") == ["ready", "SIGTERM", "saved"]


def test_what_ends_in_time_is_recorded_with_all_it_has_said(tmp_path: Path, marker: str) -> None:
    job = run(tmp_path, *_trainer(tmp_path), marker=marker, grace_s=GRACE_S)
    until(lambda: _told(tmp_path, "main"), "it trains")
    job.stop("cancelled by ann")
    record = job.end()
    assert record["exit_code"] == 0
    assert read_log(job.job.path).data == b"colane: cancelled by ann\nsaving\nstate is written\n"


@pytest.mark.parametrize("code", [0, 3])
def test_a_job_that_had_ended_when_its_end_was_ordered_was_not_stopped(tmp_path: Path, marker: str, code: int) -> None:
    """What it has left running ends with it, and its supervisor lives until then."""
    script = f"trap '' TERM; (while true; do sleep 1; done) & exit {code}"
    job = run(tmp_path, "sh", "-c", script, marker=marker)
    main = job.main
    until(lambda: not Path(f"/proc/{main.pid}").exists(), "it is reaped")
    job.stop("preempted for job 2")
    record = job.end()
    assert (record["outcome"], record["exit_code"], record["stopped"], record["detail"]) == ("exited", code, False, "")


def test_a_job_that_had_left_with_0_when_its_machine_shut_down_has_succeeded(tmp_path: Path, marker: str) -> None:
    job = run(tmp_path, "sh", "-c", "trap '' TERM; (while true; do sleep 1; done) & exit 0", marker=marker)
    main = job.main
    until(lambda: not Path(f"/proc/{main.pid}").exists(), "it is reaped")
    job.stop_from_outside()
    record = job.end()
    assert (record["outcome"], record["exit_code"], record["stopped"]) == ("exited", 0, False)
