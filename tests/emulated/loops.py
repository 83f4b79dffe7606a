"""Training loops as people write them, on GPUs, which know nothing of Colane: run as a program.

Arguments: the shape, the number of steps, and milliseconds of a kernel. What computes is `Work`: kernels of a known
time, by `torch.cuda._sleep`. Prints what its parameters have come to, and how many kernels all its steps but the
first, or the first three calls, have.
"""

# ruff: noqa: T201, PLW0603

from __future__ import annotations

import gc
import itertools
import os
import queue
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import torch

KERNELS = 4
CALLS_FIRST = 3
"""Calls of a model may be trials: those of a loop that only calls one are told from here on."""
each_ns = 2_000_000


def kernels(count: int = KERNELS) -> None:
    for _ in range(count):
        torch.cuda._sleep(each_ns)


class _Work(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.device = torch.cuda.current_device()
        kernels()
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        with torch.cuda.device(ctx.device):  # as a CUDA build does by itself
            kernels()
        return grad


class Net(torch.nn.Module):  # type: ignore[misc]
    work = staticmethod(_Work.apply)
    made: ClassVar[list[Net]] = []

    def __init__(self) -> None:
        super().__init__()
        self.made.append(self)
        self.first, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.work(self.first(x)))


def setup() -> tuple[Net, Any, torch.Tensor]:
    net = Net().to("cuda")
    return net, torch.optim.SGD(net.parameters(), lr=0.01), torch.randn(8, 4).to("cuda")


