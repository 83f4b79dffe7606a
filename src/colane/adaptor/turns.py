"""The job's side of taking turns: what a process does at a step boundary when it is asked to give way.

The agent writes the control page of the steps file, the job reads it: `FLAG` not zero means ask at every boundary.
The fast path of a boundary is `publish the step, then if words[FLAG]: taker.boundary(step)`; it must publish first, so
that an agent which sets `PAUSE_AT` above every published step knows that no rank of a gang misses it.

The slow path finishes what runs on the GPU, tells the agent over a SEQPACKET socket, and waits for its word. It fails
open: without an agent, with a broken or foreign socket, or with an agent that says nothing, the job goes on. A job
that is held (`HOLD`) does not fail open: it waits without an agent too.
"""

# ruff: noqa: PTH120, PTH119 - pathlib is an import the job did not ask for

from __future__ import annotations

import atexit
import os
import select
import socket
import struct
import sys
import threading
import time
from contextlib import suppress

from . import memory
from .capture import excluded
from .device_clock import devices_in_use

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

GATE_ENV = "COLANE_GATE"  # the environment variable that names the agent's socket

# Indexes of 8-byte words in the control page; the agent writes, the job reads.
FLAG = 0  # 0: run freely; 1: ask at every boundary
PAUSE_AT = 1  # ranks of a gang go on without asking until this step, so that all park at the same one; 0 for none
FLUSH = 2  # 1: give cached GPU memory back before yielding, because the lane needs it
HOLD = 3
"""1: a waiting process goes on by the agent's word alone, for its device may be another job's, even a later agent's."""
# 1: the job shares a lane, so that it gives its turn up while it waits for something else than its device;
# `writer.BESIDE_SERVER`: with one that answers requests, so that no step is launched before the last has ended
SHARES = 4
SOON_AT = 5  # when the turn of a job that waits is expected (CLOCK_MONOTONIC, ns), as it is told by `SOON`

YIELDED_WORD, RESUMED_WORD = 30, 31  # words of the steps page, as in `writer`

PROTOCOL = 1
_MAGIC = b"CLNG"

REQUEST = struct.Struct("=4sHHIIQQ")
"""Job to agent: magic, protocol, kind, pid as the process sees it, ranks of its job here, step, serial number."""
ANSWER = struct.Struct("=4sHHQ")  # agent to job: magic, protocol, kind, serial number of the request

YIELD, LEAVE, PING = 1, 2, 3
"""Kinds of requests: the turn is given up and wanted again; given up and not wanted; whether the agent is there."""
GO, WAIT, SOON = 1, 2, 3  # kinds of answers: run; you are heard, wait on; wait on, your turn comes at `SOON_AT`

SPIN_BEFORE_S, SPIN_AFTER_S = 1e-4, 5e-4
"""So long before and after the step of the holder is expected to end a job looks for its turn without sleeping."""
SPIN_RETRY_S = 1.0  # a job that found no core free for that sleeps through its waits for so long
_SELECT_MAX = 1024

SILENCE_MAX_S = 5.0
"""A waiting job asks after so long whether the agent is still there; after as long again it goes on without."""
RANKS_NAMES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
"""Where launchers say how many processes of a distributed job are on this machine."""
RETRY_S = 0.25  # an agent that could not be reached is not tried again at every step
ADDRESS_MAX_BYTES = 107


