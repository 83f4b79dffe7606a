"""What happened in a simulated run: one row a job in plain columns, and the cluster over time."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from colane.model.hardware import GpuId
from colane.model.job import Job, JobState
from colane.model.time_spent import TimeSpent, time_spent

UNKNOWN = float("nan")
STATES = tuple(JobState)
STATE_CODES = {state: code for code, state in enumerate(STATES)}
INTERVALS_MAX = 4000  # so many stays on GPUs are kept for a Gantt chart; a run with more is too large to draw
ACCOUNTS_MAX = 4000
"""Of so many jobs it is kept where their time has gone; those of a longer trace come to one mean all the same."""

CURVE_COLUMNS = 6
PACKED = Struct(f"{CURVE_COLUMNS}d")
"""A row of the curve as an array holds it: made at once, where each value alone would be parsed as an argument."""


class AttemptSpan(NamedTuple):
    """A job on its GPUs, seconds of virtual time: all of an attempt, or what lies between two times it was parked."""

    job: int
    attempt: int
    gpus: tuple[GpuId, ...]
    start_s: float
    end_s: float


@dataclass(slots=True)
class ClusterTimeline:
    """The cluster over time: each row holds until the next."""

    _values: array[float] = field(default_factory=lambda: array("d"))

    def add(self, at_s: float, active: int, utilized: float, stranded: int, waiting: int, running: int) -> None:
        """The cluster from `at_s` on; a second value for one moment replaces the first."""
        values = self._values
        if values and values[-CURVE_COLUMNS] == at_s:
            del values[-CURVE_COLUMNS:]
        values.frombytes(PACKED.pack(at_s, active, utilized, stranded, waiting, running))

    @property
    def at_s(self) -> array[float]:
        """When."""
        return self._values[0::CURVE_COLUMNS]

    @property
    def active_gpus(self) -> array[float]:
        """GPUs that carry at least one job."""
        return self._values[1::CURVE_COLUMNS]

    @property
    def utilized_gpus(self) -> array[float]:
        """GPUs' worth of use: busy fraction x efficiency, see `Driver`."""
        return self._values[2::CURVE_COLUMNS]

    @property
    def stranded_gpus(self) -> array[float]:
        """GPUs without a job while a job of their pool waits."""
        return self._values[3::CURVE_COLUMNS]

    @property
    def waiting(self) -> array[float]:
        """Jobs waiting."""
        return self._values[4::CURVE_COLUMNS]

    @property
    def running(self) -> array[float]:
        """Jobs on GPUs."""
        return self._values[5::CURVE_COLUMNS]


@dataclass(slots=True)
class Rows:
    """Jobs by column, in order of their end; times that did not come are NaN."""

    id: array[int] = field(default_factory=lambda: array("q"))  # job
    # code of `STATES`: how it ended, or where it stood when the run stopped
    state: array[int] = field(default_factory=lambda: array("b"))
    submit_s: array[float] = field(default_factory=lambda: array("d"))  # when it was submitted
    first_start_s: array[float] = field(default_factory=lambda: array("d"))  # start of its first attempt
    start_s: array[float] = field(default_factory=lambda: array("d"))  # start of its last attempt
    end_s: array[float] = field(default_factory=lambda: array("d"))  # when it ended for good
    attempts: array[int] = field(default_factory=lambda: array("l"))  # starts
    # GPU-seconds it was given; of a GPU that carries k jobs each is given 1/k
    gpu_s: array[float] = field(default_factory=lambda: array("d"))
    alone_s: array[float] = field(default_factory=lambda: array("d"))  # run time alone where it last ran
    gpus: list[tuple[GpuId, ...]] = field(default_factory=list)  # where it last ran

    def __len__(self) -> int:
        return len(self.id)

    def add(self, job: Job, gpu_s: float, alone_s: float) -> None:
        """Take a job as it stands."""
        self.id.append(job.id)
        self.state.append(STATE_CODES[job.state])
        self.submit_s.append(job.submit_s)
        self.first_start_s.append(UNKNOWN if job.first_start_s is None else job.first_start_s)
        self.start_s.append(UNKNOWN if job.run.start_s is None else job.run.start_s)
        self.end_s.append(UNKNOWN if job.end_s is None else job.end_s)
        self.attempts.append(job.attempt)
        self.gpu_s.append(gpu_s)
        self.alone_s.append(alone_s)
        self.gpus.append(job.placement.gpus if job.placement is not None else ())

    def count(self, state: JobState) -> int:
        """How many jobs stand in a state."""
        return self.state.count(STATE_CODES[state])


