"""Answers about nodes; the node object is also what its agent is told to make true."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from typing_extensions import TypedDict

from colane.api.of_record import Sent
from colane.model.bounds import WORD_MAX, Bounds, Count, Name, Ratio, ShortWord, Size, several, text, within
from colane.model.field_values import CORES_MAX, GPUS_MAX, NO_CONTROLS
from colane.model.hardware import Gpu, Topology
from colane.model.versions import LINKS
from colane.model.words import count


def _link(value: tuple[str, int, float]) -> tuple[str, int, float]:
    """Only NVLinks are bonded, so a link that is read as another has none."""
    kind, lanes, bandwidth_bytes_per_s = value
    known = LINKS.read(kind)
    return known, lanes if known == kind else 0, bandwidth_bytes_per_s


LinkRow = Annotated[tuple[ShortWord, Annotated[int, within(0, 1_000)], Ratio], Bounds((("strict", False),), _link)]
"""Kind, NVLinks bonded, bytes per second in one direction (0 unknown); see `model.Link`. JSON has lists for tuples."""
Core = Annotated[int, within(0, CORES_MAX - 1)]
Cores = Annotated[list[Core], several(CORES_MAX)]


class EpochObject(TypedDict):
    """One start of a scheduler."""

    number: Count
    id: Annotated[str, text(200)]


class ClusterObject(TypedDict):
    """By what an agent knows a scheduler again: the cluster, the scheduler's start, and how far the store is by now.

    `events` is how many events there were, `store_version` how many transactions.
    """

    cluster_id: str
    epoch: EpochObject
    events: int
    store_version: int


class GpuObject(TypedDict):
    """A device; see `model.Gpu`."""

    index: Annotated[int, within(0, GPUS_MAX - 1)]
    uuid: Name
    type: Name
    memory_bytes: Size
    socket: Annotated[int, within(0, CORES_MAX)]
    cores: Cores
    healthy: bool
    foreign_bytes: Size
    others_ratio: Ratio
    sharing: Annotated[str, text(WORD_MAX, NO_CONTROLS)]


def _is_square(topology: dict[str, Any]) -> dict[str, Any]:
    """Return a topology that holds together.

    Raises:
        ValueError: It does not.
    """
    links, size, switches = topology["links"], len(topology["sockets"]), len(topology.get("switches", ()))
    if len(links) != size or any(len(row) != size for row in links):
        raise ValueError(f"links must be a square of {size} x {size}, one row for each of the sockets")
    if switches not in {0, size}:
        raise ValueError(f"switches has {count(switches, 'entry')} for {count(size, 'socket')}")
    for a, row in enumerate(links):
        if [b for b, link in enumerate(row) if link[0] == "X"] != [a]:
            raise ValueError(f"links[{a}] must be X at [{a}], a GPU and itself, and nowhere else")
        for b in range(a):
            if row[b][:2] != links[b][a][:2]:
                raise ValueError(f"links[{a}][{b}] is {row[b][0]}, links[{b}][{a}] is {links[b][a][0]}")
    return topology


class TopologyObject(TypedDict):
    """How the GPUs of a node are connected, by position in `gpus`; see `model.Topology`."""

    links: Annotated[list[Annotated[list[LinkRow], several(GPUS_MAX)]], several(GPUS_MAX)]
    sockets: Annotated[list[Annotated[int, within(0, CORES_MAX)]], several(GPUS_MAX)]
    switches: Annotated[list[Annotated[int, within(-1, CORES_MAX)]], several(GPUS_MAX)]
    nvswitch: bool


SentGpu = Annotated[dict[str, Any], Sent(Gpu, GpuObject)]
SentTopology = Annotated[dict[str, Any], Sent(Topology, TopologyObject), Bounds(read=_is_square)]


class DrainObject(TypedDict):
    """Why a node takes no new jobs; see `model.Drain`."""

    by: str
    reason: str
    since_s: float
    deadline_s: float | None


class ReservationObject(TypedDict):
    """That a node is kept for users for a time; see `model.KeptFor`."""

    name: str
    users: list[str]
    from_s: float
    to_s: float
    by: str


class ReservedObject(ReservationObject):
    """A reservation with its nodes."""

    nodes: list[str]


class UnreservedAnswer(TypedDict):
    """A reservation that is no more."""

    unreserved: str


class HardwareObject(TypedDict):
    """A node as `model.Node` has it; `closed` is why it was taken out, and until when."""

    name: str
    gpus: list[GpuObject]
    cores: list[int]
    host_memory_bytes: int
    host_bandwidth_bytes_per_s: int
    pool: str
    address: str
    agent_id: str
    topology: TopologyObject | None
    host_refusal: str
    drain: DrainObject | None
    notice: DrainObject | None
    closed: tuple[str, float] | None
    reservations: list[ReservationObject]
    park_s: float
    to_host_bytes_per_s: float


class TurnsObject(TypedDict):
    """How the jobs of one lane take turns; see `model.Turns`."""

    rule: str
    quantum_s: float | None


class BandwidthWishObject(TypedDict):
    """How often an agent is to report which job uses how much of its memory's bandwidth."""

    interval_s: float


