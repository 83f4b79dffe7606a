"""An experiment: one region of GPU memory for the ephemeral memory of all jobs of a lane. Not part of the product.

    python gpu/lane_region.py --region [--part PART] [--minutes 8] [--out DIR] [--tiny]

What a step allocates comes out of physical memory that every job of the lane has mapped; only what lives at a yield is
saved and restored. Nothing is freed and allocated again at a switch, as `lanes.py` `flush` measures. Without `--region`
it says what it is and ends. `share` proves the driver's semantics, `costs` chooses the chunks, `train` that losses are
bit-equal while the region is overwritten at each yield, `pair` the same with two jobs on one region. It needs gcc.
`--tiny` runs `share` and `costs` on a double of the driver (`tests/gpu/fake_cuda.c`).
"""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Final

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # so that the script can be run by its path as well
    sys.path.insert(0, str(ROOT))

from gpu.harness import Object, Run, Script, job_env, main  # noqa: E402

from colane.cli.errors import FailureError  # noqa: E402

JOB: Final = ROOT / "gpu" / "lane_region_job.py"
SOURCE: Final = ROOT / "gpu" / "lane_region.c"
DOUBLE: Final = ROOT / "tests" / "gpu" / "fake_cuda.c"
FLAG: Final = "--region"

MIB, GIB = 2**20, 2**30
REGION_BYTES, TINY_REGION_BYTES = 24 * GIB, 16 * MIB
CHUNK_BYTES, TINY_CHUNK_BYTES = 512 * MIB, 4 * MIB
CHUNKS: Final = (64 * MIB, 512 * MIB, 2 * GIB)
TURNS: Final = 30
SLACK_BYTES: Final = 512 * MIB
"""What contexts and the driver may keep for a while."""
STEPS: Final = 60
STEP_RATIO_MAX: Final = 1.02
SWITCH_MAX_S: Final = 5e-3
ESCAPED_MAX_BYTES: Final = GIB
"""Up to so much alive at a yield, saving and restoring it must be that quick."""


def build(run: Run) -> Path:
    """Compile the allocator, and the double of the driver on a CPU."""
    run.out_dir.mkdir(parents=True, exist_ok=True)
    library = _compile(SOURCE, run.out_dir / "lane_region.so")
    if run.on_cpu:
        _compile(DOUBLE, run.out_dir / "fake_cuda.so")
    return library


def _compile(source: Path, to: Path) -> Path:
    words = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(to), str(source), "-ldl", "-lpthread"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FailureError(f"{source.name} cannot be built: {done.stderr.strip().splitlines()[:1]}")
    return to


def _env(run: Run) -> dict[str, str]:
    if run.on_cpu:
        return {**job_env(), "LANE_REGION_LIBCUDA": str(run.out_dir / "fake_cuda.so")}
    return {**job_env(), "CUDA_VISIBLE_DEVICES": run.gpus[0].uuid}


@contextmanager
def _peer(run: Run, role: str, *words: object) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """Have a process that speaks over a socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, str(JOB), role, str(theirs.fileno()), *map(str, words)]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=_env(run))
    theirs.close()
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        ours.close()


@contextmanager
def _kept(run: Run, library: Path, size_bytes: int, chunk_bytes: int) -> Iterator[list[int]]:
    """Descriptors of a region whose maker has been killed: this process, which has no CUDA, keeps it."""
    fds: list[int] = []
    with _peer(run, "create", library, size_bytes, chunk_bytes) as (maker, link):
        while True:
            data, ancillary, *_ = link.recvmsg(64, socket.CMSG_LEN(4))
            if not data:
                raise FailureError("the region could not be made")
            if data == b"D":
                break
            fds.append(array.array("i", ancillary[0][2])[0])
        maker.send_signal(signal.SIGKILL)
        maker.wait()
    try:
        yield fds
    finally:
        for fd in fds:
            os.close(fd)


def _ask(link: socket.socket, words: str) -> str:
    link.send(words.encode())
    answer = link.recv(64).decode()
    if not answer:
        raise FailureError(f"a process that shares the region ended at {words!r}")
    return answer


def _give(link: socket.socket, fds: Sequence[int]) -> float:
    """Hand a region out; how long mapping it took."""
    for fd in fds:
        link.sendmsg([b"F"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
    return float(_ask(link, "D"))


def _free_bytes(run: Run) -> int:
    """Free memory of the first GPU; of none on a CPU."""
    return 0 if run.on_cpu else run.memory_use.free_bytes


def share(run: Run) -> Object:
    """The maker dies, a process without CUDA keeps the memory, two others see each other's writes."""
    library = build(run)
    size, chunk = (TINY_REGION_BYTES, TINY_CHUNK_BYTES) if run.on_cpu else (REGION_BYTES, CHUNK_BYTES)
    before_bytes = _free_bytes(run)
    with ExitStack() as stack:
        fds = stack.enter_context(_kept(run, library, size, chunk))
        links = [stack.enter_context(_peer(run, "import", library, chunk))[1] for _ in range(2)]
        map_s = [_give(link, fds) for link in links]
        seen = []
        for turn in range(TURNS):
            writer, reader = links[turn % 2], links[1 - turn % 2]
            _ask(writer, f"fill {turn + 1}")
            seen.append(_ask(reader, "last") == str(turn + 1))
        run.check("each reads what the other wrote", all(seen), seen.count(False))
        held_bytes = before_bytes - _free_bytes(run)
        run.check("the memory is there once", run.on_cpu or size <= held_bytes < 2 * size, held_bytes)
    left_bytes = before_bytes - _free_bytes(run)
    run.check("the memory is back when nobody has it any more", left_bytes < SLACK_BYTES, left_bytes)
    return {"bytes": size, "chunks": len(fds), "map_s": map_s, "turns": len(seen)}


