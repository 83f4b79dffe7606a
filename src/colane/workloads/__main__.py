"""`python -m colane.workloads`: run one built-in training job.

`stream` uses up memory bandwidth, `data-parallel` trains on any number of devices.

Exit codes: 0 trained to the end, 2 a wrong argument or missing data (one line says which), 75 asked by SIGUSR1 to save
its state and has (with --checkpoint-dir), 143 stopped by SIGTERM, 130 by SIGINT; an error of PyTorch itself (out of
memory) ends with its own traceback and 1.
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module

from colane.workloads import arguments, catalogue
from colane.workloads.cifar10 import DatasetError
from colane.workloads.progress import say

OTHERS = {"stream": "stream", "data-parallel": "data_parallel"}
"""Jobs with arguments of their own, and their modules."""


def main() -> int:
    """Run the job that the command line describes."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    if sys.argv[1:2] and sys.argv[1] in OTHERS:
        return int(import_module(f"colane.workloads.{OTHERS[sys.argv[1]]}").main(sys.argv[2:]))
    job, log_every = arguments.parse()
    try:
        from colane.workloads import train  # noqa: PLC0415  # PyTorch takes seconds; wrong arguments need none
        from colane.workloads.checkpoints import UnusableStateError  # noqa: PLC0415
    except ModuleNotFoundError as error:
        return _refuse(f"needs {error.name}: pip install 'colane[workloads]'")
    try:
        train.run(job, log_every)
    except (DatasetError, train.DeviceError, UnusableStateError) as error:
        return _refuse(str(error))
    return 0


def _stop(number: int, _frame: object) -> None:
    """End now, as a process that died of the signal would be reported by a shell."""
    signal.signal(number, signal.SIG_IGN)
    say(f"stopped by {signal.Signals(number).name}")
    raise SystemExit(128 + number)


def _refuse(message: str) -> int:
    sys.stderr.write(f"python -m {catalogue.MODULE}: {message}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
