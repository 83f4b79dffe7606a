"""Figures of paper B: which part of a GPU each job has over time, and what its workloads hold of the memory."""

from __future__ import annotations

from pathlib import Path

from colane.lab.papers.sharing import SharingEvaluation
from colane.lab.papers.sharing_memory import P100_BYTES
from colane.lab.report import style
from colane.lab.report.lane_plots import memory_of_workloads, throughput_over_time


def draw(found: SharingEvaluation, out: Path) -> None:
    """Write both figures."""
    style.save(throughput_over_time(found.images_per_s, unit="images/s"), out / "fair-sharing" / "throughput.png")
    style.save(memory_of_workloads(found.needs_bytes, capacity_bytes=P100_BYTES), out / "memory.png")
