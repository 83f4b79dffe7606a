"""A real job that uses up memory bandwidth beside a real training job: held back, and let go."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from colane.cpu.contention import ContentionConfig
from colane.server.config import core_config
from colane.settings.setting import SettingError
from colane.settings.sources import gather
from colane.settings.table import SERVER
from tests.cli.conftest import START_MAX_S, Up, start_up, until
from tests.needs import two_cores

CORES = sorted(os.sched_getaffinity(0))

DISTURBED = """
import os, sys, time
from pathlib import Path
import colane.adaptor as colane

def hogs_cores():
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\\0")
            if sys.argv[1].encode() in words and b"stream" in words and words[1] == b"-m":
                return len(os.sched_getaffinity(int(entry.name)))
        except OSError:
            pass
    return 0

steps = colane.attach()
while True:
    cores, began_s = hogs_cores(), time.monotonic()
    time.sleep(0.03 * (1 + cores))
    steps.step()
    print(cores, time.monotonic() - began_s, flush=True)
"""
"""A job whose steps take longer the more cores the hog has: a busy machine would show nothing else for certain."""


@pytest.fixture(scope="module")
def watched_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    up = start_up(tmp_path_factory.mktemp("watched"), "--devices", "cpu:1", "--contention", "1s")
    yield up
    up.process.send_signal(signal.SIGTERM)
    up.process.communicate(timeout=START_MAX_S)


@pytest.mark.live
@two_cores
def test_a_hog_is_held_back_the_training_job_recovers_and_the_hog_is_let_go_with_it(watched_up: Up) -> None:
    mark, env = "987654321", dict(os.environ)
    hog = [sys.executable, "-m", "colane.workloads", "stream", "--threads", "2", "--seconds", mark]
    with watched_up.client as client:
        train = client.submit({"command": [sys.executable, "-c", DISTURBED, mark], "gpus": 1, "env": env})
        until(lambda: client.job(train)["steps"] > 100, "steps undisturbed")
        number = client.submit({"command": hog, "gpus": 0, "env": env})
        held = until(lambda: client.job(number)["throttle"], "the hog is held back")
        pids = [pid for pid in watched_up.processes() if _is_stream(pid, mark)]
        until(lambda: _allowed(pids) == {frozenset(held["cores"])}, "its threads are on fewer cores")
        told = client.why(number)
        steps = client.job(train)["steps"]
        until(lambda: client.job(train)["steps"] > steps + 30, "steps beside the hog held back")
        lines = [line.split() for line in client.log(train, 0).data.decode().splitlines()]
        client.cancel(train)
        until(lambda: client.job(number)["throttle"] is None, "the hog is let go")
        until(lambda: _allowed(pids) == {frozenset(CORES)}, "its threads have all cores again")
        story = [line["why"] for line in client.job(number)["story"]]
        (message,) = [said for node in client.nodes() for said in node["messages"] if "bandwidth" in said]
        client.cancel(number)
    assert held["cores"] < CORES
    assert f"for job {train}, slowed to" in told["sentence"]
    assert story[-1] == "let-go"
    assert "resctrl" in message
    by_cores = {
        n: median([float(s) for cores, s in lines if int(cores) == n]) for n in (0, len(held["cores"]), len(CORES))
    }
    assert by_cores[len(CORES)] > by_cores[len(held["cores"])] > by_cores[0]


@pytest.mark.live
@two_cores
def test_a_hog_that_was_there_first_is_held_back_for_training_whose_own_speed_is_not_known(watched_up: Up) -> None:
    mark, env = "987654322", dict(os.environ)
    hog = [sys.executable, "-m", "colane.workloads", "stream", "--threads", "2", "--seconds", mark]
    with watched_up.client as client:
        number = client.submit({"command": hog, "gpus": 0, "env": env})
        pids = until(lambda: [pid for pid in watched_up.processes() if _is_stream(pid, mark)], "the hog runs")
        until(lambda: _allowed(pids) == {frozenset(CORES)}, "it has all cores")
        newcomer = {"command": [sys.executable, "-c", DISTURBED, mark], "family": "newcomer", "gpus": 1, "env": env}
        train = client.submit(newcomer)
        held = until(lambda: client.job(number)["throttle"], "the hog is held back")
        until(lambda: _allowed(pids) == {frozenset(held["cores"])}, "its threads are on fewer cores")
        (throttled,) = [line for line in client.job(number)["story"] if line["why"] == "throttled"][:1]
        steps = client.job(train)["steps"]
        until(lambda: client.job(train)["steps"] > steps + 30, "steps beside the hog held back")
        lines = [line.split() for line in client.log(train, 0).data.decode().splitlines()]
        client.cancel(train)
        until(lambda: client.job(number)["throttle"] is None, "the hog is let go")
        client.cancel(number)
    assert held["cores"] < CORES
    assert f"for job {train}, whose own speed is not known yet" in throttled["sentence"]
    took_s = {n: median([float(s) for cores, s in lines if int(cores) == n]) for n in (len(held["cores"]), len(CORES))}
    assert took_s[len(CORES)] > took_s[len(held["cores"])], "it was slowed, and is so no more"


def _is_stream(pid: int, mark: str) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[1:2] == [b"-m"] and mark.encode() in words


def _allowed(pids: list[int]) -> set[frozenset[int]]:
    """Cores of each thread, those alike once."""
    threads = [int(path.name) for pid in pids for path in Path(f"/proc/{pid}/task").iterdir()]
    return {frozenset(os.sched_getaffinity(tid)) for tid in threads}


def contention(text: str) -> ContentionConfig | None:
    return core_config(gather(SERVER, {"contention": text}, environment={})).contention


def test_options_of_contention() -> None:
    assert contention("off") is None
    found = contention("5s")
    assert found is not None
    assert (found.interval_s, found.release_s) == (5, 30)
    wrong: Any
    for wrong in ("0s", "sometimes"):
        with pytest.raises(SettingError, match="--contention"):
            contention(wrong)
