"""Large batches are judged before their turn, a few jobs at a time, and written as far as that is known by then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from colane.api.job_request import JobRequest
from colane.model.problem import Problem
from colane.server.board.hardware import Hardware
from colane.server.board.slices import SLICE_JOBS_MAX, jobs_text
from colane.server.board.submission import Admitted
from colane.server.ground.pools import PoolRules
from colane.server.ground.problems import PROBLEMS_MAX, RefusedError
from colane.server.ground.yielding import in_slices
from colane.server.submitting.admission import admit, judged
from colane.server.submitting.lookup import Families


@dataclass(frozen=True, slots=True)
class JudgedBatch:
    """A batch that was judged before its turn."""

    hardware: Hardware  # the nodes it was judged for; for others it is judged anew
    owned: Sequence[JobRequest]  # its requests, each with its user
    admitted: list[Admitted]  # its jobs; fewer where it is refused
    texts: list[str]  # of each slice of them `slices.jobs_text`
    refused: RefusedError | None = None  # why none of them is taken

    def jobs(self) -> list[Admitted]:
        """Its jobs. Raises RefusedError: they are not taken."""
        if self.refused is not None:
            raise self.refused
        return self.admitted


async def judge_in_slices(
    requests: Sequence[JobRequest],
    hardware: Hardware,
    workdir: str,
    now_s: float,
    families: Families,
    pools: PoolRules | None = None,
) -> JudgedBatch:
    """Judge a large batch while others go on, as `admit_all` does in one go."""
    admitted, texts, problems = list[Admitted](), list[str](), list[Problem]()
    judge = partial(admit, hardware=hardware, workdir=workdir, now_s=now_s, families=families, pools=pools)
    first = 0
    async for part in in_slices(requests, SLICE_JOBS_MAX):
        jobs = judged(part, first, problems, judge)
        if len(problems) >= PROBLEMS_MAX:
            break
        admitted += jobs
        first += len(part)
        if not problems:
            texts.append(jobs_text(jobs))
    return JudgedBatch(hardware, requests, admitted, texts, RefusedError(422, problems) if problems else None)
