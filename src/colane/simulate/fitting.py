"""Memory of jobs that were measured only to fit together or not."""

from __future__ import annotations

from colane.traces.tables.gavel import GavelJob, GavelTable, Spot

V100_BYTES = 16_000_000_000
"""Memory of the V100 that Gavel measured on."""


def fitting_memory(table: GavelTable, capacity_bytes: int = V100_BYTES) -> dict[tuple[str, int | None], int]:
    """Memory of each one-GPU job, derived from which pairs were measured to fit: no pair that did not is said to.

    Jobs of which two copies fit are put into the lower half of a GPU, by the number of partners they do not fit with; a
    job of which two copies do not fit takes just too much for the smallest partner it does not fit with. So a few pairs
    that did fit are said not to.
    """
    jobs = table.jobs(1)
    unfit = {job: {other for other in jobs if not _fits(table, job, other)} for job in jobs}
    small = [job for job in jobs if job not in unfit[job]]
    most = max((len(unfit[job]) for job in small), default=0)
    bytes_ = {job: round(capacity_bytes / 2 * (len(unfit[job]) + 0.5) / (most + 1)) for job in small}
    for job in jobs:
        if job not in bytes_:
            smallest = min((bytes_[other] for other in small if other in unfit[job]), default=capacity_bytes // 2)
            bytes_[job] = capacity_bytes - smallest + 1
    return {(job.model, job.batch_size): value for job, value in bytes_.items()}


def _fits(table: GavelTable, job: GavelJob, other: GavelJob) -> bool:
    spot = Spot("v100", consolidated=True)
    values = (table.pair_steps_per_s.get((spot, *pair)) for pair in ((job, other), (other, job)))
    return (0.0, 0.0) not in values
