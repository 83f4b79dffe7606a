"""What a CUDA build has in `torch._C`, over emulated GPUs; PyTorch's own Python above it runs as it is.

Tensors "on" a GPU are the host's, and what is computed with them is computed by the host at once. Only time and memory
are the GPU's: `torch.cuda._sleep(ns)` is a kernel of so many nanoseconds, as it is one of so many cycles of a real
GPU, and `allocate` takes memory. Reading a tensor (`item`, `cpu`, ...) waits for the current stream.
"""

from __future__ import annotations

import atexit
import functools
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import collectives, data_parallel
from .capture import GLOBAL, Capture, Captures, Refused, told
from .device import HOME_ENV, BusyError, FailedError, Gpu, Kind, LostError, OutOfMemoryError, Span, kinds_of

CYCLES_PER_S = 1e9
BLOCK_BYTES = 2 * 1024**2
_CUDA_TYPE = 1
Meets = Callable[[float, bool], float | None]
"""From when a rank's stream comes to a collective, and whether to wait for the others, to when all have."""


class Stream:
    """Work of one process in order.

    Attributes:
        waits_for_legacy: Whether it and the legacy stream wait for each other: not those that PyTorch makes.
        capture: What its work is captured into instead.
        later: What was launched behind a collective to which not all ranks have come: it has no time yet. Each tries
            to get its time, waiting if that is wanted, and says whether it has.
    """

    def __init__(self, device: Device, number: int) -> None:
        self.device, self.number = device, number
        self.waits_for_legacy = False
        self.capture: Capture | None = None
        self.later: deque[Callable[[bool], bool]] = deque()
        self._alone = threading.RLock()
        self._ready_s = 0.0

    @property
    def ready_s(self) -> float:
        """When all that was launched is done; waits until that is known."""
        self.has_times(block=True)
        return self._ready_s

    @ready_s.setter
    def ready_s(self, ready_s: float) -> None:
        self._ready_s = ready_s

    def has_times(self, *, block: bool = False) -> bool:
        """Whether all that was launched has its time by now."""
        with self._alone:
            while self.later:
                if not self.later[0](block):
                    return False
                self.later.popleft()
        return True

    def is_done(self) -> bool:
        """Whether nothing is under way."""
        return self.has_times() and time.monotonic() >= self._ready_s

    def put(self, work: Callable[[bool], bool]) -> None:
        """Give work its time, or keep it for later."""
        with self._alone:
            if not self.has_times() or not work(False):
                self.later.append(work)


