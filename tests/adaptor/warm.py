"""A Python that has imported PyTorch already, and what it is told to, and forks for each script: run as a program.

Reads one JSON object a line: a script to start (with arguments, environment, directory, where output goes), answered by
its pid, or whether one has ended, answered by its exit code or null; see `forks.py`. Where an agent's adaptor is in the
environment the fork arms it as the start of Python would; that PyTorch is there already it must bear anyway.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import sys
import traceback

import torch
import torch._dynamo


def run(order: dict[str, object]) -> None:
    """Be the script's process."""
    for fd, name in ((1, "stdout"), (2, "stderr")):
        said = os.open(str(order[name]), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(said, fd)
        os.close(said)
    os.chdir(str(order["cwd"]))
    os.environ.clear()
    os.environ.update(order["env"])  # type: ignore[call-overload]
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # each start of Python would draw others
    status = 1
    try:
        if "COLANE_ADAPTOR_DIR" in os.environ:
            sys.path.insert(0, os.environ["COLANE_ADAPTOR_DIR"])
            from _colane_adaptor.arm import arm  # type: ignore[import-not-found]  # noqa: PLC0415

            arm()
        sys.argv[:] = [str(order["script"]), *order["argv"]]  # type: ignore[misc]
        runpy.run_path(str(order["script"]), run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def answer(order: dict[str, object]) -> int | None:
    """Start a script, or look whether one has ended."""
    if "script" in order:
        pid = os.fork()
        if pid == 0:
            run(order)
        return pid
    pid, status = os.waitpid(int(str(order["pid"])), 0 if order["waits"] else os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if pid else None


def main() -> None:
    """Answer each line."""
    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        importlib.import_module(name)
    for line in sys.stdin:
        sys.stdout.write(f"{json.dumps(answer(json.loads(line)))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
