"""Job lists of simulators and logs of batch systems, of which a row says what each column is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from colane.lab.traces import cells
from colane.lab.traces.layout import Bare, FileLayout, Header
from colane.lab.traces.readers.assemble import Columns, Options, assemble, span
from colane.lab.traces.sheet import Sheet, read_sheet
from colane.lab.traces.workload import Note, TraceJob, Workload
from colane.model.hardware import DEFAULT_POOL
from colane.model.job import JobId, JobSpec

NOT_ENDED = frozenset({"RUNNING", "SUSPENDED", "PENDING"})  # states of jobs that had not ended when the log was taken
NOTHING = frozenset({"", "None", "nan", "NaT"})  # what stands where there was no such moment
BATCH_TOTAL = "batch_size_total"  # label of the batch of a whole job
SLACK_S = 1.0  # moments are whole seconds, so that durations may differ by so much


class Moments(NamedTuple):
    """Columns of a log, by row."""

    states: Sequence[str]  # how a job ended
    submit_s: Sequence[float]  # when it was submitted, in seconds since any one moment
    start_s: Sequence[float | None]  # when it started; None is never
    end_s: Sequence[float | None]  # when it ended; None is not yet
    duration_s: Sequence[float | None]  # how long it ran, as the log says besides


def moments(sheet: Sheet, stamp: Callable[[str], float]) -> Moments:
    """Read the columns `state`, `submit_time`, `start_time`, `end_time` and `duration`.

    Raises InputFileError: a cell is bad (unless rows may be skipped).
    """
    return Moments(
        states=sheet.column("state", cells.word),
        submit_s=sheet.column("submit_time", stamp),
        start_s=sheet.column("start_time", _or_nothing(stamp)),
        end_s=sheet.column("end_time", _or_nothing(stamp)),
        duration_s=sheet.column("duration", _or_nothing(cells.number)),
    )


def run_times(sheet: Sheet, log: Moments) -> tuple[dict[int, float], tuple[Note, ...]]:
    """Return the run time of every job that ended, by row, and what people should know of the others.

    The run time is end - start. Left out and counted: jobs that had not ended, and jobs that never started. Told: jobs
    whose `duration` is another, and jobs that started before they were submitted, each with the line of the first.
    Raises InputFileError: a job ends before it starts, or has ended without an end (unless rows may be skipped).
    """
    ran: dict[int, float] = {}
    unended: list[int] = []
    unstarted: list[int] = []
    for row in list(sheet.good()):
        start, end, state = log.start_s[row], log.end_s[row], log.states[row]
        if state.upper() in NOT_ENDED:
            unended.append(row)
        elif start is None:
            unstarted.append(row)
        elif end is None:
            sheet.fail(row, f"is empty, though the job is {state}", "end_time")
        elif (log.duration_s[row] or 0.0) < 0:
            sheet.fail(row, f"must not be negative, got {log.duration_s[row]:g}", "duration")
        else:
            ran[row] = span(sheet, row, start, end, "end_time")
    ran = {row: run_s for row, run_s in ran.items() if row not in sheet.bad}
    said = [(row, log.duration_s[row]) for row in ran]
    others = [row for row, said_s in said if said_s is not None and abs(said_s - ran[row]) > SLACK_S]
    early = [row for row in ran if (start := log.start_s[row]) is not None and start < log.submit_s[row]]
    return ran, tuple(
        Note(len(rows), "job", f"{what} (the first in line {sheet.lines[rows[0]]})")
        for rows, what in (
            (unended, "not ended when the log was taken, left out"),
            (unstarted, "never started, left out"),
            (others, "whose duration is not end - start, which is taken"),
            (early, "started before submitted, taken as submitted"),
        )
        if rows
    )


def _or_nothing(parse: Callable[[str], float]) -> Callable[[str], float | None]:
    return lambda text: None if text in NOTHING else parse(text)


Cell = tuple[str, Callable[[str], Any]]  # name of a column, and what parses its cells


@dataclass(frozen=True, slots=True, kw_only=True)
class JobList:
    """What the columns of a list of jobs are; what is None is in none of them."""

    name: str  # of the format
    layouts: Sequence[FileLayout]  # of its files
    submit: Cell  # when a job was submitted; of a log, also how its other moments are read
    gpus: Cell | None  # GPUs it asks for
    id: Cell = ("job_id", cells.word)  # its name in the list
    model: Cell | None = None  # what it trains; where none says it, the format's name stands for it
    batch: Cell | None = None  # its batch size
    batch_total: Cell | None = None  # that of all its GPUs: a label, and each GPU's share the batch size
    steps: Cell | None = None  # its steps
    duration: Cell | None = None  # how long it runs
    user: Cell | None = None  # of jobs of a cluster
    pool: Cell | None = None  # of jobs of a cluster
    cores: Cell | None = None  # of jobs of a cluster
    state: Cell | None = None  # how it ended; jobs that had not ended are left out and counted
    labels: tuple[str, ...] = ()  # columns that become labels of the same name
    nodes: Cell | None = None  # on how many nodes it ran, a label where they are several
    absent: frozenset[str] = frozenset()  # columns that a file may lack
    # it has the moments of a batch system: run times are end - start, and dates count from the first
    is_log: bool = False
    judge: Callable[[Sheet], None] = lambda _: None  # takes rows as bad by several columns
    doubts: Callable[[Sheet], Iterator[str]] = lambda _: iter(())  # what is unlikely of the whole list

    def read(self, path: Path, text: str, options: Options) -> Workload:
        """Read a list.

        Raises InputFileError: a missing column, a bad or duplicate row (unless rows may be skipped), no jobs.
        """
        named = next((layout.columns for layout in self.layouts if isinstance(layout, Bare)), None)
        sheet = read_sheet(path, text, names=named, skip_bad_rows=options.skip_bad_rows)
        ids = list(map(str, sheet.column(*self.id)))
        sheet.unique(ids, self.id[0])
        of = partial(self._column, sheet)
        users, pools, cores = of(self.user, ""), of(self.pool, DEFAULT_POOL), of(self.cores, 0)
        models, batches, steps = of(self.model, self.name), of(self.batch, None), of(self.steps, None)
        gpus, nodes = of(self.gpus, 1), of(self.nodes, 1)
        totals = of(self.batch_total, None)
        labels = {name: sheet.column(name, str) for name in self.labels}
        dated = self.is_log or self.state is not None
        log = moments(sheet, self.submit[1]) if self.is_log else None
        submit_s = log.submit_s if log else of(self.submit, 0.0)
        states = log.states if log else of(self.state, "")
        duration_s, notes = run_times(sheet, log) if log else (dict(enumerate(of(self.duration, None))), ())
        self.judge(sheet)
        rows: list[int] | Mapping[int, float] | None = duration_s if log else None
        if log is None and self.state is not None:
            good = list(sheet.good())
            rows = [row for row in good if states[row].upper() not in NOT_ENDED]
            left = Note(len(good) - len(rows), "job", "not ended when the log was taken, left out")
            notes = (left,) if left.many else ()

        def make(id_: JobId, row: int, submitted_s: float) -> TraceJob:
            told, batch, total = {name: column[row] for name, column in labels.items()}, batches[row], totals[row]
            if total is not None:
                told[BATCH_TOTAL], batch = str(total), max(1, total // gpus[row])
            spec = JobSpec(
                name=ids[row], family=models[row], batch_size=batch, user=users[row], pool=pools[row],
                gpus=gpus[row], cores=cores[row], steps_total=steps[row],
                labels=told | ({"nodes": str(nodes[row])} if nodes[row] > 1 else {}),
            )  # fmt: skip
            return TraceJob(
                id=id_, submit_s=submitted_s, spec=spec, duration_s=duration_s[row], outcome=states[row],
                line=sheet.lines[row],
            )  # fmt: skip

        found = assemble(sheet, self.name, Columns(ids, submit_s, gpus), make, options, dated=dated, rows=rows)
        return replace(found, notes=found.notes + notes, doubts=tuple(self.doubts(sheet)))

    def _column(self, sheet: Sheet, cell: Cell | None, without: object) -> Sequence[Any]:
        if cell is None or (cell[0] in self.absent and cell[0] not in sheet):
            return [without] * len(sheet)
        return sheet.column(*cell)


USER: Final = ("user", cells.word)
GPUS: Final = ("gpu_num", cells.count)
CORES: Final = ("cpu_num", cells.count)
VC: Final = ("vc", cells.word)
NODES: Final = ("node_num", cells.count)

HELIOS: Final = JobList(
    name="helios", user=USER, gpus=GPUS, cores=CORES, pool=VC, nodes=NODES, submit=("submit_time", cells.stamp),
    is_log=True,
    layouts=(
        Header(
            read=(
                "job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state", "submit_time", "start_time",
                "end_time", "duration",
            ),
            unread=("queue",),
        ),
    ),
)  # fmt: skip
"""SenseTime's Helios trace, `cluster_log.csv` of each of its four clusters (Hu et al., SC 2021), CC-BY-4.0, of
github.com/S-Lab-System-Group/HeliosData. Moments are local times without a zone; virtual clusters become pools."""

READ_BY_ACME: Final = (
    "job_id", "user", "node_num", "gpu_num", "cpu_num", "type", "state", "submit_time", "start_time", "end_time",
    "duration",
)  # fmt: skip
ACME: Final = JobList(
    name="acme", user=USER, gpus=GPUS, cores=CORES, nodes=NODES, submit=("submit_time", cells.zoned_stamp),
    labels=("type",), is_log=True,
    layouts=(
        Header(read=READ_BY_ACME, unread=("queue", "gpu_time")),
        Header(
            read=READ_BY_ACME,
            unread=("mem_per_pod_GB", "shared_mem_per_pod", "fail_time", "stop_time", "queue", "gpu_time"),
        ),
    ),
)  # fmt: skip
"""Shanghai AI Laboratory's Acme trace (Hu et al., NSDI 2024), CC-BY-4.0, of github.com/InternLM/AcmeTrace: Seren's log
and Kalos', whose `duration` counts from the submission. Moments have their offset from UTC."""

