"""One job's fatal error on a GPU that jobs share through MPS ends them all: one event, with the job that caused it.

A kernel that fails for good (an illegal address, an assertion) takes the MPS server's context with it: every client of
that GPU is told an error, "without indicating which client generated the error" (NVIDIA's guide to MPS, error
containment), and the server takes no new ones until all are gone. So the ends of jobs that say such an error are held
back until it is seen which others ended too, and are then judged together:

* an assertion that a kernel printed comes from the process that launched it, and from no other;
* some drivers tell the others that the server ended them: then the one with an error of its own has caused it;
* else it cannot be told, and is said so.

Jobs that do not notice are ended where the server says that it has failed: nothing they launch runs any more.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from colane.agent.files.jobdir import JobDir, StateDir
from colane.agent.files.logs import read_tail
from colane.agent.reconcile import Key
from colane.agent.running.jobs import Jobs
from colane.agent.running.outcome import TAIL_BYTES, ExitOutcome, classify
from colane.model.words import plural

log = logging.getLogger(__name__)

CAUSED: Final = "mps-fault"  # the outcome of the job that has caused it: its own failure
OF_OTHER: Final = "mps-fault-of-other"  # of one that went down with another
UNKNOWN: Final = "mps-fault-unknown"  # of all, where it cannot be told which of them caused it

SETTLE_S = 10.0  # how long an end waits for those of the jobs beside it; a job notices with its next word to the GPU

TOGETHER_S = 60.0  # ends further apart are of two faults

ENDED_FOR = "the MPS server of its GPU has failed, so nothing it launches runs any more"

_ASSERTION = re.compile(r"block: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\] Assertion .* failed")
_FATAL = re.compile(
    r"an illegal memory access was encountered|unspecified launch failure|device-side assert triggered"
    r"|misaligned address|an illegal instruction was encountered|invalid program counter|hardware stack error"
    r"|operation not supported on global/shared address space"
    r"|(CUDA_ERROR_|cudaError)(ILLEGAL_|Illegal|LAUNCH_FAILED|LaunchFailure|ASSERT\b|Assert\b|MISALIGNED|Misaligned"
    r"|INVALID_PC|InvalidPc|HARDWARE_STACK|HardwareStack|INVALID_ADDRESS_SPACE|InvalidAddressSpace)"
)
_ENDED_BY_SERVER = re.compile(
    r"MPS client has been terminated|MPS server is not ready to accept|call between the MPS server and the MPS client"
    r"|CUDA_ERROR_MPS_(RPC_FAILURE|SERVER_NOT_READY|CLIENT_TERMINATED)"
    r"|cudaErrorMps(RpcFailure|ServerNotReady|ClientTerminated)"
)
"""Errors 806, 807 and 810 of the CUDA driver's interface."""


class Said(Enum):
    """What an end says of a fault."""

    ASSERTION = auto()  # a kernel of its own has failed
    ERROR = auto()  # its own or another's
    ENDED_BY_SERVER = auto()  # another's
    NOTHING = auto()  # it was ended because of it


class FaultSuspect(NamedTuple):
    """A job that ended in a way in which clients of a failed server do."""

    key: Key
    gpus: tuple[int, ...]
    start_s: float
    end_s: float
    said: Said

    def is_with(self, other: FaultSuspect) -> bool:
        """Whether both may be of one fault."""
        overlap = self.start_s < other.end_s and other.start_s < self.end_s
        return overlap and abs(self.end_s - other.end_s) <= TOGETHER_S and not set(self.gpus).isdisjoint(other.gpus)


def said_of(tail: str) -> Said | None:
    """What the end of a log says of a fatal error of a GPU; None where there was none."""
    for pattern, said in ((_ASSERTION, Said.ASSERTION), (_ENDED_BY_SERVER, Said.ENDED_BY_SERVER), (_FATAL, Said.ERROR)):
        if pattern.search(tail):
            return said
    return None


