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


class Stopped(SystemExit):
    """A signal ends the job, as a process that died of it would be reported by a shell.

    The line that says so is written once the signal's handler is left: it may have come in the middle of another.
    """

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.line = f"stopped by {signal.Signals(number).name}"


def main() -> int:
    """Run the job that the command line describes."""
    try:
        return run()
    except Stopped as stopped:
        say(stopped.line)
        raise


def run() -> int:
    """Run it until it is done, or stopped. Raises Stopped: by a signal."""
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
    signal.signal(number, signal.SIG_IGN)
    raise Stopped(number)


def _refuse(message: str) -> int:
    sys.stderr.write(f"python -m {catalogue.MODULE}: {message}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