def train(net: Net, optimizer: Any, x: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    loss = net(x).sum()
    loss.backward()
    optimizer.step()
    return loss


def plain(steps: int) -> int:
    net, optimizer, x = setup()
    for _ in range(steps):
        train(net, optimizer, x)
    return (steps - 1) * 2 * KERNELS


def reads_each_loss(steps: int) -> int:
    net, optimizer, x = setup()
    for _ in range(steps):
        train(net, optimizer, x).item()
    return (steps - 1) * 2 * KERNELS


def reads_tenth_loss(steps: int) -> int:
    net, optimizer, x = setup()
    for step in range(steps):
        loss = train(net, optimizer, x)
        if step % 10 == 9:
            float(loss.detach())
    return (steps - 1) * 2 * KERNELS


def accumulates(steps: int) -> int:
    net, optimizer, x = setup()
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(3):
            net(x).sum().backward()
        optimizer.step()
    return (steps - 1) * 3 * 2 * KERNELS


def gan(steps: int) -> int:
    one, two = setup(), setup()
    for _ in range(steps):
        train(*one)
        train(*two)
    return (steps - 1) * 2 * 2 * KERNELS


def mixed_precision(steps: int) -> int:
    """Every fifth step overflows and is skipped."""
    net, optimizer, x = setup()
    scaler = torch.amp.GradScaler("cuda", init_scale=16.0)
    for step in range(steps):
        optimizer.zero_grad()
        loss = net(x).sum() * (float("inf") if step % 5 == 4 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return (steps - 1) * 2 * KERNELS


def lbfgs(steps: int) -> int:
    net, _, x = setup()
    optimizer = torch.optim.LBFGS(net.parameters(), lr=1e-4, max_iter=2, tolerance_change=0, tolerance_grad=0)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = net(x).pow(2).sum()
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    return (steps - 1) * 2 * 2 * KERNELS


def graph(steps: int) -> int:
    """The whole network in a CUDA graph: three steps to warm up, then replays only."""
    net, optimizer, x = setup()
    for _ in range(3):
        train(net, optimizer, x)
    recorded = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(recorded):
        net(x).sum().backward()
        optimizer.step()
    for _ in range(steps - 3):
        recorded.replay()
    return 2 * 2 * KERNELS + steps - 3


def graph_then_saves(steps: int) -> int:
    """Its last replays are launched at once, and a state is saved before the process ends."""
    made = graph(steps)
    torch.cuda.synchronize()
    time.sleep(0.5)
    return made


def graph_inference(steps: int) -> int:
    """PyTorch's own recipe: warmed up on another stream, captured, replayed."""
    net, x = Net().to("cuda").eval(), torch.randn(8, 4).to("cuda")
    side, recorded = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.no_grad():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                net(x)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(recorded):
            net(x)
        for _ in range(steps - 3):
            recorded.replay()
    return steps - CALLS_FIRST


def graph_sizes(steps: int) -> int:
    """As servers of language models begin: the largest batch first, warmed up and captured, all in one pool."""
    net = Net().to("cuda").eval()
    pool, stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
    graphs, sizes = [], (8, 4, 2, 1)
    with torch.inference_mode(), torch.cuda.stream(stream):
        for size in sizes:
            x = torch.zeros(size, 4).to("cuda")
            for _ in range(2):
                net(x)
            torch.cuda.synchronize()
            graphs.append(torch.cuda.CUDAGraph())
            with torch.cuda.graph(graphs[-1], pool=pool, stream=stream):
                net(x)
        for step in range(steps - 2 * len(sizes)):
            graphs[step % len(sizes)].replay()
        stream.synchronize()
    return (2 * len(sizes) - CALLS_FIRST) * KERNELS + steps - 2 * len(sizes)


def graph_pieces(steps: int) -> int:
    """Each half of a model is captured in the first call, and replayed in all: what cannot be captured lies between."""

    class Pieces(Net):
        def __init__(self) -> None:
            super().__init__()
            self.halves: list[torch.cuda.CUDAGraph] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for half in range(2):
                if len(self.halves) == half:
                    self.halves.append(torch.cuda.CUDAGraph())
                    with torch.cuda.graph(self.halves[-1]):
                        kernels()
                self.halves[half].replay()
            return self.last(self.first(x))

    net, x = Pieces().to("cuda").eval(), torch.randn(8, 4).to("cuda")
    with torch.inference_mode():
        for _ in range(steps):
            net(x)
    return (steps - CALLS_FIRST) * 2


def engine(steps: int) -> int:
    """As SGLang starts and serves: what a largest batch takes is measured, the rest of the memory is taken for a cache,
    parts of the model are compiled, and a graph captured for each size, the largest first, all in one pool, with
    nothing collected meanwhile; requests are filled up to the nearest size."""
    net, sizes = Net().to("cuda").eval(), (8, 4, 2, 1)
    net.work = torch.compiler.disable(_Work.apply)
    run = torch.compile(net, backend="eager", dynamic=False)
    inputs = torch.zeros(sizes[0], 4).to("cuda")
    graphs: dict[int, torch.cuda.CUDAGraph] = {}
    pool, stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
    with torch.inference_mode():
        torch.cuda.reset_peak_memory_stats()
        run(inputs)
        torch.cuda.synchronize()
        assert torch.cuda.max_memory_allocated() >= 0
        torch.cuda.empty_cache()
        cache = torch.zeros(2**20).to("cuda")
        torch.cuda.synchronize()
        gc.collect()
        gc.freeze()
        with torch.cuda.stream(stream):
            for size in sizes:
                for _ in range(2):
                    run(inputs[:size])
                    torch.cuda.synchronize()
                graphs[size] = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graphs[size], pool=pool, stream=stream):
                    run(inputs[:size])
        gc.unfreeze()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        calls = 1 + 2 * len(sizes)
        for step in range(steps - calls):
            asked = step % sizes[0] + 1
            graphs[min(size for size in sizes if size >= asked)].replay()
            torch.cuda.current_stream().synchronize()
    del cache
    return (calls - CALLS_FIRST) * KERNELS + steps - calls


def graph_by_hand(steps: int) -> int:
    """The whole iteration is captured, and no optimizer of PyTorch's makes the update."""
    net, x = Net().to("cuda"), torch.randn(8, 4).to("cuda")

    def step() -> None:
        net.zero_grad()
        net(x).sum().backward()
        with torch.no_grad():
            for one in net.parameters():
                one.sub_(0.01 * one.grad)

    for _ in range(5):
        step()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        step()
    for _ in range(steps - 5):
        recorded.replay()
    return (5 - CALLS_FIRST) * 2 * KERNELS + steps - 5


def graphed(steps: int) -> int:
    """A module that trains is made into graphs before its optimizer is there."""
    net, x = Net().to("cuda").train(), torch.randn(8, 4).to("cuda")
    net = torch.cuda.make_graphed_callables(net, (x,))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(steps):
        train(net, optimizer, x)
    return (steps - 1) * 2


def graphed_frozen(steps: int) -> int:
    """A teacher that does not train is made into a graph once the optimizer of its pupil is there."""
    net, optimizer, x = setup()
    teacher = Net().to("cuda").eval().requires_grad_(False)
    teacher = torch.cuda.make_graphed_callables(teacher, (x,))
    for _ in range(steps):
        teacher(x)
        train(net, optimizer, x)
    return (steps - 1) * (1 + 2 * KERNELS)


def captures_beside(steps: int) -> int:
    """Another thread captures a graph, for as long as the loop makes ten steps."""
    net, optimizer, x = setup()
    begun, enough = threading.Event(), threading.Event()

    def record() -> None:
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=torch.cuda.Stream()):
            kernels()
            begun.set()
            enough.wait()

    thread = threading.Thread(target=record)
    for step in range(steps):
        if step == 5:
            thread.start()
            begun.wait()
        train(net, optimizer, x)
        if step == 15:
            enough.set()
            thread.join()
    return (steps - 1) * 2 * KERNELS


