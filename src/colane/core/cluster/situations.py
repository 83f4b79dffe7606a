"""Situations of jobs, read off the cluster (`perf.rate`).

Of a newcomer next to the bookings of a GPU, of those there once it has come, and of a job as it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.contents import ClusterContents
from colane.core.cluster.load import Booking, GpuLoad
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobState
from colane.model.placement import Placement, TurnRule
from colane.model.profile import ProfileKey
from colane.perf.estimates import Estimates
from colane.perf.rate import LaneMate, Rate, Situation
from colane.perf.topology import ACROSS_MACHINES, cost, shape_of_node

RESTING = frozenset({JobState.PAUSED, JobState.STOPPING})  # jobs that are placed and slow no other job

Jobs = Mapping[JobId, Job]
Near = tuple[ProfileKey, ...]


def situation_alone(
    loads: Sequence[GpuLoad], *, distance: float | None = None, near: Near = (), cores: int | None = None
) -> Situation:
    """A job with these GPUs for itself.

    Args:
        loads: Its GPUs, at least one, all of one type.
        distance: Sum of the shortest paths between them; None is as well connected as can be.
        near: Kinds of jobs on other GPUs of their sockets, see `near_of`.
        cores: Cores it would have; None is enough.
    """
    gpu = loads[0].gpu
    return Situation(gpu.type, len(loads), distance, gpu.way, near=near, cores=cores)


def situation_beside(
    load: GpuLoad, lane: int, jobs: Jobs, rule: TurnRule = TurnRule.FAIR, near: Near = (), gpus: int = 1
) -> Situation:
    """A newcomer of so many GPUs in that lane of one of them, next to the jobs that are there.

    Args:
        load: The GPU with its jobs.
        lane: One of its lanes, or `load.next_lane`.
        jobs: All jobs by id, for the weights of those in the lane.
        rule: How the jobs of a lane take turns.
        near: Kinds of jobs on other GPUs of its socket.
        gpus: How many the newcomer has in all.
    """
    return _among(load, lane, load.bookings, gpus, jobs, rule, near)


def situation_in(load: GpuLoad, job: JobId, jobs: Jobs, rule: TurnRule = TurnRule.FAIR, near: Near = ()) -> Situation:
    """A job on a GPU that carries it, as it is; arguments as for `situation_beside`."""
    mine = next(booking for booking in load.bookings if booking.job == job)
    others = [booking for booking in load.bookings if booking.job != job]
    return _among(load, mine.lane, others, mine.key.gpus, jobs, rule, near)


def situations_joined(
    load: GpuLoad, newcomer: Booking, jobs: Jobs, rule: TurnRule = TurnRule.FAIR, near: Near = ()
) -> list[tuple[JobId, Situation]]:
    """Of every job on a GPU once a newcomer has joined, in order of their start; the newcomer's is left out.

    Args:
        load: The GPU without the newcomer.
        newcomer: What it would hold (`core.load.book`).
        jobs: All jobs by id, the newcomer too.
        rule: How the jobs of a lane take turns.
        near: Kinds of jobs on other GPUs of its socket.
    """
    joined = load.with_booking(newcomer)
    return [(booking.job, situation_in(joined, booking.job, jobs, rule, near)) for booking in load.bookings]


def _among(
    load: GpuLoad, lane: int, others: Iterable[Booking], gpus: int, jobs: Jobs, rule: TurnRule, near: Near
) -> Situation:
    """In a lane of a GPU, with these others on it."""
    beside: dict[int, Booking] = {}
    lane_mates: list[LaneMate] = []
    for booking in others:
        if booking.lane == lane:
            lane_mates.append(LaneMate(booking.key, jobs[booking.job].spec.weight))
        else:
            known = beside.get(booking.lane)
            if known is None or _busy(booking) > _busy(known):
                beside[booking.lane] = booking
    keys = tuple([booking.key for booking in beside.values()])
    gpu = load.gpu
    return Situation(gpu.type, gpus, None, gpu.way, keys, tuple(lane_mates), rule, near)


def _busy(booking: Booking) -> tuple[float, JobId]:
    """How much of a GPU a job keeps busy; of several for one job the newest counts."""
    return (booking.load.occupancy if booking.load is not None else 0.0), booking.job


def speed_lost(
    beliefs: Estimates, load: GpuLoad, newcomer: Booking, jobs: Jobs, rule: TurnRule = TurnRule.FAIR, near: Near = ()
) -> float:
    """What those on a GPU lose together by a newcomer, as a sum of `Rate.ratio`; see `situations_joined`."""
    lost = 0.0
    for job, after in situations_joined(load, newcomer, jobs, rule, near):
        spec, before = jobs[job].effective, situation_in(load, job, jobs, rule, near)
        lost += beliefs.rate(spec, before).ratio - beliefs.rate(spec, after).ratio
    return lost


def near_of(
    node: NodeState,
    gpus: Sequence[GpuId],
    load: Callable[[GpuId], GpuLoad],
    counts: Callable[[JobId], bool] | None = None,
) -> Near:
    """Kinds of jobs on other GPUs of the sockets of these GPUs of a node, in order.

    Args:
        node: Where they are.
        gpus: Those a job has or would have there.
        load: Gives a GPU with its jobs (`Draft.load`, `ClusterView.gpu`).
        counts: Whether a job disturbs its neighbours; all do where it is not given.
    """
    sockets = dict(zip(_numbers(node), shape_of_node(node.node).sockets, strict=True))
    own = {gpu.number for gpu in gpus}
    mine = {sockets[number] for number in own if number in sockets}
    found: dict[ProfileKey, None] = {}
    for number, socket in sockets.items():
        if socket in mine and number not in own:
            for booking in load(node.ids[number]).bookings:
                if counts is None or counts(booking.job):
                    found[booking.key] = None
    return tuple(sorted(found, key=str)) if len(found) > 1 else tuple(found)


def _numbers(node: NodeState) -> list[int]:
    """Numbers of a node's GPUs, by position in its shape."""
    return [gpu.index for gpu in node.node.gpus]


