"""A Python that has imported PyTorch already, and what it is told to, and forks for each script: run as a program.

Reads one JSON object a line (script, environment, directory, where output goes); answers each with an exit status.
The fork arms the adaptor as the start of Python would; that PyTorch is there already it must bear anyway.
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
    for name in ("stdout", "stderr"):
        fd = os.open(str(order[name]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(fd, 1 if name == "stdout" else 2)
    os.chdir(str(order["cwd"]))
    os.environ.clear()
    os.environ.update(order["env"])  # type: ignore[call-overload]
    status = 1
    try:
        sys.path.insert(0, os.environ["COLANE_ADAPTOR_DIR"])
        from _colane_adaptor.arm import arm  # type: ignore[import-not-found]  # noqa: PLC0415

        arm()
        sys.argv[:] = [str(order["script"]), *order.get("argv", ())]  # type: ignore[misc]
        runpy.run_path(str(order["script"]), run_name="__main__")
        status = 0
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(status)


def main() -> None:
    """Fork for each line."""
    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        importlib.import_module(name)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            run(json.loads(line))
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
