"""The job's side of the steps file: its layout, and a writer that costs about a microsecond a step.

The file is a page of counters, a page for taking turns, and a ring of step durations. Rules:

* Every value is one aligned 8-byte word, stored by one machine instruction, so none is ever half written.
* What belongs to step n is written first, into the record of n's parity, and the step counter last. A reader
  that sees the counter at n finds n's record whole, whenever the writer is stopped or killed.
* Words 0 (magic), 1 (version) and 7 (version of an adaptor that could not use the file) mean the same in every
  version, so that two versions that meet can say so.
* The ring has one slot more than it promises, so the slot being written is never one a reader wants.
"""

# ruff: noqa: PTH105, PTH108 - pathlib is an import the job did not ask for

from __future__ import annotations

import mmap
import os
import struct
import sys
import time

STEPS_FILE_ENV = "COLANE_STEPS_FILE"  # the environment variable that tells a job where its steps file is

SERVES_ENV = "COLANE_SERVES"
"""The environment variable that tells a job that it answers requests (`--kind inference`): its steps are answers."""

MAGIC = b"CLNSTEPS"
VERSION = 3

RING_STEPS = 8192  # how many of the last step durations a reader gets: over an hour of steps at two a second
RING_SLOTS = RING_STEPS + 1

PAGE_BYTES = 4096
CONTROL_OFFSET = PAGE_BYTES
"""The page for turns. Its first word is the flag: 0 run freely, else ask at each boundary; `turns` says the rest."""
CONTROL_WORDS = PAGE_BYTES // 8
HOLD, SHARES, CONTROLS = 3, 4, 5
"""Which words say that the job is held where it stands and that it shares a lane, and how many words there are."""
BESIDE_SERVER = 2  # what the second of them holds where one of the lane's jobs answers requests
RANKS_WANTED = 6  # as how many ranks the job is to go on once its state is saved; 0: it leaves
WATCH = 7  # 1: it is watched whether the process stands still (`stillness`)
RING_OFFSET = 2 * PAGE_BYTES
FILE_BYTES = RING_OFFSET + -(-RING_SLOTS * 8 // PAGE_BYTES) * PAGE_BYTES

OTHER_VERSION = "has version"

IDENTITY = struct.Struct("=8sQQ")
"""Magic, version, slots of the ring: at offset 0, written once by the process that creates the file."""

# Indexes of 8-byte words in the first page.
VERSION_WORD, PID_WORD, TOTAL_WORD, FIRST_WORD, COUNT_WORD, REFUSED_WORD = 1, 3, 4, 5, 6, 7
PHASE_WORD, HEARTBEAT_WORD = 22, 23
SAVES_WORD, RESTORED_WORD, SAVED_STEPS_WORD, SAVED_WORD, SAVE_ERROR_WORD, SAVE_FAILED_WORD = range(24, 30)
"""Of the saved state: whether the job saves it by itself (1), steps it began with, steps last saved and when (s), and
the error number of the last attempt that failed and when (s)."""
YIELDED_WORD, RESUMED_WORD = 30, 31
"""When its device was last idle for others, and when it last went on by the gate's word (CLOCK_MONOTONIC, ns)."""
UNCOUNTED_WORD = 32  # how many of the steps turned out to be none of training (an evaluation before it): the first ones
NOISE_WORD = 33  # gradient noise scale, in samples; 0 while nothing was said
REFORMS_WORD, RANKS_WORD, FORMED_WORD = range(34, 37)
"""Whether the ranks of the job can go on as fewer (1); as how many they last have (0: as started), and how many steps
of this page were made before that."""
UNTIMED_WORD = 37
"""How many of the last steps have no duration yet: their GPU has not done them. It rises before the number of steps
and falls after a slot of the ring is written, so that no reader takes a slot that says nothing."""
IDLE_WORD, ANSWERS_WORD = 38, 39
"""Of a job that answers requests: time in which it waited for one (s), and how many it has answered."""
RESTS_WORD, STILL_WORD = 40, 41
"""Whether the job can be parked as it stands (`RESTS`, `WATCHABLE`, 0), and while the agent has it watched, when it was
last seen to stand still (CLOCK_MONOTONIC, ns), or `MOVED`."""
RESTS, WATCHABLE = 1, 2
"""The process uses no device and asks at the gate before it does so again: a notebook between two cells. Or it can be
watched whether it stands still."""
MOVED = 1
STAYS_WORD, FLUSHED_WORD = 42, 43
"""Of the blocks of the allocator, those that it does not use and cannot give back either (bytes), as seen when it was
last asked to; and whether it waits like that for its turn (1)."""
WAITS_WORD, BESIDE_WORD = 44, 45
"""Whether the process gives its turn up at a boundary or waits there for its next one (1): then no other thread and no
other process of its job begins to compute. And which other process of it computes; 0 for none."""
ANSWERS_OFFSET, ANSWER_SLOTS = 512, 448
"""Where the times that its last answers took lie, from the request on, waiting for the turn included."""
ANSWERS_KEPT = ANSWER_SLOTS - 1
IN_STEP, BETWEEN_STEPS, TENTATIVE = 1, 2, 4
"""Values of the phase. `TENTATIVE` is added while a process has used its device but ended no step and registered no
GPU: another process of the job that does may take its place."""

RECORD = struct.Struct("=ddQQQQ")
"""Of the latest step: unix time (s), loss, persistent bytes, peak bytes, reserved bytes, flags."""
RECORD_OFFSETS = (64, 128)  # where the record of an even and of an odd step count lies
HAS_LOSS, HAS_MEMORY, ON_GPU = 1, 2, 4  # flags: what the record holds, and that its memory is a GPU's


class WireError(Exception):
    """The steps file cannot be used; the text says which file and why."""


class VersionError(WireError):
    """The job's adaptor and the agent are of different versions."""


def create(path: str | os.PathLike[str]) -> None:
    """Put a fresh steps file at `path`, readable and writable by its owner, replacing an older one at once.

    Its blocks are reserved, because a store into a hole of a mapped file kills the job when the disk is full. Raises
    OSError: the directory does not exist, cannot be written, or is full.
    """
    draft = f"{os.fspath(path)}.new"
    if os.path.lexists(draft):
        os.unlink(draft)
    fd = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, FILE_BYTES)
        os.pwrite(fd, IDENTITY.pack(MAGIC, VERSION, RING_SLOTS), 0)
    finally:
        os.close(fd)
    os.replace(draft, path)


