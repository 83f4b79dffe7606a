"""One job of a node as the gate's rules keep it: what is wanted of it, how it stands, what it has had."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from colane.agent.gate.memory import Tenant
from colane.agent.gate.values import GateJob, GatePhase
from colane.model.placement import TurnRule
from colane.model.progress import KEPT, UNGATED

PROBE_STEPS = 3  # under `srtf` a job whose steps are counted but not measured yet runs so many of them first


@dataclass(slots=True)
class GateMember:
    """A job of this node."""

    gate_job: GateJob  # what is wanted of it
    arrived: int  # order of arrival
    since_s: float  # since when it stands as it does
    booked_s: float  # until when its service and its wait are counted
    phase: GatePhase = GatePhase.AWAY  # what it does
    ungated: str = ""  # why it runs without turns; empty while it has them
    is_heard: bool = False  # whether it was seen to say when a request comes, as a job does that answers some
    kept_for: tuple[int, ...] = ()  # jobs without turns beside which its steps have no room
    granted: bool = False  # whether it was let go, and not only seen to run
    counted_s: float = 0.0  # since when its steps count among its co-runners: when the last newcomer came
    asked_s: float | None = None  # since when it is asked for its turn
    steps: int = 0  # steps it has done
    measured: int = 0  # steps by which `step_s` is known
    step_s: float | None = None  # its step time in its turns
    service_s: float = 0.0  # time it has held its lanes
    wait_s: float = 0.0  # time it has waited for them
    lane_mates: tuple[int, ...] = ()  # jobs it shares lanes with
    co_runner_service_s: float = 0.0  # service when it came to share with these jobs
    co_runner_wait_s: float = 0.0  # wait then

    def steps_beside(self, done: int, now_s: float) -> int:
        """How many steps of the turn that ends now it made next to its present co-runners: all where none came."""
        if self.counted_s <= self.since_s:
            return done
        return min(done, ceil(done * (now_s - self.counted_s) / (now_s - self.since_s)))

    @property
    def holds(self) -> bool:
        """Whether its lanes are its own now."""
        return self.phase is GatePhase.RUNNING

    @property
    def wants(self) -> bool:
        """Whether it waits for its turn and may have one."""
        return self.phase is GatePhase.READY and not self.is_to_wait and not self.gate_job.leaks

    @property
    def is_to_wait(self) -> bool:
        """Whether it stays at its boundary, whosever turn it is."""
        return self.gate_job.paused or bool(self.kept_for)

    @property
    def is_silent(self) -> bool:
        """Whether it answers requests and nothing says when one comes, so that it may hold its turn for nothing."""
        return self.gate_job.answers and not self.is_heard

    @property
    def waits(self) -> bool:
        """Whether it waits for its turn, or for room to have one."""
        return self.phase is GatePhase.READY and not self.gate_job.paused

    @property
    def is_parked(self) -> bool:
        """Whether it is paused and waits at a boundary."""
        return self.gate_job.paused and self.phase in {GatePhase.READY, GatePhase.IDLE}

    @property
    def is_off(self) -> bool:
        """Whether it has given its lanes up."""
        return self.gate_job.hold and self.is_parked


def tenant(member: GateMember) -> Tenant:
    """What it holds of the memory of its devices."""
    gate_job = member.gate_job
    lanes = () if member.is_off else gate_job.lanes
    return Tenant(gate_job.job, member.arrived, lanes, gate_job.memory, bool(member.ungated), member.is_parked)


def note(member: GateMember) -> str:
    """Why it has no turns."""
    if member.ungated or not member.kept_for:
        return member.ungated
    jobs = ", ".join(str(job) for job in member.kept_for)
    return f"waits at its step boundary: beside job {jobs}, which runs without turns, its memory does not fit"


def times(member: GateMember, now_s: float) -> tuple[float, float]:
    """Service and wait with what is not booked yet."""
    passed_s = now_s - member.booked_s
    return (member.service_s + (passed_s if member.holds else 0.0), member.wait_s + (passed_s if member.waits else 0.0))


def state(member: GateMember) -> str:
    """How it stands in its lanes, in a word (`Seen.state`)."""
    if member.ungated:
        return UNGATED
    if member.gate_job.paused and not member.holds:
        return "paused"
    if member.kept_for and not member.holds:
        return KEPT
    return "running" if member.holds or member.phase is GatePhase.AWAY else "waiting"


def is_probed(member: GateMember, rule: TurnRule) -> bool:
    """Whether its steps must be measured before its remaining time can be said."""
    known = rule is not TurnRule.SRTF or member.gate_job.steps_total is None
    return not known and member.measured < PROBE_STEPS


def remaining_s(member: GateMember, rule: TurnRule, running_s: float) -> float | None:
    """Time it still needs its lanes, so long into its turn; 0 until that is measured, None where no end is known."""
    if member.gate_job.steps_total is None:
        return None
    if is_probed(member, rule) or member.step_s is None:
        return 0.0
    return max(0.0, (member.gate_job.steps_total - member.steps) * member.step_s - running_s)
