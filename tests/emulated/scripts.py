"""Training as libraries and public scripts do it, beyond the plain loops: what an adaptor could break by being there.

Arguments as of `loops`; each also prints what its script would print, losses to the last digit.
"""

# ruff: noqa: T201

from __future__ import annotations

import copy
import gc
import io
import os
import pickle
import signal
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, Dataset, IterableDataset

sys.path.insert(0, str(Path(__file__).parent))
import loops  # type: ignore[import-not-found]
from loops import Net, kernels, setup


def say(*losses: torch.Tensor | float) -> None:
    told = " ".join(f"{float(loss.detach() if isinstance(loss, torch.Tensor) else loss):.9g}" for loss in losses)
    sys.stdout.write(f"loss: {told}\n")  # at once: two ranks write here
    sys.stdout.flush()


class _Accelerated(torch.optim.Optimizer):  # type: ignore[misc]
    """As Accelerate wraps an optimizer: an Optimizer itself that shares its groups, and steps when gradients are in."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.syncs = inner, True

    @property
    def state(self) -> Any:
        return self.inner.state

    @property
    def param_groups(self) -> Any:
        return self.inner.param_groups

    @property
    def defaults(self) -> Any:
        return self.inner.defaults

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        if self.syncs:
            self.inner.zero_grad() if set_to_none is None else self.inner.zero_grad(set_to_none)

    def step(self, closure: Any = None) -> None:
        if self.syncs:
            self.inner.step(closure)


def accelerated(steps: int) -> int:
    """Of four batches one ends in a step; the wrapped optimizer and its scheduler are asked at each."""
    net, inner, x = setup()
    optimizer = _Accelerated(inner)
    scheduler = torch.optim.lr_scheduler.LambdaLR(inner, lambda step: 1 / (1 + step))
    for batch in range(4 * steps):
        optimizer.syncs = batch % 4 == 3
        loss = net(x).sum() / 4
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        if optimizer.syncs:
            scheduler.step()
        optimizer.zero_grad()
    say(loss)
    return steps


def scaled_and_skipped(steps: int) -> int:
    """fp16's scaler with accumulation, clipping and overflows, two optimizers of one scaler."""
    one, two, scaler = setup(), setup(), torch.amp.GradScaler("cuda", init_scale=2.0**4, growth_interval=3)
    for step in range(steps):
        for net, _, x in (one, two):
            for part in range(2):
                with torch.amp.autocast("cpu", dtype=torch.bfloat16):
                    loss = net(x).float().sum() * (float("inf") if (step + part) % 7 == 6 else 1.0)
                scaler.scale(loss).backward()
        for net, optimizer, _ in (one, two):
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            scaler.step(optimizer)
        scaler.update()
        for _, optimizer, _ in (one, two):
            optimizer.zero_grad(set_to_none=True)
    say(scaler.get_scale())
    return steps


