"""What this process has to say of its steps, wherever they are found: one for each process.

It registers (claims the steps file) at the first boundary or the first use of a GPU, never before: launchers and
loader workers import frameworks too. Everything here steps aside on any doubt, and says so on stderr when
COLANE_DEBUG is set.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from . import device_clock, memory, stacks, stillness
from .aside import debug, safely
from .capture import excluded
from .writer import (
    BESIDE_SERVER,
    BETWEEN_STEPS,
    CONTROLS,
    HOLD,
    IN_STEP,
    RESTS,
    SERVES_ENV,
    SHARES,
    STEPS_FILE_ENV,
    WATCHABLE,
    PageBeside,
    WireError,
    Writer,
    create,
)

MEMORY_FIRST_STEPS = 10  # memory is read at each of the first steps, where it still grows ..
MEMORY_EVERY_STEPS = 64  # ... and then at every 64th: reading takes some 40 microseconds ..
MEMORY_GAP_S = 0.1  # ... but not sooner than this, however fast the steps are

BESIDE_S = 0.0005  # how often threads and processes of a job look whether it has its turn again
COMPUTING_MAX_S = 0.1
"""For so long a turn is kept for calls of a model that other threads are in: they may wait for this one."""

LOADER, BACKWARD, REPLAY, FORWARD, OPTIMIZER, KERAS, EXPLICIT = range(1, 8)
"""Kinds of steps, better ones last: from the first step of a kind on, lesser kinds are not counted."""

RANK_NAMES = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
"""Where launchers tell each process of a distributed job its number on this machine."""

OWN_FAULTS = (AssertionError, AttributeError, ImportError, LookupError, NameError, TypeError)

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .turns import TurnTaker


def synchronize() -> None:
    """Wait for what this process has launched, unless a graph is captured."""
    torch = sys.modules["torch"]
    with excluded as may_wait:
        for device in device_clock.devices_in_use(torch) if may_wait else ():
            torch.cuda.synchronize(device)


class Recorder:
    """Publishes this process's steps and takes its turns.

    Attributes:
        rank: The best kind of steps that was seen so far.
        has_left: Whether its turn was given up for as long as the job is idle.
        is_new: Whether the process has not used its device yet: the first use waits for a turn, see `enter`.
        rests: Whether the turn was given up by `rest`, and is not taken again yet.
        is_registered: Whether this process has claimed the steps file.
        serves: Whether the job answers requests.
    """

    def __init__(self, path: str) -> None:
        self.rank = 0
        self.has_left = self.rests = False
        self._rests_within = 0
        self.is_new = True
        self.is_registered = False
        self._path = path
        self._writer: Writer | None = None
        self._control: memoryview | list[int] = [0] * CONTROLS
        self._turns: TurnTaker | None = None
        self._lock = threading.Lock()
        self._is_armed, self._is_settled = True, False
        self._peak_bytes, self._is_on_gpu = 0, False
        self._look_s = 0.0
        self._clock: device_clock.DeviceClock | None = None
        self._readers: dict[str, Callable[[Writer], bool]] = {
            "memory": self._measure,
            "device time": self._find_clock,
            "cache": self.try_cache,
        }
        self._trials = memory.Trials()
        self._computing: set[int] = set()
        self._beside: PageBeside | None = None
        self._sampled: memory.MemorySample | None = None
        self._expected: int | None = None
        self._last_s = time.perf_counter()
        self.serves = bool(os.environ.get(SERVES_ENV))
        self._sees_requests = self._has_told = False
        self._requests = self._calls = 0
        self._request_s: float | None = None
        self._idle_s = 0.0

    def register(self, total_steps: int | None = None, *, is_tentative: bool = False) -> None:
        """Claim the steps file, once; tentatively where another process of the job may still be the one that trains.

        Raises:
            WireError: It cannot be used.
            OSError: A rank's own file cannot be made.
        """
        if not self._is_armed:
            return
        if self.is_registered:
            if self._writer is not None and not is_tentative:
                self._stay(self._writer)
            return
        self._is_armed = is_tentative  # else a failure is final
        path = rank_path(self._path)
        try:
            self._writer = Writer(path, total_steps, is_tentative=is_tentative)
        except WireError:
            self._beside = self._beside or PageBeside(path)
            raise
        self._writer.set_phase(BETWEEN_STEPS)
        self._control = self._writer.control
        if total_steps is None and self._expected is not None:
            self.expect(self._expected)
        self.is_registered = self._is_armed = True
        safely(self._be_watchable, self._writer)
        if "IPython" in sys.modules:
            from . import notebook  # only its kernels need it

            safely(notebook.attach, self.stirs, self.stands_still)

    def _be_watchable(self, writer: Writer) -> None:
        stacks.listen()
        if stillness.offer(writer):
            self._rests_within = WATCHABLE
            writer.set_rests(WATCHABLE)

    def _stay(self, writer: Writer) -> None:
        try:
            writer.stay()
        except WireError:
            self.disarm()
            raise

    def wants(self, rank: int) -> bool:
        """Whether steps of this kind are still to be counted."""
        return rank >= self.rank

    def step(self, rank: int, steps: int = 1, *, leaves: bool = False) -> None:
        """Publish `steps` more steps of a kind, unless a better kind has been seen."""
        if rank >= self.rank:
            self.rank = rank
            self.boundary(steps, leaves=leaves)

    def boundary(self, steps: int = 1, loss: float | None = None, *, leaves: bool = False) -> None:
        """Publish that `steps` more steps have ended, then wait if others have their turn.

        Args:
            steps: How many.
            loss: The last one's loss.
            leaves: Whether the job may be idle now: then its turn ends, and `enter` waits for the next one. So it is of
                every step of a server whose requests are seen as they come.
        """
        if self._request_s is not None and steps:
            self._answered(self._request_s)
            self._request_s = None
        self._boundary(steps, loss, leaves=leaves or (self.serves and self._sees_requests))

    def _boundary(self, steps: int, loss: float | None, *, leaves: bool) -> None:
        with self._lock:
            try:
                if self._writer is None:
                    self.register()
                if self._writer is not None:
                    self._publish(self._writer, steps, loss)
            except Exception as error:  # noqa: BLE001  # whatever goes wrong here is not the job's fault
                self.disarm(f"no more steps are reported: {error!r}")
            if self.is_answering:  # in another thread
                return
            if self._control[0]:
                self._take_turn(leaves=leaves)
            elif leaves and self._sees_requests:
                self._leave_untold()

    def sees_request(self) -> None:
        """A call begins that may be all of an answer, or the first of several: of a server it waits for a turn.

        The time since the last answer is not its: the server was idle.
        """
        with self._lock:
            is_first = not self.is_answering
            self._calls += 1
            if self.serves and is_first and self._request_s is None:
                self._request_s = time.perf_counter()
                self._was_idle(self._request_s)
            if not self._requests and (self.has_left or self.is_new):
                self._enter()
        self.set_phase(IN_STEP)

    def call_ended(self) -> None:
        """The call that `sees_request` was told of is over; a boundary may follow."""
        with self._lock:
            self._calls -= 1

    @property
    def is_answering(self) -> bool:
        """Whether any thread is within a request, or within a call that was seen."""
        return bool(self._requests or self._calls)

    def awaits_requests(self) -> None:
        """The model is loaded, and no request is there: no turn is needed until something uses the device.

        Not with a framework of which that is not seen.
        """
        from .side_threads import is_other_framework_here

        if is_other_framework_here():
            return
        if self.is_new:
            self._say_at_rest()
        else:
            self.rest()

    def request(self) -> float:
        """A request has come: wait for a turn; to be followed by `answered` with what is returned."""
        began_s = time.perf_counter()
        with self._lock:
            self._requests += 1
            if self._requests == 1:
                self._was_idle(began_s)
                if self.has_left or self.is_new:
                    self._enter()
        self.set_phase(IN_STEP)
        return began_s

    def answered(self, began_s: float) -> None:
        """The request that came then is answered: that is a step, and the turn ends where no other is open."""
        with self._lock:
            self._requests -= 1
        self._answered(began_s)
        self._boundary(1, None, leaves=True)

    def _answered(self, began_s: float) -> None:
        if self._writer is not None:
            self._writer.answered(time.perf_counter() - began_s)

    def _was_idle(self, now_s: float) -> None:
        """What has passed since the last boundary was no step's: no request was there."""
        self._sees_requests = True
        self._idle_s += max(0.0, now_s - self._last_s)
        self._begin_anew()

    def uncount(self) -> None:
        """Take back all steps so far: they were an evaluation before training."""
        with self._lock:
            self.rank = 0
            if self._writer is not None:
                self._writer.uncount()

    def enter(self) -> None:
        """Wait for a turn before the device is used, where none is held: at first, and after leaving.

        A process that uses its device first and is not asked for turns goes on, seen to be in a step.
        """
        if self.has_left or self.is_new or self.rests:  # the last while another thread waits for it
            with self._lock:
                self._enter()
        self.set_phase(IN_STEP)

    def shares(self) -> bool:
        """Whether the job shares a lane."""
        return bool(self._control[SHARES])

    def rest(self) -> bool:
        """Give the turn up while the job waits for something else than its device; whether it has: then `enter`.

        One that shares no lane says only that it needs no turn, for those that may come meanwhile. Not where another
        thread computes meanwhile, where ranks would have to stop at one place, or within a step, whose memory counts
        for the turn.
        """
        if self.has_left or self.is_new or not self._is_between():
            return False
        from .side_threads import is_one_beside  # it is imported already where PyTorch is

        if is_one_beside():
            return False
        with self._lock:
            if self.shares():
                self._take_turn(leaves=True)
            else:
                self._leave_untold()
            self.rests = self.has_left
        return self.has_left

    def begins_beside(self) -> None:
        """A model is called: where that is beside what waits for the turn of this job, it waits as well.

        To be followed by `ends_beside`.
        """
        own = threading.get_ident()
        while True:
            self._computing.add(own)  # before the look: who gives the turn up waits for those that are here
            if self._beside is not None:
                self._beside.set_computes(computes=True)
            page = self._writer or self._beside
            if page is None or not page.waits:
                return
            self.ends_beside(is_launched=False)
            time.sleep(BESIDE_S)

    def ends_beside(self, *, is_launched: bool = True) -> None:
        """The call of the model is over; another process than the one that takes turns waits for what it launched."""
        self._computing.discard(threading.get_ident())
        if self._beside is not None and not self._computing:
            if is_launched and self._beside.shares:  # the turn may be given up before it has run
                safely(synchronize)
            self._beside.set_computes(computes=False)

    def pause(self) -> None:
        """Give way to others at the end of something that is no step of training."""
        if self._control[0] and not (self.has_left or self.is_new) and self._is_alone():
            with self._lock:
                self._take_turn(leaves=False)

    def _is_alone(self) -> bool:
        from .turns import ranks_here  # only jobs that share need it

        return threading.get_ident() == threading.main_thread().ident and ranks_here() == 1

    def _is_between(self) -> bool:
        writer = self._writer
        return writer is not None and self._is_alone() and not memory.is_in_use(writer.persistent_bytes)

    def stirs(self) -> None:
        """Something begins that may use the device: wait for the word to, where the job was parked as it stood."""
        if self._writer is not None:
            # before: who holds the job from now on knows that it does not stand still
            self._writer.set_rests(self._rests_within)
            if self._control[HOLD]:
                with self._lock:
                    self._ask("boundary", self._writer)

    def stands_still(self) -> None:
        """Say that the device is not used any more before `stirs`."""
        if self._writer is not None:
            self._writer.set_rests(RESTS)

    def beat(self) -> None:
        """Show life where no step says so."""
        if self._writer is not None:
            self._writer.beat(time.time())

    def set_phase(self, phase: int) -> None:
        """Say whether a step is being computed (`IN_STEP`) or not (`BETWEEN_STEPS`)."""
        if self._writer is not None:
            self._writer.set_phase(phase)

    def set_total(self, total_steps: int | None) -> None:
        """Say how many steps there will be."""
        if self._writer is not None:
            self._writer.set_total(total_steps)

    def expect(self, more_steps: int) -> None:
        """Say how many more steps a framework has announced, where the script has said nothing."""
        self._expected = more_steps
        if self._writer is not None and self.rank != EXPLICIT:
            self._writer.set_total(self._writer.steps - self._writer.uncounted + more_steps)

    def restored(self, steps: int) -> None:
        """Say that the job saves its state by itself, and with how many steps it began."""
        if self._writer is not None:
            self._writer.set_restored(steps)

    def saved(self, steps: int) -> None:
        """Say that a state with so many steps of the whole job is saved; the time that took is no step's."""
        if self._writer is not None:
            self._writer.set_saved(time.time(), steps)
        self._begin_anew()

    def not_saved(self, error: int) -> None:
        """Say that saving has failed."""
        if self._writer is not None:
            self._writer.set_save_failed(time.time(), error)
        self._begin_anew()

    def reforms(self) -> None:
        """Say that the ranks of the job can go on as fewer."""
        if self._writer is not None:
            self._writer.set_reforms()

    def ranks_wanted(self) -> int:
        """As how many ranks the job is to go on; 0: it leaves."""
        return 0 if self._writer is None else self._writer.ranks_wanted()

    def formed(self, ranks: int) -> None:
        """Say that this is one of so many ranks from here on; the time that took is no step's."""
        if self._writer is not None:
            self._writer.set_ranks(ranks)
        self._begin_anew()

    def noise_scale(self, samples: float) -> None:
        """Say how large the gradient's noise is."""
        if self._writer is not None:
            self._writer.set_noise_scale(samples)

    def disarm(self, reason: str | None = None) -> None:
        """Report nothing from now on."""
        self._is_armed = False
        self._clock = None
        self._writer, self._control = None, [0] * CONTROLS
        turns, self._turns = self._turns, None
        if turns is not None:
            turns.disarm()
        if reason:
            debug(reason)

    def _enter(self) -> None:
        if self._writer is not None:
            self._writer.set_rests(self._rests_within)  # before the flag is read: see `gate.LaneGate`
        is_first, self.is_new = self.is_new, False
        must_ask, self.has_left = self.has_left and (self._has_told or bool(self._control[0])), False
        if is_first:
            try:
                self.register(is_tentative=True)
            except Exception as error:  # noqa: BLE001  # a job that cannot be followed runs all the same
                debug(f"does not wait for its first turn: {error!r}")
        if must_ask or (is_first and self._control[0]):
            self._ask("enter", self._writer)
        self.rests = False

    def _publish(self, writer: Writer, steps: int, loss: float | None) -> None:
        now_s = time.perf_counter()
        count = writer.steps - writer.uncounted + steps
        if not self._is_settled:
            self._settle(writer)
        looks = count <= MEMORY_FIRST_STEPS or (count % MEMORY_EVERY_STEPS < steps and now_s >= self._look_s)
        if looks:
            self._read("memory", writer)
        if steps and self._idle_s:  # with the step that ended it, so that the rest of the time is that of steps
            writer.idle(self._idle_s)
            self._idle_s = 0.0
        if self._clock is not None:
            self._publish_untimed(writer, self._clock, steps, loss)
        else:
            duration_s = (now_s - self._last_s) / max(steps, 1)
            for _ in range(steps):
                writer.step(time.time(), duration_s, loss)
            if looks:
                self._read("device time", writer)
        if looks:
            self._look_s = now_s + MEMORY_GAP_S
        self._last_s = now_s
        if looks and count >= MEMORY_FIRST_STEPS:
            self._read("cache", writer)

    def _publish_untimed(self, writer: Writer, clock: device_clock.DeviceClock, steps: int, loss: float | None) -> None:
        """Tell that steps have ended, and how long those took that the GPU is done with by now."""
        for _ in range(steps):
            writer.step(time.time(), None, loss)
        try:
            if steps:
                clock.ended(steps)
                if self._control[SHARES] == BESIDE_SERVER:
                    clock.keep_up()
            else:
                clock.begin_anew()
            self._time(writer, clock)
        except Exception as error:  # noqa: BLE001  # steps are counted all the same
            self._lose_clock(writer, error)

    def _time(self, writer: Writer, clock: device_clock.DeviceClock) -> None:
        for steps, duration_s in clock.timed():
            writer.time(steps, duration_s)

    def flush(self) -> None:
        """Say at the end of the process how long the last steps took, of those that the GPU is done with."""
        if self._writer is not None and self._clock is not None:
            self._clock.end()
            self._time(self._writer, self._clock)

    def _lose_clock(self, writer: Writer, error: Exception) -> None:
        """Time steps by the host's clock from here on; what was not timed took as long as that says."""
        debug(f"steps are timed by the host's clock: {error!r}")
        self._clock = None
        self._readers.pop("device time", None)
        if writer.untimed:
            writer.time(writer.untimed, (time.perf_counter() - self._last_s) / writer.untimed)

    def _begin_anew(self) -> None:
        """Let the time since the last boundary be no step's."""
        self._last_s = time.perf_counter()
        if self._clock is not None and self._writer is not None:
            try:
                self._clock.begin_anew()
            except Exception as error:  # noqa: BLE001
                self._lose_clock(self._writer, error)

    def _read(self, name: str, writer: Writer) -> None:
        """Let one reader look; one that fails reads no more, and takes nothing else with it."""
        reader = self._readers.get(name)
        if reader is None:
            return
        try:
            goes_on = reader(writer)
        except Exception as error:  # noqa: BLE001  # whatever it is of a framework that it does not know
            debug(f"{name} is not told: {error!r}")
            goes_on = False
        if not goes_on:
            del self._readers[name]

    def _find_clock(self, _writer: Writer) -> bool:
        """Time steps on the GPU as soon as it is used; what the host's clock has said of its steps so far stays."""
        self._clock = device_clock.of_process()
        return True

    def _settle(self, writer: Writer) -> None:
        """At its first step a process makes sure that it is the one that reports them."""
        writer.stay()
        writer.set_phase(IN_STEP)
        self.is_new, self._is_settled = False, True
        self.has_left = self.rests = False  # it computes, though nothing may have been seen to begin
        writer.set_rests(self._rests_within)

    def _measure(self, writer: Writer) -> bool:
        self._sampled = sampled = memory.sample()
        if sampled:
            # The script may reset the framework's peak: keep the highest.
            # What the host held before the GPU was used is no peak of the GPU.
            before, self._is_on_gpu = self._peak_bytes if self._is_on_gpu is sampled.on_gpu else 0, sampled.on_gpu
            self._peak_bytes = max(before, sampled.peak_bytes)
            writer.set_memory(sampled.persistent_bytes, self._peak_bytes, sampled.reserved_bytes, on_gpu=sampled.on_gpu)
        return True

    def try_cache(self, writer: Writer) -> bool:
        """See what of the allocator's cache stays where it gives it back; the time that takes is no step's."""
        if self._sampled is not None and self._trials.are_due(self._sampled):
            self._trials.take(self._sampled, writer.set_stays)
            writer.set_phase(IN_STEP)
            self._begin_anew()
        return True

    def _take_turn(self, *, leaves: bool) -> None:
        self.has_left = self._has_told = leaves
        self._ask("leave" if leaves else "boundary", self._writer)
        if leaves and self._sees_requests:
            self._say_at_rest()

    def _leave_untold(self) -> None:
        """Need no turn until `enter`, which asks for one if others have come meanwhile."""
        self.has_left, self._has_told = True, False
        self.set_phase(BETWEEN_STEPS)
        self._say_at_rest()

    def _say_at_rest(self) -> None:
        if self._writer is not None:
            self._writer.set_rests(RESTS)

    def _ask(self, what: str, writer: Writer | None) -> None:
        """Ask the gate; the time in which it waits for its turn belongs to no step.

        What it waits for its device before it gives the turn up does: what runs there are its own steps.
        """
        if writer is None:
            return
        turns = self._turns or self._make_turns(writer)
        if turns is None:
            return
        writer.set_phase(BETWEEN_STEPS)
        before_s = turns.waited_s
        if what != "leave":
            writer.set_waits(waits=True)
            until_s = time.perf_counter() + COMPUTING_MAX_S
            own = {threading.get_ident()}
            while (self._computing - own or writer.is_one_beside) and time.perf_counter() < until_s:
                time.sleep(BESIDE_S)
        try:
            getattr(turns, what)(writer.steps)
        except OWN_FAULTS as error:  # anything else comes from a signal handler of the script
            self.disarm(f"takes no more turns: {error!r}")
        finally:
            writer.set_waits(waits=False)
            waited_s = turns.waited_s - before_s
            self._last_s += waited_s
            if self._clock is not None:
                self._clock.waited_s += waited_s
        self.set_phase(BETWEEN_STEPS if self.has_left else IN_STEP)

    def _make_turns(self, writer: Writer) -> TurnTaker | None:
        try:
            from .turns import TurnTaker  # only jobs that share need it

            self._turns = TurnTaker(writer.control, writer.stamp, writer.set_stays)
        except Exception as error:  # noqa: BLE001
            self._control = [0] * CONTROLS
            debug(f"takes no turns: {error!r}")
        return self._turns