def judge(group: Sequence[FaultSuspect]) -> dict[Key, ExitOutcome] | None:
    """Judge ends that are of one fault; None where the one end there is is its own affair."""
    if len(group) == 1 and group[0].said in {Said.ASSERTION, Said.ERROR}:
        return None
    causers = [one.key for one in group if one.said is Said.ASSERTION]
    if not causers and all(one.said in {Said.ERROR, Said.ENDED_BY_SERVER} for one in group):
        errors = [one.key for one in group if one.said is Said.ERROR]
        causers = errors if len(errors) == 1 else []
    if not causers:
        unknown = f"which of {_named(sorted(one.key for one in group))} caused it cannot be told"
        return {
            one.key: ExitOutcome(UNKNOWN, unknown if len(group) > 1 else "by a job that is not known") for one in group
        }
    others = _named(sorted(one.key for one in group if one.key not in causers))
    caused, went_down = (
        ExitOutcome(CAUSED, f"{others} ended with it"),
        ExitOutcome(OF_OTHER, f"{_named(causers)} caused it"),
    )
    return {one.key: caused if one.key in causers else went_down for one in group}


def _named(keys: Sequence[Key]) -> str:
    return f"{plural(len(keys), 'job')} {', '.join(str(key.job) for key in keys)}" if keys else "no other job"


class MpsFaults:
    """Holds ends back that may be of one fault, and judges them together."""

    def __init__(self, state: StateDir, jobs: Jobs, has_failed: Callable[[int], Awaitable[bool]]) -> None:
        """Begin with none.

        Args:
            state: Where attempts are.
            jobs: Ends those that cannot go on.
            has_failed: Whether an MPS server of a GPU says that it has failed.
        """
        self._state, self._jobs, self._has_failed = state, jobs, has_failed
        self._said: dict[int, str] = {}

    @property
    def messages(self) -> list[str]:
        """The last fault of each GPU since which no job was started there through MPS."""
        return [self._said[gpu] for gpu in sorted(self._said)]

    def over(self, gpu: int) -> None:
        """A job is started there through MPS again."""
        self._said.pop(gpu, None)

    async def is_settled(self, key: Key) -> bool:
        """Whether the end of an attempt can be told: it is no such end, or has been judged with those beside it."""
        job = self._state.job_dir(key)
        one = None if job.finished() is not None else _suspect(job)
        if one is None:
            return True
        beside = [other for other in self._state.live() if other.key != key and _shares(other, one.gpus)]
        running = [other.key for other in beside if not other.has_ended() and other.started() is not None]
        if running:
            has_failed = any([await self._has_failed(gpu) for gpu in one.gpus])
            for other in running if has_failed else ():
                self._jobs.stop(other, ENDED_FOR, UNKNOWN)
            if has_failed or one.end_s <= time.time() < one.end_s + SETTLE_S:
                return False
        ended = [_suspect(other) for other in beside if other.has_ended() and other.finished() is None]
        group = [one, *(other for other in ended if other is not None and other.is_with(one))]
        judged = judge(group) or {}
        for member, outcome in judged.items():
            self._jobs.finished(member, outcome)
        if judged:
            self._note(group, judged)
        return True

    def _note(self, group: Sequence[FaultSuspect], judged: dict[Key, ExitOutcome]) -> None:
        gpu = group[0].gpus[0]
        why = next(outcome.detail for outcome in judged.values() if outcome.name != CAUSED)
        jobs = _named(sorted(judged))
        self._said[gpu] = f"{jobs} ended by one fatal error on GPU {gpu}, shared through MPS: {why}"
        log.warning("%s", self._said[gpu])


def _shares(job: JobDir, gpus: Sequence[int]) -> bool:
    facts = job.facts()
    return facts.mps and not set(gpus).isdisjoint(facts.gpus)


def _suspect(job: JobDir) -> FaultSuspect | None:
    """An ended job that went through MPS, and says a fatal error of a GPU or was ended for one."""
    record, facts = job.exit_record(), job.facts()
    if record is None or not facts.mps or not facts.gpus:
        return None
    said: Said | None = None
    if record["outcome"] == UNKNOWN:
        said = Said.NOTHING
    elif not record["stopped"] and record["outcome"] in {"exited", "signalled"} and record["exit_code"] != 0:
        tail = read_tail(job.path, TAIL_BYTES)
        said = said_of(tail) if classify(record, tail).name == record["outcome"] else None
    return None if said is None else FaultSuspect(job.key, facts.gpus, record["start_s"], record["end_s"], said)