READ_BY_LUCID: Final = ("job_id", "user", "vc", "gpu_num", "cpu_num", "state", "submit_time", "duration")
OF_HELIOS: Final = ("node_num", "start_time", "end_time", "queue")
LUCID: Final = JobList(
    name="lucid", user=USER, gpus=GPUS, cores=CORES, pool=VC, submit=("submit_time", cells.stamp),
    duration=("duration", cells.seconds),
    state=("state", cells.word), model=("model", cells.otherwise("lucid", cells.word)),
    batch=("batchsize", cells.optional(cells.at_least_one)), absent=frozenset({"model", "batchsize"}),
    layouts=(
        Header(read=READ_BY_LUCID, unread=("jobname",), besides=OF_HELIOS),
        Header(
            read=(*READ_BY_LUCID, "model", "batchsize"),
            unread=("jobname", "dataset", "amp", "speed", "gpu_util", "gmem_util", "gmem"),
            besides=OF_HELIOS,
        ),
    ),
)  # fmt: skip
"""Logs of Lucid's simulator (Hu et al., ASPLOS 2023), of github.com/S-Lab-System-Group/Lucid, made from Helios' and
Philly's: the full log says what each job is taken to train. Durations are as recorded; CPU jobs have no model."""

OTHER_UNIT_MIN: Final = 20
"""A duration so many times the iterations, or less than one part in so many, is in another unit: of Muri's published
lists, all are within 0.18 and 2 times."""