class TurnTaker:
    """Takes turns for this process. Made once; `boundary` is called by the code that counts the steps.

    Attributes:
        waited_s: Time spent waiting for turns so far.
    """

    __slots__ = (
        "_asking", "_dead", "_identity", "_retry_s", "_serial", "_socket", "_spin_s", "_stamp", "_stays", "_words",
        "waited_s",
    )  # fmt: skip

    def __init__(
        self, words: memoryview, stamp: Callable[[int], None] | None = None, stays: Callable[[int], None] | None = None
    ) -> None:
        """Begin; nothing is opened before the first question.

        Args:
            words: The control page as 8-byte words.
            stamp: Notes when the turn is given up and when the next one has come, see `Writer.stamp`.
            stays: Notes what of the cache stays when it is given back, see `Writer.set_stays`.
        """
        self.waited_s = 0.0
        self._stamp, self._stays = stamp, stays
        self._words = words
        self._socket: socket.socket | None = None
        self._identity: tuple[int, int] | None = None
        self._serial = 0
        self._retry_s = 0.0
        self._spin_s = 0.0
        self._dead = False
        self._asking = threading.Lock()

    def boundary(self, step: int) -> None:
        """Give the turn up after `step` steps and wait for the next one; go on at once without an agent."""
        if step < self._words[PAUSE_AT]:
            return
        self._ask(YIELD, step)

    def leave(self, step: int) -> None:
        """Give the turn up without wanting another: a server that has answered and waits for the next request."""
        self._ask(LEAVE, step)

    def enter(self, step: int) -> None:
        """Wait for a turn, after `leave` and before a request is answered."""
        self._ask(YIELD, step)

    def disarm(self) -> None:
        """Never ask again, in a forked child; the parent's connection stays as it is."""
        self._dead = True
        self._drop()
        atexit.unregister(self._say_goodbye)

    def _ask(self, kind: int, step: int) -> None:
        """One question; only one thread of a process asks at a time, the others go on."""
        if self._dead or not self._asking.acquire(False):
            return
        try:
            while not self._is_answered(kind, step) and kind == YIELD and self._words[HOLD]:
                time.sleep(RETRY_S)
                self.waited_s += RETRY_S
        finally:
            self._asking.release()

    def _is_answered(self, kind: int, step: int) -> bool:
        """Ask once; False when there is no agent to answer."""
        try:
            if not self._is_ours():
                self._drop()
            if self._socket is None and not self._connect():
                return False
            if self._words[HOLD] or self._settle():  # held as it stood, its device is idle, and may be another job's
                self._exchange(kind, step)
        except TimeoutError:
            raise  # the connection has none: a signal handler of the job raised it
        except (OSError, ValueError, struct.error):
            self._drop()
            return False
        return True

    def _exchange(self, kind: int, step: int) -> None:
        self._serial += 1
        if self._stamp is not None:
            self._stamp(YIELDED_WORD)
        began_s = time.perf_counter()  # before: what hears the word may take this core from us at once
        self._send(kind, step)
        if kind == YIELD:
            try:
                self._await_go(step)
                if self._stamp is not None:
                    self._stamp(RESUMED_WORD)
            finally:
                self.waited_s += time.perf_counter() - began_s

    def _connect(self) -> bool:
        """Reach the agent, or note when to try again."""
        path = os.environ.get(GATE_ENV)
        now_s = time.monotonic()
        if not path or now_s < self._retry_s:
            return False
        self._retry_s = now_s + RETRY_S
        self._socket = connect(path)
        self._identity = _identity_of(self._socket)
        atexit.register(self._say_goodbye)
        return True

    def _say_goodbye(self) -> None:
        """Give the turn up at the end of the process: to take a framework down lasts seconds."""
        atexit.unregister(self._say_goodbye)
        if self._is_ours():
            with suppress(OSError):
                self._send(LEAVE, 0)

    def _is_ours(self) -> bool:
        """Whether our descriptor is still that connection: a script may close all there are, and open others."""
        return self._socket is not None and _identity_of(self._socket) == self._identity

    def _send(self, kind: int, step: int) -> None:
        assert self._socket is not None  # noqa: S101 - for the type checker
        self._socket.send(REQUEST.pack(_MAGIC, PROTOCOL, kind, os.getpid(), ranks_here(), step, self._serial))

    def _await_go(self, step: int) -> None:
        """Wait for the word to go on; raises an error of the connection when the agent is gone or silent."""
        assert self._socket is not None  # noqa: S101 - for the type checker
        waiter = select.poll()
        waiter.register(self._socket, select.POLLIN)
        asked = False
        while True:
            if waiter.poll(SILENCE_MAX_S * 1000):
                asked = False
                kind = self._receive()
                if kind == GO:
                    return
                if kind == SOON:
                    self._be_ready(waiter)
            elif asked:
                raise ConnectionError("the agent is silent")
            else:
                asked = True
                self._send(PING, step)

    def _be_ready(self, waiter: select.poll) -> None:
        """Be awake when the turn is expected, where a core is free; come back when there is word, or none came."""
        assert self._socket is not None  # noqa: S101 - for the type checker
        due_s, now_s = self._words[SOON_AT] * 1e-9, time.monotonic()
        if now_s < self._spin_s or now_s > due_s + SPIN_AFTER_S or self._socket.fileno() >= _SELECT_MAX:
            return
        early_s = due_s - SPIN_BEFORE_S - now_s  # `poll` knows milliseconds only
        if early_s > 0 and select.select([self._socket], (), (), min(early_s, SILENCE_MAX_S))[0]:
            return
        began_s, used_s = time.monotonic(), time.thread_time()
        while not waiter.poll(0) and time.monotonic() < due_s + SPIN_AFTER_S:
            os.sched_yield()
        now_s = time.monotonic()
        if time.thread_time() - used_s < 0.5 * (now_s - began_s):
            self._spin_s = now_s + SPIN_RETRY_S

    def _receive(self) -> int:
        """Kind of the next answer; answers to a question that a signal cut short count for nothing."""
        assert self._socket is not None  # noqa: S101 - for the type checker
        magic, protocol, kind, serial = ANSWER.unpack(self._socket.recv(ANSWER.size + 1))
        if magic != _MAGIC or protocol != PROTOCOL:
            raise ValueError("the agent speaks another protocol")
        return kind if serial == self._serial else WAIT

    def _settle(self) -> bool:
        """Wait for all devices, so that nothing of this job runs in another's turn; give memory back if asked.

        False while a CUDA graph is captured, and where a framework cannot be waited for: such a job gives no turn up,
        so that the gate soon leaves it out of them.
        """
        torch = sys.modules.get("torch")
        cuda = getattr(torch, "cuda", None)
        try:
            with excluded as may_wait:
                if may_wait and cuda is not None and cuda.is_initialized():
                    for device in devices_in_use(torch):
                        cuda.synchronize(device)
                    if self._words[FLUSH]:
                        memory.give_back(cuda, self._stays)
                return may_wait and _wait_for_other_frameworks()
        except RuntimeError:
            return False  # an error of CUDA: the job meets it itself

    def _drop(self) -> None:
        is_ours = self._is_ours()
        held, self._socket = self._socket, None
        if held is not None:
            held.close() if is_ours else held.detach()