def rank_path(path: str) -> str:
    """Return the steps file of this process: rank 0 has the job's, each other one beside it that it makes itself."""
    rank = next((os.environ[name] for name in RANK_NAMES if name in os.environ), None) or _torch_rank()
    if not rank.isdecimal() or int(rank) == 0:
        return path
    own = f"{path}.{int(rank)}"
    if not os.path.exists(own):  # noqa: PTH110
        create(own)
    return own


def knows_rank() -> bool:
    """Whether `rank_path` can tell: a process that was spawned may be one of several that are not numbered yet."""
    if any(name in os.environ for name in RANK_NAMES):
        return True
    process = sys.modules.get("multiprocessing.process")
    is_spawned = process is not None and process.parent_process() is not None
    return not is_spawned or _distributed() is not None


def _distributed() -> Any:
    """Give PyTorch's module of process groups, once there is a group."""
    found = getattr(sys.modules.get("torch"), "distributed", None)
    return found if found is not None and found.is_available() and found.is_initialized() else None


def _torch_rank() -> str:
    """Ask PyTorch, for ranks that were started without a launcher (`torch.multiprocessing.spawn`)."""
    distributed = _distributed()
    return "0" if distributed is None else str(distributed.get_rank())


_here: Recorder | None = None


def current() -> Recorder | None:
    """Return this process's recorder; None where Colane does not run it."""
    global _here  # noqa: PLW0603  # one for each process
    path = os.environ.get(STEPS_FILE_ENV)
    if not path:
        return None
    if _here is None or _here._path != path:  # noqa: SLF001
        _here = Recorder(path)
    return _here


def _disarm_child() -> None:
    """Leave the file to the parent; a child of one that has none (a launcher that forks) may still take it."""
    global _here  # noqa: PLW0603
    if _here is None:
        return
    parent, _here = _here, None
    if parent.is_registered:
        parent.disarm()
        return
    parent._lock = threading.Lock()  # noqa: SLF001  # the parent's may have been held
    parent.rank = max(parent.rank, OPTIMIZER)  # loaders' workers run models too, but train none
    _here = parent


os.register_at_fork(after_in_child=_disarm_child)

__all__ = ["Recorder", "WireError", "current", "debug", "rank_path", "safely"]