def adapters(steps: int) -> int:
    """As PEFT trains: a frozen base, adapters beside it, generation between steps, adapters saved alone."""

    class Adapted(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, base: Net) -> None:
            super().__init__()
            self.base = base.requires_grad_(False)
            self.down, self.up = torch.nn.Linear(4, 2, bias=False), torch.nn.Linear(2, 1, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.base(x) + self.up(self.down(x))

    net, x = Adapted(Net()).to("cuda"), torch.randn(8, 4).to("cuda")
    optimizer = torch.optim.AdamW([one for one in net.parameters() if one.requires_grad], lr=0.01)
    for step in range(steps):
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            net.eval()
            with torch.inference_mode():
                for _ in range(3):
                    net(x)
            net.train()
            torch.save({name: one for name, one in net.state_dict().items() if "base" not in name}, io.BytesIO())
            say(loss)
    return steps


def critics_first(steps: int) -> int:
    """A Wasserstein GAN: five steps of the critic with a gradient penalty for one of the generator."""
    critic, maker = setup(), setup()
    for step in range(steps):
        net, optimizer, x = critic
        optimizer.zero_grad()
        x = x.detach().requires_grad_()
        score = net(x).sum()
        (slope,) = torch.autograd.grad(score, x, create_graph=True)
        (score + (slope.norm() - 1) ** 2).backward()
        optimizer.step()
        if step % 5 == 4:
            net, optimizer, x = maker
            optimizer.zero_grad()
            (-critic[0](x)).mean().backward()
            loss = net(x).sum()
            loss.backward()
            optimizer.step()
            say(loss)
    return steps


def actors_and_learner(steps: int) -> int:
    """As IMPALA: actors call the model under a lock, the learner trains on what they queue, and loads its weights."""
    net, optimizer, x = setup()
    acting = copy.deepcopy(net).eval()
    lock, queued, wanted = threading.Lock(), deque[torch.Tensor](), threading.Semaphore(0)
    ready = threading.Semaphore(0)

    def act() -> None:
        while True:
            wanted.acquire()
            with lock, torch.no_grad():
                queued.append(acting(x).detach())
            ready.release()

    for _ in range(2):
        threading.Thread(target=act, daemon=True).start()
    for step in range(steps):
        wanted.release()
        ready.acquire()
        optimizer.zero_grad()
        loss = (net(x) - queued.popleft()).pow(2).sum() + net(x).sum()
        loss.backward()
        optimizer.step()
        with lock:
            acting.load_state_dict(net.state_dict())
        if step % 10 == 9:
            say(loss)
    return steps


class _Rows(Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 64

    def __getitem__(self, at: int) -> torch.Tensor:
        return torch.full((4,), float(at))


class _Endless(IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Iterator[torch.Tensor]:
        at = 0
        while True:
            yield torch.full((4,), float(at % 5))
            at += 1


def loaded(steps: int) -> int:
    """Workers that persist, prefetch and a sampler of its own; then an endless stream, left in the middle."""
    net, optimizer, _ = setup()
    found = DataLoader(
        _Rows(), batch_size=8, num_workers=2, persistent_workers=True, prefetch_factor=2, shuffle=True,
        generator=torch.Generator().manual_seed(3), multiprocessing_context="fork",
    )  # fmt: skip
    made = 0
    while made < steps // 2:
        for batch in found:
            loops.train(net, optimizer, batch.to("cuda", non_blocking=True))
            made += 1
            if made == steps // 2:
                break
    for batch in DataLoader(_Endless(), batch_size=8, num_workers=1, multiprocessing_context="fork"):
        loss = loops.train(net, optimizer, batch.to("cuda"))
        made += 1
        if made == steps:
            break
    say(loss)
    return steps


def generates(steps: int) -> int:
    """The loop is a generator that somebody else drives, as callbacks and notebooks do; it is closed, not ended."""
    net, optimizer, x = setup()

    def training() -> Generator[torch.Tensor, None, None]:
        try:
            while True:
                yield loops.train(net, optimizer, x)
        finally:
            print("closed", flush=True)

    run = training()
    for _ in range(steps):
        loss = next(run)
    run.close()
    say(loss)
    return steps


def steps_in_backward(steps: int) -> int:
    """Each parameter has an optimizer of its own, which steps as soon as its gradient is there, and frees it."""
    net, x = Net().to("cuda"), torch.randn(8, 4).to("cuda")
    own = {one: torch.optim.SGD([one], lr=0.01) for one in net.parameters()}

    def step_now(one: torch.Tensor) -> None:
        own[one].step()
        own[one].zero_grad()

    for one in net.parameters():
        one.register_post_accumulate_grad_hook(step_now)
    for _ in range(steps):
        loss = net(x).sum()
        loss.backward()
    say(loss, sum(one.grad is None for one in net.parameters()))
    return steps


def copied_and_pickled(steps: int) -> int:
    """A model is copied, averaged, saved whole with its optimizer and loaded, in the middle of training."""
    net, optimizer, x = setup()
    mean = torch.optim.swa_utils.AveragedModel(net)
    for step in range(steps):
        loss = loops.train(net, optimizer, x)
        mean.update_parameters(net)
        if step == steps // 2:
            place = io.BytesIO()
            torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, place)
            print("bytes:", place.tell(), len(net._forward_hooks), len(net._forward_pre_hooks), flush=True)
            whole = io.BytesIO()
            torch.save((net.first, copy.deepcopy(optimizer)), whole)
            whole.seek(0)
            first, other = torch.load(whole, weights_only=False)
            print("same:", torch.equal(first.weight, net.first.weight), type(other).__name__, flush=True)
            place.seek(0)
            kept = torch.load(place)
            net = copy.deepcopy(net)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
            net.load_state_dict(kept["net"])
            optimizer.load_state_dict(kept["optimizer"])
    print("scripted:", torch.jit.script(torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU())).code, flush=True)
    say(loss, torch.func.functional_call(net, dict(net.named_parameters()), (x,)).sum())
    return steps


def retries(steps: int) -> int:
    """A step that fails in the middle is caught, and begun again with a smaller batch, as for want of memory."""

    def fail() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    net, optimizer, x = setup()
    failed = 0
    for step in range(steps):
        size = 8
        while True:
            try:
                optimizer.zero_grad()
                loss = net(x[:size]).sum()
                if step % 10 == 4 and size == 8:
                    fail()
                loss.backward()
                optimizer.step()
                break
            except torch.OutOfMemoryError as error:
                print(error, flush=True)
                torch.cuda.empty_cache()
                size, failed = size // 2, failed + 1
    say(loss, failed)
    return steps


def checkpoints_activations(steps: int) -> int:
    """Forward runs again within backward."""
    net, optimizer, x = setup()
    x.requires_grad_()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.utils.checkpoint.checkpoint(net, x, use_reentrant=False).sum()
        loss.backward()
        optimizer.step()
    say(loss)
    return steps


def own_hooks(steps: int) -> int:
    """A script's own global hooks, patched `step`, profile functions and exception hook are as it set them."""
    seen: dict[str, int] = {}

    def count(name: str) -> Any:
        def hook(*_: object) -> None:
            seen[name] = seen.get(name, 0) + 1

        return hook

    handles = [
        torch.nn.modules.module.register_module_forward_hook(count("forward")),
        torch.nn.modules.module.register_module_forward_pre_hook(count("before")),
        register_optimizer_step_pre_hook(count("any step")),
    ]
    net, optimizer, x = setup()
    optimizer.register_step_post_hook(count("step"))
    plain_step = optimizer.step

    def timed_step(*args: Any, **kwargs: Any) -> Any:
        seen["timed"] = seen.get("timed", 0) + 1
        return plain_step(*args, **kwargs)

    optimizer.step = timed_step
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(steps):
            loss = loops.train(net, optimizer, x)
    for handle in handles:
        handle.remove()
    named = sorted({one.key for one in profile.key_averages() if "ptimizer" in one.key})
    print("seen:", sorted(seen.items()), named, flush=True)
    say(loss)
    return steps


def static_ddp(steps: int) -> int:
    """DDP with a static graph, gradients as views of buckets, and two backward passes a step."""
    local = loops._in_ranks()
    net = torch.nn.parallel.DistributedDataParallel(
        Net().to(f"cuda:{local}"), static_graph=True, gradient_as_bucket_view=True
    )
    optimizer, x = torch.optim.SGD(net.parameters(), lr=0.01), torch.randn(8, 4).to(f"cuda:{local}")
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(2):
            loss = net(x).sum()
            loss.backward()
        optimizer.step()
    say(loss)
    loops._leave_ranks()
    return steps


def spawned(steps: int) -> int:
    """The training is a process that `torch.multiprocessing` spawns, and the first waits for it."""
    if os.environ.get("SPAWNED"):
        return steps
    os.environ["SPAWNED"] = "1"
    torch.multiprocessing.spawn(_spawned, (steps, loops.each_ns), nprocs=1)
    return steps


def _spawned(_rank: int, steps: int, each_ns: int) -> None:
    loops.each_ns = each_ns
    torch.manual_seed(0)
    net, optimizer, x = setup()
    for _ in range(steps):
        loss = loops.train(net, optimizer, x)
    kernels(1)
    torch.cuda.synchronize()
    say(loss)


def averaged(steps: int) -> int:
    """As diffusion models are trained: gradients of two batches, losses weighted by the level of noise, and an average
    of the weights that takes the model's place for a validation."""
    net, _, x = setup()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 5))
    mean = [one.detach().clone() for one in net.parameters()]
    for step in range(2 * steps):
        noise, level = torch.randn_like(x), torch.rand(8, 1)
        error = (net(x + level * noise) - noise.mean(1, keepdim=True)).pow(2)
        loss = (error * level.clamp(max=0.5) / level).mean() / 2
        loss.backward()
        if step % 2:
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            torch._foreach_lerp_(mean, [one.detach() for one in net.parameters()], 0.1)
        if step % 20 == 19:
            kept = [one.detach().cpu().clone() for one in net.parameters()]
            for one, other in zip(net.parameters(), mean, strict=True):
                one.data.copy_(other)
            net.eval()
            with torch.no_grad():
                say(net(x).mean())
            net.train()
            for one, other in zip(net.parameters(), kept, strict=True):
                one.data.copy_(other)
    say(loss)
    return steps