def _judge_units(sheet: Sheet) -> None:
    columns = (
        ("iterations", cells.at_least_one),
        *((name, cells.milliseconds) for name in ("iteration_time", "duration")),
    )
    steps, step_s, duration_s = (sheet.column(name, parse) for name, parse in columns)
    for row in list(sheet.good()):
        made_s = steps[row] * step_s[row]
        if made_s * OTHER_UNIT_MIN < duration_s[row] or duration_s[row] * OTHER_UNIT_MIN < made_s:
            message = f"{duration_s[row]:g} s for iterations of {made_s:g} s in all: is one not in milliseconds?"
            sheet.fail(row, message, "duration")


MURI: Final = JobList(
    name="muri", submit=("submit_time", cells.milliseconds), gpus=("num_gpu", cells.count),
    model=("model_name", cells.word), batch=("batch_size", cells.at_least_one),
    steps=("iterations", cells.at_least_one), duration=("duration", cells.milliseconds), judge=_judge_units,
    layouts=(
        Header(
            read=(
                "job_id", "num_gpu", "submit_time", "iterations", "model_name", "batch_size", "duration",
                "iteration_time",
            ),
            unread=("interval", "resource_time_0", "resource_time_1", "resource_time_2", "priority"),
        ),
    ),
)  # fmt: skip
"""Muri's job lists (Zhao et al., SIGCOMM 2022), `trace*.csv` and `job_type_*.csv` of github.com/Rivendile/Muri. All
times are milliseconds; GPUs are on several machines where one has fewer."""

