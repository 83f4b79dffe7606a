"""Large batches enter the queue slice by slice, so that other requests get in between, and are taken whole or not.

One commit makes the whole batch durable, with its ids, its quotas and the answer under its key: some ten documents of
`META`. From then on it is in: turns of their own put one slice after the other into the queue, and each removes its
document with the same commit. A scheduler that ends in between goes on with what is left, whichever one is next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from colane.core.events import Submitted
from colane.model.job import JobId
from colane.server.store import documents
from colane.server.store.codec import MAPPING, maybe, record, several
from colane.server.store.store import META, Put, Store, job_key
from colane.server.store.unreadable import keyed
from colane.server.submitting.admission import Admitted

SLICE_JOBS_MAX: Final = 256
"""So many jobs of a batch enter in one turn, each of some 0.1 ms: a request that comes meanwhile waits for one turn."""

KEY: Final = "entering "
"""Keys of slices in `META`, before the id of their first job."""


@dataclass(frozen=True, slots=True)
class BatchSlice:
    """Jobs of a batch that are durable, and do not wait in the queue yet.

    Attributes:
        first: Id of the first.
        jobs: They, in order of id.
        is_last: Whether the batch has entered whole with them.
    """

    first: JobId
    jobs: tuple[Admitted, ...]
    is_last: bool

    @property
    def key(self) -> str:
        """Where it lies in `META`."""
        return f"{KEY}{job_key(self.first)}"

    @property
    def end(self) -> int:
        """The first id behind those of its jobs."""
        return self.first + sum(job.ids for job in self.jobs)

    @property
    def by_id(self) -> Iterator[tuple[JobId, Admitted]]:
        """Its jobs with their ids."""
        return with_ids(self.first, self.jobs)


def with_ids(first: int, jobs: Iterable[Admitted]) -> Iterator[tuple[JobId, Admitted]]:
    """Yield jobs with the ids that they have when the first of them has that one."""
    for job in jobs:
        yield JobId(first), job
        first += job.ids


def submitted(job_id: JobId, job: Admitted) -> Submitted:
    """Return what the core is told of a job."""
    return Submitted(job_id, job.spec, job.holds, job.array, job.elements, job.after, job.promised)


def is_sliced(jobs: Sequence[Admitted]) -> bool:
    """Whether a batch is to enter in slices: it is large, and what its jobs wait for is not of one moment.

    Jobs that wait for others, are promised a deadline or are measured together are judged by what stands in the queue
    in the turn in which they enter it.
    """
    return len(jobs) > SLICE_JOBS_MAX and not any(_is_of_one_moment(job) for job in jobs)


def _is_of_one_moment(job: Admitted) -> bool:
    waits = bool(job.after or job.elements or job.is_singleton)
    return waits or job.promised is not None or job.spec.measurement_group is not None


def sliced(first: int, jobs: Sequence[Admitted]) -> Iterator[BatchSlice]:
    """Cut a batch, whose first job has an id."""
    for begin in range(0, len(jobs), SLICE_JOBS_MAX):
        end = begin + SLICE_JOBS_MAX
        part = BatchSlice(JobId(first), tuple(jobs[begin:end]), is_last=end >= len(jobs))
        yield part
        first = part.end


def waiting(slices: Iterable[BatchSlice]) -> Counter[str]:
    """Return how many jobs of each user are still to enter."""
    return Counter(job.spec.user for each in slices for job in each.jobs)


ADMITTED: Final = record(
    Admitted,
    spec=documents.SPEC,
    launch=MAPPING,
    holds=documents.HOLDS,
    array=maybe(documents.ARRAY),
    elements=several(),
)
"""Of jobs that enter in slices: `elements` are none, and there is no promise."""


def put_slice(each: BatchSlice) -> Put:
    """Write a slice."""
    jobs = [ADMITTED.write(job) for job in each.jobs]
    return Put(META, each.key, {"first": each.first, "jobs": jobs, "is_last": each.is_last})


def read_slices(store: Store) -> dict[JobId, BatchSlice]:
    """Return the slices that have not entered yet, by the id of their first job, in order of id.

    Raises:
        StoreError: The store cannot be read.
    """
    rows = [(key, body) for key, body in store.read_all(META) if key.startswith(KEY)]
    return {part.first: part for _, part in keyed(store, META, rows, read_slice)}


def read_slice(body: Mapping[str, Any]) -> BatchSlice:
    """Return the slice of a document."""
    jobs = tuple([ADMITTED.read(job) for job in body["jobs"]])
    return BatchSlice(JobId(body["first"]), jobs, bool(body["is_last"]))