def distance_of(nodes: Mapping[str, NodeState], gpus: Sequence[GpuId]) -> float:
    """Sum of the shortest paths between GPUs, of one node or several, that are there (paper C, eq. 3)."""
    own: dict[str, list[int]] = {}
    for gpu in gpus:
        own.setdefault(gpu.node, []).append(gpu.number)
    inside, present = 0.0, list[int]()
    for name, mine in own.items():
        node = nodes[name]
        part = tuple([place for place, number in enumerate(_numbers(node)) if number in mine])
        inside += cost(shape_of_node(node.node), part)
        present.append(len(part))
    ranks = sum(present)
    return inside + ACROSS_MACHINES * ((ranks * ranks - sum([count * count for count in present])) // 2)


def situations_of(state: ClusterContents, job: Job, rule: TurnRule = TurnRule.FAIR) -> tuple[Situation, ...]:
    """A placed job as it runs, one situation for each of its GPUs, equal ones once; none while it waits for one.

    Jobs that rest or end count as gone.
    """
    placement = job.placement
    if placement is None or job.is_on_host:
        return ()
    cores, pressure = _cores(job, placement), _pressure(state, placement)
    if not placement.slots:
        return (Situation(gpus=0, cores=cores, bandwidth_pressure=pressure),)
    # One of several nodes may have let its rank go, or be lost.
    present = [gpu for gpu in placement.gpus if gpu in state.gpus and job.id in state.gpus[gpu].jobs]
    goes = _goes(state)
    near = _near(state, present, goes)
    distance = distance_of(state.nodes, present) if len(present) > 1 else None
    found: dict[Situation, None] = {}
    for gpu in present:
        load = state.gpus[gpu]
        going = tuple([b for b in load.bookings if b.job == job.id or goes(b.job)])
        here = situation_in(GpuLoad(load.id, load.gpu, going), job.id, state.jobs, rule, near)
        found[here._replace(distance=distance, cores=cores, bandwidth_pressure=pressure)] = None
    return tuple(found)


def rates_of(state: ClusterContents, job: Job, rule: TurnRule = TurnRule.FAIR) -> list[Rate]:
    """Rates of a placed job as it runs, one for each of its situations."""
    return [state.beliefs.rate(job.effective, situation) for situation in situations_of(state, job, rule)]


def rate_of(state: ClusterContents, job: Job, rule: TurnRule = TurnRule.FAIR) -> Rate | None:
    """The rate of a placed job as it runs: that of its slowest rank, as all wait for it; None while it has no GPU."""
    return max(rates_of(state, job, rule), key=lambda rate: rate.slowdown, default=None)


def _goes(state: ClusterContents) -> Callable[[JobId], bool]:
    return lambda job: state.jobs[job].state not in RESTING


def _near(state: ClusterContents, gpus: Sequence[GpuId], goes: Callable[[JobId], bool]) -> Near:
    near: dict[ProfileKey, None] = {}
    for name in dict.fromkeys([gpu.node for gpu in gpus]):
        own = [gpu for gpu in gpus if gpu.node == name]
        near.update(dict.fromkeys(near_of(state.nodes[name], own, state.gpus.__getitem__, goes)))
    return tuple(near)


def _cores(job: Job, placement: Placement) -> int | None:
    """Cores a job has booked; None where it shares those near its GPUs."""
    if not job.effective.cores and not job.effective.cores_offered:
        return None
    return sum([len(placement.cores_on(name)) for name in placement.nodes]) or None


def _pressure(state: ClusterContents, placement: Placement) -> float:
    """Bandwidth to host memory that is booked over what there is, on the node of its where that is most."""
    nodes = [state.nodes[name] for name in placement.nodes if name in state.nodes]
    asked = [(node.host_bandwidth_booked, node.node.host_bandwidth_bytes_per_s) for node in nodes]
    return max([booked / has for booked, has in asked if has], default=0.0)
