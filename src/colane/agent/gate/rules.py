"""Who holds which lane of this node: a pure state machine. `gate` tells it what happens and does what it says.

Rules:
    * A job holds its lanes from the moment it is let go, or is seen to run, until it waits at a boundary again.
    * A job that shares no lane is never asked. One that starts, or waits for nothing, holds nobody up.
    * Who is asked and does not come to a boundary within the bound is left out of the turns: it runs beside the lane,
      it is said why, and it is taken in again at its next boundary. Nothing is killed. Meanwhile those for whose
      memory there is no room beside it are kept at their boundaries (`memory`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from colane.agent.gate.handoff import Handoffs
from colane.agent.gate.memory import kept_back
from colane.agent.gate.party import Party, is_probed, note, remaining_s, state, tenant, times
from colane.agent.gate.successor import Successor, choose, comes_before
from colane.agent.gate.values import GateTimeouts, Lane, Orders, Seen, Stand, TurnTimes, Wish
from colane.lanes.turns import SHARED, Contender, LaneRequest, TurnClock, grant, quantum_s, yields_to
from colane.model.lane import Turns

STEP_AGE = 0.7
"""Weight of what was known of a job's step time when the next turn is measured."""

BOUND_STEPS = 5.0
"""A job is given up on no sooner than after so many of its steps."""


NOT_BOUNDED: Mapping[int, int] = MappingProxyType({})
"""Of devices whose memory is not judged."""


