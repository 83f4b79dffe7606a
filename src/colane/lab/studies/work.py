"""Runs what is missing of a study, each simulation in a process, and keeps each as soon as it has ended."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from gzip import GzipFile
from io import TextIOWrapper
from multiprocessing import get_context, parent_process
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from colane.lab.simulate.driver import StandstillError
from colane.lab.simulate.request import Request
from colane.lab.simulate.run import Run
from colane.lab.simulate.study import Interrupts, Watch, loaded_once, run_one
from colane.lab.simulate.watchers import DecisionLog
from colane.lab.studies.cells import decisions_of, result_of, whole, write_cell
from colane.lab.studies.file import CellKey, Extra, StudyPlan
from colane.lab.studies.reported import simulated_run
from colane.lab.traces.workload import collector_held
from colane.policyfiles.guard import PolicyFaultError

LOOK_S: Final = 0.5  # how often an interruption is looked for while simulations run


@dataclass(frozen=True, slots=True, kw_only=True)
class CellTask:
    """One simulation. Every value is plain, so that it can be sent to another process."""

    key: CellKey
    policy: str
    request: Request
    inputs: Mapping[str, Any]
    folder: Path
    keeps_decisions: bool


class CellEnd(NamedTuple):
    """A simulation that has ended: how long it took, or what went wrong; neither where it was interrupted."""

    key: CellKey
    wall_s: float | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """What came of the missing simulations."""

    problems: tuple[str, ...]  # what went wrong, one line each
    was_interrupted: bool  # whether Ctrl-C ended it before all had run


def tasks_of(
    plan: StudyPlan, keys: Sequence[CellKey], inputs: Mapping[CellKey, Mapping[str, Any]], out: Path
) -> list[CellTask]:
    """What is to be done for these simulations."""
    return [
        CellTask(
            key=key,
            policy=plan.policies[key.policy],
            request=plan.request_of(key.load),
            inputs=inputs[key],
            folder=out,
            keeps_decisions=Extra.DECISIONS in plan.extras,
        )
        for key in keys
    ]


def work(
    tasks: Sequence[CellTask],
    processes: int,
    on_end: Callable[[CellEnd], None] = lambda _: None,
    executor: Executor | None = None,
) -> Worked:
    """Run simulations, as many at a time as there are processes; with one, in this process.

    Ctrl-C stops those that run, which keep nothing, and no other begins. `on_end` is told of each as soon as it has
    ended. An executor runs as many as fit there, and is shut down at the end.
    """
    interrupts, problems = Interrupts(), list[str]()
    with interrupts.caught():
        if executor is not None:
            ends = _elsewhere(tasks, executor, interrupts)
        elif processes == 1:
            ends = _alone(tasks, interrupts)
        else:
            ends = _in_pool(tasks, min(processes, len(tasks)), interrupts)
        for end in ends:
            if end.problem:
                problems.append(f"{end.key}: {end.problem}")
            on_end(end)
    return Worked(problems=tuple(problems), was_interrupted=interrupts.came)


def make_cell(task: CellTask, interrupts: Interrupts | None = None) -> CellEnd:
    """Run one simulation and keep it, unless it is interrupted."""
    try:
        with collector_held(), _decisions(task) as watch:
            run = _run_whole(task, interrupts, watch)
        loaded = loaded_once(task.request, task.key.seed)
        reported = simulated_run(run, task.key.seed, loaded)
        write_cell(task.folder, result_of(task.key, task.inputs, reported, loaded.workload))
    except _CutShortError:
        return CellEnd(task.key)
    except OSError as error:
        return CellEnd(task.key, problem=f"cannot be kept: {error.strerror}")
    except (ValueError, PolicyFaultError, StandstillError) as error:
        return CellEnd(task.key, problem=str(error))
    return CellEnd(task.key, run.wall_s)


class _CutShortError(Exception):
    """So that nothing is kept."""


def _run_whole(task: CellTask, interrupts: Interrupts | None, watch: Watch) -> Run:
    run = run_one(task.request, task.policy, task.key.seed, interrupts, keeps_stays=True, watch=watch)
    if run.ledger.interrupted:
        raise _CutShortError
    return run


@contextmanager
def _decisions(task: CellTask) -> Iterator[Watch]:
    """Write every decision, where the study asks for it; the file is whole before that of the simulation is there."""
    path = decisions_of(task.folder, task.key)
    if not task.keeps_decisions:
        path.unlink(missing_ok=True)  # of other inputs
        yield lambda _policy, _core, _loaded: ()
        return
    with (
        whole(path) as draft,
        draft.open("wb") as raw,
        GzipFile("", "wb", 6, raw, mtime=0) as packed,
        TextIOWrapper(packed, encoding="utf-8") as text,
    ):
        yield lambda policy, core, _loaded: (DecisionLog(text, policy, core),)


def _alone(tasks: Sequence[CellTask], interrupts: Interrupts) -> Iterator[CellEnd]:
    loaded_once.cache_clear()  # files may have changed since this process read them
    for task in tasks:
        if interrupts.came:
            return
        yield make_cell(task, interrupts)


def _in_pool(tasks: Sequence[CellTask], workers: int, interrupts: Interrupts) -> Iterator[CellEnd]:
    """No more are handed over than run, so that none begins after an interruption."""
    left, running = deque(tasks), dict[Future[CellEnd], CellTask]()
    context = get_context("spawn")
    stop = context.Event()
    with ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(stop.wait,)) as pool:
        while running or (left and not interrupts.came):
            while left and len(running) < workers and not interrupts.came:
                task = left.popleft()
                with _interrupts_held():
                    running[pool.submit(_make_here, task)] = task
            if interrupts.came:
                stop.set()  # Ctrl-C in a terminal reaches all processes, a signal to one only that
            done, _ = wait(running, timeout=LOOK_S, return_when=FIRST_COMPLETED)
            for future in done:
                task = running.pop(future)
                try:
                    yield future.result()
                except BrokenProcessPool:
                    yield CellEnd(task.key, problem="its process was killed; with fewer --processes it has more memory")
                    left.clear()


def _elsewhere(tasks: Sequence[CellTask], executor: Executor, interrupts: Interrupts) -> Iterator[CellEnd]:
    """What they keep comes back with their answers and is kept here; those that run at an interruption are left."""
    with executor:
        running = {executor.submit(_make_away, task): task for task in tasks}
        while running and not interrupts.came:
            done, _ = wait(running, timeout=LOOK_S, return_when=FIRST_COMPLETED)
            for future in done:
                yield _kept_here(running.pop(future), future)
        for future in running:
            future.cancel()


def _make_away(task: CellTask) -> tuple[CellEnd, dict[str, bytes]]:
    """Run one simulation where the study's directory may not be; return what is to be kept there."""
    with TemporaryDirectory(prefix="colane-study-") as folder:
        end = make_cell(replace(task, folder=Path(folder)))
        files = (path for path in Path(folder).rglob("*") if path.is_file())
        return end, {str(path.relative_to(folder)): path.read_bytes() for path in files}