def evaluates(steps: int) -> int:
    net, optimizer, x = setup()
    for step in range(steps):
        train(net, optimizer, x)
        if step % 4 == 3:
            net.eval()
            with torch.no_grad():
                net(x).sum().item()
            net.train()
    return (steps - 1) * 2 * KERNELS + steps // 4 * KERNELS


def several_streams(steps: int) -> int:
    """Half of the work is on another stream, which the next step waits for."""
    net, optimizer, x = setup()
    side = torch.cuda.Stream()
    for _ in range(steps):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            kernels()
        torch.cuda.current_stream().wait_stream(side)
        train(net, optimizer, x)
    return (steps - 1) * 3 * KERNELS


def side_thread(steps: int) -> int:
    """Another thread launches as many kernels for each step."""
    net, optimizer, x = setup()
    for _ in range(steps):
        thread = threading.Thread(target=kernels)
        thread.start()
        optimizer.zero_grad()
        net(x).sum().backward()
        thread.join()
        optimizer.step()
    return (steps - 1) * 3 * KERNELS


def copies_ahead(steps: int) -> int:
    net, optimizer, x = setup()
    data = [torch.randn(8, 4).pin_memory() for _ in range(4)]
    for step in range(steps):
        x = data[step % 4].to("cuda", non_blocking=True)
        train(net, optimizer, x)
    return (steps - 1) * 2 * KERNELS


def second_gpu(steps: int) -> int:
    """All is on GPU 1, and GPU 0 is the current one."""
    net = Net().to("cuda:1")
    optimizer, x = torch.optim.SGD(net.parameters(), lr=0.01), torch.randn(8, 4).to("cuda:1")
    for _ in range(steps):
        with torch.cuda.device(1):
            loss = net(x).sum()
        optimizer.zero_grad()
        with torch.cuda.device(1):
            loss.backward()
        optimizer.step()
    torch.cuda.synchronize(1)  # the end waits for the current one, and steps that are under way then are not timed
    return (steps - 1) * 2 * KERNELS


def two_gpus(steps: int) -> int:
    """The first half of the model is on GPU 0, the second on GPU 1, which waits for it."""
    net, optimizer, x = setup()
    net.last.to("cuda:1")
    ready = torch.cuda.Event()
    back = torch.cuda.Event()
    for _ in range(steps):
        net.first(x)
        kernels()
        ready.record()
        with torch.cuda.device(1):
            torch.cuda.current_stream().wait_event(ready)
            kernels()
            back.record()
        torch.cuda.current_stream().wait_event(back)
        train(net, optimizer, x)
    return (steps - 1) * 4 * KERNELS


