"""Processes of `lane_region.py`, to be run as a script.

Arguments: `create SOCKET LIBRARY BYTES CHUNK`, `import SOCKET LIBRARY CHUNK`, or `train LIBRARY SEED STEPS CHUNK FD...`
(`-` for no library: PyTorch's own allocator, and no yields). The first two answer on a SEQPACKET socket; the last
prints a line at each yield, waits for one, and prints what it found at the end.
"""

from __future__ import annotations

import array
import ctypes
import hashlib
import json
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, Final

MIB: Final = 2**20
YIELD_EVERY: Final = 10
CALLS: Final = ("lane_base", "lane_total", "lane_used", "lane_high")


def load(library: str) -> ctypes.CDLL:
    """Open the allocator."""
    lane = ctypes.CDLL(library)
    for name in CALLS:
        getattr(lane, name).restype = ctypes.c_size_t
    lane.lane_fallbacks.restype = ctypes.c_long
    lane.lane_malloc.restype = ctypes.c_void_p
    lane.lane_malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    lane.lane_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    lane.lane_open.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    lane.lane_fill.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_size_t]
    lane.lane_read.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
    return lane


def region(library: str, size_bytes: int, chunk_bytes: int, fds: list[int]) -> ctypes.CDLL:
    """Make the region, of these descriptors or of new memory."""
    lane = load(library)
    given = (ctypes.c_int * len(fds))(*fds) if fds else None
    code = lane.lane_open(0, size_bytes, chunk_bytes, len(fds), given)
    if code:
        raise SystemExit(f"the region cannot be made: code {code}")
    return lane


def create(fd: str, library: str, size: str, chunk: str) -> None:
    """Make a region, hand its descriptors out, and stay until killed."""
    link = socket.socket(fileno=int(fd))
    lane = region(library, int(size), int(chunk), [])
    fds = array.array("i", [lane.lane_fd(i) for i in range(lane.lane_chunks())])
    for one in fds:
        link.sendmsg([b"F"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [one]))])
    link.send(b"D")
    signal.pause()


def use(fd: str, library: str, chunk: str) -> None:
    """Map a region of somebody else's and do as the other side of the socket says: `fill VALUE`, `last`, `remap`."""
    link = socket.socket(fileno=int(fd))
    fds: list[int] = []
    while True:
        data, ancillary, *_ = link.recvmsg(64, socket.CMSG_LEN(4))
        if data == b"D":
            break
        fds.append(array.array("i", ancillary[0][2])[0])
    began_s = time.perf_counter()
    lane = region(library, 0, int(chunk), fds)
    link.send(repr(time.perf_counter() - began_s).encode())
    while words := link.recv(64).decode().split():
        link.send(_do(lane, words).encode())


def _do(lane: ctypes.CDLL, words: list[str]) -> str:
    total = lane.lane_total()
    if words[0] == "fill":
        return str(lane.lane_fill(0, int(words[1]), total))
    if words[0] == "last":
        last = ctypes.c_ubyte()
        code = lane.lane_read(ctypes.byref(last), total - 1, 1)
        return str(last.value) if code == 0 else f"code {code}"
    began_s = time.perf_counter()
    code = lane.lane_unmap() or lane.lane_map()
    return repr(time.perf_counter() - began_s) if code == 0 else f"code {code}"


class Routed:
    """Routes what a step allocates into the region, and saves and restores what lives there at a yield."""

    def __init__(self, torch: Any, library: str, chunk: int, fds: list[int]) -> None:  # noqa: ANN401 - a module
        self.torch = torch
        torch.zeros(1, device="cuda")  # the context is PyTorch's
        self.lane = region(library, 0, chunk, fds)
        allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "lane_malloc", "lane_free")
        self.pool = torch.cuda.MemPool(allocator.allocator())
        self.is_routed = False
        self.switches: list[dict[str, float]] = []

    def begin(self) -> None:
        """Allocate in the region, from every thread."""
        if not self.is_routed:
            self.torch._C._cuda_beginAllocateToPool(0, self.pool.id)  # noqa: SLF001 - there is no public way
            self.is_routed = True

    def end(self, *_: object) -> None:
        """Allocate as usual: for what lives on."""
        if self.is_routed:
            self.torch._C._cuda_endAllocateToPool(0, self.pool.id)  # noqa: SLF001
            self.torch._C._cuda_releasePool(0, self.pool.id)  # noqa: SLF001
            self.is_routed = False

    def pause(self) -> None:
        """Save what lives in the region, let somebody else have it, and restore."""
        cuda = self.torch.cuda
        self.end()
        cuda.synchronize()
        began_s = time.perf_counter()
        live = [(place, size, self._view(place, size)) for place, size in self._live()]
        saved = [view.clone() for *_, view in live]
        cuda.synchronize()
        out_s = time.perf_counter() - began_s
        print("yield", flush=True)
        sys.stdin.readline()
        began_s = time.perf_counter()
        for (*_, view), copy in zip(live, saved, strict=True):
            view.copy_(copy)
        cuda.synchronize()
        moved = sum(size for _, size, _ in live)
        self.switches.append({"bytes": moved, "out_s": out_s, "in_s": time.perf_counter() - began_s})

    def _view(self, place: int, size: int) -> Any:  # noqa: ANN401 - a tensor
        holder = type("Raw", (), {})()
        holder.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (place, False), "version": 3}
        return self.torch.as_tensor(holder, device="cuda")

    def _live(self) -> list[tuple[int, int]]:
        base, total = self.lane.lane_base(), self.lane.lane_total()
        found = []
        for segment in self.torch.cuda.memory_snapshot(self.pool.id):
            place = segment["address"]
            for block in segment["blocks"]:
                if block["state"] != "inactive" and base <= place < base + total:
                    found.append((place, block["size"]))
                place += block["size"]
        return found


def train(library: str, seed: str, steps: str, chunk: str, *fds: str) -> None:
    """Train; the same seed must give the same losses whatever becomes of the region between two turns."""
    import torch  # noqa: PLC0415 - the other roles do without

    torch.manual_seed(int(seed))
    layers = [layer for _ in range(12) for layer in (torch.nn.Linear(4096, 4096), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers).to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.randn(32768, 4096, device="cuda", dtype=torch.bfloat16)
    routed = None if library == "-" else Routed(torch, library, int(chunk), [int(fd) for fd in fds])
    if routed is not None:
        optimizer.register_step_pre_hook(routed.end)  # the optimizer's state lives on
    losses, took_s = [], []
    for step in range(int(steps)):
        began_s = time.perf_counter()
        if routed is not None:
            routed.begin()
        optimizer.zero_grad()
        loss = model(data).float().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        took_s.append(time.perf_counter() - began_s)
        if routed is not None and step % YIELD_EVERY == YIELD_EVERY // 2:
            routed.pause()
    found: dict[str, Any] = {
        "losses": hashlib.sha256(repr(losses).encode()).hexdigest(),
        "step_s": sorted(took_s)[len(took_s) // 2],
    }
    if routed is not None:
        lane = routed.lane
        found |= {"high_bytes": lane.lane_high(), "fallbacks": lane.lane_fallbacks(), "switches": routed.switches}
    print(json.dumps(found), flush=True)


ROLES: Final[dict[str, Callable[..., None]]] = {"create": create, "import": use, "train": train}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