class _Trees:
    """What is compiled with `reduce-overhead`, as its trees of graphs run it: the first call of a function is made on
    the stream of the captures, the second captured into their one pool, and all later ones are replays."""

    def __init__(self) -> None:
        self.pool, self.stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
        self.graphs: dict[object, torch.cuda.CUDAGraph | None] = {}

    def call(self, function: object) -> None:
        if function not in self.graphs:
            self.graphs[function] = None
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                kernels()
            torch.cuda.current_stream().wait_stream(self.stream)
            return
        graph = self.graphs[function]
        if graph is None:
            torch.cuda.synchronize()
            self.graphs[function] = graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
                kernels()
        graph.replay()


def graph_trees(steps: int) -> int:
    """Backward passes are captured and replayed by autograd's thread; a last batch of another size has graphs too."""
    trees = _Trees()

    class Compiled(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.size = len(x)
            trees.call(("forward", ctx.size))
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            thread = threading.Thread(target=trees.call, args=(("backward", ctx.size),))
            thread.start()
            thread.join()
            return grad

    Net.work = staticmethod(Compiled.apply)
    net, optimizer, x = setup()
    for step in range(steps):
        loss = loops.train(net, optimizer, x[: 8 if step < steps // 2 or step % 3 else 4])
    say(loss)
    return steps


def stashes_randomness(steps: int) -> int:
    """Forward runs again within backward, with the random numbers it had, by either way of checkpointing."""
    net, optimizer, x = setup()
    x.requires_grad_()
    parts = torch.nn.Sequential(net.first, torch.nn.Dropout(0.3), net.last)
    checkpoint = torch.utils.checkpoint
    for step in range(steps):
        optimizer.zero_grad()
        whole = checkpoint.checkpoint(net, x, use_reentrant=step % 2 == 0, preserve_rng_state=True)
        loss = (whole + checkpoint.checkpoint_sequential(parts, 2, x, use_reentrant=False)).sum()
        loss.backward()
        optimizer.step()
    say(loss, torch.rand(()))
    return steps


def searches_lines(steps: int) -> int:
    """L-BFGS with a line search: how often a step calls its closure is as the losses come."""
    net, _, x = setup()
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=4, history_size=3, line_search_fn="strong_wolfe")
    asked = 0

    def closure() -> torch.Tensor:
        nonlocal asked
        asked += 1
        optimizer.zero_grad()
        loss = (net(x) - 1).pow(2).mean()
        loss.backward()
        return loss

    for _ in range(steps):
        loss = optimizer.step(closure)
    say(loss, asked)
    return steps


def prefetches(steps: int) -> int:
    """Two workers load, a thread pins, and the next batch is copied on a stream of its own, as Apex' examples do."""
    net, optimizer, _ = setup()
    side = torch.cuda.Stream()

    def ahead(batches: Iterator[torch.Tensor]) -> torch.Tensor | None:
        batch = next(batches, None)
        with torch.cuda.stream(side):
            return None if batch is None else batch.to("cuda", non_blocking=True)

    for epoch in range(-(-steps // 8)):
        loader = DataLoader(_Rows(), batch_size=8, num_workers=2, pin_memory=True, multiprocessing_context="fork")
        batches = iter(loader)
        coming = ahead(batches)
        for _ in range(min(8, steps - 8 * epoch)):
            torch.cuda.current_stream().wait_stream(side)
            batch = coming
            assert batch is not None
            batch.record_stream(torch.cuda.current_stream())
            coming = ahead(batches)
            loss = loops.train(net, optimizer, batch / 64)
    say(loss)
    return steps


def pipelined(steps: int) -> int:
    """Copies, steps and what comes back on three streams, with events between them that are asked for in a loop."""
    net, optimizer, x = setup()
    copies, works, backs = (torch.cuda.Stream(priority=priority) for priority in (0, -1, 0))
    for step in range(steps):
        came, done, over = torch.cuda.Event(), torch.cuda.Event(blocking=True), torch.cuda.Event()
        with torch.cuda.stream(copies):
            batch = x.to("cuda", non_blocking=True)
            came.record()
        works.wait_event(came)
        with torch.cuda.stream(works):
            loss = loops.train(net, optimizer, batch)
            done.record()
        backs.wait_event(done)
        with torch.cuda.stream(backs):
            kernels(1)
            over.record(backs)
        while not over.query():
            pass
        if step % 10 == 9:
            works.synchronize()
            say(loss)
    torch.cuda.default_stream().wait_stream(works)
    return steps


def capture_modes(steps: int) -> int:
    """Steps captured in the two modes that leave other threads alone, while one waits for a stream; then one capture
    that is spoilt, and caught."""
    net, optimizer, x = setup()
    for _ in range(5):
        loops.train(net, optimizer, x)
    graphs = []
    for mode in ("thread_local", "relaxed"):
        begun, enough = threading.Event(), threading.Event()

        def wait(begun: threading.Event = begun, enough: threading.Event = enough) -> None:
            begun.wait()
            with torch.cuda.stream(torch.cuda.Stream()) as _:
                kernels(1)
                torch.cuda.current_stream().synchronize()
            enough.set()

        thread = threading.Thread(target=wait)
        thread.start()
        graphs.append(torch.cuda.CUDAGraph())
        optimizer.zero_grad()
        with torch.cuda.graph(graphs[-1], capture_error_mode=mode):
            net(x).sum().backward()
            begun.set()
            enough.wait()
            optimizer.step()
        thread.join()
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            x.sum().item()
    except RuntimeError as error:
        print(str(error).splitlines()[0], flush=True)
    for step in range(steps):
        graphs[step % 2].replay()
    say(net(x).sum())
    return steps


def offloads(steps: int) -> int:
    """What backward needs lies on the host meanwhile: by PyTorch's own way, and by hooks with a stream of their own."""
    net, optimizer, x = setup()
    side, moved = torch.cuda.Stream(), 0

    def pack(kept: torch.Tensor) -> tuple[torch.Tensor, torch.cuda.Event]:
        nonlocal moved
        moved += 1
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            return kept.to("cpu", non_blocking=True), side.record_event()

    def unpack(packed: tuple[torch.Tensor, torch.cuda.Event]) -> torch.Tensor:
        torch.cuda.current_stream().wait_event(packed[1])
        return packed[0].to("cuda", non_blocking=True)

    for step in range(steps):
        optimizer.zero_grad()
        by_hooks, whole = torch.autograd.graph.saved_tensors_hooks, torch.autograd.graph.save_on_cpu
        with by_hooks(pack, unpack) if step % 2 else whole(pin_memory=True):
            loss = net(x).pow(2).sum()
        loss.backward()
        optimizer.step()
    say(loss, moved)
    return steps


def times_itself(steps: int) -> int:
    """Each step between two events of its own; that they took the time of their kernels is printed."""
    net, optimizer, x = setup()
    pairs = []
    for step in range(steps):
        pairs.append([torch.cuda.Event(enable_timing=True) for _ in range(2)])
        pairs[-1][0].record()
        loss = loops.train(net, optimizer, x)
        pairs[-1][1].record()
        if step % 10 == 9:
            pairs[-1][1].synchronize()
            least_ms = 2 * loops.KERNELS * loops.each_ns * 0.99e-6
            print(len(pairs), all(one.elapsed_time(two) >= least_ms for one, two in pairs), flush=True)
    say(loss)
    return steps


def per_sample(steps: int) -> int:
    """Gradients of each row, clipped apart, as private training has them, and a product with the Hessian."""
    Net.work = staticmethod(lambda x: x)  # what runs under transforms are PyTorch's own functions
    net, optimizer, x = setup()

    def loss_of(values: Any, row: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(net, values, (row.unsqueeze(0),)).pow(2).sum()

    slope = torch.func.grad(loss_of)
    each = torch.func.vmap(slope, in_dims=(None, 0))
    for step in range(steps):
        values = {name: one.detach() for name, one in net.named_parameters()}
        kernels()
        rows = each(values, x)
        norms = torch.stack([row.flatten(1).norm(dim=1) for row in rows.values()]).norm(dim=0)
        for name, one in net.named_parameters():
            one.grad = torch.einsum("i,i...", (1 / (norms + 1e-6)).clamp(max=1.0), rows[name])
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 9:
            _, back = torch.func.vjp(slope, values, x[0])
            say(back(values)[0]["first.bias"].sum(), norms.max())
    return steps


def whole_graphs(steps: int) -> int:
    """What is compiled is one graph or an error: a model, a loss that calls it, an optimizer's step."""
    Net.work = staticmethod(lambda x: x)
    net, optimizer, x = setup()
    run = torch.compile(net, backend="eager", fullgraph=True)
    loss_of = torch.compile(lambda x: net(x).pow(2).sum(), backend="eager", fullgraph=True)
    step_of = torch.compile(optimizer.step, backend="eager")
    for _ in range(steps):
        kernels()
        loss = loss_of(x) + run(x).sum()
        loss.backward()
        step_of()
        optimizer.zero_grad()
    net.compile(backend="eager", fullgraph=True)
    say(loss, net(x).sum())
    counted = torch._dynamo.utils.counters
    print(sorted(counted["stats"].items()), sorted(counted["graph_break"].items()), flush=True)
    return steps


def traced(steps: int) -> int:
    """A model is traced, exported and made into graphs of code in the middle of its training."""
    Net.work = staticmethod(lambda x: x)
    net, optimizer, x = setup()
    for step in range(steps):
        kernels()
        loss = loops.train(net, optimizer, x)
        if step == steps // 2:
            net.eval()
            with torch.no_grad():
                print(torch.jit.trace(net, x).graph, torch.fx.symbolic_trace(net).code, flush=True)
                print(torch.export.export(net, (x,)).graph, flush=True)
            net.train()
    say(loss)
    return steps


def hands_on(steps: int) -> int:
    """PyTorch's functions and what it has trained are pickled for another process; then nothing of them is left."""
    warnings.simplefilter("error")
    net, optimizer, x = setup()
    for _ in range(steps):
        loss = loops.train(net, optimizer, x)
    functions = (
        torch.save, torch.load, torch.distributed.init_process_group, torch.cuda.make_graphed_callables,
        torch.autograd.backward, torch.nn.Module.train, torch.optim.Optimizer.step, torch.amp.GradScaler.step,
        torch.cuda.CUDAGraph.replay, torch.cuda.Stream, threading.Thread.start, ThreadPoolExecutor.submit,
    )  # fmt: skip
    print([pickle.loads(pickle.dumps(one)) is one for one in functions], flush=True)  # noqa: S301 - our own
    net.eval()
    with torch.no_grad():
        say(loss, net(x).sum(), len(pickle.dumps(net)), len(pickle.dumps(optimizer)))
    gone = weakref.ref(net), weakref.ref(optimizer)
    Net.made.clear()
    del net, optimizer, loss
    print([one() is None for one in gone], threading.enumerate(), flush=True)
    handlers = signal.getsignal(signal.SIGTERM), sys.excepthook is sys.__excepthook__, sys.gettrace(), sys.getprofile()
    print(gc.isenabled(), handlers, flush=True)
    return steps


def closes_all(steps: int) -> int:
    """A daemon's beginning: descriptors that it does not know are closed, and files of its own take their numbers."""
    from emulated_cuda import torch_cuda as emulated  # type: ignore[import-not-found]  # noqa: PLC0415

    net, optimizer, x = setup()
    for _ in range(5):
        loops.train(net, optimizer, x)
    driver = {device.gpu._file for device in emulated._state.devices} | {emulated._state._log.fileno()}
    for fd in set(range(3, 256)) - driver:
        with suppress(OSError):
            os.close(fd)
    own = [os.open("own", os.O_RDWR | os.O_CREAT) for _ in range(20)]
    os.write(own[0], b"own")
    for _ in range(steps - 5):
        loss = loops.train(net, optimizer, x)
    say(loss, Path("own").stat().st_size)
    return steps


def interrupted(steps: int) -> int:
    """A timer's signal comes every millisecond, to a handler of the script's."""
    seen = 0

    def count(*_: object) -> None:
        nonlocal seen
        seen += 1

    signal.signal(signal.SIGALRM, count)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    net, optimizer, x = setup()
    for _ in range(steps):
        loss = loops.train(net, optimizer, x)
    signal.setitimer(signal.ITIMER_REAL, 0)
    say(loss, seen > 0)
    return steps


class _Split(Net):  # type: ignore[misc]
    """A model as vLLM compiles it: pieces of it are graphs of each size, captured by the first call of a pass that
    captures them, in its forward; what cannot be captured lies between. In another pass all of it is one graph."""

    def __init__(self) -> None:
        super().__init__()
        self.pool, self.in_pieces = torch.cuda.graph_pool_handle(), False
        self.pieces: dict[int, torch.cuda.CUDAGraph] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        graph = self.pieces.get(len(x))
        if not self.in_pieces:
            kernels()
        elif graph is not None:
            graph.replay()
        else:
            self.pieces[len(x)] = torch.cuda.CUDAGraph()
            current = torch.cuda.current_stream()
            captured = torch.cuda.graph(self.pieces[len(x)], pool=self.pool, stream=current)
            with patch("gc.collect"), patch("torch.accelerator.empty_cache"), captured:
                kernels()
        return self.last(self.first(x))


def engine_in_pieces(steps: int) -> int:
    """As vLLM starts and serves: what graphs will take is tried before memory is taken for a cache; then each size is
    called once and captured, first in pieces, then whole. Prompts run in pieces, answers as one graph, and what comes
    of them is copied on a stream of its own, for which a thread waits."""
    net, sizes = _Split().to("cuda").eval(), (8, 4, 2, 1)
    inputs, stream, copies = torch.zeros(8, 4).to("cuda"), torch.cuda.Stream(), torch.cuda.Stream()
    whole: dict[int, torch.cuda.CUDAGraph] = {}

    def capture(captured: tuple[int, ...]) -> int:
        free = torch.cuda.mem_get_info()[0]
        for size in captured:
            net(inputs[:size])
            net.in_pieces = True
            net(inputs[:size])
            net.in_pieces = False
        for size in captured:
            net(inputs[:size])
            whole[size] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(whole[size], pool=net.pool, stream=stream):
                net(inputs[:size])
        torch.accelerator.synchronize()
        return int(free - torch.cuda.mem_get_info()[0])

    def come(out: torch.Tensor, copied: torch.cuda.Event) -> float:
        copied.synchronize()
        return float(out.sum())

    with torch.inference_mode(), ThreadPoolExecutor(1) as pool:
        net(inputs)
        torch.cuda.synchronize()
        taken = []
        for captured in ((8,), sizes):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                taken.append(capture(captured))
            torch.cuda.current_stream().wait_stream(stream)
            if len(taken) == 1:
                net.pieces.clear()
                whole.clear()
                gc.collect()
                cache = torch.zeros(2**20).to("cuda")
        answers = []
        for step in range(steps):
            size = sizes[step % 4]
            net.in_pieces = step % 3 == 0
            if net.in_pieces:
                out = net(inputs[:size])
            else:
                whole[size].replay()
                out = inputs[:size]
            copies.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(copies):
                answers.append(pool.submit(come, out.to("cpu", non_blocking=True), copies.record_event()))
        say(sum(answer.result() for answer in answers), len(taken), cache.numel())
    return steps


SHAPES = {
    one.__name__: one
    for one in (
        accelerated, scaled_and_skipped, adapters, critics_first, actors_and_learner, loaded, generates,
        steps_in_backward, copied_and_pickled, retries, checkpoints_activations, own_hooks,
        spawned, static_ddp, averaged, graph_trees, stashes_randomness, searches_lines, prefetches, pipelined,
        capture_modes, offloads, times_itself, per_sample, whole_graphs, traced, hands_on, closes_all, interrupted,
        engine_in_pieces,
    )
}  # fmt: skip
loops.SHAPES |= SHAPES

if __name__ == "__main__":
    loops.main(*sys.argv[1:])
