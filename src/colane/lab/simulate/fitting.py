"""Memory of jobs that were measured only to fit together or not."""

from __future__ import annotations

from collections.abc import Mapping

from colane.lab.traces.tables.gavel import GavelJob, GavelTable, Spot

V100_BYTES = 16_000_000_000
"""Memory of the V100 that Gavel measured on."""

CAPACITY_BYTES: Mapping[str, int] = {"v100": V100_BYTES, "p100": 16_000_000_000, "k80": 12_000_000_000}
"""Of the types that Gavel measured on, best first; of others a table does not say what fits."""


def measured_type(table: GavelTable) -> str:
    """The GPU type whose pairs say most: of Gavel's own the first that has pairs, else any; empty without pairs."""
    types = {spot.gpu_type for spot, _, _ in table.pair_steps_per_s if spot.consolidated}
    own = next((kind for kind in CAPACITY_BYTES if kind in types), None)
    return own or min(types, default="")


def fitting_memory(table: GavelTable) -> dict[tuple[str, int | None], int]:
    """Memory of each one-GPU job, derived from which pairs were measured to fit: no pair that did not is said to.

    Jobs of which two copies fit are put into the lower half of a GPU, by the number of partners they do not fit with; a
    job of which two copies do not fit takes just too much for the smallest partner it does not fit with. So a few pairs
    that did fit are said not to. Empty where the type the pairs were measured on has a capacity that is not known.
    """
    kind = measured_type(table)
    capacity_bytes = CAPACITY_BYTES.get(kind)
    if capacity_bytes is None:
        return {}
    jobs = table.jobs(1)
    unfit = {job: {other for other in jobs if not _fits(table, kind, job, other)} for job in jobs}
    small = [job for job in jobs if job not in unfit[job]]
    most = max((len(unfit[job]) for job in small), default=0)
    bytes_ = {job: round(capacity_bytes / 2 * (len(unfit[job]) + 0.5) / (most + 1)) for job in small}
    for job in jobs:
        if job not in bytes_:
            smallest = min((bytes_[other] for other in small if other in unfit[job]), default=capacity_bytes // 2)
            bytes_[job] = capacity_bytes - smallest + 1
    return {(job.model, job.batch_size): value for job, value in bytes_.items()}


def _fits(table: GavelTable, gpu_type: str, job: GavelJob, other: GavelJob) -> bool:
    spot = Spot(gpu_type, consolidated=True)
    values = (table.pair_steps_per_s.get((spot, *pair)) for pair in ((job, other), (other, job)))
    return (0.0, 0.0) not in values
