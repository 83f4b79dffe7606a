"""Which job holds which lane of this node: a pure state machine. `gate` tells it what happens and does what it says.

Rules:
    * A job holds its lanes from the moment it is let go, or is seen to run, until it waits at a boundary again.
    * A job that shares no lane is never asked. One that starts, or waits for nothing, holds no other up.
    * A job that is asked and reaches no boundary within the bound is left out of the turns: it runs outside the lane,
      the reason is told, and it is taken in again at its next boundary. Nothing is killed. Meanwhile those for whose
      memory there is no room beside it are kept at their boundaries (`memory`).
    * A job that was seen to compute in the turns of others (`audit`) is left out of them for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from colane.adaptor.writer import BESIDE_SERVER
from colane.agent.gate.handoff import Handoffs, Successor, choose, comes_before
from colane.agent.gate.member import GateMember, is_probed, note, remaining_s, state, tenant, times
from colane.agent.gate.memory import kept_back
from colane.agent.gate.values import GateJob, GatePhase, GateTimeouts, Lane, Orders, Seen, TurnTimes
from colane.lanes.turns import SHARED, Contender, LaneRequest, TurnClock, grant, quantum_s, yields_to
from colane.model.placement import Turns

STEP_AGE = 0.7  # weight of what was known of a job's step time when the next turn is measured

BOUND_STEPS = 5.0  # a job is given up on no sooner than after so many of its steps


NO_BOUNDARY = "was asked for its turn and reaches no step boundary"
SILENT = "answers without saying when a request comes, as `with steps.request():` does, and has kept its turn"

NOT_BOUNDED: Mapping[int, int] = MappingProxyType({})  # of devices whose memory is not judged


@dataclass
class GateState:
    """All jobs of a node and which has the turn."""

    turns: Turns = field(default_factory=Turns)  # rule and quantum
    bounds: GateTimeouts = field(default_factory=GateTimeouts)  # when a job is given up on
    _parties: dict[int, GateMember] = field(default_factory=dict)
    _clock: TurnClock = field(default_factory=TurnClock)
    _handoffs: Handoffs = field(default_factory=Handoffs)
    _capacity_bytes: Mapping[int, int] = field(default_factory=dict)
    _arrivals: int = 0
    _successors: dict[int, Successor] = field(default_factory=dict)

    def follow(
        self, gate_jobs: Iterable[GateJob], turns: Turns, now_s: float, capacity_bytes: Mapping[int, int] = NOT_BOUNDED
    ) -> None:
        """Take what the scheduler wants: newcomers, departures, changes; and what jobs may use of each device."""
        self.turns, self._capacity_bytes = turns, capacity_bytes
        self._successors = {}
        wanted = {gate_job.job: gate_job for gate_job in gate_jobs}
        for job in [job for job in self._parties if job not in wanted]:
            self.drop(job, now_s)
        for job, gate_job in sorted(wanted.items()):
            if job in self._parties:
                self._change(self._parties[job], gate_job, now_s)
            else:
                self._admit(gate_job, now_s)
        for member in self._parties.values():
            self._note_co_runners(member, now_s)
        self._handoffs.forget(wanted, [lane for gate_job in wanted.values() for lane in gate_job.lanes])
        self._keep(now_s)

    def drop(self, job: int, now_s: float) -> None:
        """Forget a job."""
        if self._parties.pop(job, None) is not None:
            self._successors = {}
            self._clock.leave(job)
            for member in self._parties.values():
                self._note_co_runners(member, now_s)
            self._keep(now_s)

    def stepping(self, job: int, steps: int, now_s: float) -> None:
        """It is seen to run without having been let go: it came before there were others, or before this agent."""
        member = self._parties.get(job)
        if member is not None and not member.ungated and member.phase is not GatePhase.RUNNING:
            member.steps = max(member.steps, steps)
            self._move(member, GatePhase.RUNNING, now_s)

    def parked(self, job: int, steps: int, now_s: float, times: TurnTimes | None = None) -> None:
        """It waits at a boundary, after `steps` steps, and wants to go on."""
        self._stop(job, steps, GatePhase.READY, now_s, times)

    def idle(self, job: int, steps: int, now_s: float, times: TurnTimes | None = None) -> None:
        """It has given up its turn and wants none until it asks."""
        self._stop(job, steps, GatePhase.IDLE, now_s, times)

    def rests(self, job: int, steps: int, now_s: float) -> None:
        """It is seen to need no turn until it asks: it came before there were others, and has nothing to compute."""
        member = self._parties.get(job)
        if member is not None and (member.phase not in {GatePhase.IDLE, GatePhase.READY} or member.ungated):
            member.steps = max(member.steps, steps)
            self._move(member, GatePhase.IDLE, now_s)
            self._take_in(member, now_s)

    def is_silent(self, job: int) -> bool:
        """Whether it answers requests, as its job says, and was not seen to say yet when one comes."""
        return job in self._parties and self._parties[job].is_silent

    def has_answered(self, job: int) -> None:
        """It says when a request comes: where it holds its turn, it is at an answer."""
        self._parties[job].is_heard = True

    def away(self, job: int, now_s: float) -> None:
        """Its process is gone."""
        member = self._parties.get(job)
        if member is not None:
            self._move(member, GatePhase.AWAY, now_s)
            self._take_in(member, now_s)

    def settle(self, now_s: float) -> Orders:
        """Say which jobs are let go, which are asked for the lane, and when to look again."""
        self._give_up(now_s)
        go = [*self._free_leaking(now_s), *self._grant(now_s)]
        flags = {job: self._flag(member, now_s) for job, member in self._parties.items()}
        asked = [member for job, member in self._parties.items() if flags[job] and member.holds]
        self._successors = dict(self._find_successors(asked, now_s))
        return Orders(go, flags, self._next_s(now_s))

    def successor(self, job: int, steps: int, now_s: float) -> Successor | None:
        """Say which job `settle` will let go alone if this one parks now: it may go on before that is told."""
        found = self._successors.get(job)
        if found is None:
            return None
        member = self._parties[job]
        done = member.steps_beside(steps - member.steps, now_s) if member.granted else 0
        leaver = self._member(member, now_s)
        leaver = leaver._replace(steps=leaver.steps + max(0, done))
        return found if comes_before(self.turns.rule, found, leaver) else None

    def expected(self) -> Iterator[tuple[int, int, float, float]]:
        """Give each holder that is asked and has a successor: both, since when it runs, and how long its steps are."""
        for job, found in self._successors.items():
            member = self._parties[job]
            if member.step_s is not None:
                yield job, found.job, member.since_s, member.step_s

    def passed_on(self, job: int, now_s: float) -> None:
        """The successor of one that has parked was let go."""
        self._let_go(self._parties[job], now_s)

    def wants(self, job: int) -> bool:
        """Whether it is parked and would go on."""
        return job in self._parties and self._parties[job].wants

    def is_asked(self, job: int) -> bool:
        """Whether it is known and shares its lanes, or is paused."""
        member = self._parties.get(job)
        return member is not None and self._is_watched(member)

    def sharing(self, job: int) -> int:
        """What it is told of that: 0, 1, or `BESIDE_SERVER` where it shares them with one that answers requests."""
        mates = self._parties[job].lane_mates if self.is_asked(job) else ()
        beside = any(self._parties[mate].gate_job.answers for mate in mates) and not self._parties[job].gate_job.answers
        return BESIDE_SERVER if beside else int(self.is_asked(job))

    def is_parked(self, job: int) -> bool:
        """Whether it is suspended, and waits at a boundary."""
        return job in self._parties and self._parties[job].is_parked

    def is_busy(self) -> bool:
        """Whether any job shares a lane or is paused."""
        return any(self._is_watched(member) for member in self._parties.values())

    def seen(self, now_s: float) -> dict[int, Seen]:
        """Say of every job that shares a lane or is paused how it fares."""
        return {job: self._see(member, now_s) for job, member in self._parties.items() if self._is_watched(member)}

    def messages(self) -> list[str]:
        """Say which jobs are left out of the turns or kept from them, and why."""
        return [f"job {job} {note(member)}" for job, member in sorted(self._parties.items()) if note(member)]

    def holders(self) -> dict[int, tuple[Lane, ...]]:
        """Jobs that hold their lanes now, and those lanes."""
        return {job: member.gate_job.lanes for job, member in self._parties.items() if member.holds}

    # -- what changes ------------------------------------------------------------------------------------------------

    def _admit(self, gate_job: GateJob, now_s: float) -> None:
        self._arrivals += 1
        self._parties[gate_job.job] = member = GateMember(gate_job, self._arrivals, now_s, now_s)
        self._book_holders(now_s)
        lane_mates = self._find_lane_mates(member)
        self._clock.join(gate_job.job, gate_job.weight, lane_mates)
        self._clock.rest(gate_job.job)
        for lane_mate in lane_mates:
            self._parties[lane_mate].counted_s = now_s

    def _change(self, member: GateMember, gate_job: GateJob, now_s: float) -> None:
        self._book(member, now_s)
        member.gate_job = gate_job
        self._clock.weigh(gate_job.job, gate_job.weight)
        self._sync(member, now_s)

    def _stop(self, job: int, steps: int, phase: GatePhase, now_s: float, times: TurnTimes | None) -> None:
        member = self._parties.get(job)
        if member is None:
            return
        if member.holds and times is not None:
            self._handoffs.yielded(job, member.gate_job.lanes, times)
        done = steps - member.steps
        if member.holds and member.granted and done > 0:
            if member.steps:
                step_s = (now_s - member.since_s) / done
                known = member.step_s if member.measured else None
                member.step_s = step_s if known is None else STEP_AGE * known + (1 - STEP_AGE) * step_s
                member.measured += done
            self._clock.ran(member.gate_job.job, 0.0, member.steps_beside(done, now_s))
        member.steps = max(member.steps, steps)
        self._move(member, phase, now_s)
        self._take_in(member, now_s)

    def _move(self, member: GateMember, phase: GatePhase, now_s: float) -> None:
        """Book the time it stood as it did, and let it stand otherwise."""
        self._successors = {}
        self._book(member, now_s)
        if phase is not member.phase:
            member.asked_s = None
            member.granted = False
        member.phase, member.since_s = phase, now_s
        self._sync(member, now_s)
        if member.gate_job.hold:
            for other in self._parties.values():
                self._note_co_runners(other, now_s)

    def _book(self, member: GateMember, now_s: float) -> None:
        passed_s, member.booked_s = now_s - member.booked_s, now_s
        if member.holds:
            member.service_s += passed_s
            self._clock.ran(member.gate_job.job, passed_s)
        elif member.waits:
            member.wait_s += passed_s

    def _book_holders(self, now_s: float) -> None:
        """Bring virtual time up to now: where a lane stands is asked, and a job may be in a long turn."""
        for member in self._parties.values():
            if member.holds:
                self._book(member, now_s)

    def _sync(self, member: GateMember, now_s: float) -> None:
        """A job that neither runs nor wants to saves no claim up."""
        job = member.gate_job.job
        if not (member.holds or member.wants):
            self._clock.rest(job)
        elif not self._clock.is_active(job):
            self._book_holders(now_s)
            self._clock.wake(job, member.lane_mates)

    def _note_co_runners(self, member: GateMember, now_s: float) -> None:
        lane_mates = self._find_lane_mates(member)
        if lane_mates != member.lane_mates:
            member.lane_mates = lane_mates
            member.co_runner_service_s, member.co_runner_wait_s = times(member, now_s)

    # -- what follows from it ----------------------------------------------------------------------------------------

    def _find_lane_mates(self, member: GateMember) -> tuple[int, ...]:
        """The jobs it shares a lane with."""
        lanes = set() if member.is_off else set(member.gate_job.lanes)
        others = ((job, other) for job, other in self._parties.items() if other is not member and not other.is_off)
        return tuple(job for job, other in others if not lanes.isdisjoint(other.gate_job.lanes))

    def _is_watched(self, member: GateMember) -> bool:
        return member.is_to_wait or bool(member.lane_mates)

    def _is_contended(self, member: GateMember) -> bool:
        """Whether it must take turns: with any job that does, and, once left out, with all."""
        return any(member.ungated or not self._parties[lane_mate].ungated for lane_mate in member.lane_mates)

    def _give_up(self, now_s: float) -> None:
        for member in self._parties.values():
            if member.holds and member.asked_s is not None and now_s >= member.asked_s + self._bound_s(member):
                self._leave_out(member, SILENT if self._is_let_be(member) else NO_BOUNDARY, now_s)
            elif self._is_late(member) and now_s >= member.since_s + self.bounds.first_step_s:
                self._leave_out(member, "shares a lane and has reached no step boundary", now_s)

    def _is_late(self, member: GateMember) -> bool:
        return member.phase is GatePhase.AWAY and not member.ungated and self._is_contended(member)

    def _leave_out(self, member: GateMember, why: str, now_s: float) -> None:
        waited_s = now_s - (member.asked_s if member.asked_s is not None else member.since_s)
        self._move(member, GatePhase.AWAY, now_s)
        member.ungated = f"{why} for {waited_s:.0f} s: it runs beside its lane, without turns"
        self._keep(now_s)

    def _free_leaking(self, now_s: float) -> list[int]:
        """Leave out for good those that keep to no turns; which of them are let go from where they wait."""
        go = []
        for member in self._parties.values():
            leaks, waits = member.gate_job.leaks, member.phase is GatePhase.READY and not member.is_to_wait
            if leaks and (waits or (member.lane_mates and not member.ungated)):
                go += [member.gate_job.job] if waits else []
                self._move(member, member.phase if member.is_to_wait else GatePhase.AWAY, now_s)
                member.ungated = leaks
                self._keep(now_s)
        return go

    def _take_in(self, member: GateMember, now_s: float) -> None:
        """One that was left out is back, or gone."""
        if member.ungated and not member.gate_job.leaks:
            member.ungated = ""
            self._keep(now_s)

    def _keep(self, now_s: float) -> None:
        """Make those wait for whose steps there is no room next to one that is left out; let the others go on."""
        kept: dict[int, tuple[int, ...]] = {}
        for member in self._parties.values():
            if member.steps and not member.lane_mates:  # no job asks it any more
                member.ungated = ""
        if any(member.ungated for member in self._parties.values()):
            kept = kept_back([tenant(member) for member in self._parties.values()], self._capacity_bytes)
        for job, member in self._parties.items():
            if member.kept_for != kept.get(job, ()):
                self._book(member, now_s)
                member.kept_for = kept.get(job, ())
                self._sync(member, now_s)

    def _bound_s(self, member: GateMember) -> float:
        if self._is_let_be(member):  # its steps last from one answer to the next
            return 0.0 if member.steps else min(self.bounds.silent_s, self.bounds.yield_s)
        return max(self.bounds.yield_s, BOUND_STEPS * (member.step_s or 0.0))

    def _is_let_be(self, member: GateMember) -> bool:
        """Whether it runs without turns, as nothing says when it needs one, and no other has to wait for that."""
        if not member.is_silent:
            return False
        others = [tenant(other) for other in self._parties.values() if other is not member]
        return not kept_back([*others, tenant(member)._replace(is_ungated=True)], self._capacity_bytes)

    def _grant(self, now_s: float) -> list[int]:
        holding = [self._claim(member, now_s) for member in self._parties.values() if member.holds]
        ready = [self._claim(member, now_s) for member in self._parties.values() if member.wants]
        go = grant(self.turns.rule, ready, holding) if ready else []
        for job in go:
            self._let_go(self._parties[job], now_s)
        self._handoffs.settled()
        return go

    def _let_go(self, member: GateMember, now_s: float) -> None:
        self._move(member, GatePhase.RUNNING, now_s)
        member.granted = True
        self._handoffs.granted(member.gate_job.job, member.gate_job.lanes)

    def _find_successors(self, asked: Iterable[GateMember], now_s: float) -> Iterator[tuple[int, Successor]]:
        holding = {job: self._claim(member, now_s) for job, member in self._parties.items() if member.holds}
        ready = [self._claim(member, now_s) for member in self._parties.values() if member.wants]
        for job in [leaver.gate_job.job for leaver in asked if not leaver.is_to_wait]:
            found = choose(self.turns.rule, ready, [claim for other, claim in holding.items() if other != job])
            if found is not None:
                yield job, found._replace(flag=self._asks_at_once(self._parties[found.job]))

    def _asks_at_once(self, member: GateMember) -> bool:
        """Whether its turn is one step, as far as that is known ahead."""
        return member.gate_job.serves or (self.turns.rule in SHARED and self._quantum_s(member) <= 0.0)

    def _quantum_s(self, member: GateMember) -> float:
        return quantum_s(self.turns, self._handoffs.mean_s(member.gate_job.lanes))

    def _claim(self, member: GateMember, now_s: float) -> LaneRequest:
        return LaneRequest(self._member(member, now_s), frozenset(member.gate_job.lanes))

    def _member(self, member: GateMember, now_s: float) -> Contender:
        gate_job, job = member.gate_job, member.gate_job.job
        open_s = now_s - member.booked_s if member.holds else 0.0
        running_s = now_s - member.since_s if member.holds else 0.0
        return Contender(
            id=job,
            arrived=member.arrived,
            weight=gate_job.weight,
            priority=gate_job.priority,
            service_s=member.service_s + open_s,
            virtual_s=self._clock.virtual_s(job) + open_s / gate_job.weight,
            steps=self._clock.steps(job),
            remaining_s=remaining_s(member, self.turns.rule, running_s),
            step_s=member.step_s,
            serves=gate_job.serves,
        )

    def _flag(self, member: GateMember, now_s: float) -> bool:
        if member.ungated and (
            member.gate_job.leaks or self._is_let_be(member)
        ):  # let go, it would keep the turn until it has answered
            return member.is_to_wait
        if not member.holds:
            return self._is_contended(member) or member.is_to_wait
        asked = self._is_to_yield(member, now_s)
        if not asked:
            member.asked_s = None
        elif member.asked_s is None:
            member.asked_s = now_s
        return asked or (member.gate_job.serves and self._is_contended(member))

    def _is_to_yield(self, member: GateMember, now_s: float) -> bool:
        waiting = self._waiting_for(member)
        if member.is_to_wait or (waiting and is_probed(member, self.turns.rule)) or self._is_beside_another(member):
            return True
        if waiting and self._is_let_be(member):
            return True
        over = not member.granted or now_s >= member.since_s + self._quantum_s(member)
        mine = self._member(member, now_s)
        return any(yields_to(self.turns.rule, mine, self._member(other, now_s), quantum_over=over) for other in waiting)

    def _is_beside_another(self, member: GateMember) -> bool:
        """Whether it was not let go, and another runs in its lane: as after an agent that is gone."""
        return not member.granted and any(self._parties[lane_mate].holds for lane_mate in member.lane_mates)

    def _waiting_for(self, member: GateMember) -> list[GateMember]:
        lane_mates = (self._parties[lane_mate] for lane_mate in member.lane_mates)
        return [lane_mate for lane_mate in lane_mates if lane_mate.wants]

    def _next_s(self, now_s: float) -> float | None:
        times = [
            member.since_s + self._quantum_s(member)
            for member in self._parties.values()
            if member.holds and self.turns.rule in SHARED and self._waiting_for(member)
        ]
        times += [
            member.asked_s + self._bound_s(member)
            for member in self._parties.values()
            if member.holds and member.asked_s is not None
        ]
        return min((time_s for time_s in times if time_s > now_s), default=None)

    def _see(self, member: GateMember, now_s: float) -> Seen:
        service_s, wait_s = times(member, now_s)
        served_s, waited_s = service_s - member.co_runner_service_s, wait_s - member.co_runner_wait_s
        whole_s = served_s + waited_s
        share_ratio = served_s / whole_s if whole_s > 0 else 0.0
        lasts_s = self._quantum_s(member) if self.turns.rule in SHARED else None
        handoff_s = self._handoffs.mean_s(member.gate_job.lanes)
        return Seen(
            state(member), service_s, wait_s, share_ratio, member.is_parked, note(member), lasts_s, handoff_s,
            answers=member.gate_job.answers,
        )  # fmt: skip
