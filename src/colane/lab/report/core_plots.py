"""Two curves over time: how fast each job goes, and how many cores it has (paper D)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure

from colane.lab.report import style


class CoreSample(NamedTuple):
    """One look at a job.

    Attributes:
        at_s: When, since the beginning.
        cores: Cores it may use; 0 while it does not run.
        steps_per_s: Since the look before; None of a job that makes no steps, or has not begun.
    """

    at_s: float
    cores: int
    steps_per_s: float | None = None


@style.styled
def speed_and_cores(jobs: Mapping[str, Sequence[CoreSample]]) -> Figure:
    """Steps per second above, cores granted below, of each job.

    Args:
        jobs: By name, looks in order of time.
    """
    fig = style.new_figure(5.0, is_wide=True)
    above, below = fig.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    lines = []
    for place, samples in enumerate(jobs.values()):
        look = {**style.look(place), "linewidth": 2.0}
        stepping = [one for one in samples if one.steps_per_s is not None]
        above.plot([one.at_s for one in stepping], [one.steps_per_s for one in stepping], **look)
        running = [one for one in samples if one.cores]
        lines.append(style.steps(below, [one.at_s for one in running], [one.cores for one in running], **look))
    every = [one for samples in jobs.values() for one in samples]
    above.set_title("How fast it goes, and the cores it has")
    above.set_ylabel("steps/s")
    above.set_ylim(0, style.axis_end(max([one.steps_per_s or 0.0 for one in every], default=1.0), 1.1))
    below.set_ylabel("cores granted")
    below.set_xlabel("time (s)")
    below.set_ylim(0, max([one.cores for one in every], default=1) + 0.5)
    below.yaxis.get_major_locator().set_params(integer=True)
    below.set_xlim(0, style.axis_end(max([one.at_s for one in every], default=1.0), 1.02))
    style.legend_of(fig, lines, jobs)
    return fig
