"""Runs scripts alone, one after the other, in forks of a Python that has imported what they import: run as a program.

Arguments: number of steps, then scripts; one that ends with `:2` runs as two ranks. Prints what the scripts print.
"""

from __future__ import annotations

import os
import runpy
import socket
import sys
from pathlib import Path

import pytorch_lightning  # noqa: F401 - for the forks
import torch


def run(script: str, steps: str, env: dict[str, str]) -> int:
    """Start a fork that runs a script; its pid."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.environ.update(env)
        sys.argv[:] = [script, steps]
        runpy.run_path(script, run_name="__main__")
        sys.stdout.flush()
        status = 0
    finally:
        os._exit(status)


def ranks(count: int) -> list[dict[str, str]]:
    """Return what torchrun would put into each rank's environment."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    return [{**meet, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


def main(steps: str, *scripts: str) -> None:
    """Run them."""
    torch.set_num_threads(1)
    for script in scripts:
        path, _, count = script.partition(":")
        print("script", Path(path).stem, flush=True)  # noqa: T201
        environments: list[dict[str, str]] = ranks(int(count)) if count else [{}]
        started = [run(path, steps, env) for env in environments]
        for pid in started:
            _, status = os.waitpid(pid, 0)
            if status:
                sys.exit(f"{path} failed")


if __name__ == "__main__":
    main(*sys.argv[1:])
