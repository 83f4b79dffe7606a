"""Large batches enter the queue slice by slice, so that other requests get in between, and are taken whole or not.

One commit makes the whole batch durable, with its ids, its quotas and the answer under its key: some ten documents of
`META`. From then on it is in: turns of their own put one slice after the other into the queue, and each removes its
document with the same commit. A scheduler that ends in between goes on with what is left, whichever one is next.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from zlib import Z_BEST_SPEED, compress, decompress
from zlib import error as zlib_error

from colane.api.forms import MAPPING, Form, maybe, record, several
from colane.core.events import Submitted
from colane.model.job import JobId
from colane.server.board.submission import Admitted
from colane.server.ground.yielding import ITEMS_AT_ONCE
from colane.server.store import documents
from colane.server.store.checksums import json_text
from colane.server.store.store import META, Put, Store, job_key
from colane.server.store.unreadable import keyed

SLICE_JOBS_MAX: Final = ITEMS_AT_ONCE
"""So many jobs of a batch enter in one turn, each of some 0.1 ms: a request that comes meanwhile waits for one turn."""

KEY: Final = "entering "  # keys of slices in `META`, before the id of their first job


@dataclass(frozen=True, slots=True)
class BatchSlice:
    """Jobs of a batch that are durable, and do not wait in the queue yet."""

    first: JobId  # id of the first
    jobs: tuple[Admitted, ...]  # they, in order of id
    is_last: bool  # whether the batch has entered whole with them
    text: str  # `jobs_text` of them as they were before the batch's turn
    # whether GPUs are promised to some of them: nothing may start on these before they wait for them
    has_promises: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "has_promises", any(job.promised is not None for job in self.jobs))

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


def sliced(first: int, jobs: Sequence[Admitted], texts: Sequence[str]) -> Iterator[BatchSlice]:
    """Cut a batch, whose first job has an id; `texts` are `job_texts` of what its jobs were before their turn."""
    for begin, text in zip(range(0, len(jobs), SLICE_JOBS_MAX), texts, strict=True):
        end = begin + SLICE_JOBS_MAX
        part = BatchSlice(JobId(first), tuple(jobs[begin:end]), end >= len(jobs), text)
        yield part
        first = part.end


def waiting(slices: Iterable[BatchSlice]) -> Counter[str]:
    """Return how many jobs of each user are still to enter."""
    return waiting_of(job for each in slices for job in each.jobs)


def waiting_of(jobs: Iterable[Admitted]) -> Counter[str]:
    """Return how many of these each user has, elements of arrays among them."""
    found = Counter[str]()
    for job in jobs:
        found[job.spec.user] += job.waiting
    return found


PROMISED: Final = maybe(documents.PROMISED)
ELEMENTS: Final = several(
    Form(lambda one: [one[0], documents.HOLDS.write(one[1])], lambda body: (body[0], documents.HOLDS.read(body[1])))
)
ADMITTED: Final = record(
    Admitted,
    spec=documents.SPEC,
    launch=MAPPING,
    holds=documents.HOLDS,
    array=maybe(documents.ARRAY),
    elements=ELEMENTS,
    promised=PROMISED,
)


def jobs_text(jobs: Sequence[Admitted]) -> str:
    """Return jobs of one slice as they are written: that takes as long as all else of them, so it is done before.

    It is compressed JSON in base64: jobs of a batch are alike, most by far in their environments, and all others wait
    for the one commit that writes the whole batch.
    """
    return b64encode(compress(json_text([ADMITTED.write(job) for job in jobs]).encode(), Z_BEST_SPEED)).decode()


def put_slice(each: BatchSlice) -> Put:
    """Write a slice: what its jobs wait for, and are promised, is known since their turn."""
    given = [_given(place, job) for place, job in enumerate(each.jobs) if job.after or job.promised is not None]
    document = {"first": each.first, "jobs": each.text, "given": given, "is_last": each.is_last}
    return Put(META, each.key, document)


def _given(place: int, job: Admitted) -> list[Any]:
    """What a job's turn has made of it: its place, what it waits for, and GPUs that it is promised."""
    holds, elements = documents.HOLDS.write(job.holds), ELEMENTS.write(job.elements)
    return [place, job.after, holds, elements, PROMISED.write(job.promised)]


def _with(job: Admitted, after: str, holds: Any, elements: Any, promised: Any) -> Admitted:  # noqa: ANN401 - JSON
    waits, parts = documents.HOLDS.read(holds), ELEMENTS.read(elements)
    return replace(job, after=after, holds=waits, elements=parts, promised=PROMISED.read(promised))


def read_slices(store: Store) -> dict[JobId, BatchSlice]:
    """Return the slices that have not entered yet, by the id of their first job, in order of id.

    Raises StoreError: the store cannot be read.
    """
    rows = [(key, body) for key, body in store.read_all(META) if key.startswith(KEY)]
    return {part.first: part for _, part in keyed(store, META, rows, read_slice)}


def read_slice(body: Mapping[str, Any]) -> BatchSlice:
    """Return the slice of a document, also of an older Colane, which wrote its jobs as they are.

    Raises ValueError: it is none.
    """
    written = body["jobs"]
    try:
        whole = json.loads(decompress(b64decode(written, validate=True))) if isinstance(written, str) else written
    except zlib_error as error:
        raise ValueError(f"its jobs cannot be read: {error}") from error
    jobs = [ADMITTED.read(job) for job in whole]
    text = written if isinstance(written, str) else jobs_text(jobs)
    for place, *given in body.get("given", ()):
        jobs[place] = _with(jobs[place], *given)
    return BatchSlice(JobId(body["first"]), tuple(jobs), bool(body["is_last"]), text)
