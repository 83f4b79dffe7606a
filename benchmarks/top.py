"""What drawing `colane top` takes, of 64 and of 8,000 devices: CPU time of one picture, and of reading its answers.

python benchmarks/top.py
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tests.cli.shots import busy_shot, job, node

from colane.cli.top.drawing import TopPicture, TopView

TIMES = 21


def cpu_ms(work: Callable[[], Any]) -> float:
    """Median CPU time."""
    took = []
    for _ in range(TIMES):
        began_s = time.process_time()
        work()
        took.append(time.process_time() - began_s)
    return statistics.median(took) * 1e3


def main() -> None:
    """Measure, and print."""
    for nodes, jobs in ((8, 64), (1_000, 1_000)):
        listed = [job(n, f"vit-{n}", gpus=[f"n{n // 8}/{n % 8}"], node=f"n{n // 8}") for n in range(jobs)]
        placed = [node(f"n{n}", {gpu: [[n * 8 + gpu]] for gpu in range(8)}) for n in range(nodes)]
        shot = replace(busy_shot(), nodes=placed, jobs=listed)
        for width, height in ((80, 24), (160, 50)):
            view = TopView(width=width, height=height, user="wren", keys=True)
            took_ms = cpu_ms(TopPicture(shot, view).lines)
            print(f"{nodes * 8} devices, {jobs} jobs, {width}x{height}: {took_ms:.1f} ms a picture")
        text = json.dumps([placed, listed])
        print(f"  its answers, {len(text) / 1e6:.2f} MB: {cpu_ms(partial(json.loads, text)):.1f} ms to read")


if __name__ == "__main__":
    main()
