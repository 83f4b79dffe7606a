"""Where the time of a handoff goes, part by part, beside a bare relay of three processes that do nothing else.

    python benchmarks/handoff_parts.py [--seconds 5] [--quantum-s 0.05] [--rounds 3]

Two jobs with steps of 2 ms share a lane under a real agent, all three of which note when they send and hear. The bare
relay is three Python processes on sockets of the same kind: two compute in turns for as long as a turn lasts and wait
in `poll` otherwise, the third receives what one sends and sends it on to the other. Relay and lane run in turns.
"""

from __future__ import annotations

import argparse
import os
import select
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.handoff import AGENT, JOB, STEP_S, Lane, Step, at, lane_of, microseconds  # noqa: E402

TRACED_AGENT = (
    """
import atexit, os, sys, time
from colane.agent.gate import gate, ranks as gate_ranks
times = []
def note(owner, name, sign):
    inner = getattr(owner, name)
    def traced(self, *args):
        times.append("%s %.7f" % (sign, time.monotonic()))
        return inner(self, *args)
    setattr(owner, name, traced)
note(gate.LaneGate, "_on_packet", "heard")
note(gate_ranks.RankConnection, "answer", "answers")
atexit.register(lambda: open(os.environ["TRACE"], "w").write("\\n".join(times)))
"""
    + AGENT
)
TRACED_JOB = """
import runpy, sys, time
from _colane_adaptor.turns import TurnTaker
times = open(sys.argv[2] + ".trace", "w")
def note(name, sign, before):
    inner = getattr(TurnTaker, name)
    def traced(self, *args):
        began_s = time.monotonic()
        found = inner(self, *args)
        times.write("%s %.7f\\n" % (sign, began_s if before else time.monotonic()))
        times.flush()
        return found
    setattr(TurnTaker, name, traced)
note("_send", "sends", True)
note("_await_go", "goes", False)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class HandoffParts(NamedTuple):
    """Parts of one handoff, in the order of time (s)."""

    asks: float
    agent_wakes: float
    agent_decides: float
    job_wakes: float
    goes_on: float


def traced(notes: Path) -> Sequence[str]:
    """A job that keeps a core busy and notes when it asks and when it is let go."""
    return sys.executable, "-c", TRACED_JOB, JOB, str(notes), str(STEP_S), "0", "spin"


def marks(path: Path, sign: str) -> list[float]:
    """Times of one kind that were noted."""
    lines = (line.split() for line in path.read_text().splitlines())
    return [float(words[1]) for words in lines if len(words) == 2 and words[0] == sign]


def within(times: Sequence[float], from_s: float, to_s: float) -> list[float]:
    """Those between."""
    return [time_s for time_s in times if from_s <= time_s <= to_s]


def parts_of(steps: Sequence[Step], trace: Path, lane: Lane) -> list[HandoffParts]:
    """Take every handoff apart in which each part was seen once."""
    heard, answers = marks(trace, "heard"), marks(trace, "answers")
    sends = {job: marks(Path(f"{lane.folder / str(job)}.trace"), "sends") for job in (1, 2)}
    goes = {job: marks(Path(f"{lane.folder / str(job)}.trace"), "goes") for job in (1, 2)}
    found = []
    for before, after in pairwise(steps):
        if before.job != after.job:
            span = before.ended_s, after.began_s
            sent, gone = within(sends[before.job], *span), within(goes[after.job], *span)
            got, told = within(heard, *span), within(answers, *span)
            if min(map(len, (sent, got, told, gone))) == 1 == len(sent):
                times = [before.ended_s, sent[0], got[0], told[0], gone[0], after.began_s]
                found.append(HandoffParts(*(late - early for early, late in pairwise(times))))
    return found


def lane_parts(quantum_s: float, seconds: float) -> list[HandoffParts]:
    """Let two jobs share a lane."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRACE"] = trace = f"{folder}/trace"
        with lane_of("fair", quantum_s, traced, agent=TRACED_AGENT) as lane:
            lane.start(2)
            steps = lane.watch(seconds)
            lane.end()
            jobs = Path(lane.folder)
            kept = Lane(lane.fake, Path(folder), traced)
            for path in jobs.glob("*.trace"):
                (kept.folder / path.name).write_text(path.read_text())
        return parts_of(steps, Path(trace), kept)


def relay_s(turn_s: float, seconds: float) -> list[float]:
    """Handoffs of the bare relay."""
    ends = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    results, child_results = os.pipe()
    until_s = time.monotonic() + seconds
    children = [_fork(_compute, ends[which][0], turn_s, until_s, which == 0, child_results) for which in range(2)]
    children.append(_fork(_pass_on, ends[0][1], ends[1][1], until_s))
    os.close(child_results)
    for child in children:
        os.waitpid(child, 0)
    with os.fdopen(results, "rb") as told:
        data = told.read()
    return sorted(value for (value,) in struct.iter_unpack("d", data))


def _fork(run, *args: object) -> int:  # type: ignore[no-untyped-def] # noqa: ANN001
    child = os.fork()
    if child == 0:
        try:
            run(*args)
        finally:
            os._exit(0)
    return child


def _compute(end: socket.socket, turn_s: float, until_s: float, has_turn: bool, results: int) -> None:
    waiter = select.poll()
    waiter.register(end, select.POLLIN)
    while time.monotonic() < until_s:
        if not has_turn:
            if not waiter.poll(1000):
                return
            (sent_s,) = struct.unpack("d", end.recv(64))
            os.write(results, struct.pack("d", time.monotonic() - sent_s))
        has_turn, ends_s = False, time.monotonic() + turn_s
        while time.monotonic() < ends_s:
            pass
        end.send(struct.pack("d", time.monotonic()))


def _pass_on(one: socket.socket, other: socket.socket, until_s: float) -> None:
    waiter, others = select.epoll(), {one.fileno(): (one, other), other.fileno(): (other, one)}
    for fd in others:
        waiter.register(fd, select.EPOLLIN)
    while time.monotonic() < until_s:
        for fd, _ in waiter.poll(1.0):
            source, target = others[fd]
            target.send(source.recv(64))


def main() -> None:
    """Measure in turns, print medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each measurement takes")
    parser.add_argument("--quantum-s", type=float, default=0.05)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    parts: list[HandoffParts] = []
    relay: list[float] = []
    print(f"load before: {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores")
    for _ in range(options.rounds):
        parts += lane_parts(options.quantum_s, options.seconds)
        relay += relay_s(max(STEP_S, options.quantum_s), options.seconds)
    relay.sort()
    print(f"{len(parts)} handoffs, p10 and p50; load after {os.getloadavg()[0]:.1f}")
    rows = {name: sorted(getattr(one, name) for one in parts) for name in HandoffParts._fields}
    rows |= {"in all": sorted(sum(one) for one in parts), "bare relay": relay}
    for name, values in rows.items():
        print(f"  {name.replace('_', ' '):<16}{microseconds(at(values, 0.1)):>10}{microseconds(at(values, 0.5)):>10}")


if __name__ == "__main__":
    main()
