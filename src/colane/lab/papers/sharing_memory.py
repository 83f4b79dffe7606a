"""What paper B says of memory, from the authors' own measured tables: no simulation, arithmetic and placement only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Final, NamedTuple

from colane.core import ClusterState, Core
from colane.core.events import NodeRegistered, ProfileDeclared, Submitted
from colane.core.policy import Policy
from colane.lab.papers.claims import Claim, Figure, Sense, Trait, ours
from colane.lab.traces import clusters
from colane.lab.traces.tables.salus import SalusTable, read_geometry, read_mean_bytes, read_memory
from colane.model.hardware import Gpu, Node
from colane.model.job import JobId, JobKind, JobSpec
from colane.model.profile import Memory, Profile, ProfileKey, Value, ValueSource
from colane.perf.beliefs import Beliefs
from colane.perf.config import PerfConfig
from colane.scheduling.mechanisms.lanes.in_lane import ShareWhen
from colane.scheduling.registry import preset

MIB = 1 << 20
GIB = 1 << 30
P100_BYTES = 16 * GIB
MPS_BYTES = 14 * GIB  # what the authors' driver divided by static partitioning

SERVED = (
    "vgg19eval_1", "vgg16eval_1", "vgg11eval_1", "resnet50eval_1", "resnet101eval_1", "resnet152eval_1",
    "overfeateval_1", "inception3eval_1", "inception4eval_1", "googleneteval_1", "alexneteval_1", "seq2seq_small",
    "vaeeval_1", "superreseval_1",
)  # fmt: skip
"""The 14 inference models; three of each are served."""

COPIES = 3
PCIE_BYTES_PER_S = 30e9  # the paper's figure for moving a model to the GPU
FORWARD_RATIO = 1 / 3  # a forward pass against forward, backward and update: the usual estimate
ROUNDING_MIB = 0.05
TOLERANCE = 0.1


class Tables(NamedTuple):
    """Salus's measurements."""

    memory: Mapping[str, Memory]
    mean_bytes: Mapping[str, float]
    geometry: SalusTable


def read_tables(directory: Path) -> Tables:
    """Read them. Raises InputFileError: one of the files is missing or bad."""
    memory = directory / "B" / "salus_mem-baseline.csv"
    geometry = read_geometry(directory / "B" / "workload_geometry.csv")
    return Tables(read_memory(memory), read_mean_bytes(memory), geometry)


# -- B-d: how many GPUs 42 resident models need


def serving_claims(tables: Tables) -> Iterator[Claim]:
    """42 inference models, three of each of 14, by Salus's rule, by first fit, and one GPU each."""
    needs = [tables.memory[name] for name in SERVED]
    names = [name for name in SERVED for _ in range(COPIES)]
    claim = f"GPUs for {len(names)} resident inference models"
    need_mib = serving_bytes(needs) / MIB
    capacity_mib = _p100().memory_bytes / MIB
    used = gpus_used(names, tables.memory, preset("fair", share_when=ShareWhen.ALWAYS))
    memory = ours("memory", f"{need_mib:.0f} MiB of {capacity_mib:.0f} with the paper's safety factors")
    yield Claim("B-d", f"{claim}: the safety condition, one lane", (_count(1, used), memory), MEASURED)
    bins = first_fit_bins([sum(tables.memory[name]) for name in names], MPS_BYTES)
    how = ours("how", "first fit of P + E into 14 GiB")
    yield Claim("B-d-mps", f"{claim}: static partitions", (_count(6, bins), how), MEASURED)
    alone = gpus_used(names, tables.memory, preset("fifo"))
    saved = Figure("over one lane's", 42, alone / used, "x", "section 4", printed="42x", ratio=0.0, digits=0)
    yield Claim("B-d-none", f"{claim}: no sharing", (_count(42, alone), saved), MEASURED)
    over = Figure("", 7, bins / used, "x", "section 4", printed="7x over NVIDIA MPS", ratio=0.0)
    note = "The text says 7 times, and 6 GPUs against 1: its own numbers are six times."
    yield Claim("B-d-over-mps", f"{claim}: static partitions over one lane", (over,), MEASURED, note)


MEASURED = "the authors' own measurements of memory on a P100"