ROUNDING_S: Final = 1.0  # by so much may a submission and the interval to it differ


def _doubts(sheet: Sheet) -> Iterator[str]:
    """Say so where most submissions do not follow the one before by its interval; lists cut or sorted have some."""
    interval_s = sheet.column_or("interval", cells.optional(cells.number), None)
    submit_s = sheet.column("submit_time", cells.seconds)
    gaps = [
        (after - submit, interval)
        for submit, after, interval in zip(submit_s, submit_s[1:], interval_s, strict=False)
        if interval is not None and submit is not None and after is not None
    ]
    other = sum(abs(gap_s - interval) > ROUNDING_S for gap_s, interval in gaps)
    if 2 * other > len(gaps):
        yield f"{other:,} of {len(gaps):,} intervals are not those to the next submit_time: one may be in another unit"


TIRESIAS: Final = JobList(
    name="tiresias", submit=("submit_time", cells.seconds), gpus=("num_gpu", cells.count),
    model=("model_name", cells.word), steps=("iterations", cells.at_least_one), duration=("duration", cells.seconds),
    doubts=_doubts,
    layouts=(
        Header(
            read=("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration"), optional=("interval",)
        ),
    ),
)  # fmt: skip
"""Job lists of Tiresias' simulator (Gu et al., NSDI 2019), `*_job.csv` of github.com/SymbioticLab/Tiresias. Times are
seconds, `interval` that to the next submission, by which their unit is judged."""

SYNERGY_COLUMNS: Final = {
    "job_id": cells.count, "model_name": cells.name, "arrival_time": cells.seconds, "iterations": cells.at_least_one,
    "gpus": cells.at_least_one,
}  # fmt: skip
SYNERGY: Final = JobList(
    name="synergy", id=("job_id", cells.count), model=("model_name", cells.name),
    submit=("arrival_time", cells.seconds), steps=("iterations", cells.at_least_one), gpus=("gpus", cells.at_least_one),
    layouts=(Bare(shapes=SYNERGY_COLUMNS, read=frozenset(SYNERGY_COLUMNS)),),
)  # fmt: skip
"""Synergy's deploy traces (Mohan et al., OSDI 2022), of github.com/msr-fiddle/synergy. How long an iteration takes
depends on the GPUs, cores and memory a job gets, so it has no duration."""


def split_workload(name: str) -> tuple[str, int | None]:
    """Return model and batch size: `vgg11_25` -> (`vgg11`, 25); `seq2seq_small` has no number and stays whole."""
    model, _, batch = name.rpartition("_")
    return (model, int(batch)) if model and batch.isdecimal() else (name, None)


SALUS: Final = JobList(
    name="salus", submit=("submit_time", cells.seconds), gpus=None,
    model=("model_name", lambda text: split_workload(cells.word(text))[0]),
    batch=("model_name", lambda text: split_workload(text)[1]), steps=("iterations", cells.at_least_one),
    duration=("duration", cells.seconds),
    layouts=(Header(read=("job_id", "model_name", "iterations", "submit_time", "duration")),),
)  # fmt: skip
"""Job lists of Salus's driver (Yu and Chowdhury, MLSys 2020), of github.com/SymbioticLab/Salus. Times are seconds;
every job runs on one GPU."""

POLLUX: Final = JobList(
    name="pollux", id=("name", cells.word), submit=("time", cells.seconds), model=("application", cells.word),
    gpus=("num_replicas", cells.at_least_one), batch_total=("batch_size", cells.at_least_one),
    steps=("steps", cells.optional(cells.at_least_one)), duration=("duration", cells.optional(cells.seconds)),
    absent=frozenset({"steps", "duration"}),
    layouts=(
        Header(read=("name", "time", "application", "num_replicas", "batch_size"), optional=("steps", "duration")),
    ),
)  # fmt: skip
"""Workloads of Pollux's simulator (Qiao et al., OSDI 2021), of github.com/petuum/adaptdl (branch osdi21-artifact), and
of Sia's (Jayaram Subramanya et al., SOSP 2023), of github.com/siasosp23/artifacts. A job's length follows from its
application's validation curves, which `traces.tables.pollux` reads, unless columns of these names declare it."""
