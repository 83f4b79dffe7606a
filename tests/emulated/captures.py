"""What scripts do while a stream is captured: run as a program.

Arguments: `RULE:MODE:THREAD` each, a method of `Script`, the mode of the capture, and `own` or `other`, the thread that
does it. Prints for each what CUDA says of it, and what of the end of the capture; `fine` where it says nothing.
"""

# ruff: noqa: T201

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable

import torch
from emulated_cuda import torch_cuda  # type: ignore[import-not-found]

MIB = 2**20


class Script:
    """What is there before a capture begins, and what may be done then."""

    def __init__(self) -> None:
        torch.cuda.init()
        self.stream, self.beside = torch.cuda.Stream(), torch.cuda.Stream()
        self.passed, self.inside = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.passed.record(self.beside)
        torch.cuda.synchronize()
        self.graph, self.other = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()

    def captured(self) -> None:
        """Have something to ask for."""
        torch.cuda._sleep(1000)
        self.inside.record(self.stream)

    def nothing(self) -> None:
        pass

    def query_event(self) -> None:
        self.passed.query()

    def wait_for_event(self) -> None:
        self.passed.synchronize()

    def elapsed(self) -> None:
        self.passed.elapsed_time(self.passed)

    def query_captured_event(self) -> None:
        self.inside.query()

    def wait_for_captured_event(self) -> None:
        self.inside.synchronize()

    def query_unrecorded_event(self) -> None:
        torch.cuda.Event().query()

    def query_stream(self) -> None:
        self.beside.query()

    def wait_for_stream(self) -> None:
        self.beside.synchronize()

    def wait_for_captured_stream(self) -> None:
        self.stream.synchronize()

    def wait_for_device(self) -> None:
        torch.cuda.synchronize()

    def read(self) -> None:
        torch.zeros(1).item()

    def take_memory(self) -> None:
        torch_cuda.allocate(64 * MIB)

    def empty_cache(self) -> None:
        torch.cuda.empty_cache()

    def kernel_elsewhere(self) -> None:
        with torch.cuda.stream(self.beside):
            torch.cuda._sleep(1000)

    def kernel_in_legacy(self) -> None:
        with torch.cuda.stream(torch.cuda.default_stream()):
            torch.cuda._sleep(1000)

    def kernel_in_legacy_beside_a_blocking_stream(self) -> None:
        self.stream._own.waits_for_legacy = True
        self.kernel_in_legacy()

    def wait_for_work_outside(self) -> None:
        self.stream.wait_event(self.passed)

    def fork_and_join(self) -> None:
        self.fork()
        self.stream.wait_stream(self.beside)

    def fork(self) -> None:
        self.beside.wait_event(self.inside)
        with torch.cuda.stream(self.beside):
            torch.cuda._sleep(1000)

    def merge(self) -> None:
        with torch.cuda.stream(self.beside):
            self.other.capture_begin(capture_error_mode="relaxed")
            self.beside.wait_event(self.inside)

    def end_elsewhere(self) -> None:
        with torch.cuda.stream(self.beside):
            self.graph.capture_end()


def said(call: Callable[[], object]) -> str:
    """What an error says in its first line."""
    try:
        call()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return "fine"


def told(rule: str, mode: str, thread: str) -> list[str]:
    """Do it once."""
    script, texts = Script(), []

    def do() -> None:
        texts.append(said(getattr(script, rule)))

    with torch.cuda.stream(script.stream):
        script.graph.capture_begin(capture_error_mode=mode)
        script.captured()
        if thread == "own":
            do()
        else:
            other = threading.Thread(target=do)
            other.start()
            other.join()
        texts.append(said(script.graph.capture_end))
    _leave_open_ones()
    return texts


def _leave_open_ones() -> None:
    """One that could not be ended would stand in the way of the next."""
    open_ones = torch_cuda.of_process().captures.under_way
    for one in open_ones:
        for stream in one.known:
            stream.capture = None
    open_ones.clear()


if __name__ == "__main__":
    print(json.dumps({case: told(*case.split(":")) for case in sys.argv[1:]}))