def _count(published: int, found: int) -> Figure:
    return Figure("GPUs", published, found, "", "section 5.3", printed=f"{published} GPU", ratio=0.0, digits=0)


def serving_bytes(needs: Sequence[Memory]) -> float:
    """Memory of three of each in one lane: 3 x sum of P x 1.1 + the largest E x 1.05."""
    factors = PerfConfig()
    persistent = COPIES * sum(need.persistent_bytes for need in needs) * factors.persistent_factor
    return persistent + max(need.ephemeral_bytes for need in needs) * factors.total_factor


def gpus_used(names: Sequence[str], memory: Mapping[str, Memory], policy: Policy) -> int:
    """GPUs a policy puts these resident models on, of as many as there are models."""
    core, gpu = Core(policy, ClusterState(Beliefs())), _p100()
    for number in range(len(names)):
        node = Node(name=f"n{number:02}", gpus=(replace(gpu, uuid=f"gpu-{number}"),), cores=(0,))
        core.step([NodeRegistered(node)], 0.0)
    core.step([ProfileDeclared(_profile(name, memory[name], gpu.type)) for name in sorted(set(names))], 0.0)
    specs = (JobSpec(name=name, family=name, kind=JobKind.INFERENCE) for name in names)
    core.step([Submitted(JobId(number), spec) for number, spec in enumerate(specs, 1)], 0.0, whole=True)
    return sum(bool(load.bookings) for load in core.state.gpus.values())


def first_fit_bins(sizes: Sequence[int], capacity: int) -> int:
    """Bins that first fit needs, in the order given."""
    left: list[int] = []
    for size in sizes:
        place = next((number for number, room in enumerate(left) if size <= room), None)
        if place is None:
            left.append(capacity - size)
        else:
            left[place] -= size
    return len(left)


def _p100() -> Gpu:
    (node,) = clusters.load("paper-b").nodes
    return node.gpus[0]


def _profile(name: str, memory: Memory, gpu_type: str) -> Profile:
    persistent, ephemeral = (Value(float(part), ValueSource.DECLARED) for part in memory)
    key = ProfileKey(name, None, 1, gpu_type)
    return Profile(key=key, persistent_bytes=persistent, ephemeral_bytes=ephemeral)


# -- B-k: what jobs hold between steps and within one


def memory_claims(tables: Tables) -> Iterator[Claim]:
    """P, E and mean use against the numbers in the paper's text."""
    memory = tables.memory
    largest, smallest = memory["resnet152_75"], memory["googlenet_25"]
    stated = Figure("", 822.2, largest.persistent_bytes / MIB, "MiB", "section 2.2", ratio=0.0, slack=ROUNDING_MIB)
    yield Claim("B-k", "memory held between steps, resnet152_75", (stated,), MEASURED)
    stated = Figure("", 110.9, smallest.persistent_bytes / MIB, "MiB", "section 2.2", ratio=0.0, slack=ROUNDING_MIB)
    note = "The authors' published table does not have the number of their text; no other row of it does."
    yield Claim("B-k-least", "memory held between steps, googlenet_25", (stated,), MEASURED, note)
    stated = Figure("", 13.8, largest.ephemeral_bytes / GIB, "GiB", "section 2.2", ratio=0.0, slack=0.05, digits=2)
    yield Claim("B-k-peak", "peak, resnet152_75 (it is E: P is not in it)", (stated,), MEASURED)
    mean, peak = tables.mean_bytes["vae_256"] / MIB, sum(memory["vae_256"]) / MIB
    both = (
        Figure("mean", 22, mean, "MiB", "figure 1", printed="22 MB"),
        Figure("peak", 35, peak, "MiB", "figure 1", printed="35 MB"),
    )
    yield Claim("B-k-vae", "mean and peak of vae_256", both, MEASURED)
    pytorch = "the authors' published tables are TensorFlow's alone"
    shared = Trait("other workloads share TensorFlow's pattern", None, where="figure 1", unjudged=pytorch)
    in_pytorch = (
        shared,
        Figure("average", 156, None, "MB", "figure 16", printed="156 MB", unjudged=pytorch),
        Figure("peak", 185, None, "MB", "figure 16", printed="185 MB", unjudged=pytorch),
    )
    what = "average and peak memory in PyTorch, of vae"
    yield Claim("B-k-pytorch", what, in_pytorch, note=f"{pytorch.capitalize()}.")
    yield Claim("B-k-over-time", "memory over time", _over_time(tables), MEASURED, f"{UNSAID.capitalize()}.")
    ratios = {name: mean / P100_BYTES for name, mean in tables.mean_bytes.items()}
    worst = max(ratios, key=lambda name: ratios[name])
    stated = Figure(
        f"most ({worst})", 50, 100 * ratios[worst], "%", "section 1", printed="50%", bound=Sense.BELOW, digits=0
    )
    yield Claim("B-k-mean", "mean use of a P100's memory, every workload", (stated,), MEASURED)


