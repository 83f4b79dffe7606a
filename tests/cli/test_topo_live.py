"""A topology that is given: placement, postponing and binding by it, with real processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from colane.client.client import Client
from colane.engines.local import LocalConfig, LocalEngine
from tests.cli.conftest import Colane, Up, until
from tests.needs import two_cores

pytestmark = [
    pytest.mark.live,
    two_cores,
]

MakeUp = Callable[..., Up]

WAITS = ["sh", "-c", 'exec cat "$FIFO"']
SAYS = ["sh", "-c", "echo $RANK $(sed -n 's/Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)"]


def submit(client: Client, command: list[str], **more: Any) -> int:
    return client.submit({"command": command, "env": {"PATH": os.environ["PATH"]}, **more})


def fill(up: Up, client: Client, fifo: str) -> dict[str, int]:
    """A job that waits for ever on each of the four devices."""
    env = {"PATH": os.environ["PATH"], "FIFO": fifo}
    jobs = [client.submit({"command": WAITS, "env": env, "share": False}) for _ in range(4)]
    return {up.wait_for(job, "launching")["gpus"][0]: job for job in jobs}


def leave(up: Up, client: Client, *jobs: int) -> None:
    for job in jobs:
        client.cancel(job)
    for job in jobs:
        up.wait_for(job, "cancelled")


def cores_of_ranks(client: Client, job: int) -> list[str]:
    """What each rank said it may run on, by rank."""
    return [line.split()[1] for line in sorted(client.log(job).data.decode().splitlines())]


def test_a_job_waits_for_gpus_of_one_socket(
    make_up: MakeUp, colane: Colane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "fifo")
    machine = ["--devices", "cpu:4:1GB", "--topology", "minsky", "--host-bandwidth", "100GB/s", "--name", "power8"]
    up = make_up(*machine, "--policy", "topo-aware-p")
    for name, value in up.env.items():
        monkeypatch.setenv(name, value)
    too_much = colane("submit", "--host-bandwidth", "101GB/s", "--", "true")
    assert (too_much.code, "has more than 100000000000" in too_much.err) == (2, True)
    with up.client as client:
        cores = [",".join(map(str, gpu["cores"])) for gpu in client.node("power8")["gpus"]]
        assert [gpu["socket"] for gpu in client.node("power8")["gpus"]] == [0, 0, 1, 1]
        assert cores[0] != cores[2]
        on = fill(up, client, str(tmp_path / "fifo"))
        assert sorted(on) == [f"power8/{gpu}" for gpu in range(4)]
        leave(up, client, on["power8/0"], on["power8/2"])
        job = submit(client, SAYS, gpus=2, utility_min=0.5, ranks="per-gpu")
        others = f"jobs {min(on['power8/1'], on['power8/3'])}, {max(on['power8/1'], on['power8/3'])}"
        postponed = "postponed: best utility 0.25 below 0.50; GPUs 0,2 of power8 are on two sockets"
        assert f"{postponed}; waits for {others}" in colane("why", str(job)).out
        shown = colane("topo", "power8", "--json").json
        assert [gpu["state"] for gpu in shown["gpus"]] == ["free", "used", "free", "used"]
        assert f"GPU 1  cpu  used by job {on['power8/1']}" in colane("topo").out
        leave(up, client, on["power8/1"])
        ended = up.wait_for(job, "succeeded")
        assert ended["gpus"] == ["power8/0", "power8/1"]
        assert cores_of_ranks(client, job) == cores[:2]
        leave(up, client, on["power8/3"])
        wide = submit(client, SAYS, gpus=4, utility_min=0.5, ranks="per-gpu")
        assert up.wait_for(wide, "succeeded")["gpus"] == [f"power8/{gpu}" for gpu in range(4)]
        assert cores_of_ranks(client, wide) == cores


def test_a_bad_topology_is_refused_before_anything_starts(colane: Colane, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("sockets: [0, 0]\nlinks:\n  - [X, NV2]\n  - [NV1, X]\n")
    said = colane("up", "--devices", "cpu:2", "--topology", str(bad))
    assert (said.code, len(said.err.splitlines())) == (2, 1)
    assert f"--topology: {bad}:4: column 6: links[1][0] is NV1, but links[0][1] is NV2" in said.err
    assert "did you mean minsky?" in colane("up", "--topology", "minski").err
    assert "--topology -: name a file" in colane("up", "--topology", "-").err


STEPS = """
import colane.adaptor as colane
import time
steps = colane.attach()
while True:
    time.sleep(0.01)  # a step
    steps.step()
"""


def test_what_neighbours_do_to_each_other_is_learnt_from_what_runs(tmp_path: Path) -> None:
    """How much is another matter: here it is whatever this machine makes of it."""
    config = LocalConfig.of(
        tmp_path / "state", "power8", policy="topo-aware", devices="cpu:4:1GB", topology="minsky", heartbeat=0.1,
    )  # fmt: skip
    with LocalEngine(config) as stack, stack.client() as client:

        def step(job: int) -> None:
            """Wait until it has made more steps than it takes to learn, and a sample more was taken."""
            least = (client.job(job)["steps"] or 0) + 15
            until(lambda: (client.job(job)["steps"] or 0) >= least, "steps")

        def learnt(what: Literal["places", "slowdowns"]) -> list[Any]:
            return [one for profile in client.profiles() for one in profile[what] if profile["key"]["family"] == "a"]

        one = submit(client, [sys.executable, "-c", STEPS], family="a")
        for _ in range(3):  # the first sample finds it launching, the second begins what the third ends
            step(one)
        two = submit(client, [sys.executable, "-c", STEPS], family="b")
        until(lambda: learnt("places"), "the pace alone")
        assert client.job(two)["gpus"] == ["power8/1"]
        for _ in range(3):
            step(two)
            step(one)
        client.cancel(two)
        (slowdown,) = until(lambda: learnt("slowdowns"), "the slowdown")
        assert (slowdown["beside"]["family"], slowdown["ratio"]["source"]) == ("b", "measured")
        assert slowdown["ratio"]["value"] > 0
