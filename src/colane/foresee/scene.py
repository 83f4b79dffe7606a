"""What is known of a pool at one moment, in the terms of the roll-outs: who runs, who waits, and in which order."""

from __future__ import annotations

from typing import Final, NamedTuple

LEFT_MIN_S: Final = 1.0
"""No job that runs is taken to have less left."""

Rank = tuple[float, ...]


class PresentJob(NamedTuple):
    """A live job of a pool.

    Attributes:
        job: Which.
        owner: Whose jobs are like it.
        gpus: It asks for, or has.
        had_s: Service it has had that counts.
        left_s: What it has left where that is told, alone where it is fastest; None where it is not.
        most_s: What it may still run by its limit; None without one.
        slice_s: After so much more service it loses its place in the order; None where it does not.
        runs: Whether it has its GPUs.
        stays: Whether none takes them from it.
        rank: Its place in the order.
    """

    job: int
    owner: str
    gpus: int
    had_s: float
    left_s: float | None
    most_s: float | None
    slice_s: float | None
    runs: bool
    stays: bool
    rank: Rank

    def rest_s(self, length_s: float) -> float:
        """What is left of it where it is so long and no length is told, its limit counted."""
        left_s = max(LEFT_MIN_S, length_s - self.had_s if self.left_s is None else self.left_s)
        return left_s if self.most_s is None else min(left_s, self.most_s)


class PoolScene(NamedTuple):
    """A pool at one moment.

    Attributes:
        now_s: The time.
        gpus: That jobs of it may have.
        present: Its live jobs that have GPUs or may get some, by submission.
    """

    now_s: float
    gpus: int
    present: list[PresentJob]
