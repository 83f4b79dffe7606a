"""What the frozen decisions are made on: small workloads drawn from seeds, in whole seconds and steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from types import MappingProxyType

from colane.core.policy import Policy
from colane.lab.simulate.beliefs import Belief, examples, make_beliefs, true_neighbours
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.run import Inputs
from colane.lab.simulate.world import NeutralWorld, Scope, World
from colane.lab.traces.clusters import Cluster
from colane.lab.traces.workload import TraceJob, Workload
from colane.model import topologies
from colane.model.hardware import Gpu, Node
from colane.model.job import CommPattern, JobId, JobKind, JobSpec
from colane.perf.beliefs import Beliefs

from .world import FAMILIES, MIB, FamilyWorld

USERS = ("ann", "bob", "cyd", "dan")
TRAINING = ("resnet", "vgg", "lstm", "recommender", "transformer")


def make_node(name: str, gpus: int, gpu_type: str = "V100", links: str = "", sharing: str = "mps") -> Node:
    """16 GB a GPU, two sockets, 2 cores a GPU."""
    topology = topologies.make(links, gpus, 2) if links else None
    devices = tuple(
        Gpu(
            index=i, uuid=f"{name}-{i}", type=gpu_type, memory_bytes=16_000 * MIB, socket=2 * i // gpus,
            cores=(2 * i, 2 * i + 1), sharing=sharing,
        )
        for i in range(gpus)
    )  # fmt: skip
    cores = tuple(range(2 * gpus))
    return Node(
        name=name, gpus=devices, cores=cores, host_memory_bytes=64_000 * MIB, topology=topology,
        host_bandwidth_bytes_per_s=50_000 * MIB,
    )  # fmt: skip


def draw(seed: int, jobs: int, gap_s: int, make: Callable[[Random, int], tuple[int, JobSpec]]) -> tuple[TraceJob, ...]:
    """Jobs in bursts; `make` gives each its length in whole seconds and what it asks for."""
    random, at_s, made = Random(seed), 0, []
    for number in range(1, jobs + 1):
        at_s += random.choice((0, 0, gap_s // 2, gap_s, 3 * gap_s))
        run_s, spec = make(random, number)
        made.append(TraceJob(id=JobId(number), submit_s=float(at_s), spec=spec, duration_s=float(run_s)))
    return tuple(made)


def gang_job(random: Random, number: int) -> tuple[int, JobSpec]:
    """One GPU or a gang, of some user and priority; most say how long they may take."""
    run_s = random.choice((120, 300, 900, 1800, 5400, 9000))
    spec = JobSpec(
        name=f"job-{number}", family=random.choice(TRAINING), user=random.choice(USERS),
        gpus=random.choice((1, 1, 1, 1, 2, 2, 4)), priority=random.choice((0, 0, 0, 0, 1)),
        time_limit_s=random.choice((None, 2.0 * run_s, run_s + 600.0, run_s + 60.0)), steps_total=run_s,
        preemptible=random.random() < 0.7, cores=random.choice((0, 0, 1, 2)),
        host_memory_bytes=random.choice((0, 4_000 * MIB)), gpu_memory_bytes=random.choice((4_000, 9_000)) * MIB,
        share=random.random() < 0.8,
    )  # fmt: skip
    return run_s, spec


def typed_job(random: Random, number: int) -> tuple[int, JobSpec]:
    """Of a family that likes one GPU type more than another; a few insist on one."""
    run_s, family = random.choice((300, 900, 1800, 3600, 7200)), random.choice(TRAINING)
    spec = JobSpec(
        name=f"job-{number}", family=family, user=random.choice(USERS), gpus=random.choice((1, 1, 1, 2)),
        gpu_type=random.choice((None,) * 8 + ("A100", "V100")), preemptible=random.random() < 0.9,
        steps_total=round(run_s / FAMILIES[family].step_s), batch_size=64, priority=random.choice((0, 0, 0, 1)),
    )  # fmt: skip
    return run_s, spec


def small_job(random: Random, number: int) -> tuple[int, JobSpec]:
    """One of many that leave room on a GPU, some of them servers with an objective."""
    serves = random.random() < 0.15
    run_s, family = random.choice((200, 600, 1200, 3600)), "server" if serves else random.choice(TRAINING)
    spec = JobSpec(
        name=f"job-{number}", family=family, user=random.choice(USERS),
        steps_total=round(run_s / FAMILIES[family].step_s), batch_size=random.choice((32, 64)),
        share=random.random() < 0.95, weight=random.choice((1.0, 1.0, 2.0)),
        kind=JobKind.INFERENCE if serves else JobKind.TRAINING, latency_s=0.75 if serves else None,
        preemptible=random.random() < 0.5, group=random.choice(("", "g")),
    )  # fmt: skip
    if number in MEASURED_SET:
        spec = replace(
            spec, measurement_group="set", measurement_group_size=len(MEASURED_SET), share=True, preemptible=False
        )
        spec = replace(spec, family="lstm", kind=JobKind.TRAINING, latency_s=None)
    return run_s, spec


MEASURED_SET = (9, 12)
"""Jobs of the set that is measured together."""


def linked_job(random: Random, number: int) -> tuple[int, JobSpec]:
    """A gang that talks, with a least utility it asks for."""
    run_s, family = random.choice((300, 900, 1800, 5400)), random.choice(TRAINING)
    spec = JobSpec(
        name=f"job-{number}", family=family, user=random.choice(USERS), gpus=random.choice((1, 1, 2, 2, 3, 4)),
        comm_weight=random.choice((None, 0, 1, 2, 4)), comm_pattern=random.choice(tuple(CommPattern)),
        utility_min=random.choice((0.0, 0.5, 0.7, 0.8, 0.95)), batch_size=random.choice((1, 4, 64, 128)),
        steps_total=round(run_s / FAMILIES[family].step_s), preemptible=random.random() < 0.6,
    )  # fmt: skip
    return run_s, spec


def inputs(
    policy: Policy,
    nodes: Sequence[Node],
    jobs: tuple[TraceJob, ...],
    world: World,
    costs: DriverConfig,
    profiled: Sequence[str] = TRAINING,
) -> Inputs:
    """What one run is made of; the profiles of these families are known beforehand."""
    cluster = Cluster("golden", tuple(nodes))
    known = [job for job in jobs if job.spec.family in profiled]
    profiles = make_beliefs(Belief.PROFILED, world, known, cluster, noise=0.0, seed=0).profiles.values()
    beliefs = Beliefs(profiles=profiles, neighbours=true_neighbours(world, examples(known, cluster)))
    workload = Workload(name="golden", jobs=jobs)
    return Inputs(cluster=cluster, workload=workload, world=world, policy=policy, beliefs=beliefs, driver=costs)


def gangs(policy: Policy, more: int = 0) -> Inputs:
    """One GPU type, gangs on one node, users, priorities, time limits; durations as recorded."""
    nodes = [make_node(f"n{i}", 4) for i in range(3)]
    return inputs(
        policy, nodes, draw(11 + more, 70, 240, gang_job), NeutralWorld(), DriverConfig(restart_s=30, stop_s=10)
    )


def types(policy: Policy, more: int = 0) -> Inputs:
    """Several GPU types, which suit some families more than others."""
    nodes = [make_node("a0", 2, "A100"), make_node("k0", 4, "K80"), make_node("v0", 4), make_node("v1", 2)]
    return inputs(
        policy, nodes, draw(12 + more, 60, 150, typed_job), FamilyWorld(), DriverConfig(restart_s=30, stop_s=10)
    )


def sharing(policy: Policy, more: int = 0) -> Inputs:
    """Many small jobs on few GPUs; two families are unknown at first, servers have objectives."""
    nodes = [make_node("m0", 2), make_node("t0", 2, sharing="time-slice")]
    known = ("resnet", "lstm", "transformer", "server")
    costs = DriverConfig(launch_s=5, restart_s=10, stop_s=5, switch_s=0.125)
    return inputs(policy, nodes, draw(13 + more, 60, 60, small_job), FamilyWorld(), costs, known)


def linked(policy: Policy, more: int = 0) -> Inputs:
    """Machines with links of several kinds, gangs that talk, neighbours on sockets."""
    nodes = [make_node("d0", 8, links="dgx1"), make_node("p0", 4, links="minsky"), make_node("s0", 4)]
    costs = DriverConfig(launch_s=5, restart_s=20, stop_s=5)
    return inputs(policy, nodes, draw(14 + more, 60, 240, linked_job), FamilyWorld(Scope.NODE), costs)


def large_job(random: Random, number: int) -> tuple[int, JobSpec]:
    """Of all kinds at once: small ones that may share, gangs of up to two nodes, urgent and elastic jobs."""
    run_s, family = random.choice((600, 1200, 2400, 4800, 9600)), random.choice(TRAINING)
    gpus = random.choice((1,) * 12 + (2, 2, 4, 4, 8, 16))
    spec = JobSpec(
        name=f"job-{number}", family=family, user=random.choice(USERS), gpus=gpus, multi_node=gpus == 16,
        sizes=(1, 2, 4) if gpus == 4 and number % 2 else (), batch_size=random.choice((32, 64)),
        steps_total=round(run_s / FAMILIES[family].step_s), preemptible=random.random() < 0.7,
        share=random.random() < 0.8, priority=random.choice((0,) * 19 + (1,)),
        time_limit_s=random.choice((None, 6.0 * run_s)), cores=random.choice((0, 0, 1)),
    )  # fmt: skip
    return run_s, spec


def large(policy: Policy, more: int = 0) -> Inputs:
    """A cluster that is full, with a long queue: here what is kept from plan to plan is reached, and must be right."""
    nodes = [make_node(f"n{i:02}", 8, "A100" if i % 4 == 0 else "V100") for i in range(64)]
    costs = DriverConfig(launch_s=5, restart_s=30, stop_s=10)
    return inputs(policy, nodes, draw(16 + more, 2000, 0, large_job), FamilyWorld(), costs)


SIMULATED: Mapping[str, Callable[[Policy, int], Inputs]] = MappingProxyType(
    {"gangs": gangs, "types": types, "sharing": sharing, "linked": linked}
)
"""Each takes a policy, and what is added to its seed: 0 is the draw whose decisions are frozen."""
