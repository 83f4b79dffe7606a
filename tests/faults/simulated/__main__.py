"""Many seeds of faults, over every policy: what went wrong, and how to see it again."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from colane.cli import output
from tests.faults.simulated.cluster import TRIED, survive
from tests.faults.simulated.paired import survive_paired

TOLD_EVERY_S = 10.0
UNORDERED = 64
"""Worlds are told of as they end, so fewer than this many before the last may be under way."""
FAULT = re.compile(r" *[\d.]+ ([\w ]+) \(n\d, [\d.]+ s\)$")
"""A fault in the story of a world: what happened, where, for how long."""
Outcome = tuple[str, int, list[str], list[str]]


def main() -> int:
    """Return 1 when a law was broken."""
    parser = argparse.ArgumentParser(prog="scripts/faults", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="worlds in all, spread over the policies (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first ones (%(default)s)")
    parser.add_argument(
        "--from", type=int, default=0, dest="begin", help="worlds to leave out: to go on where one ended"
    )
    parser.add_argument("--policy", choices=TRIED, help="this one only")
    parser.add_argument("--paired", action="store_true", help="worlds of a scheduler and its standby")
    parser.add_argument("--processes", type=int, help="worlds at once (as many as there are cores)")
    asked = parser.parse_args()
    if not 0 <= asked.begin < asked.seeds:
        parser.error("--seeds must be at least 1, and --from less than it")
    policies = [asked.policy] if asked.policy else list(TRIED)
    worlds = [
        (policies[number % len(policies)], asked.first + number // len(policies))
        for number in range(asked.begin, asked.seeds)
    ]
    broken, faults = 0, Counter[str]()
    one = _one_paired if asked.paired else _one
    with multiprocessing.Pool(asked.processes) as pool:
        for policy, seed, problems, story in _told(pool.imap_unordered(one, worlds), asked, faults):
            broken += 1
            output.say("\n".join([f"\n{policy} seed {seed}:", *problems, *story]))
            paired = "--paired " if asked.paired else ""
            output.say(f"again: scripts/faults {paired}--policy {policy} --first {seed} --seeds 1")
            sys.stdout.flush()
    output.say("\n".join(f"{times:7} {fault}" for fault, times in faults.most_common()))
    output.say(f"{len(worlds)} worlds of {len(policies)} policies: {broken} broke a law")
    return 1 if broken else 0


def _told(outcomes: Iterator[Outcome], asked: argparse.Namespace, faults: Counter[str]) -> Iterator[Outcome]:
    """Those that broke a law; the faults of all are counted, and how far it is, is said now and then."""
    told_s = time.monotonic()
    for number, outcome in enumerate(outcomes, start=asked.begin + 1):
        faults.update(found[1] for line in outcome[3] if (found := FAULT.match(line)))
        if outcome[2]:
            yield outcome
        if time.monotonic() - told_s > TOLD_EVERY_S:
            told_s = time.monotonic()
            later = max(asked.begin, number - UNORDERED)
            output.note(f"{number} of {asked.seeds} worlds (a later run goes on with --from {later})")


def _one(world: tuple[str, int]) -> Outcome:
    return _survived(partial(survive, has_faults_of_all=True), world)


def _one_paired(world: tuple[str, int]) -> Outcome:
    return _survived(survive_paired, world)


def _survived(run: Callable[[str, int, Path], tuple[list[str], list[str]]], world: tuple[str, int]) -> Outcome:
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as root:
        problems, story = run(*world, Path(root))
    return *world, problems, story


if __name__ == "__main__":
    sys.exit(main())
