"""The gate of this node's lanes: it owns each lane's turn, wakes the next job, and notices processes that die.

Jobs that share a lane are told by a flag in their steps file to ask at their step boundaries; they ask over a SEQPACKET
socket and wait there. A caller is matched to a job by the kernel's word (SO_PEERCRED) and the process tree. The death
of a process is told by its pidfd: its socket may be held open by a child. When this agent is gone the jobs run on
without turns; the next one takes them in again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from colane.adaptor import turns
from colane.agent import processes
from colane.agent.files.jobdir import RANKS_MAX, mark_of
from colane.agent.gate.page import STEPS_MAX, ControlPage
from colane.agent.gate.ranks import Gang, Rank, RankConnection
from colane.agent.gate.rules import NOT_BOUNDED, GateState
from colane.agent.gate.values import GateJob, GateTimeouts, Seen
from colane.agent.launch.launcher import watch
from colane.agent.processes import ProcessId
from colane.model.placement import Turns

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.1  # while jobs share lanes: for ranks that have come, and for those asked in vain
STALLED_S = 0.5  # after so long with some ranks parked and others not, they are let go to a later step
MEETING_S = 10.0  # before their first step ranks wait longer for each other: they may still import what the others have
LINKS_MAX = 512
"""Half of the files that a process may usually open: beyond it the connection goes that has been silent longest."""
BACKLOG = 128


class Place(NamedTuple):
    """Where a job is found."""

    gate_job: GateJob  # what is wanted of it
    steps_path: Path  # its steps file
    supervisor: Callable[[], ProcessId | None]  # gives the process above all of its processes, once it has started
    run: bool = True  # whether it shall run; one that shall end while it is held ends where it waits


class Follow(NamedTuple):
    """What shall run here, how turns are handed out, and what the jobs may use together of each device."""

    places: Sequence[Place]
    turns: Turns
    capacity_bytes: Mapping[int, int] = NOT_BOUNDED


class LaneGate:
    """Runs in one event loop; not thread-safe (`thread` puts it into a thread of its own)."""

    def __init__(
        self,
        path: Path,
        bounds: GateTimeouts | None = None,
        clock: Callable[[], float] = time.monotonic,
        nudge: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin to listen at `path`; `nudge` is called when a job is held.

        Raises OSError: no socket can be made there.
        """
        self.path = path
        self.floor = GateState(bounds=bounds or GateTimeouts())
        self._clock = clock
        self._nudge = nudge
        self._gangs: dict[int, Gang] = {}
        self._places: dict[int, Place] = {}
        self._links: dict[RankConnection, None] = {}
        self._refused: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._listener = _listen(path)
        self._loop.add_reader(self._listener, self._on_connection)

    def follow(self, follow: Follow) -> None:
        """Take what shall run here; a job that has been started anew is another one."""
        self._places = {place.gate_job.job: place for place in follow.places}
        known = {place.gate_job.job: place.steps_path for place in follow.places}
        for job in [job for job, gang in self._gangs.items() if gang.steps_path != known.get(job)]:
            self.floor.drop(job, self._clock())
            self._drop_gang(job)
        for job, place in self._places.items():
            gang = self._gangs.setdefault(job, Gang(job, place.steps_path))
            gang.flush = place.gate_job.flush
            gang.open_pages()
        gate_jobs = [self._gate_job(place) for place in follow.places]
        self.floor.follow(gate_jobs, follow.turns, self._clock(), follow.capacity_bytes)
        self._look()

    def seen(self) -> dict[int, Seen]:
        """Say how the jobs fare that share lanes; one that shall be held is parked only when it is."""
        return {job: self._see(job, seen) for job, seen in self.floor.seen(self._clock()).items()}

    def messages(self) -> list[str]:
        """Say which jobs are left out of the turns."""
        return self.floor.messages()

    def close(self) -> None:
        """Let all jobs run freely and listen no more."""
        for timer in (self._timer, self._looking):
            if timer is not None:
                timer.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for job in list(self._gangs):
            self._drop_gang(job)
        for link in list(self._links):
            self._drop_link(link)
        self.path.unlink(missing_ok=True)

    def _gate_job(self, place: Place) -> GateJob:
        """One that shall end while it is held does not go on for that: its devices may be another job's."""
        ends_held = not place.run and self._gangs[place.gate_job.job].held
        return replace(place.gate_job, paused=True, hold=True) if ends_held else place.gate_job

    def _see(self, job: int, seen: Seen) -> Seen:
        gate_job, gang = self._places[job].gate_job if job in self._places else None, self._gangs[job]
        must_be_held = gate_job is not None and gate_job.hold
        asks = gate_job is not None and gate_job.at_rest and gang.held and gang.asks()
        return seen._replace(is_parked=seen.is_parked and (gang.held or not must_be_held), asks=asks)

    def _hold_parked(self) -> None:
        for job, place in self._places.items():
            gang = self._gangs[job]
            gate_job = place.gate_job
            if not gate_job.at_rest:
                gang.watch(watch=False)
            if gate_job.hold and not gang.held and self.floor.is_parked(job):
                gang.hold()
                self._nudge()
            elif gate_job.at_rest and not gang.held:
                gang.watch(watch=gate_job.must_rest)
                if gang.hold_at_rest(must_rest=gate_job.must_rest):
                    self._scan(gang)
                    self._nudge()
            elif gang.held and place.run and not gate_job.hold and self.floor.is_parked(job):
                gang.unhold()

    # -- jobs that ask -----------------------------------------------------------------------------------------------

    def _on_connection(self) -> None:
        with suppress(OSError):
            connection, _ = self._listener.accept()
            if len(self._links) >= LINKS_MAX:
                self._make_room()
            connection.setblocking(False)
            credentials = struct.Struct("3i")
            data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
            link = RankConnection(connection, int(credentials.unpack(data)[0]))
            self._links[link] = None
            self._loop.add_reader(connection, self._on_packet, link)

    def _make_room(self) -> None:
        """Drop the oldest connection that is no rank of a job: a job that holds connections keeps no newcomer out."""
        idle = next((link for link in self._links if link.rank is None), None)
        if idle is not None:
            self._drop_link(idle)

    def _on_packet(self, link: RankConnection) -> None:
        try:
            data = link.connection.recv(turns.REQUEST.size + 1)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._on_hangup(link)
            return
        try:
            self._on_request(link, *turns.read_request(data))
        except ValueError as error:
            if link.pid not in self._refused and len(self._refused) < LINKS_MAX:
                self._refused.add(link.pid)
                log.warning("process %d is refused at the gate: %s", link.pid, error)
            self._drop_link(link)

    def _on_request(self, link: RankConnection, kind: int, claimed: int, ranks: int, step: int, serial: int) -> None:
        link.serial = serial
        if kind == turns.PING:
            link.answer(turns.WAIT)
            return
        if step > STEPS_MAX:
            raise ValueError(f"{step} steps are more than any job does")
        rank = link.rank or self._admit(link, claimed)
        rank.gang.expected = max(1, min(ranks, RANKS_MAX))
        self._hear(rank.gang, rank.page)
        if kind == turns.LEAVE:
            if not rank.gang.is_gang():
                self.floor.idle(rank.gang.job, step, self._clock(), rank.page.times())
                self._settle()
            return
        rank.waiting = step
        self._gather(rank.gang)
        if rank.gang.held:
            self._nudge()  # one that was held as it stood would go on

    def _gather(self, gang: Gang) -> None:
        step = gang.gather()
        if step is not None:
            self._on_parked(gang, step)
        elif gang.stalled_s is None:
            gang.stalled_s = self._clock()

    def _on_parked(self, gang: Gang, step: int) -> None:
        """Let its successor go before anything is counted: meanwhile the device idles."""
        now_s = self._clock()
        successor = self.floor.successor(gang.job, step, now_s)
        if successor is not None:
            self._gangs[successor.job].go(flag=successor.flag)
        self.floor.parked(gang.job, step, now_s, gang.times())
        if successor is not None:
            self.floor.passed_on(successor.job, now_s)
        self._settle()

    def _on_hangup(self, link: RankConnection) -> None:
        """A job that closes while it waits goes on without us, unless it is dead; that its pidfd tells."""
        rank = link.rank
        self._drop_link(link)
        if rank is not None and rank.waiting is not None:
            rank.waiting = None
            if processes.identify(rank.pid) is not None:
                self.floor.stepping(rank.gang.job, rank.steps, self._clock())

    def _admit(self, link: RankConnection, claimed: int) -> Rank:
        """Find the job whose process asks. Raises ValueError: it belongs to no job, or reports no steps."""
        for gang in self._gangs.values():
            if self._belongs(link.pid, gang.job):
                for index, page in gang.open_pages():
                    if page.counters()[0] == claimed:
                        return self._seat(link, gang, index, page)
                raise ValueError(f"it belongs to job {gang.job} and does not report its steps")
        raise ValueError("it belongs to no job that runs here")

    def _seat(self, link: RankConnection, gang: Gang, index: int, page: ControlPage) -> Rank:
        rank = gang.ranks.get(index)
        if rank is None or rank.pid != link.pid:
            rank = self._enlist(gang, index, page, link.pid)
        if rank is None:
            raise ValueError("it has ended")
        if rank.link is not None:
            self._drop_link(rank.link)
        rank.link, link.rank = link, rank
        return rank

    def _belongs(self, pid: int, job: int) -> bool:
        """Whether a process is one of a job's: below its supervisor, or with its mark where a container runs it."""
        place = self._places[job]
        supervisor = place.supervisor()
        if supervisor is None:
            return False
        return processes.is_below(pid, supervisor) or processes.is_marked(pid, mark_of(place.steps_path), supervisor)

    def _drop_link(self, link: RankConnection) -> None:
        if link in self._links:
            del self._links[link]
            self._loop.remove_reader(link.connection)
            link.connection.close()
        if link.rank is not None and link.rank.link is link:
            link.rank.link = None

    # -- processes that come and go ----------------------------------------------------------------------------------

    def _enlist(self, gang: Gang, index: int, page: ControlPage, pid: int) -> Rank | None:
        """Watch a process that reports steps."""
        self._dismiss(gang, index)
        process = processes.identify(pid)
        pidfd = None if process is None else processes.open_pidfd(process)
        if pidfd is None or not self._belongs(pid, gang.job):
            if pidfd is not None:
                os.close(pidfd)
            return None
        rank = Rank(gang, page, pid, page.counters()[0], lambda: None)
        rank.unwatch = watch(pidfd, lambda: self._on_death(index, rank))
        gang.ranks[index] = rank
        return rank

    def _dismiss(self, gang: Gang, index: int) -> None:
        rank = gang.ranks.pop(index, None)
        if rank is not None:
            rank.unwatch()
            if rank.link is not None:
                self._drop_link(rank.link)

    def _on_death(self, index: int, rank: Rank) -> None:
        gang = rank.gang
        if gang.ranks.get(index) is rank:
            del gang.ranks[index]
        if rank.link is not None:
            self._drop_link(rank.link)
        if not gang.ranks:
            gang.expected = 1
            self.floor.away(gang.job, self._clock())
            self._settle()
        else:
            self._gather(gang)

    def _drop_gang(self, job: int) -> None:
        gang = self._gangs.pop(job)
        links = [rank.link for rank in gang.ranks.values() if rank.link is not None]
        gang.close()
        for link in links:
            self._drop_link(link)

    # -- looking -----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """See which processes came, which stalled, which turns are over; again soon, as long as lanes are shared."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        for gang in self._gangs.values():
            if self.floor.is_asked(gang.job):
                self._scan(gang)
        self._settle()
        if self.floor.is_busy():
            self._looking = self._loop.call_later(LOOK_EVERY_S, self._look)

    def _scan(self, gang: Gang) -> None:
        for index, page in gang.open_pages():
            claimed, steps, is_computing = page.counters()
            rank = gang.ranks.get(index)
            if claimed and (rank is None or rank.claimed != claimed):
                rank = self._enlist(gang, index, page, claimed)
            self._hear(gang, page)
            if rank is not None and gang.held:
                self.floor.parked(gang.job, steps, self._clock())
            elif rank is not None and rank.waiting is None and self._needs_no_turn(gang, page):
                self.floor.rests(gang.job, steps, self._clock())
            elif rank is not None and (steps or is_computing) and rank.link is None:
                self.floor.stepping(gang.job, steps, self._clock())
        now_s = self._clock()
        if gang.stalled_s is not None and now_s > gang.stalled_s + (STALLED_S if gang.has_stepped() else MEETING_S):
            gang.stalled_s = now_s if any(rank.waiting is not None for rank in gang.ranks.values()) else None
            gang.retry()

    def _hear(self, gang: Gang, page: ControlPage) -> None:
        """Hear whether a server says when a request comes."""
        if self.floor.is_silent(gang.job) and page.has_answered():
            self.floor.has_answered(gang.job)

    def _needs_no_turn(self, gang: Gang, page: ControlPage) -> bool:
        """Whether a process that was not asked yet, or answered nothing since, has nothing to compute.

        It takes that back before it reads the flag, and the flag was up before this is read: what it begins from now
        on, it asks for. The ranks of a gang stop at one step, or not at all.
        """
        return gang.flag and not gang.is_gang() and page.asks_first()

    def _settle(self) -> None:
        """Do what the rules say."""
        orders = self.floor.settle(self._clock())
        for job in orders.go:
            self._gangs[job].go(flag=orders.flags[job])
        for job, flag in orders.flags.items():
            gang = self._gangs[job]
            gang.tell(shares=self.floor.sharing(job))
            if flag != gang.flag:
                (gang.raise_flag if flag else gang.lower_flag)()
        self._hold_parked()
        self._announce()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if orders.next_s is not None:
            self._timer = self._loop.call_later(max(0.0, orders.next_s - self._clock()), self._settle)

    def _announce(self) -> None:
        """Tell the next job when the one before it is expected at its boundary, so that it is awake by then."""
        for job, follower, since_s, step_s in self.floor.expected():
            gang = self._gangs[follower]
            if not gang.is_told:
                gang.expect(max(since_s, self._gangs[job].last_step_s()) + step_s)


def _listen(path: Path) -> socket.socket:
    """Listen at a path, whatever an earlier agent left there."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        listener.setblocking(False)
        turns.at_address(os.fspath(path), listener.bind)
        path.chmod(0o666 if os.geteuid() == 0 else 0o600)  # the kernel names the caller
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
