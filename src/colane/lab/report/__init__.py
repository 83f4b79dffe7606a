"""Reports of finished jobs, live or simulated: metrics, tables, figures and one HTML page.

Importing this package is cheap; numpy and matplotlib are imported by the first `build`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from colane.lab.report.records import RunGroup
from colane.model.profile import Profile, SetMeasurement

if TYPE_CHECKING:
    from colane.lab.report.profile_plots import Boundary
    from colane.lab.report.writer import Report, ReportChapter

__all__ = ["build"]


def build(
    groups: Sequence[RunGroup],
    measurements: Sequence[SetMeasurement],
    out_dir: Path,
    *,
    title: str,
    profiles: Sequence[Profile] = (),
    boundary: Boundary | None = None,
    chapter: ReportChapter | None = None,
) -> Report:
    """Write `report.html`, `summary.json`, `jobs.csv` and the figures as PNG into a directory.

    Args:
        groups: The first one is the baseline the others are compared with. Names must differ.
        measurements: Sets that were measured together; may be empty.
        out_dir: Made where it is missing; files of an older report are written over.
        title: Heading of the page.
        profiles: Draw throughput against batch size, and measured sets against their sums of C and M.
        boundary: Fitted speed-up, drawn into the latter.
        chapter: What its caller has seen itself.

    Returns:
        The paths, and sentences and tables for printing.

    Raises:
        ValueError: Two groups have one name.
        OSError: The directory cannot be written.
    """
    from colane.lab.report.writer import write  # noqa: PLC0415 - matplotlib takes half a second to import

    return write(groups, measurements, out_dir, title=title, profiles=profiles, boundary=boundary, chapter=chapter)