def _kept_here(task: CellTask, future: Future[tuple[CellEnd, dict[str, bytes]]]) -> CellEnd:
    lost = future.exception()
    if lost is not None:
        return CellEnd(task.key, problem=f"was lost elsewhere: {next(iter(str(lost).splitlines()), repr(lost))}")
    end, files = future.result()
    try:
        if not task.keeps_decisions:
            decisions_of(task.folder, task.key).unlink(missing_ok=True)  # of other inputs
        for name in sorted(files):  # decisions before the simulation they are of
            with whole(task.folder / name) as draft:
                draft.write_bytes(files[name])
    except OSError as error:
        return CellEnd(task.key, problem=f"cannot be kept: {error.strerror}")
    return end


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """A process that is started meanwhile does not die of Ctrl-C before it can take it; ours comes after."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_HERE: Final = Interrupts()  # of a process that was started to simulate


def _make_here(task: CellTask) -> CellEnd:
    return CellEnd(task.key) if _HERE.came else make_cell(task, _HERE)


def _begin(stop: Callable[[], object]) -> None:
    """Take Ctrl-C only while simulating, and end with our parent, for whose work we would wait for ever.

    `stop` returns when nothing more is to be simulated.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent.join,), daemon=True).start()
        threading.Thread(target=_stop_after, args=(stop,), daemon=True).start()


def _stop_after(wait_for: Callable[[], object]) -> None:
    wait_for()
    _HERE.stop()


def _end_after(join: Callable[[], None]) -> None:
    join()
    os._exit(1)