def costs(run: Run) -> Object:
    """What mapping and mapping anew cost, by size of the chunks."""
    library, found = build(run), {}
    for chunk in (TINY_CHUNK_BYTES,) if run.on_cpu else CHUNKS:
        size = TINY_REGION_BYTES if run.on_cpu else REGION_BYTES
        with _kept(run, library, size, chunk) as fds, _peer(run, "import", library, chunk) as (_, link):
            map_s = _give(link, fds)
            found[str(chunk)] = {"map_s": map_s, "remap_s": min(float(_ask(link, "remap")) for _ in range(5))}
    run.check("every size of chunks can be mapped", bool(found), list(found))
    return {"bytes_of_chunk": found}


class Trainer:
    """A training process that stops at its yields."""

    def __init__(self, run: Run, library: Path | None, seed: int, fds: Sequence[int] = ()) -> None:
        words = [str(library or "-"), str(seed), str(STEPS), str(CHUNK_BYTES), *map(str, fds)]
        command = [sys.executable, str(JOB), "train", *words]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, pass_fds=list(fds), env=_env(run), **pipes)

    def next(self) -> Object | None:
        """Wait for its next yield, None, or its end, what it found."""
        line = _pipe(self.process.stdout).readline()
        if line.strip() == "yield":
            return None
        if not line:
            raise FailureError("a training process ended early")
        found: Object = json.loads(line)
        return found

    def go(self) -> None:
        """Give it the turn."""
        pipe = _pipe(self.process.stdin)
        pipe.write("\n")
        pipe.flush()

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def _plain(run: Run, seed: int) -> Object:
    """The same training without a region."""
    trainer = Trainer(run, None, seed)
    try:
        return trainer.next() or {}
    finally:
        trainer.close()


def train(run: Run) -> Object:
    """One job; at each of its yields somebody else overwrites the whole region."""
    library = build(run)
    plain = _plain(run, 0)
    with ExitStack() as stack:
        fds = stack.enter_context(_kept(run, library, REGION_BYTES, CHUNK_BYTES))
        link = stack.enter_context(_peer(run, "import", library, CHUNK_BYTES))[1]
        _give(link, fds)
        trainer = Trainer(run, library, 0, fds)
        stack.callback(trainer.close)
        while (found := trainer.next()) is None:
            _ask(link, "fill 255")
            trainer.go()
    run.check("the losses are the same to the last bit", found["losses"] == plain["losses"], found["losses"])
    ratio = found["step_s"] / plain["step_s"]
    run.check("a step takes at most 2 % more", ratio <= STEP_RATIO_MAX, ratio)
    small = [one for one in found["switches"] if one["bytes"] <= ESCAPED_MAX_BYTES]
    worst_s = max((one["out_s"] + one["in_s"] for one in small), default=0.0)
    run.check("saving and restoring up to 1 GiB takes at most 5 ms", bool(small) and worst_s <= SWITCH_MAX_S, worst_s)
    return {"plain": plain, "region": found}


def pair(run: Run) -> Object:
    """Two jobs in turns on one region: each has the losses it has alone."""
    library = build(run)
    plain = [_plain(run, seed) for seed in (1, 2)]
    found: list[Object | None] = [None, None]
    with ExitStack() as stack:
        fds = stack.enter_context(_kept(run, library, REGION_BYTES, CHUNK_BYTES))
        trainers: list[Trainer] = []
        for seed in (1, 2):  # the second starts when the first has yielded for the first time
            trainers.append(Trainer(run, library, seed, fds))
            stack.callback(trainers[-1].close)
            found[seed - 1] = trainers[-1].next()
        while None in found:
            for i, trainer in enumerate(trainers):
                if found[i] is None:
                    trainer.go()
                    found[i] = trainer.next()
    for seed, (alone, together) in enumerate(zip(plain, found, strict=True), start=1):
        same = together is not None and together["losses"] == alone["losses"]
        run.check(f"job {seed}: the losses are the same to the last bit", same)
    return {"plain": plain, "region": found}


SCRIPT: Final = Script(
    name="lane_region",
    about="An experiment: one region of GPU memory for the jobs of a lane. Needs --region.",
    parts={"share": share, "costs": costs, "train": train, "pair": pair},
    tiny_parts=("share", "costs"),
)


def run_flagged(words: Sequence[str]) -> int:
    """Run it only where it was asked for by its flag; parts run in processes of their own have been."""
    if FLAG in words:
        os.environ["COLANE_LANE_REGION"] = "1"
    if not os.environ.get("COLANE_LANE_REGION") and not {"-h", "--help"} & set(words):
        print(json.dumps({"script": SCRIPT.name, "status": f"an experiment; give {FLAG} to run it"}))
        return 0
    return main(SCRIPT, [word for word in words if word != FLAG])


if __name__ == "__main__":
    sys.exit(run_flagged(sys.argv[1:]))
