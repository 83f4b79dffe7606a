"""Several runs of one request: policies in order, seeds in parallel processes, stopped in good order by Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from shutil import copyfileobj
from types import FrameType

from colane.core import Core
from colane.lab.simulate.driver import Driver
from colane.lab.simulate.request import Loaded, Request, inputs, load
from colane.lab.simulate.run import Run, simulate
from colane.lab.simulate.watcher import Watcher
from colane.lab.simulate.watchers import DecisionLog
from colane.policyfiles.load import create

Watch = Callable[[str, Core, Loaded], Iterable[Watcher]]
"""Makes the observers of a run, given the policy's name, the core and what was loaded."""


@dataclass(frozen=True, slots=True)
class SeededRun:
    """A run and the seed it had."""

    seed: int
    run: Run


class Interrupts:
    """Ctrl-C stops the running driver; what it has done is kept, and nothing further is begun."""

    def __init__(self) -> None:
        self.came = False
        self.driver: Driver | None = None

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """Handle the signal; the second one ends the process as usual."""
        if self.came:
            raise KeyboardInterrupt
        self.stop()

    def stop(self) -> None:
        """Stop what runs, and begin nothing further."""
        self.came = True
        if self.driver is not None:
            self.driver.stop()

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Handle SIGINT in this context, where signals can be handled at all."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def run_policies(
    request: Request,
    policies: Sequence[str],
    seed: int,
    *,
    watch: Watch = lambda _policy, _core, _loaded: (),
    on_ready: Callable[[Driver, str], None] = lambda _driver, _policy: None,
) -> tuple[Loaded, list[SeededRun]]:
    """Run policies one after another on one workload.

    Policies are registered names, or FILE.py:NAME. `on_ready` is handed each driver before it runs, to show progress.
    Raises ValueError: something named is not there or not right.
    """
    names_of(policies)
    loaded = load(request, seed)
    interrupts, runs = Interrupts(), []

    def ready(driver: Driver, policy: str) -> None:
        interrupts.driver = driver
        on_ready(driver, policy)

    with interrupts.caught():
        for policy in policies:
            if interrupts.came:
                break
            runs.append(SeededRun(seed, _run(request, loaded, policy, seed, watch, ready)))
    return loaded, runs


def names_of(policies: Sequence[str]) -> dict[str, str]:
    """What is asked for, by the name that reports use.

    Raises ValueError: one cannot be run, or reports could not tell two apart.
    """
    named: dict[str, str] = {}
    for text in policies:
        name = create(text).name
        if name in named:
            raise ValueError(f"policy: {named[name]} and {text} are both named {name!r}; name one of them otherwise")
        named[name] = text
    return named


def run_seeds(
    request: Request,
    policies: Sequence[str],
    seeds: Sequence[int],
    *,
    on_done: Callable[[int, int], None] = lambda _done, _total: None,
    executor: Executor | None = None,
    decisions: Path | None = None,
) -> list[SeededRun]:
    """Run every policy with every seed, in as many processes as there are cores, or elsewhere.

    `on_done` is told how many runs are done, of how many. An executor is shut down at the end. Every decision is
    written beside the file that is named, see `decisions_of`. Raises ValueError: something named is not there or not
    right. Raises OSError: decisions cannot be written.
    """
    names_of(policies)
    interrupts, tasks = Interrupts(), [(policy, seed) for seed in seeds for policy in policies]
    workers = min(len(tasks), os.cpu_count() or 1)
    with interrupts.caught(), executor or ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        futures = {}
        for policy, seed in tasks:
            if decisions is None:
                future = pool.submit(run_one, request, policy, seed)
            else:
                future = pool.submit(_run_logged, request, policy, seed, _part(decisions, policies.index(policy), seed))
            futures[future] = policy, seed
        _await(futures, interrupts, on_done)
        done = {task: future.result() for future, task in futures.items() if future.done() and not future.cancelled()}
    if decisions is not None:
        for seed in seeds:
            _join(decisions_of(decisions, seed), [_part(decisions, place, seed) for place in range(len(policies))])
    order = [(policy, seed) for policy in policies for seed in seeds]
    return [SeededRun(seed, done[policy, seed]) for policy, seed in order if (policy, seed) in done]


def decisions_of(path: Path, seed: int) -> Path:
    """Where the decisions of one of several seeds are written: `all.jsonl` becomes `all-seed-0.jsonl`."""
    return path.with_name(f"{path.stem}-seed-{seed}{path.suffix}")


def _part(path: Path, policy: int, seed: int) -> Path:
    """Where those of one policy are while it runs."""
    return path.with_name(f"{decisions_of(path, seed).name}.{policy}.part")


def _join(path: Path, parts: Sequence[Path]) -> None:
    """Put them together in the order of policies; those of runs that never began are not there."""
    with path.open("wb") as whole:
        for part in parts:
            if part.exists():
                with part.open("rb") as one:
                    copyfileobj(one, whole)
                part.unlink()


def _run_logged(request: Request, policy: str, seed: int, path: Path) -> Run:
    """One run, with its decisions written to a file."""
    with path.open("w", encoding="utf-8") as file:
        return run_one(request, policy, seed, watch=lambda name, core, _: (DecisionLog(file, name, core),))


def comparable(runs: Sequence[SeededRun], policies: Sequence[str]) -> list[SeededRun]:
    """Runs of the seeds that every policy finished, where there is one such seed; else all that there are."""
    finished = [one for one in runs if not one.run.ledger.interrupted]
    whole = [seed for seed in {one.seed for one in runs} if sum(one.seed == seed for one in finished) == len(policies)]
    return [one for one in finished if one.seed in whole] if whole else list(runs)


def run_one(
    request: Request,
    policy: str,
    seed: int,
    interrupts: Interrupts | None = None,
    *,
    keeps_stays: bool = False,
    watch: Watch = lambda _policy, _core, _loaded: (),
) -> Run:
    """One run in a process of its own, or in that of the interrupts that are given.

    All times on GPUs are kept where that is asked for, not only as many as can be drawn.
    """
    interrupts = interrupts or Interrupts()
    with interrupts.caught():
        loaded = loaded_once(request, seed)

        def ready(driver: Driver, _policy: str) -> None:
            interrupts.driver = driver
            if keeps_stays:
                driver.ledger.stays_max = sys.maxsize
            if interrupts.came:
                driver.stop()

        return _run(request, loaded, policy, seed, watch, ready)


loaded_once = lru_cache(maxsize=1)(load)  # policies that run one after another in one process have one workload


def _run(
    request: Request, loaded: Loaded, policy: str, seed: int, watch: Watch, on_ready: Callable[[Driver, str], None]
) -> Run:
    return simulate(
        inputs(request, loaded, policy, seed),
        watchers=lambda core: watch(policy, core, loaded),
        on_ready=lambda driver: on_ready(driver, policy),
    )


def _await(
    futures: dict[Future[Run], tuple[str, int]], interrupts: Interrupts, on_done: Callable[[int, int], None]
) -> None:
    """Wait for all; after Ctrl-C, which the workers got too, only for those that had begun."""
    left = set(futures)
    while left:
        done, left = wait(left, timeout=0.5, return_when=FIRST_COMPLETED)
        for future in done:
            if not future.cancelled():
                future.result()
        if interrupts.came:
            left -= {future for future in left if future.cancel()}
        on_done(len(futures) - len(left), len(futures))