class BandwidthUseObject(TypedDict):
    """How much of its memory's bandwidth a node used lately, by what measure; see `model.BandwidthSample`."""

    at_s: float
    used_ratio: float
    by: str


class SlotObject(TypedDict):
    """A device of a job's, by its index, and the job's lane there."""

    gpu: int
    lane: int


class GangObject(TypedDict):
    """Where a node's ranks stand in a job that spans several nodes."""

    nodes: list[str]
    node_rank: int
    rank_first: int
    world_size: int
    address: str | None
    port: int


class SaveObject(TypedDict):
    """How a job is asked to save its state now; with `ranks` it is to go on as so many.

    `number` says which asking of its attempt it is.
    """

    signal: str
    number: int
    ranks: NotRequired[int]


class DesiredJobObject(TypedDict):
    """A job that is placed on a node, as the scheduler wants it there.

    `memory` is what it holds between steps and within one on top of that, booked on each of its devices, in bytes.
    """

    id: int
    attempt: int
    run: bool
    halt: bool
    because: str
    slots: list[SlotObject]
    cores: list[int]
    bandwidth_ratio: float
    gang: GangObject | None
    time_limit_s: float | None
    memory_limit_bytes: int
    weight: float
    priority: int
    kind: str
    paused: bool
    to_host: bool
    at_rest: bool
    on_host: bool
    save: SaveObject | None
    steps_total: int | None
    flush: bool
    memory: tuple[int, int] | None


class BookedObject(TypedDict):
    """What jobs hold of a node: devices and cores, each counted once, and host memory."""

    gpus: int
    cores: int
    host_memory_bytes: int


class ShownNodeObject(HardwareObject):
    """A node, the whole desired state of its jobs, and how those of one lane take turns."""

    generation: int
    state: str
    lost: bool
    last_seen_s: float | None
    messages: list[str]
    runs_as: str
    agent_version: str
    scheduler_version: str
    turns: TurnsObject
    bandwidth: BandwidthWishObject | None
    bandwidth_use: BandwidthUseObject | None
    booked: BookedObject
    jobs: list[DesiredJobObject]


class NodeObject(ShownNodeObject, ClusterObject):
    """The answer of `/node/{name}` and of a report."""

    leased: bool
    lease_s: float | None


class FinishedAnswer(ClusterObject):
    """The answer of `/finished_job`: whether the end is of the attempt that runs."""

    believed: bool


class FinishedJobsAnswer(ClusterObject):
    """The answer of `POST /finished_jobs`: of each end, in their order, whether it is of the attempt that runs."""

    believed: list[bool]


class RemovedNodesAnswer(TypedDict):
    """Nodes that are forgotten; those that waited for their agents, too, if there are any."""

    removed: list[str]
    without_agent: NotRequired[list[str]]


class DrainedAnswer(TypedDict):
    """Nodes that take no new jobs."""

    drained: list[str]


class UndrainedAnswer(TypedDict):
    """Nodes that take jobs again."""

    undrained: list[str]


class BatchObject(TypedDict):
    """How many samples a step of a job takes: of all its GPUs, or of each."""

    size: int
    per_gpu: bool


class LaunchSpecObject(TypedDict, total=False):
    """What is kept for a job's launch; one that an older Colane took in lacks the newer fields."""

    command: list[str]
    workdir: str
    env: dict[str, str]
    mps: bool
    ranks: str
    elastic: bool
    batch: BatchObject
    checkpoint_signal: str
    checkpoint_lead_s: float
    checkpoint_to_shell: bool
    output: str
    input: str
    pty: bool


class ElementObject(TypedDict):
    """What an element is told of its array: the array's id, its own index, how many there are, and in what range."""

    id: int
    index: int
    count: int
    min: int
    max: int


class LaunchArrayObject(TypedDict, total=False):
    """Of which array a job is an element; nothing of any other job."""

    array: ElementObject


class JobTokenObject(TypedDict, total=False):
    """The job's own token, which agents alone are told."""

    token: str


class LaunchObject(LaunchSpecObject, LaunchArrayObject, JobTokenObject):
    """The answer of `/job/{id}/launch`."""

    id: int
    attempt: int
    name: str
    user: str
    gpus: int
    gpu_memory_bytes: int | None
    labels: dict[str, str]


class PoolObject(TypedDict):
    """What jobs of a pool may be: how long they run, whose they are, how they are served; null bounds nothing.

    `features` are those that its nodes may have, with the names of all nodes that have each.
    """

    name: str
    time_limit_max_s: float | None
    time_limit_default_s: float | None
    users: list[str] | None
    groups: list[str] | None
    qos: list[str] | None
    features: dict[str, list[str]]


class QosObject(TypedDict):
    """How jobs may be served by one name (`qos`), and whose they may be; null bounds nothing."""

    name: str
    priority: int
    time_limit_max_s: float | None
    gpus_max: int | None
    users: list[str] | None
    groups: list[str] | None


class AgentSettingsAnswer(TypedDict):
    """The answer of `/agent_settings`: what agents are set to where nothing else is said to them, and their lease."""

    settings: dict[str, str | int | float | bool]
    lease_s: float
