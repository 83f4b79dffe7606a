"""The explicit interface, for loops whose steps no hook can see; `colane.adaptor` shows it."""

from __future__ import annotations

import errno
import os
import sys

from . import recorder, reforming, saving
from .writer import WireError

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable


BATCH_ENV = "COLANE_BATCH_SIZE"
"""Samples of a step of all processes of a job together, where it was submitted with `--batch`."""


class Reporter:
    """Counts the steps of this process. Made by `attach`.

    Attributes:
        steps_done: Steps of the whole job: those that `restore` found, and those made since.
    """

    __slots__ = ("_occasions", "_rebuild", "_recorder", "steps_done")

    def __init__(self, to: recorder.Recorder | None) -> None:
        self._recorder = to
        self._occasions: saving.Occasions | None = None
        self._rebuild: Callable[[], object] | None = None
        self.steps_done = 0

    def step(self, loss: float | None = None) -> None:
        """Say that one more step is done.

        Args:
            loss: the step's loss as a number. A tensor works too, but reading one waits for its GPU.
        """
        self.steps_done += 1
        to = self._recorder
        if to is None:
            return
        try:
            number = None if loss is None else float(loss)
        except Exception as error:  # noqa: BLE001  # the job must go on whatever it passed
            to.disarm(f"no more steps are reported: {error!r}")
            return
        to.boundary(1, number)

    def request(self) -> _Request:
        """Answer one request within this, as `with steps.request():`; that counts as a step.

        A server is idle until the next one: others of its lane have their turns meanwhile, and the time counts neither
        as a step's nor as an answer's. How long an answer takes counts from here, waiting for the turn included.
        Threads may have requests open at once.
        """
        return _Request(self)

    def noise_scale(self, samples: float) -> None:
        """Say how large the noise of the gradient is against the gradient itself, after a step, as often as is known.

        Policies weigh by it what larger batches are worth to a job submitted with `--batch per-gpu`: a batch of as many
        samples is worth half as much a sample as a very small one (Pollux's efficiency, OSDI 2021, eq. 5).

        Args:
            samples: trace of the covariance of one sample's gradient over the squared norm of the mean gradient
                (McCandlish et al., 2018: the simple noise scale); see `noise.from_norms`. What is no number above 0 is
                not told.
        """
        if self._recorder is not None and 0.0 < float(samples) < float("inf"):
            self._recorder.noise_scale(float(samples))

    def batch_size(self, asked: int) -> int:
        """How many samples a step of this process takes, of the GPUs that its job has now.

        Args:
            asked: What the script was told; that is the answer where the job was submitted without `--batch`.
        """
        whole = os.environ.get(BATCH_ENV, "")
        if not whole.isdecimal():
            return asked
        world = os.environ.get("WORLD_SIZE", "")
        return max(1, int(whole) // (int(world) if world.isdecimal() and int(world) else 1))

    def restore(self, load: Callable[[], int | None]) -> int:
        """Go on from what an earlier attempt has saved; call it once, after `attach` and before the loop.

        From here on the job is one that saves its state when it is asked, and may be stopped for that.

        Args:
            load: loads the newest state and returns how many steps are in it; None or 0 without one.

        Returns:
            How many steps the job has made.
        """
        self._occasions = saving.Occasions()
        self.steps_done = int(load() or 0)
        if self._recorder is not None:
            self._recorder.restored(self.steps_done)
        return self.steps_done

    def reforms(self, rebuild: Callable[[], object]) -> None:
        """Say that the ranks of this job can go on as fewer without a restart; call it once, after `restore`.

        Their state saved, those that stay form their process group anew, and call `rebuild`; the others leave. That is
        for ranks that Colane has started on one machine (`--ranks per-gpu`) and that talk by gloo; of others nothing is
        said.

        Args:
            rebuild: makes anew what is bound to the group (the wrapper of DDP, the sampler, this rank's part of the
                batch), by the numbers that `torch.distributed` has then.
        """
        if self._occasions is not None and reforming.is_possible():
            self._rebuild = rebuild
            if self._recorder is not None:
                self._recorder.reforms()

    def save(self, write: Callable[[int], object], every_s: float | None = None) -> None:
        """Save the state, if Colane asks for it or it is time; call it after `step`, in every rank.

        Asked for, the process leaves once its state is saved (SystemExit) and is started again later. What keeps the
        disk from taking it is said on stderr and told to Colane, and the job goes on.

        Args:
            write: writes the state, with the number of steps it is given, so that a crash on the way leaves the one
                before: a file beside it, fsync, rename.
            every_s: how often to save unasked; None never does.
        """
        occasions = self._occasions
        why = saving.NOT_DUE if occasions is None else occasions.due(every_s)
        if occasions is None or why == saving.NOT_DUE:
            return
        if why == saving.ASKED:
            occasions.answered()
        problem = saving.attempt(write, self.steps_done)
        occasions.tried()
        self._tell(problem)
        if why == saving.ASKED and not self._goes_on(occasions, has_failed=problem is not None):
            occasions.leaves()
            raise SystemExit(saving.exit_code())

    def _goes_on(self, occasions: saving.Occasions, *, has_failed: bool) -> bool:
        """Whether this rank stays, its state saved or not: all do where any of them could not save."""
        if self._rebuild is None or not reforming.is_possible():
            return has_failed
        try:
            wanted = 0 if self._recorder is None else self._recorder.ranks_wanted()
            ranks, any_failed = reforming.agree(wanted, has_failed=has_failed)
            if any_failed or not ranks:
                return any_failed
            is_one = reforming.form(ranks)
        except Exception as error:  # noqa: BLE001  # whatever it is, a restart goes on from the state where it is saved
            recorder.debug(f"the ranks cannot go on as fewer: {error!r}")
            return has_failed
        if not is_one:
            occasions.leaves()
            raise SystemExit(reforming.LEFT)
        self._rebuild()
        if self._recorder is not None:
            self._recorder.formed(ranks)
        return True

    def _tell(self, problem: OSError | None) -> None:
        if problem is not None and sys.stderr is not None:
            print(f"colane: the state is not saved: {problem}", file=sys.stderr, flush=True)  # noqa: T201
        if self._recorder is None:
            return
        if problem is None:
            self._recorder.saved(self.steps_done)
        else:
            self._recorder.not_saved(problem.errno or errno.EIO)

    def disarm(self, reason: str | None = None) -> None:
        """Report nothing from now on."""
        if self._recorder is not None:
            self._recorder.disarm(reason)


class _Request:
    """What a request is counted as: it begins as its block is entered, and ends as that is left."""

    __slots__ = ("_began_s", "_reporter")

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._began_s = 0.0

    def __enter__(self) -> None:
        to = self._reporter._recorder  # noqa: SLF001
        if to is not None:
            self._began_s = to.request()

    def __exit__(self, *_: object) -> None:
        """Also where the answer has failed: it took its time, and the turn is another's now."""
        self._reporter.steps_done += 1
        to = self._reporter._recorder  # noqa: SLF001
        if to is not None:
            to.answered(self._began_s)


def attach(total_steps: int | None = None) -> Reporter:
    """Begin to report this process's steps, if Colane runs it; call it once, before the training loop.

    From then on steps are those that the script reports; none is found by hooks.

    Args:
        total_steps: how many steps there will be, for progress and time left; None when unknown.
    """
    to = recorder.current()
    if to is None:
        return Reporter(None)
    if to.rank:
        to.uncount()  # what hooks have seen so far is none of what the script reports
    to.rank = recorder.EXPLICIT
    try:
        to.register()
        to.set_total(total_steps)
        if to.serves:
            to.awaits_requests()
        else:
            to.enter()
    except WireError as error:
        recorder.debug(f"steps are not reported: {error}")
        return Reporter(None)
    except Exception as error:  # noqa: BLE001  # the job must start whatever is wrong with its arguments
        recorder.debug(f"steps are not reported: {error!r}")
        return Reporter(None)
    return Reporter(to)