def data_parallel(steps: int) -> int:
    """Half of each batch on each of two GPUs."""
    net = torch.nn.DataParallel(Net(), device_ids=[0, 1]).to("cuda")
    optimizer, x = torch.optim.SGD(net.parameters(), lr=0.01), torch.randn(8, 4).to("cuda")
    for _ in range(steps):
        train(net, optimizer, x)
    return (steps - 1) * 2 * 2 * KERNELS


def forks(steps: int) -> int:
    net, optimizer, x = setup()
    for step in range(steps):
        train(net, optimizer, x)
        if step == 5:
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)
    return (steps - 1) * 2 * KERNELS


def refuses_statistics(steps: int) -> int:
    """Its allocator keeps none."""
    os.environ["EMULATED_STATISTICS"] = "refused"
    return plain(steps)


def compiled(steps: int) -> int:
    net, optimizer, x = setup()
    run = torch.compile(net, backend="eager")
    for _ in range(steps):
        optimizer.zero_grad()
        run(x).sum().backward()
        optimizer.step()
    return (steps - 1) * 2 * KERNELS


def inductor(steps: int) -> int:
    """What is compiled are the parts around the kernels: traced, these would run once."""
    Net.work = staticmethod(torch.compiler.disable(_Work.apply))
    net, optimizer, x = setup()
    run = torch.compile(net)
    for _ in range(steps):
        optimizer.zero_grad()
        run(x).sum().backward()
        optimizer.step()
    return (steps - 1) * 2 * KERNELS