@dataclass
class Floor:
    """All jobs of a node and whose turn it is.

    Attributes:
        turns: Rule and quantum.
        bounds: When a job is given up on.
    """

    turns: Turns = field(default_factory=Turns)
    bounds: GateTimeouts = field(default_factory=GateTimeouts)
    _parties: dict[int, Party] = field(default_factory=dict)
    _clock: TurnClock = field(default_factory=TurnClock)
    _handoffs: Handoffs = field(default_factory=Handoffs)
    _capacity_bytes: Mapping[int, int] = field(default_factory=dict)
    _arrivals: int = 0
    _successors: dict[int, Successor] = field(default_factory=dict)

    def follow(
        self, wishes: Iterable[Wish], turns: Turns, now_s: float, capacity_bytes: Mapping[int, int] = NOT_BOUNDED
    ) -> None:
        """Take what the scheduler wants: newcomers, departures, changes; and what jobs may use of each device."""
        self.turns, self._capacity_bytes = turns, capacity_bytes
        self._successors = {}
        wanted = {wish.job: wish for wish in wishes}
        for job in [job for job in self._parties if job not in wanted]:
            self.drop(job, now_s)
        for job, wish in sorted(wanted.items()):
            if job in self._parties:
                self._change(self._parties[job], wish, now_s)
            else:
                self._admit(wish, now_s)
        for party in self._parties.values():
            self._note_company(party, now_s)
        self._handoffs.forget(wanted, [lane for wish in wanted.values() for lane in wish.lanes])
        self._keep(now_s)

    def drop(self, job: int, now_s: float) -> None:
        """Forget a job."""
        if self._parties.pop(job, None) is not None:
            self._successors = {}
            self._clock.leave(job)
            for party in self._parties.values():
                self._note_company(party, now_s)
            self._keep(now_s)

    def stepping(self, job: int, steps: int, now_s: float) -> None:
        """It is seen to run without having been let go: it came before there were others, or before this agent."""
        party = self._parties.get(job)
        if party is not None and not party.ungated and party.stand is not Stand.RUNNING:
            party.steps = max(party.steps, steps)
            self._move(party, Stand.RUNNING, now_s)

    def parked(self, job: int, steps: int, now_s: float, times: TurnTimes | None = None) -> None:
        """It waits at a boundary, after `steps` steps, and wants to go on."""
        self._stop(job, steps, Stand.READY, now_s, times)

    def idle(self, job: int, steps: int, now_s: float, times: TurnTimes | None = None) -> None:
        """It has given up its turn and wants none until it asks."""
        self._stop(job, steps, Stand.IDLE, now_s, times)

    def away(self, job: int, now_s: float) -> None:
        """Its process is gone."""
        party = self._parties.get(job)
        if party is not None:
            self._move(party, Stand.AWAY, now_s)
            self._take_in(party, now_s)

    def settle(self, now_s: float) -> Orders:
        """Say who is let go, who is asked for the lane, and when to look again."""
        self._give_up(now_s)
        go = self._grant(now_s)
        flags = {job: self._flag(party, now_s) for job, party in self._parties.items()}
        asked = [party for job, party in self._parties.items() if flags[job] and party.holds]
        self._successors = dict(self._find_successors(asked, now_s))
        return Orders(go, flags, self._next_s(now_s))

    def successor(self, job: int, steps: int, now_s: float) -> Successor | None:
        """Say whom `settle` will let go alone if this one parks now: it may go on before that is told."""
        found = self._successors.get(job)
        if found is None:
            return None
        party = self._parties[job]
        done = party.steps_beside(steps - party.steps, now_s) if party.granted else 0
        leaver = self._member(party, now_s)
        leaver = leaver._replace(steps=leaver.steps + max(0, done))
        return found if comes_before(self.turns.rule, found, leaver) else None

    def expected(self) -> Iterator[tuple[int, int, float, float]]:
        """Give each holder that is asked and has a successor: both, since when it runs, and how long its steps are."""
        for job, found in self._successors.items():
            party = self._parties[job]
            if party.step_s is not None:
                yield job, found.job, party.since_s, party.step_s

    def passed_on(self, job: int, now_s: float) -> None:
        """The successor of one that has parked was let go."""
        self._let_go(self._parties[job], now_s)

    def wants(self, job: int) -> bool:
        """Whether it is parked and would go on."""
        return job in self._parties and self._parties[job].wants

    def is_asked(self, job: int) -> bool:
        """Whether it is known and shares its lanes, or is paused."""
        party = self._parties.get(job)
        return party is not None and self._is_watched(party)

    def is_parked(self, job: int) -> bool:
        """Whether it is suspended, and waits at a boundary."""
        return job in self._parties and self._parties[job].is_parked

    def is_busy(self) -> bool:
        """Whether anybody shares a lane or is paused."""
        return any(self._is_watched(party) for party in self._parties.values())

    def seen(self, now_s: float) -> dict[int, Seen]:
        """Say of every job that shares a lane or is paused how it fares."""
        return {job: self._see(party, now_s) for job, party in self._parties.items() if self._is_watched(party)}

    def messages(self) -> list[str]:
        """Say who is left out of the turns or kept from them, and why."""
        return [f"job {job} {note(party)}" for job, party in sorted(self._parties.items()) if note(party)]

    def holders(self) -> dict[int, tuple[Lane, ...]]:
        """Jobs that hold their lanes now, and those lanes."""
        return {job: party.wish.lanes for job, party in self._parties.items() if party.holds}

    # -- what changes ------------------------------------------------------------------------------------------------

    def _admit(self, wish: Wish, now_s: float) -> None:
        self._arrivals += 1
        self._parties[wish.job] = party = Party(wish, self._arrivals, now_s, now_s)
        self._book_holders(now_s)
        mates = self._find_mates(party)
        self._clock.join(wish.job, wish.weight, mates)
        self._clock.rest(wish.job)
        for mate in mates:
            self._parties[mate].counted_s = now_s

    def _change(self, party: Party, wish: Wish, now_s: float) -> None:
        self._book(party, now_s)
        party.wish = wish
        self._clock.weigh(wish.job, wish.weight)
        self._sync(party, now_s)

    def _stop(self, job: int, steps: int, stand: Stand, now_s: float, times: TurnTimes | None) -> None:
        party = self._parties.get(job)
        if party is None:
            return
        if party.holds and times is not None:
            self._handoffs.yielded(job, party.wish.lanes, times)
        self._count(party, steps, now_s)
        self._move(party, stand, now_s)
        self._take_in(party, now_s)

    def _count(self, party: Party, steps: int, now_s: float) -> None:
        """Learn from the turn that ends how long its steps are."""
        done = steps - party.steps
        if party.holds and party.granted and done > 0:
            if party.steps:
                self._measure(party, (now_s - party.since_s) / done, done)
            self._clock.ran(party.wish.job, 0.0, party.steps_beside(done, now_s))
        party.steps = max(party.steps, steps)

    def _measure(self, party: Party, step_s: float, done: int) -> None:
        """Its first steps warm up, so a turn that began with none says nothing of the others."""
        known = party.step_s if party.measured else None
        party.step_s = step_s if known is None else STEP_AGE * known + (1 - STEP_AGE) * step_s
        party.measured += done

    def _move(self, party: Party, stand: Stand, now_s: float) -> None:
        """Book the time it stood as it did, and let it stand otherwise."""
        self._successors = {}
        self._book(party, now_s)
        if stand is not party.stand:
            party.asked_s = None
            party.granted = False
        party.stand, party.since_s = stand, now_s
        self._sync(party, now_s)
        if party.wish.hold:
            for other in self._parties.values():
                self._note_company(other, now_s)

    def _book(self, party: Party, now_s: float) -> None:
        passed_s, party.booked_s = now_s - party.booked_s, now_s
        if party.holds:
            party.service_s += passed_s
            self._clock.ran(party.wish.job, passed_s)
        elif party.waits:
            party.wait_s += passed_s

    def _book_holders(self, now_s: float) -> None:
        """Bring virtual time up to now: where a lane stands is asked, and somebody may be in a long turn."""
        for party in self._parties.values():
            if party.holds:
                self._book(party, now_s)

    def _sync(self, party: Party, now_s: float) -> None:
        """Who neither runs nor wants to saves no claim up."""
        job = party.wish.job
        if not (party.holds or party.wants):
            self._clock.rest(job)
        elif not self._clock.is_active(job):
            self._book_holders(now_s)
            self._clock.wake(job, party.mates)

    def _note_company(self, party: Party, now_s: float) -> None:
        mates = self._find_mates(party)
        if mates != party.mates:
            party.mates = mates
            party.company_service_s, party.company_wait_s = times(party, now_s)

    # -- what follows from it ----------------------------------------------------------------------------------------

    def _find_mates(self, party: Party) -> tuple[int, ...]:
        """The jobs it shares a lane with."""
        lanes = set() if party.is_off else set(party.wish.lanes)
        others = ((job, other) for job, other in self._parties.items() if other is not party and not other.is_off)
        return tuple(job for job, other in others if not lanes.isdisjoint(other.wish.lanes))

    def _is_watched(self, party: Party) -> bool:
        return party.is_to_wait or bool(party.mates)

    def _is_contended(self, party: Party) -> bool:
        """Whether it must take turns: with anybody who does, and, once left out, with everybody."""
        return any(party.ungated or not self._parties[mate].ungated for mate in party.mates)

    def _give_up(self, now_s: float) -> None:
        for party in self._parties.values():
            if party.holds and party.asked_s is not None and now_s >= party.asked_s + self._bound_s(party):
                self._leave_out(party, "was asked for its turn and reaches no step boundary", now_s)
            elif self._is_late(party) and now_s >= party.since_s + self.bounds.first_step_s:
                self._leave_out(party, "shares a lane and has reached no step boundary", now_s)

    def _is_late(self, party: Party) -> bool:
        return party.stand is Stand.AWAY and not party.ungated and self._is_contended(party)

    def _leave_out(self, party: Party, why: str, now_s: float) -> None:
        waited_s = now_s - (party.asked_s if party.asked_s is not None else party.since_s)
        self._move(party, Stand.AWAY, now_s)
        party.ungated = f"{why} for {waited_s:.0f} s: it runs beside its lane, without turns"
        self._keep(now_s)

    def _take_in(self, party: Party, now_s: float) -> None:
        """One that was left out is back, or gone."""
        if party.ungated:
            party.ungated = ""
            self._keep(now_s)

    def _keep(self, now_s: float) -> None:
        """Have those wait for whose steps there is no room beside one that is left out; let the others go on."""
        kept: dict[int, tuple[int, ...]] = {}
        for party in self._parties.values():
            if party.steps and not party.mates:  # nobody asks it any more
                party.ungated = ""
        if any(party.ungated for party in self._parties.values()):
            kept = kept_back([tenant(party) for party in self._parties.values()], self._capacity_bytes)
        for job, party in self._parties.items():
            if party.kept_for != kept.get(job, ()):
                self._book(party, now_s)
                party.kept_for = kept.get(job, ())
                self._sync(party, now_s)

    def _bound_s(self, party: Party) -> float:
        return max(self.bounds.yield_s, BOUND_STEPS * (party.step_s or 0.0))

    def _grant(self, now_s: float) -> list[int]:
        holding = [self._claim(party, now_s) for party in self._parties.values() if party.holds]
        ready = [self._claim(party, now_s) for party in self._parties.values() if party.wants]
        go = grant(self.turns.rule, ready, holding) if ready else []
        for job in go:
            self._let_go(self._parties[job], now_s)
        self._handoffs.settled()
        return go

    def _let_go(self, party: Party, now_s: float) -> None:
        self._move(party, Stand.RUNNING, now_s)
        party.granted = True
        self._handoffs.granted(party.wish.job, party.wish.lanes)

    def _find_successors(self, asked: Iterable[Party], now_s: float) -> Iterator[tuple[int, Successor]]:
        holding = {job: self._claim(party, now_s) for job, party in self._parties.items() if party.holds}
        ready = [self._claim(party, now_s) for party in self._parties.values() if party.wants]
        for job in [leaver.wish.job for leaver in asked if not leaver.is_to_wait]:
            found = choose(self.turns.rule, ready, [claim for other, claim in holding.items() if other != job])
            if found is not None:
                yield job, found._replace(flag=self._asks_at_once(self._parties[found.job]))

    def _asks_at_once(self, party: Party) -> bool:
        """Whether its turn is one step, as far as that is known ahead."""
        return party.wish.serves or (self.turns.rule in SHARED and self._quantum_s(party) <= 0.0)

    def _quantum_s(self, party: Party) -> float:
        return quantum_s(self.turns, self._handoffs.mean_s(party.wish.lanes))

    def _claim(self, party: Party, now_s: float) -> LaneRequest:
        return LaneRequest(self._member(party, now_s), frozenset(party.wish.lanes))

    def _member(self, party: Party, now_s: float) -> Contender:
        wish, job = party.wish, party.wish.job
        open_s = now_s - party.booked_s if party.holds else 0.0
        running_s = now_s - party.since_s if party.holds else 0.0
        return Contender(
            id=job,
            arrived=party.arrived,
            weight=wish.weight,
            priority=wish.priority,
            service_s=party.service_s + open_s,
            virtual_s=self._clock.virtual_s(job) + open_s / wish.weight,
            steps=self._clock.steps(job),
            remaining_s=remaining_s(party, self.turns.rule, running_s),
            step_s=party.step_s,
            serves=wish.serves,
        )

    def _flag(self, party: Party, now_s: float) -> bool:
        if not party.holds:
            return self._is_contended(party) or party.is_to_wait
        asked = self._is_to_yield(party, now_s)
        if not asked:
            party.asked_s = None
        elif party.asked_s is None:
            party.asked_s = now_s
        return asked or (party.wish.serves and self._is_contended(party))

    def _is_to_yield(self, party: Party, now_s: float) -> bool:
        waiting = self._waiting_for(party)
        if party.is_to_wait or (waiting and is_probed(party, self.turns.rule)) or self._is_beside_another(party):
            return True
        over = not party.granted or now_s >= party.since_s + self._quantum_s(party)
        mine = self._member(party, now_s)
        return any(yields_to(self.turns.rule, mine, self._member(other, now_s), quantum_over=over) for other in waiting)

    def _is_beside_another(self, party: Party) -> bool:
        """Whether it was not let go, and another runs in its lane: as after an agent that is gone."""
        return not party.granted and any(self._parties[mate].holds for mate in party.mates)

    def _waiting_for(self, party: Party) -> list[Party]:
        mates = (self._parties[mate] for mate in party.mates)
        return [mate for mate in mates if mate.wants]

    def _next_s(self, now_s: float) -> float | None:
        times = [
            party.since_s + self._quantum_s(party)
            for party in self._parties.values()
            if party.holds and self.turns.rule in SHARED and self._waiting_for(party)
        ]
        times += [
            party.asked_s + self._bound_s(party)
            for party in self._parties.values()
            if party.holds and party.asked_s is not None
        ]
        return min((time_s for time_s in times if time_s > now_s), default=None)

    def _see(self, party: Party, now_s: float) -> Seen:
        service_s, wait_s = times(party, now_s)
        served_s, waited_s = service_s - party.company_service_s, wait_s - party.company_wait_s
        whole_s = served_s + waited_s
        share_ratio = served_s / whole_s if whole_s > 0 else 0.0
        lasts_s = self._quantum_s(party) if self.turns.rule in SHARED else None
        handoff_s = self._handoffs.mean_s(party.wish.lanes)
        return Seen(state(party), service_s, wait_s, share_ratio, party.is_parked, note(party), lasts_s, handoff_s)