def _identity_of(one: socket.socket) -> tuple[int, int] | None:
    """What stands behind a descriptor; None when that was closed."""
    try:
        found = os.fstat(one.fileno())
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _wait_for_other_frameworks() -> bool:
    """Wait for what JAX, CuPy and TensorFlow have under way, each by its own means; False where one has none."""
    jax, cupy, tensorflow = (sys.modules.get(name) for name in ("jax", "cupy", "tensorflow"))
    try:
        if jax is not None:
            _wait_for_jax(jax)
        if cupy is not None:
            _wait_for_cupy(cupy)
        if tensorflow is not None:
            tensorflow.test.experimental.sync_devices()  # since TensorFlow 2.12
    except AttributeError:
        return False
    return True


def _wait_for_jax(jax: Any) -> None:
    """Wait for all results, and for those that the script has dropped: what is computed last on a device ends last."""
    for array in jax.live_arrays():
        if not array.is_deleted():
            array.block_until_ready()
    for device in jax.local_devices():
        (jax.device_put(0, device) + 1).block_until_ready()


def _wait_for_cupy(cupy: Any) -> None:
    """Wait for every GPU on which the process has a context: CuPy's own calls mean the current one."""
    current = cupy.cuda.Device()
    current.synchronize()
    count = cupy.cuda.runtime.getDeviceCount()
    for number in range(count) if count > 1 else ():
        if number != current.id and has_context(number):
            cupy.cuda.Device(number).synchronize()


def has_context(number: int) -> bool:
    """Whether this process uses a GPU, as the driver knows: to ask CUDA anything of another makes a context there.

    True where the driver cannot be asked.
    """
    import ctypes  # only jobs on several GPUs through such frameworks need it

    flags, is_active = ctypes.c_uint(), ctypes.c_int()
    try:
        ask = ctypes.CDLL("libcuda.so.1").cuDevicePrimaryCtxGetState
    except (OSError, AttributeError):
        return True
    return ask(number, ctypes.byref(flags), ctypes.byref(is_active)) != 0 or bool(is_active.value)


def connect(path: str) -> socket.socket:
    """Connect to the agent's socket, also where its path is too long for an address."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        client.setblocking(False)
        at_address(path, client.connect)
    except OSError:
        client.close()
        raise
    return client


def at_address(path: str, use: Callable[[str], object]) -> None:
    """Call `use` with an address of `path`; one that is too long is named through its directory's descriptor."""
    if len(os.fsencode(path)) <= ADDRESS_MAX_BYTES:
        use(path)
        return
    directory = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        use("/proc/self/fd/%d/%s" % (directory, os.path.basename(path)))  # noqa: UP031
    finally:
        os.close(directory)


def ranks_here() -> int:
    """Number of this job's ranks on this node, as launchers of distributed training say, else as PyTorch knows."""
    for name in RANKS_NAMES:
        count = os.environ.get(name, "")
        if count.isdigit():
            return max(1, int(count))
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 1
    return int(distributed.get_world_size())


def read_request(data: bytes) -> tuple[int, int, int, int, int]:
    """Read a request: kind, pid as the process sees it, ranks, step, serial number.

    Raises ValueError: it is none, or of another protocol.
    """
    if len(data) != REQUEST.size:
        raise ValueError(f"{len(data)} bytes are no request")
    magic, protocol, *rest = REQUEST.unpack(data)
    if magic != _MAGIC or protocol != PROTOCOL:
        raise ValueError(f"protocol {protocol} is not {PROTOCOL}")
    kind, pid, ranks, step, serial = rest
    return kind, pid, ranks, step, serial


def answer(kind: int, serial: int) -> bytes:
    """Write an answer."""
    return ANSWER.pack(_MAGIC, PROTOCOL, kind, serial)
