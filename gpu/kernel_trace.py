"""Traces two training steps of a built-in model kernel by kernel, for C and M of paper A (eqs 4.2, 4.3).

    python -m gpu.kernel_trace --model resnet18 --batch-size 64 --out trace.json         # torch.profiler
    ncu OPTIONS python -m gpu.kernel_trace --model resnet18 --batch-size 64 > table.csv  # Nsight Compute

OPTIONS are `colane.devices.kernels.NCU_OPTIONS`: ncu profiles only between the profiler's start and stop, which
stand around the same two steps. `colane profile --kernels FILE` reads both files.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from colane.devices.kernels import STEPS_COUNTED
from colane.workloads import catalogue, models

WARM_STEPS = 10
"""cuDNN has chosen its algorithms and the allocator has its blocks after fewer."""


def main(argv: Sequence[str] | None = None) -> int:
    """Trace; 0 when it is done."""
    options = _parse(argv)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    step = _training_step(options, device)
    for _ in range(WARM_STEPS if device.type == "cuda" else 1):
        step()
    _synchronise(device)
    if options.out is None:
        _marked_for_ncu(step, device)
    else:
        _traced(step, device, options.out)
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, choices=catalogue.MODELS)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument(
        "--out", type=Path, help="write a torch.profiler trace; without it, only mark the steps for ncu"
    )
    return parser.parse_args(argv)


def _training_step(options: argparse.Namespace, device: torch.device) -> Callable[[], None]:
    """Return one step as the built-in trainer makes it, on images that are there already."""
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    model = models.build(options.model, 10, options.width).to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.1, weight_decay=1e-4)
    criterion = nn.CrossEntropyLoss()
    images = torch.randn(options.batch_size, 3, 32, 32, device=device)
    labels = torch.randint(0, 10, (options.batch_size,), device=device)

    def step() -> None:
        optimizer.zero_grad()
        criterion(model(images), labels).backward()
        optimizer.step()

    return step


def _traced(step: Callable[[], None], device: torch.device, out: Path) -> None:
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profiler:
        for number in range(STEPS_COUNTED):
            with torch.profiler.record_function(f"ProfilerStep#{number}"):
                step()
        _synchronise(device)
    profiler.export_chrome_trace(str(out))


def _marked_for_ncu(step: Callable[[], None], device: torch.device) -> None:
    marked: AbstractContextManager[Any] = torch.cuda.profiler.profile() if device.type == "cuda" else nullcontext()
    with marked:
        for _ in range(STEPS_COUNTED):
            step()
        _synchronise(device)


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    sys.exit(main())
