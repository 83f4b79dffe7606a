"""A loop that uses a GPU by CuPy's kernels alone, and says its steps itself: run as a program.

Arguments: the number of steps, and milliseconds of a kernel.
"""

from __future__ import annotations

import sys

import cupy  # type: ignore[import-not-found]

import colane.adaptor as colane

KERNELS = 4


def main(count: int, kernel_ms: float) -> None:
    steps = colane.attach(total_steps=count)
    for _ in range(count):
        for _ in range(KERNELS):
            cupy.spin(int(kernel_ms * 1e6))
        steps.step()
    cupy.cuda.Device().synchronize()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