class Refusal(NamedTuple):
    """A job that was not submitted, and why."""

    job: int
    name: str
    line: int
    reason: str

    def __str__(self) -> str:
        """One clause, with the line of the trace where there is one."""
        where = f" of line {self.line}" if self.line else ""
        return f"job {self.name}{where}: {self.reason}"


@dataclass(slots=True)
class Ledger:
    """Everything a run leaves behind."""

    rows: Rows = field(default_factory=Rows)  # jobs
    curve: ClusterTimeline = field(default_factory=ClusterTimeline)  # the cluster over time
    # times on GPUs in the order of their ends, up to `stays_max`
    stays: list[AttemptSpan] = field(default_factory=list)
    stays_max: int = INTERVALS_MAX  # so many of them are kept
    stays_dropped: int = 0  # those beyond
    events: int = 0  # events the core was told
    moments: int = 0  # times at which something happened
    decisions: int = 0  # actions the policy took
    plan_s: array[float] = field(default_factory=lambda: array("d"))  # wall time of every call of the policy
    flaws: list[str] = field(default_factory=list)  # what was wrong with plans that were refused, one line each
    interrupted: bool = False  # whether the run was stopped before its end
    is_cut: bool = False  # at a time that was asked for
    # where the time of each job went, of the first `ACCOUNTS_MAX` that ended
    time_spent: dict[int, TimeSpent] = field(default_factory=dict)
    # steps each job made that its next attempt made anew, at its speed alone; only jobs with such
    lost_s: dict[int, float] = field(default_factory=dict)
    # time each job waited for its turn in a lane; only jobs that did
    paused_s: dict[int, float] = field(default_factory=dict)
    _launching_s: dict[int, float] = field(default_factory=dict)
    idle_s: float = 0.0  # time jobs held GPUs and made no step: launching, saving their state, moving their memory

    @property
    def redone_s(self) -> float:
        """Steps that were made and not kept, of all jobs, each at its time alone."""
        return sum(self.lost_s.values())

    def account(self, job: Job, until_s: float) -> None:
        """Keep where the time of a job went, up to its end or to the end of the run."""
        if len(self.time_spent) < ACCOUNTS_MAX:
            spent = time_spent(job.story, job.story_left_out, until_s)
            launching_s = min(spent.running_s, self._launching_s.pop(job.id, 0.0))
            if launching_s:
                running_s, launching_s = spent.running_s - launching_s, spent.launching_s + launching_s
                spent = spent._replace(running_s=running_s, launching_s=launching_s)
            self.time_spent[job.id] = spent

    def launch(self, job: int, launching_s: float) -> None:
        """Add what a job took to launch that its story does not tell."""
        self._launching_s[job] = self._launching_s.get(job, 0.0) + launching_s

    def lose(self, job: int, lost_s: float) -> None:
        """Add what a job has to make anew."""
        if lost_s > 0:
            self.lost_s[job] = self.lost_s.get(job, 0.0) + lost_s

    def stay(self, job: int, attempt: int, gpus: tuple[GpuId, ...], start_s: float, end_s: float) -> None:
        """Remember a time on GPUs, if there is room."""
        if not gpus:
            return
        if len(self.stays) < self.stays_max:
            self.stays.append(AttemptSpan(job, attempt, gpus, start_s, end_s))
        else:
            self.stays_dropped += 1

    def pause(self, job: int, paused_s: float) -> None:
        """Add what a job waited for its turn in one attempt."""
        if paused_s > 0:
            self.paused_s[job] = self.paused_s.get(job, 0.0) + paused_s