def problem(head: bytes, size_bytes: int) -> str | None:
    """Say why a file that begins with `head` and is `size_bytes` long is no steps file of this version."""
    if len(head) < IDENTITY.size or size_bytes < FILE_BYTES:
        return f"is {size_bytes} bytes long, needs {FILE_BYTES}"
    magic, version, slots = IDENTITY.unpack_from(head)
    if magic != MAGIC:
        return "is not a steps file (wrong magic number)"
    if version != VERSION:
        return f"{OTHER_VERSION} {version}, this Colane speaks {VERSION}"
    if slots != RING_SLOTS:
        return f"has a ring of {slots} slots, needs {RING_SLOTS}"
    return None


class Writer:
    """Writes one process's steps. One writer at a time: a file whose process still lives is refused.

    A later process of the same attempt (a script that trains twice) goes on counting where the first stopped.

    Attributes:
        control: The words of the page for turns.
        steps: Steps this page has counted.
        uncounted: How many of them were none of training, the first ones.
        untimed: How many of them, the last ones, have no duration yet.

    Raises:
        WireError: no such file, another version, or another living process writes it.
    """

    __slots__ = (
        "_began", "_floats", "_map", "_mark", "_memory", "_ring", "_words", "control", "steps", "uncounted", "untimed",
    )  # fmt: skip

    def __init__(self, path: str, total_steps: int | None = None, *, is_tentative: bool = False) -> None:
        self._map = _open(path)
        with memoryview(self._map) as view:
            self._words, self._floats = view.cast("Q"), view.cast("d")
        self._ring = self._floats[RING_OFFSET // 8 : RING_OFFSET // 8 + RING_SLOTS]
        self.control = self._words[CONTROL_OFFSET // 8 : CONTROL_OFFSET // 8 + CONTROL_WORDS]
        self._memory = (0, 0, 0, 0)
        self.steps = self._began = self._words[COUNT_WORD]
        self.uncounted = self._words[UNCOUNTED_WORD]
        self._mark = TENTATIVE if is_tentative else 0
        self._claim(path)
        self.set_total(total_steps)
        self.untimed = min(self._words[UNTIMED_WORD], self.steps)
        if self.untimed:  # an earlier process of the attempt has ended before its last steps were timed
            self.time(self.untimed, self._ring[(self.steps - self.untimed - 1) % RING_SLOTS])

    def _claim(self, path: str) -> None:
        owner = self._words[PID_WORD]
        may_replace = self._words[PHASE_WORD] & TENTATIVE and not self._mark
        if owner not in (0, os.getpid()) and not may_replace and _alive(owner):
            self.close()
            raise WireError(f"{path}: process {owner} already reports its steps here")
        self._words[PID_WORD], self._words[WAITS_WORD] = os.getpid(), 0

    @property
    def persistent_bytes(self) -> int:
        """P of a GPU as it was measured last; 0 before, and of the host."""
        return self._memory[0] if self._memory[3] & ON_GPU else 0

    def uncount(self) -> None:
        """Say that no step so far was one; where an earlier process of the attempt has made some, all stay."""
        if self._began <= self.uncounted:
            self._words[UNCOUNTED_WORD] = self.uncounted = self.steps

    def stay(self) -> None:
        """Give the place to no other process from now on. Raises WireError: another process has it already."""
        if self._words[PID_WORD] != os.getpid():
            raise WireError("another process reports the steps")
        self._mark = 0

    def set_total(self, total_steps: int | None) -> None:
        """Say how many steps there will be; None when that is unknown."""
        self._words[TOTAL_WORD] = total_steps or 0

    def set_memory(
        self, persistent_bytes: int, peak_bytes: int, reserved_bytes: int = 0, *, on_gpu: bool = False
    ) -> None:
        """Keep P (allocated at the step boundary) and P + E (the peak); they go out with the next step.

        `reserved_bytes` is what a framework's allocator holds of the GPU now, used or not.
        """
        flags = HAS_MEMORY | ON_GPU if on_gpu else HAS_MEMORY
        self._memory = (persistent_bytes, peak_bytes, reserved_bytes, flags)

    def set_phase(self, phase: int) -> None:
        """Say whether a step is being computed (`IN_STEP`) or the job waits at a boundary (`BETWEEN_STEPS`)."""
        self._words[PHASE_WORD] = phase | self._mark
        if phase == IN_STEP:
            self._words[FLUSHED_WORD] = 0

    def set_waits(self, *, waits: bool) -> None:
        """Say whether it gives its turn up, or waits for it."""
        self._words[WAITS_WORD] = int(waits)

    @property
    def waits(self) -> bool:
        """Whether its process gives its turn up, or waits for it."""
        return bool(self._words[WAITS_WORD])

    @property
    def is_one_beside(self) -> bool:
        """Whether another process of the job computes."""
        pid = self._words[BESIDE_WORD]
        return bool(pid) and _alive(pid)

    def set_stays(self, stays_bytes: int) -> None:
        """Say how much of what the allocator does not use stays with it: it has given back all it can, up to a step."""
        self._words[STAYS_WORD], self._words[FLUSHED_WORD] = stays_bytes, 1

    def stamp(self, word: int) -> None:
        """Say that now is when it gives its turn up (`YIELDED_WORD`), or has got one (`RESUMED_WORD`)."""
        self._words[word] = time.monotonic_ns()

    def beat(self, now_s: float) -> None:
        """Show that the process lives where no step says so."""
        self._floats[HEARTBEAT_WORD] = now_s

    def set_restored(self, steps: int) -> None:
        """Say that the job saves its state by itself, and with how many steps it began."""
        self._words[RESTORED_WORD] = steps
        self._words[SAVES_WORD] = 1

    def set_saved(self, now_s: float, steps: int) -> None:
        """Say that a state with so many steps of the whole job is saved."""
        self._words[SAVED_STEPS_WORD] = steps
        self._floats[SAVED_WORD] = now_s

    def set_save_failed(self, now_s: float, error: int) -> None:
        """Say that saving has failed, by an error number of the system."""
        self._words[SAVE_ERROR_WORD] = error
        self._floats[SAVE_FAILED_WORD] = now_s

    def set_noise_scale(self, samples: float) -> None:
        """Say how large the gradient's noise is (`Reporter.noise_scale`)."""
        self._floats[NOISE_WORD] = samples

    def ranks_wanted(self) -> int:
        """As how many ranks the job is to go on; 0: it leaves."""
        return int(self.control[RANKS_WANTED])

    def set_reforms(self) -> None:
        """Say that the ranks of the job can go on as fewer."""
        self._words[REFORMS_WORD] = 1

    def set_ranks(self, ranks: int) -> None:
        """Say that this is one of so many ranks from here on; how long its steps took before says nothing any more."""
        self._words[FORMED_WORD] = self.steps
        self._words[RANKS_WORD] = ranks

    def set_rests(self, rests: int) -> None:
        """Say whether it can be parked as it stands: `RESTS`, `WATCHABLE` or 0."""
        self._words[RESTS_WORD] = rests

    def set_still(self, still: int) -> None:
        """Say when it was last seen to stand still, `MOVED`, or 0 while it is not watched."""
        self._words[STILL_WORD] = still

    def answered(self, latency_s: float) -> None:
        """Say that one more request is answered, and how long that took from the request on."""
        count = self._words[ANSWERS_WORD]
        self._floats[ANSWERS_OFFSET // 8 + count % ANSWER_SLOTS] = latency_s
        self._words[ANSWERS_WORD] = count + 1

    def idle(self, seconds: float) -> None:
        """Say that it has waited so long for a request."""
        self._floats[IDLE_WORD] += seconds

    def step(self, now_s: float, duration_s: float | None, loss: float | None = None) -> None:
        """Publish one more step, which took `duration_s` and ended at unix time `now_s`.

        None of a step that is told before its GPU has done it: `time` says later how long it took. Steps that are
        timed at once come only while none waits for that.
        """
        count = self.steps
        if duration_s is None:
            self._words[UNTIMED_WORD] = self.untimed = self.untimed + 1
        else:
            self._ring[count % RING_SLOTS] = duration_s
        count += 1
        persistent, peak, reserved, flags = self._memory
        if loss is None:
            loss = 0.0
        else:
            flags |= HAS_LOSS
        RECORD.pack_into(self._map, RECORD_OFFSETS[count & 1], now_s, loss, persistent, peak, reserved, flags)
        if count == self.uncounted + 1:
            self._floats[FIRST_WORD] = now_s
        self._words[COUNT_WORD] = self.steps = count

    def time(self, steps: int, duration_s: float) -> None:
        """Say how long so many steps took each, the oldest of those that have no duration yet."""
        first = self.steps - self.untimed
        for count in range(first, first + steps):
            self._ring[count % RING_SLOTS] = duration_s
        self._words[UNTIMED_WORD] = self.untimed = self.untimed - steps

    def close(self) -> None:
        """Let go of the file. What was published stays readable."""
        for view in (self._ring, self.control, self._words, self._floats):
            view.release()
        self._map.close()


class PageBeside:
    """The page of a job to another process of it, which computes while that has its turn.

    Raises:
        WireError: There is no such file.
    """

    def __init__(self, path: str) -> None:
        with memoryview(_open(path)) as view:
            self._words = view.cast("Q")

    @property
    def waits(self) -> bool:
        """Whether the process that reports there gives its turn up, or waits for it."""
        return bool(self._words[WAITS_WORD]) and _alive(self._words[PID_WORD])

    @property
    def shares(self) -> bool:
        """Whether the job shares a lane."""
        return bool(self._words[CONTROL_OFFSET // 8 + SHARES])

    def set_computes(self, *, computes: bool) -> None:
        """Say whether this process computes; of several, the last to say so."""
        if computes or self._words[BESIDE_WORD] == os.getpid():
            self._words[BESIDE_WORD] = os.getpid() if computes else 0


def _open(path: str) -> mmap.mmap:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise WireError(f"{path}: {error.strerror}") from error
    try:
        reason = problem(os.pread(fd, IDENTITY.size, 0), os.fstat(fd).st_size)
        if reason and reason.startswith(OTHER_VERSION):
            os.pwrite(fd, VERSION.to_bytes(8, sys.byteorder), REFUSED_WORD * 8)
            raise VersionError(f"{path} {reason}")
        if reason:
            raise WireError(f"{path} {reason}")
        return mmap.mmap(fd, FILE_BYTES)
    except (OSError, ValueError) as error:
        raise WireError(f"{path}: {error}") from error
    finally:
        os.close(fd)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