UNSAID: Final = "no trace of single allocations is published"
LESS_MAX: Final = 0.5  # of what is held within a step, held between steps: less is taken for significantly less


def _over_time(tables: Tables) -> tuple[Trait, ...]:
    """What is held between steps against what comes and goes with each, of every training workload."""
    memory = {name: tables.memory[name] for name in tables.geometry.geometry if name in tables.memory}
    parts = {name: one.persistent_bytes / one.ephemeral_bytes for name, one in memory.items()}
    most, deep = max(parts, key=lambda name: parts[name]), memory["resnet101_75"]
    pairs = list(combinations(memory.values(), 2))
    fit = sum(a.persistent_bytes + b.persistent_bytes + max(a[1], b[1]) <= P100_BYTES for a, b in pairs)
    trough = f"resnet101_75: {deep.persistent_bytes / GIB:.1f} of {sum(deep) / GIB:.1f} GiB between steps"
    less = f"{parts['inception3_50']:.0%} of it, inception3_50; at most {parts[most]:.0%} ({most})"
    return (
        Trait("each iteration has a peak, and a trough between", parts["resnet101_75"] < LESS_MAX, trough, "figure 2"),
        Trait("persistent memory is significantly less than ephemeral", parts[most] < LESS_MAX, less, "section 3.1"),
        Trait("two jobs' persistent memory fits beside either's ephemeral", fit == len(pairs),
              f"{fit} of {len(pairs)} pairs on a P100", "section 3.1"),
        Trait("most allocations are ephemeral, and small", None, where="figure 5", unjudged=UNSAID),
    )  # fmt: skip


# -- B-l: moving a model to the GPU against answering with it


def transfer_claim(tables: Tables) -> Claim:
    """P / 30 GB/s against an estimate of one answer: a third of what training takes for one more sample."""
    models = {_model(name) for name in tables.geometry.geometry}
    cnns = [model for model in sorted(models) if f"{model}eval_1" in tables.memory]
    transfers = {name: tables.memory[f"{name}eval_1"].persistent_bytes / PCIE_BYTES_PER_S for name in cnns}
    ratios = {name: transfer_s / answer_s(tables, name) for name, transfer_s in transfers.items()}
    above = [name for name, ratio in ratios.items() if ratio > 1]
    found = (
        f"{min(transfers.values()) * 1e3:.1f} to {max(transfers.values()) * 1e3:.1f} ms; longer than the estimated "
        f"answer for {len(above)} of {len(ratios)} CNNs"
    )
    order = Trait("it does for several models", len(above) > 1, found, "figure 4")
    world = f"{MEASURED}; an answer is taken as a third of training's time per sample"
    speed = Figure(
        "speed of the transfer", 30, PCIE_BYTES_PER_S / 1e9, "GB/s", "figure 4", printed="30 GB/s",
        given="the paper's own is taken",
    )  # fmt: skip
    return Claim("B-l", "moving P to the GPU can take longer than an inference", (order, speed), world)


def answer_s(tables: Tables, model: str) -> float:
    """Estimated time of a forward pass of one sample: slope of training's step time over the two smallest batches."""
    batches = sorted(int(name.rpartition("_")[2]) for name in tables.geometry.geometry if _model(name) == model)
    small, large = (tables.geometry.geometry[f"{model}_{batch}"].step_s for batch in batches[:2])
    return (large - small) / (batches[1] - batches[0]) * FORWARD_RATIO


def _model(workload: str) -> str:
    return workload.rpartition("_")[0]