class _Helper(threading.Thread):
    """Launches kernels when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.orders: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.done: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        while self.orders.get():
            kernels()
            self.done.put(True)

    def launch(self) -> None:
        self.orders.put(True)
        self.done.get()


def thread_beside(steps: int, helper: _Helper | None = None) -> int:
    """A thread that lives as long as the loop launches what each step begins with, the first before any module."""
    net, optimizer, x = setup()
    helper = helper or _Helper()
    for _ in range(steps):
        helper.launch()
        train(net, optimizer, x)
    helper.orders.put(False)
    return (steps - 1) * 3 * KERNELS


def thread_before(steps: int) -> int:
    """That thread is there before the model is moved."""
    return thread_beside(steps, _Helper())


def pool_beside(steps: int) -> int:
    """A pool of threads launches half of the work."""
    pool = ThreadPoolExecutor(1)
    net, optimizer, x = setup()
    for _ in range(steps):
        half = pool.submit(kernels)
        optimizer.zero_grad()
        half.result()
        net(x).sum().backward()
        optimizer.step()
    pool.shutdown()
    return (steps - 1) * 3 * KERNELS


class Actor:
    """Calls a model of its own all the time, beside the loop, as one that plays does."""

    def __init__(self) -> None:
        self.net = Net().to("cuda").eval()
        self.is_over = threading.Event()
        self.told_at: tuple[int, ...] = ()
        """After so many acts it prints a line."""

    def act(self) -> None:
        with torch.no_grad():
            for number in itertools.count(1):
                if self.is_over.is_set():
                    break
                self.net(torch.randn(8, 4))
                torch.cuda.current_stream().synchronize()
                if number in self.told_at:
                    print(number, flush=True)

    def launch(self) -> None:
        """It knows no model: nothing says when it begins."""
        while not self.is_over.wait(0.005):
            kernels(2)


def _with_thread(steps: int, work: str) -> int:
    net, optimizer, x = setup()
    actor = Actor()
    thread = threading.Thread(target=getattr(actor, work), daemon=True)
    thread.start()
    for _ in range(steps):
        train(net, optimizer, x).item()
    actor.is_over.set()
    thread.join()
    return (steps - 1) * 2 * KERNELS


def actor_beside(steps: int) -> int:
    return _with_thread(steps, "act")


def kernels_beside(steps: int) -> int:
    return _with_thread(steps, "launch")


def process_beside(steps: int) -> int:
    """A second process that acts, as that of a simulator."""
    net, optimizer, x = setup()
    train(net, optimizer, x).item()
    acts = [sys.executable, __file__, "acts", "0", str(each_ns / 1e6)]
    second = subprocess.Popen(acts, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert second.stdout is not None
    second.stdout.readline()  # it acts
    for _ in range(steps - 1):
        train(net, optimizer, x).item()
    second.stdout.readline()  # it has acted for a while
    second.communicate()
    return (steps - 1) * 2 * KERNELS


def acts(_: int) -> int:
    actor = Actor()
    actor.told_at = 1, 50

    def wait() -> None:
        sys.stdin.read()
        actor.is_over.set()

    threading.Thread(target=wait).start()
    actor.act()
    return 0


def holds(steps: int) -> int:
    """A tensor of 64 MiB beside its weights, and steps that read their loss."""
    kept = torch.zeros(16 * 2**20).to("cuda")
    made = reads_each_loss(steps)
    del kept
    return made


def holds_without_statistics(steps: int) -> int:
    os.environ["EMULATED_STATISTICS"] = "refused"
    return holds(steps)


def holds_what_stays(steps: int) -> int:
    """Steps that need 256 MiB more in between, and what `HOLDS` names: it is not used, and stays with the job.

    `fragments`: as PyTorch's blocks of which parts are used, those of cudaMallocAsync under its threshold, and pages
    of expandable segments, which are larger than what lies in them.
    """
    from emulated_cuda import torch_cuda as emulated  # type: ignore[import-not-found]  # noqa: PLC0415

    what, size = os.environ["HOLDS"], 192 * 2**20
    net, optimizer, x = setup()
    recorded = torch.cuda.CUDAGraph()
    if what == "pool":
        train(net, optimizer, x)
        torch.cuda.synchronize()
        with torch.cuda.graph(recorded):
            emulated.allocate(size)
            net(x)
            emulated.free(size)
    elif what == "fragments":
        emulated.scatter(size)
    elif what == "libraries":
        emulated.take_outside(size)
    elif what == "workspaces":
        emulated.allocate(size)
    for step in range(steps):
        if step == 30 and what == "late":  # after the first trial
            emulated.allocate(3 * size)
            emulated.free(3 * size)
            emulated.scatter(size)
        optimizer.zero_grad()
        emulated.allocate(256 * 2**20)
        net(x).sum().backward()
        emulated.free(256 * 2**20)
        optimizer.step()
    return (steps - 1) * 2 * KERNELS


def loses_its_steps(steps: int) -> int:
    """Three steps, and then nothing but replays of a graph whose updates no optimizer makes."""
    net, optimizer, x = setup()
    for _ in range(3):
        train(net, optimizer, x)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        net(x).sum().backward()
    for _ in range(steps):
        recorded.replay()
    return 2 * 2 * KERNELS + steps


def with_cupy(steps: int) -> int:
    """CuPy prepares the data once the model is there, and as many kernels of each step are its, before the model's."""
    import cupy  # type: ignore[import-not-found]  # noqa: PLC0415 - the other loops start without it

    net, optimizer, x = setup()
    for _ in range(50 * KERNELS):
        cupy.spin(each_ns)
    for _ in range(steps):
        for _ in range(KERNELS):
            cupy.spin(each_ns)
        train(net, optimizer, x)
    return (steps - 1) * 3 * KERNELS


def kernels_before_the_model(steps: int) -> int:
    """The main thread computes on its GPU for long before there is a module, an optimizer or a step."""
    data = torch.zeros(4).to("cuda")
    kernels(50 * KERNELS)
    data.cpu()
    return plain(steps)


def asserts(steps: int) -> int:
    """An assertion of a kernel fails in its last step, as an index out of range does."""
    from emulated_cuda import torch_cuda  # noqa: PLC0415

    made = reads_each_loss(steps)
    where = "block: [0,0,0], thread: [3,0,0] Assertion `srcIndex < srcSelectDimSize` failed."
    print(f"indexSelectSmallIndex: {where}", file=sys.stderr, flush=True)
    torch_cuda.fail("device-side assert triggered")
    return made


def _weights(net: Net) -> float:
    parts = (one.detach() for one in net.parameters())
    return float(sum(getattr(part, "_local_tensor", part).double().sum() for part in parts))


