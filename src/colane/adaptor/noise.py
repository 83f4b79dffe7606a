"""The gradient noise scale from what a data-parallel step has at hand: norms of gradients of two batch sizes."""

from __future__ import annotations


def from_norms(small_batch: int, small_squared: float, large_batch: int, large_squared: float) -> float | None:
    """Estimate the simple noise scale (McCandlish et al., 2018, appendix A.1); average both norms over steps first.

    Args:
        small_batch: Samples of the smaller batch, as of one process.
        small_squared: Squared norm of the gradient of that, mean over the processes before gradients are averaged.
        large_batch: Samples of the larger batch, as of all processes.
        large_squared: Squared norm of the averaged gradient.

    Returns:
        In samples; None where the norms are too noisy to tell.
    """
    if not 0 < small_batch < large_batch:
        raise ValueError(f"a noise scale takes two batch sizes, the larger last; got {small_batch} and {large_batch}")
    signal = (large_batch * large_squared - small_batch * small_squared) / (large_batch - small_batch)
    noise = (small_squared - large_squared) / (1 / small_batch - 1 / large_batch)
    return noise / signal if noise > 0 and signal > 0 else None
