"""Runs Gavel's own simulator unchanged, for `gavel.py`, with a Python that has what Gavel needs, without Colane.

Its simulation imports three modules it never calls (generated gRPC stubs, matrix completion): they are left empty here.
Prints one line of JSON: CPU seconds of the simulation and of the whole process, and the JCT of every job that counts.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import re
import runpy
import sys
import time
import types
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

UNUSED = ("runtime.rpc", "runtime.rpc.scheduler_server", "runtime.rpc.scheduler_client", "matrix_completion")
DRIVER = "scripts/drivers/simulate_scheduler_with_trace.py"


def main() -> None:
    """Run one trace under one policy."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--reallocate-s", type=float, help="Least time between two allocations; Gavel's own is 1920.")
    parser.add_argument("--quiet", action="store_true", help="Write no log, which Gavel spends half its time on.")
    options, words = parser.parse_known_args()
    home = (options.checkout / "scheduler").resolve()
    sys.path.insert(0, str(home))
    spent_s = _prepare(options.reallocate_s, quiet=options.quiet)
    sys.argv = [str(home / DRIVER), *words]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        runpy.run_path(sys.argv[0], run_name="__main__")
    jct_s = [float(value) for value in re.findall(r"^Job \d+.*: ([\d.]+)$", said.getvalue(), re.MULTILINE)]
    print(json.dumps({"simulate_cpu_s": sum(spent_s), "process_cpu_s": time.process_time(), "jct_s": jct_s}))


def _prepare(reallocate_s: float | None, *, quiet: bool) -> list[float]:
    """Fill in what is missing and time `simulate`; returns where its CPU seconds will be."""
    for name in UNUSED:
        sys.modules[name] = types.ModuleType(name)
    for name in UNUSED[1:3]:
        setattr(sys.modules["runtime.rpc"], name.rpartition(".")[2], sys.modules[name])
    scheduler: Any = import_module("scheduler")
    if quiet:
        logging.disable()
    spent_s: list[float] = []
    simulate = scheduler.Scheduler.simulate

    def timed(*args: object, **named: object) -> object:
        start_s = time.process_time()
        result = simulate(*args, **named)
        spent_s.append(time.process_time() - start_s)
        return result

    scheduler.Scheduler.simulate = timed
    if reallocate_s is not None:
        scheduler.Scheduler = partial(scheduler.Scheduler, minimum_time_between_allocation_resets=reallocate_s)
    return spent_s


if __name__ == "__main__":
    main()