def ranks(steps: int) -> int:
    """One of several ranks, each on a GPU of its own, which wait for each other in every step."""
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.distributed.init_process_group("gloo")
    net = torch.nn.parallel.DistributedDataParallel(Net().to(f"cuda:{local}"))
    optimizer, x = torch.optim.SGD(net.parameters(), lr=0.01), torch.randn(8, 4).to(f"cuda:{local}")
    for _ in range(steps):
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()
    torch.cuda.synchronize()
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    return (steps - 1) * 2 * KERNELS


def _in_ranks() -> int:
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.distributed.init_process_group("nccl")
    return local


def _leave_ranks() -> None:
    torch.cuda.synchronize()
    torch.distributed.destroy_process_group()


def ranks_in_flight(steps: int) -> int:
    """DDP whose collectives meet on the GPUs: hosts launch steps ahead of each other; one is slower than the others."""
    local = _in_ranks()
    net = torch.nn.parallel.DistributedDataParallel(Net().to(f"cuda:{local}"))
    optimizer, x = torch.optim.SGD(net.parameters(), lr=0.01), torch.randn(8, 4).to(f"cuda:{local}")
    for _ in range(steps):
        train(net, optimizer, x)
        kernels(local)
    _leave_ranks()
    return (steps - 1) * (2 * KERNELS + 1)


def sharded(steps: int) -> int:
    """FSDP2: parameters are gathered before they are used, gradients scattered."""
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 - the other loops start without it

    local = _in_ranks()
    net = Net().to(f"cuda:{local}")
    mesh = torch.distributed.init_device_mesh("cpu", (2,))
    fully_shard(net.last, mesh=mesh)
    fully_shard(net, mesh=mesh)
    optimizer, x = torch.optim.SGD(net.parameters(), lr=0.01), torch.randn(8, 4).to(f"cuda:{local}")
    for _ in range(steps):
        train(net, optimizer, x)
    _leave_ranks()
    return (steps - 1) * 2 * KERNELS


def sharded_flat(steps: int) -> int:
    """FSDP 1: each part's parameters are one flat tensor."""
    from torch.distributed.fsdp import FullyShardedDataParallel as Fsdp  # noqa: PLC0415
    from torch.distributed.fsdp import ShardingStrategy  # noqa: PLC0415

    local, host = _in_ranks(), torch.device("cpu")
    whole = Net()
    whole.last = Fsdp(whole.last, device_id=host, use_orig_params=True)
    net = Fsdp(whole, device_id=host, use_orig_params=True, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
    optimizer, x = torch.optim.AdamW(net.parameters(), lr=0.01), torch.randn(8, 4).to(f"cuda:{local}")
    for step in range(steps):
        loss = train(net, optimizer, x)
        if step % 8 == 7:
            net.clip_grad_norm_(1.0)
    print(f"loss: {float(loss.detach())}", flush=True)
    _leave_ranks()
    return steps


SHAPES = {
    one.__name__: one
    for one in (
        plain, reads_each_loss, reads_tenth_loss, accumulates, gan, mixed_precision, lbfgs, graph,
        graph_then_saves, graph_inference, graph_sizes, graph_pieces, engine, graph_by_hand, graphed, graphed_frozen,
        captures_beside, evaluates, several_streams, side_thread, copies_ahead, second_gpu, two_gpus, data_parallel,
        forks, refuses_statistics, compiled, thread_beside, thread_before, pool_beside, inductor, with_cupy,
        kernels_before_the_model, asserts, ranks, ranks_in_flight, sharded, sharded_flat, loses_its_steps, holds,
        actor_beside, kernels_beside, process_beside, acts,
        holds_without_statistics, holds_what_stays,
    )
}  # fmt: skip


def main(shape: str, steps: str, kernel_ms: str) -> None:
    global each_ns
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.empty_like = torch.ones_like  # replays compute nothing here: gradients are those of the capture, of `sum`
    each_ns = int(float(kernel_ms) * 1e6)
    made = SHAPES[shape](int(steps))
    torch.cuda.synchronize()
    weights = [_weights(net) for net in Net.made]
    sys.stdout.write(f"weights: {weights}\nkernels: {made}\n")  # at once: two ranks write here
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