class Device:
    """One visible GPU as this process uses it.

    Attributes:
        outside: What libraries take of it beside PyTorch's allocator (NCCL's buffers, workspaces of cuBLAS).
        stuck: Of the allocator's blocks, what lies in pieces between those that are used: it is never given back.
        pools: What each capture has taken for its graph, and of that, what it uses now: the rest stays for replays.
    """

    def __init__(self, number: int, gpu: Gpu) -> None:
        self.number, self.gpu = number, gpu
        self.streams: dict[int, Stream] = {0: Stream(self, 0)}
        self.has_context = False
        self.failure = ""
        self.allocated = self.allocated_peak = self.reserved = self.reserved_peak = 0
        self.outside = self.stuck = 0
        self.pools: dict[Capture, list[int]] = {}
        self._under_way: deque[float] = deque()
        self._alone = threading.Lock()

    def use(self) -> None:
        """Make the context."""
        if not self.has_context:
            self._hold(0)
            self.has_context = True

    def launch(self, stream: Stream, kernel_s: float, label: str = "", meets: Meets | None = None) -> None:
        """Launch a kernel, once fewer are under way than may be; or put it into the graph that is captured.

        Args:
            stream: Where.
            kernel_s: How long it runs.
            label: For the log.
            meets: Says when the other ranks have come to it, of a collective.
        """
        self.check()
        self.use()
        with _state.ruled():
            _state.captures.uses(stream)
            if stream.capture is not None:
                stream.capture.add(stream, kernel_s)
                return
        while True:
            now_s = time.monotonic()
            with self._alone:
                while self._under_way and self._under_way[0] <= now_s:
                    self._under_way.popleft()
                first_s = self._under_way[0] if self._under_way else None
                if len(self._under_way) + len(stream.later) < self.gpu.kind.run_ahead:
                    break
            if first_s is not None:
                wait_until(first_s)
            else:
                stream.has_times(block=True)

        def run(block: bool) -> bool:
            ready_s: float | None = stream._ready_s
            if meets is not None:
                ready_s = meets(max(now_s, stream._ready_s), block)
            if ready_s is None:
                return False
            try:
                span = self.gpu.reserve(ready_s, kernel_s, now_s)
            except (LostError, FailedError) as error:
                raise self.refusal(error) from error
            stream.ready_s = span.ended_s
            with self._alone:
                self._under_way.append(span.ended_s)
            _state.note("kernel", self.gpu.kind.uuid, span, label)
            return True

        stream.put(run)

    def synchronize(self) -> None:
        """Wait for all streams."""
        self.use()
        with _state.ruled():
            _state.captures.may_be_unsafe(*self.streams.values())
        self.check()
        wait_until(max(stream.ready_s for stream in self.streams.values()))
        _state.counts["synchronize"] += 1

    def allocate(self, size: int) -> None:
        """Take memory, in whole blocks where what is reserved does not do."""
        self.use()
        capture = _state.stream().capture
        if capture is not None:
            pool = self.pools.setdefault(capture, [0, 0])
            pool[1] += size
            pool[0] = max(pool)
        wanted = self.kept_bytes if capture is not None else self.kept_bytes + size
        if wanted > self.reserved:
            wanted = -(-wanted // BLOCK_BYTES) * BLOCK_BYTES
            if not _is_capturing():  # of a stream that is captured PyTorch takes memory in relaxed mode
                with _state.ruled():
                    _state.captures.may_be_unsafe()
            self._hold(wanted)
            self.reserved = wanted
            self.reserved_peak = max(self.reserved_peak, wanted)
        self.allocated += size
        self.allocated_peak = max(self.allocated_peak, self.allocated)

    @property
    def kept_bytes(self) -> int:
        """What of the allocator's blocks is used or stays all the same."""
        return self.allocated + self.stuck + sum(taken - used for taken, used in self.pools.values())

    def free(self, size: int) -> None:
        """Give memory back to what is reserved."""
        capture = _state.stream().capture
        if capture is not None and capture in self.pools:
            self.pools[capture][1] -= size
        self.allocated -= size

    def empty_cache(self) -> None:
        """Give back what is reserved and not used."""
        if self.has_context:
            if any(one.origin.device is self for one in _state.captures.under_way):
                raise RuntimeError("captures_underway.empty() INTERNAL ASSERT FAILED")
            self.reserved = -(-self.kept_bytes // BLOCK_BYTES) * BLOCK_BYTES
            self._hold(self.reserved)

    def _hold(self, size: int) -> None:
        self.gpu.wait_for_driver()
        try:
            self.gpu.hold(size + self.outside)
        except OutOfMemoryError as error:
            raise _state.torch_c.OutOfMemoryError(f"CUDA out of memory. {error}") from error
        except BusyError as error:
            raise _state.error("CUDA error: CUDA-capable device(s) is/are busy or unavailable") from error
        except (LostError, FailedError) as error:
            raise self.refusal(error) from error

    def scatter(self, size: int) -> None:
        """Let so much of its blocks lie in pieces."""
        self.stuck += size
        self.reserved = max(self.reserved, -(-self.kept_bytes // BLOCK_BYTES) * BLOCK_BYTES)
        self.reserved_peak = max(self.reserved_peak, self.reserved)
        self._hold(self.reserved)

    def take_outside(self, size: int) -> None:
        """Let a library take memory from the driver."""
        self.outside += size
        self._hold(self.reserved)

    def memory(self) -> tuple[int, int]:
        """What of it is free, and all."""
        self.use()
        total = self.gpu.kind.total_bytes
        return total - sum(self.gpu.held().values()), total

    def fail(self, text: str) -> None:
        """Let a kernel fail for good: from now on this process is told of it, under MPS all are."""
        self.use()
        self.failure = text
        self.gpu.fail()

    def check(self) -> None:
        """Raise what a process is told once its GPU is lost or a kernel has failed."""
        if self.failure:
            raise _state.error(f"CUDA error: {self.failure}")
        self.gpu.wait_for_driver()
        try:
            self.gpu.check()
        except (LostError, FailedError) as error:
            raise self.refusal(error) from error

    def refusal(self, error: LostError | FailedError) -> Exception:
        """What a process is told that is not the one whose kernel has failed."""
        if isinstance(error, LostError):
            return _state.error("CUDA error: GPU is lost")
        if error.is_new:
            return _state.error("CUDA error: the MPS server is not ready to accept new MPS client requests")
        told = os.environ.get("EMULATED_MPS_TELLS", "unspecified launch failure")
        return _state.error(f"CUDA error: {told}")


class _Here(threading.local):
    """What each thread has chosen: a GPU, and a stream of each."""

    def __init__(self) -> None:
        self.number = 0
        self.streams: dict[int, int] = {}


class _State:
    """Emulated CUDA of this process; a child that is forked before any use of it has its own."""

    def __init__(self, torch_c: Any) -> None:
        self.torch_c = torch_c
        self.reset()

    def reset(self) -> None:
        self.here = _Here()
        self.pid = os.getpid()
        self.counts: Counter[str] = Counter()
        self.captures = Captures()
        self._devices: list[Device] | None = None
        self._log: Any = None

    @property
    def devices(self) -> list[Device]:
        if self._devices is None:
            home = Path(os.environ[HOME_ENV])
            self._devices = [Device(i, Gpu(home, kind)) for i, kind in enumerate(_visible(kinds_of(home)))]
            self._log = (home / f"kernels.{os.environ.get('COLANE_JOB_ID', '')}.{self.pid}").open("ab", buffering=0)
            atexit.register(self.close)
        return self._devices

    @property
    def is_used(self) -> bool:
        return any(device.has_context for device in self._devices or ())

    def forked(self) -> None:
        """Be the child: one of a process that uses CUDA cannot."""
        if not self.is_used:
            self.reset()

    def close(self) -> None:
        if self._log is not None and os.getpid() == self.pid:
            mark("counts:" + ",".join(f"{name}={number}" for name, number in self.counts.items()))
            self._log.close()
            self._log = None

    def device(self, number: int | None = None) -> Device:
        return self.devices[self.here.number if number is None or number < 0 else number]

    def current(self, number: int) -> int:
        """The stream that this thread has chosen of a GPU."""
        return self.here.streams.get(number, 0)

    def stream(self) -> Stream:
        here = self.device()
        return here.streams[self.current(here.number)]

    @contextmanager
    def ruled(self) -> Iterator[None]:
        """Tell what CUDA refuses while streams are captured as PyTorch does."""
        try:
            yield
        except Refused as error:
            raise self.error(told(error)) from None

    def error(self, text: str) -> Exception:
        kind = getattr(self.torch_c, "AcceleratorError", RuntimeError)
        try:
            made: Exception = kind(text)
        except TypeError:
            made = RuntimeError(text)
        return made

    def note(self, what: str, where: str, span: Span, label: str) -> None:
        """Keep what ran when: the truth by which measures are judged."""
        words = (what, where, f"{span.launched_s:.6f}", f"{span.began_s:.6f}", f"{span.ended_s:.6f}", label or "-")
        if self._log is not None:
            self._log.write((" ".join(words) + "\n").encode())  # one write: text files are not for several threads


_state: _State


def of_process() -> _State:
    """Give what this process has of emulated CUDA, whichever framework uses it first."""
    global _state  # noqa: PLW0603
    if "_state" not in globals():
        _state = _State(None)
        os.register_at_fork(after_in_child=_state.forked)
    return _state


def wait_until(time_s: float) -> None:
    """Sleep until then."""
    while (left_s := time_s - time.monotonic()) > 0:
        time.sleep(left_s)


def mark(label: str) -> None:
    """Note that now is when something happens."""
    now_s = time.monotonic()
    _state.note("mark", "-", Span(now_s, now_s, now_s), label)


def allocate(size: int, device: int | None = None) -> None:
    """Take memory of a GPU, as a tensor does."""
    _state.device(device).allocate(size)


def free(size: int, device: int | None = None) -> None:
    """Give it back."""
    _state.device(device).free(size)


def scatter(size: int, device: int | None = None) -> None:
    """Let so much of the allocator's blocks lie in pieces that it cannot give back."""
    _state.device(device).scatter(size)


def take_outside(size: int, device: int | None = None) -> None:
    """Let a library take memory beside the allocator."""
    _state.device(device).take_outside(size)


def fail(text: str, device: int | None = None) -> None:
    """Let a kernel fail for good."""
    _state.device(device).fail(text)


def stream() -> Stream:
    """Give the current stream."""
    return _state.stream()


def counts() -> Counter[str]:
    """How often what was called that waits."""
    return _state.counts


class StreamBase:
    """`torch._C._CudaStreamBase`."""

    def __new__(
        cls, priority: int = 0, stream_id: int = -1, device_index: int = -1, device_type: int = 0, **_: Any
    ) -> Any:
        made = object.__new__(cls)
        device = _state.device(device_index)
        device.use()
        if stream_id < 0:
            stream_id = len(device.streams)
            device.streams[stream_id] = Stream(device, stream_id)
        made.stream_id, made.device_index, made.device_type = stream_id, device.number, _CUDA_TYPE
        return made

    stream_id: int
    device_index: int
    device_type: int

    @property
    def _own(self) -> Stream:
        return _state.devices[self.device_index].streams[self.stream_id]

    @property
    def cuda_stream(self) -> int:
        return self.stream_id

    @property
    def device(self) -> Any:
        import torch

        return torch.device("cuda", self.device_index)

    def is_capturing(self) -> bool:
        return self._own.capture is not None

    def query(self) -> bool:
        with _state.ruled():
            _state.captures.may_be_unsafe(self._own)
        return self._own.is_done()

    def synchronize(self) -> None:
        with _state.ruled():
            _state.captures.may_be_unsafe(self._own)
        wait_until(self._own.ready_s)
        _state.counts["stream"] += 1


class EventBase:
    """`torch._C._CudaEventBase`."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: Any) -> Any:
        made = object.__new__(cls)
        made.timing, made.time_s, made.where, made.behind = enable_timing, None, None, None
        made.captured, made.known, made.is_recorded = None, {}, False
        return made

    timing: bool
    time_s: float | None
    where: int | None
    behind: Stream | None
    """Where it is recorded and has no time yet."""
    captured: Capture | None
    """The capture in which it was recorded last."""
    known: dict[Stream, int]
    is_recorded: bool

    def has_time(self, *, block: bool = False) -> bool:
        """Whether what it is recorded behind has its time."""
        return self.behind is None or self.behind.has_times(block=block)

    @property
    def cuda_event(self) -> int:
        return 0 if self.time_s is None else id(self)

    def record(self, stream: Any) -> None:
        own: Stream = stream._own
        _state.counts["record"] += 1
        with _state.ruled():
            _state.captures.uses(own)
            _state.captures.records(self, own)
        self.is_recorded = True
        if own.capture is None:
            own.device.use()
            now_s = time.monotonic()
            self.behind, self.where = own, own.device.number

            def pass_by(_block: bool) -> bool:
                passed_s = max(now_s, own._ready_s)
                self.time_s, self.behind = passed_s, None
                _state.note("mark", own.device.gpu.kind.uuid, Span(passed_s, passed_s, passed_s), "event")
                return True

            own.put(pass_by)

    def wait(self, stream: Any) -> None:
        own: Stream = stream._own
        with _state.ruled():
            if _state.captures.waits(own, self):
                return

        def wait(block: bool) -> bool:
            if not self.has_time(block=block):
                return False
            own.ready_s = max(own._ready_s, self.time_s or 0.0)
            return True

        if self.behind is not own:
            own.put(wait)

    def query(self) -> bool:
        with _state.ruled():
            _state.captures.asks_for(self)
        return self.has_time() and (self.time_s is None or time.monotonic() >= self.time_s)

    def synchronize(self) -> None:
        with _state.ruled():
            _state.captures.asks_for(self)
        self.has_time(block=True)
        if self.time_s is not None:
            wait_until(self.time_s)
        _state.counts["event"] += 1

    def elapsed_time(self, end: EventBase) -> float:
        with _state.ruled():
            for one in (self, end):
                _state.captures.asks_for(one)
        if self.time_s is None or end.time_s is None or not (self.timing and end.timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True' and recorded")
        if self.where != end.where:
            raise _state.error("CUDA error: invalid resource handle")
        if not (self.query() and end.query()):
            raise _state.error("CUDA error: device not ready")
        return (end.time_s - self.time_s) * 1e3


class GraphBase:
    """`torch._C._CUDAGraph`."""

    def __new__(cls, keep_graph: bool = False) -> Any:
        made = object.__new__(cls)
        made.kernels, made.capture = [], None
        return made

    kernels: list[float]
    capture: Capture | None

    def capture_begin(self, pool: Any = None, capture_error_mode: str = GLOBAL) -> None:
        with _state.ruled():
            self.capture = _state.captures.begin(_state.stream(), capture_error_mode)

    def capture_end(self) -> None:
        if self.capture is not None and not self.capture.has_ended:
            with _state.ruled():
                _state.captures.end(self.capture, _state.stream())
            self.kernels = self.capture.kernels

    def instantiate(self) -> None:
        pass

    def register_generator_state(self, _: Any) -> None:
        pass

    def reset(self) -> None:
        self.kernels = []
        for device in _state.devices:
            device.pools.pop(self.capture, None)  # type: ignore[arg-type]

    def pool(self) -> tuple[int, int]:
        return (0, id(self))

    def replay(self) -> None:
        stream = _state.stream()
        stream.device.launch(stream, sum(self.kernels), "graph")


class _Properties:
    """`torch._C._CudaDeviceProperties`."""

    def __init__(self, kind: Kind) -> None:
        self.name, self.total_memory, self.uuid = kind.name, kind.total_bytes, kind.uuid
        self.major, self.minor, self.multi_processor_count = 9, 0, 132
        self.is_integrated, self.warp_size, self.regs_per_multiprocessor = False, 32, 65536
        self.shared_memory_per_block_optin, self.L2_cache_size = 227 * 1024, 50 * 1024**2


def _statistics(number: int) -> dict[str, Any]:
    if os.environ.get("EMULATED_STATISTICS") == "refused":
        raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats.")
    device = _state.device(number)
    counters = {
        "allocated_bytes": (device.allocated, device.allocated_peak),
        "reserved_bytes": (device.reserved, device.reserved_peak),
    }
    return {name: {"all": {"current": now, "peak": peak}} for name, (now, peak) in counters.items()}


def _reset_peak(number: int) -> None:
    device = _state.device(number)
    device.allocated_peak, device.reserved_peak = device.allocated, device.reserved


def _exchange(number: int) -> int:
    here = _state.here
    before, here.number = here.number, number if number >= 0 else here.number
    return before


def _maybe_exchange(number: int) -> int:
    return _exchange(number)  # PyTorch's compiler tells the two apart


def _set_device(number: int) -> None:
    _state.here.number = number


def _set_stream(stream_id: int, device_index: int, device_type: int) -> None:
    _state.here.number = device_index
    _state.here.streams[device_index] = stream_id


def _current_stream(number: int) -> tuple[int, int, int]:
    device = _state.device(number)
    return _state.current(device.number), device.number, _CUDA_TYPE


def _empty_cache() -> None:
    for device in _state.devices:
        device.empty_cache()


def _sleep(cycles: int) -> None:
    stream = _state.stream()
    stream.device.launch(stream, cycles / CYCLES_PER_S, "sleep")


def _is_capturing() -> bool:
    return _state.stream().capture is not None


def _init() -> None:
    if not _state.devices:
        raise RuntimeError("No CUDA GPUs are available")
    import torch

    torch.cuda.default_generators = tuple(torch.Generator() for _ in _state.devices)


def _in_bad_fork() -> bool:
    return os.getpid() != _state.pid and _state.is_used


def put_into(core: Any) -> None:
    """Give `torch._C` what it has in a CUDA build."""
    of_process().torch_c = core
    functions: dict[str, Callable[..., Any]] = {
        "_cuda_init": _init,
        "_cuda_isInBadFork": _in_bad_fork,
        "_cuda_getDeviceCount": lambda: len(_state.devices),
        "_cuda_getDevice": lambda: _state.here.number,
        "_cuda_setDevice": _set_device,
        "_cuda_exchangeDevice": _exchange,
        "_cuda_maybeExchangeDevice": _maybe_exchange,
        "_cuda_hasPrimaryContext": lambda number: _state.devices[number].has_context,
        "_cuda_synchronize": lambda: _state.device().synchronize(),
        "_cuda_getCurrentStream": _current_stream,
        "_cuda_getDefaultStream": lambda number: (0, _state.device(number).number, _CUDA_TYPE),
        "_cuda_getCurrentRawStream": lambda number: _state.current(_state.device(number).number),
        "_cuda_setStream": _set_stream,
        "_cuda_isCurrentStreamCapturing": _is_capturing,
        "_cuda_memoryStats": _statistics,
        "_cuda_resetPeakMemoryStats": _reset_peak,
        "_cuda_resetAccumulatedMemoryStats": lambda _: None,
        "_cuda_emptyCache": _empty_cache,
        "_host_emptyCache": lambda: None,
        "_cuda_sleep": _sleep,
        "_cuda_canDeviceAccessPeer": lambda *_: True,
        "_cuda_getArchFlags": lambda: "sm_90",
        "_cuda_get_sync_debug_mode": lambda: 0,
        "_cuda_ipc_collect": lambda: None,
        "_graph_pool_handle": lambda: (0, 1),
        "_accelerator_getDeviceIndex": lambda: _state.here.number,
        "_accelerator_setDeviceIndex": _set_device,
        "_accelerator_exchangeDevice": _exchange,
        "_accelerator_maybeExchangeDevice": _maybe_exchange,
        "_accelerator_synchronizeDevice": lambda number: _state.device(number).synchronize(),
        "_accelerator_getStream": lambda number: StreamBase(0, _state.current(number), number),
        "_accelerator_resetPeakStats": _reset_peak,
        "_accelerator_getDeviceStats": _statistics,
        "_accelerator_emptyCache": _empty_cache,
        "_accelerator_getMemoryInfo": lambda number: _state.device(number).memory(),
        "_accelerator_emptyHostCache": lambda: None,
        "_get_device_properties_": lambda number: _Properties(_state.device(number).gpu.kind),
    }
    for name, function in functions.items():
        setattr(core, name, function)
    core._CudaStreamBase, core._CudaEventBase, core._CUDAGraph = StreamBase, EventBase, GraphBase
    core._CudaDeviceProperties = _Properties
    core._cudart = object()
    core._cuda_CUDAAllocator_AllocatorState = type("AllocatorState", (), {})  # the compiler's code knows it by name
    core._has_cuda = True


def watch_turns(turns: Any) -> None:
    """Note when this process gives its turn up, with how much of its work under way, and when it has got one."""
    own = turns.TurnTaker._exchange

    @functools.wraps(own)
    def exchange(self: Any, kind: int, step: int) -> None:
        now_s = time.monotonic()
        streams = [stream for device in of_process().devices for stream in device.streams.values()]
        late = sum(not stream.has_times() or stream.ready_s > now_s for stream in streams)
        waits = kind == turns.YIELD
        mark(f"{'yield' if waits else 'leave'}:{step}:{late}")
        before_s = self.waited_s
        own(self, kind, step)
        if waits:
            mark(f"go:{step}:{self.waited_s - before_s:.6f}")

    turns.TurnTaker._exchange = exchange


FACTORIES = (
    "arange",
    "empty",
    "empty_like",
    "eye",
    "full",
    "linspace",
    "ones",
    "rand",
    "randint",
    "randn",
    "randperm",
    "tensor",
    "zeros",
)
"""What makes tensors on the device that it is told."""


def complete(torch: Any) -> None:
    """Let tensors be moved to and from GPUs that they are not on, and reading one wait for its stream."""
    torch.version.cuda = torch.version.cuda or "12.8"
    torch.cuda.mem_get_info = lambda number=None: _state.device(_number(number)).memory()
    torch.cuda.get_device_properties = lambda number=None: _Properties(_state.device(_number(number)).gpu.kind)
    if torch.distributed.is_available():
        collectives.register(torch)
    data_parallel.put_into(torch)
    tensor = torch.Tensor
    own_to, own_cpu = tensor.to, tensor.cpu

    def moved(self: Any, device: Any) -> Any:
        torch.cuda._lazy_init()
        _state.device(_number(device)).allocate(self.numel() * self.element_size())
        return self

    @functools.wraps(own_to)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        args, where = _without_gpu(args)
        if _is_gpu(kwargs.get("device")):
            where = kwargs.pop("device")
        if where is not None:
            kwargs.pop("non_blocking", None)
            args = tuple(one for one in args if not isinstance(one, bool))
            moved(self, where)
            return own_to(self, *args, **kwargs) if args or kwargs else self
        if any(str(one) == "cpu" for one in (*args, kwargs.get("device"))):
            _wait("cpu")
        return own_to(self, *args, **kwargs)

    def cuda(self: Any, device: Any = None, non_blocking: bool = False, **_: Any) -> Any:
        return moved(self, device)

    for name in FACTORIES:
        setattr(torch, name, _making(getattr(torch, name), moved))
    tensor.to, tensor.cuda = to, cuda
    tensor.cpu = _waiting(own_cpu, "cpu")
    tensor.pin_memory = lambda self, *_: self
    tensor.record_stream = lambda self, stream: None
    for name in ("item", "tolist", "__bool__", "__float__", "__int__"):
        setattr(tensor, name, _waiting(getattr(tensor, name), name))


def _making(own: Callable[..., Any], moved: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A factory that counts what it makes on a GPU."""

    @functools.wraps(own)
    def made(*args: Any, **kwargs: Any) -> Any:
        where = kwargs.pop("device") if _is_gpu(kwargs.get("device")) else None
        kwargs.pop("pin_memory", None)
        tensor = own(*args, **kwargs)
        return tensor if where is None else moved(tensor, where)

    return made


def _wait(why: str) -> None:
    if _state.is_used:
        stream = _state.stream()
        with _state.ruled():
            _state.captures.may_be_unsafe(stream)
        wait_until(stream.ready_s)
        stream.device.check()
        _state.counts[why] += 1


def _waiting(own: Callable[..., Any], why: str) -> Callable[..., Any]:
    @functools.wraps(own)
    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        _wait(why)
        return own(self, *args, **kwargs)

    return read


def _is_gpu(where: Any) -> bool:
    import torch

    return isinstance(where, (str, torch.device)) and str(where).startswith("cuda")


def _without_gpu(args: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
    gpus = [one for one in args if _is_gpu(one)]
    return tuple(one for one in args if not _is_gpu(one)), gpus[0] if gpus else None


def _number(device: Any) -> int:
    if isinstance(device, int):
        return device
    _, _, number = str(device or "").partition(":")
    return int(number) if number.isdigit() else -1


def _visible(kinds: list[Kind]) -> list[Kind]:
    """What `CUDA_VISIBLE_DEVICES` shows: numbers or names, up to the first that is neither."""
    said = os.environ.get("CUDA_VISIBLE_DEVICES")
    if said is None:
        return kinds
    shown: list[Kind] = []
    for entry in (one.strip() for one in said.split(",")):
        found = [kind for i, kind in enumerate(kinds) if entry and (str(i) == entry or kind.uuid.startswith(entry))]
        if len(found) != 1:
            break
        shown += found
    return shown
