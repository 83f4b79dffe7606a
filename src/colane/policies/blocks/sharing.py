"""Which jobs may share a GPU, and what that is predicted to bring."""

from __future__ import annotations

from collections.abc import Iterator

from colane.core.draft import Draft
from colane.core.load import GpuLoad
from colane.model.hardware import GpuId
from colane.model.job import Job, JobSpec
from colane.model.profile import ProfileKey
from colane.model.reason import Reason, Why
from colane.perf.beliefs import Prediction, profile_key


def is_known(draft: Draft, spec: JobSpec, gpu_type: str) -> bool:
    """Whether memory and load of a job are known, so that it may share."""
    terms = draft.beliefs.terms(spec, gpu_type)
    return terms.memory is not None and terms.load is not None


def has_room(draft: Draft, load: GpuLoad, spec: JobSpec) -> bool:
    """Whether the node of a GPU has the cores and the host memory a job books."""
    return draft.has_room(draft.view.nodes[load.id.node], spec)


def predict(draft: Draft, spec: JobSpec, load: GpuLoad) -> Prediction | None:
    """Speed-up of a job together with those on a GPU."""
    keys = [booking.key for booking in load.bookings]
    return draft.beliefs.predict([*keys, profile_key(spec, load.gpu.type)], load.gpu.sharing)


def share_reason(why: Why, load: GpuLoad, prediction: Prediction, threshold: float) -> Reason:
    """Why a job shares a GPU, or does not."""
    facts: dict[str, str | int | float] = {
        "gpu": str(load.id),
        "speedup": prediction.speedup,
        "threshold": threshold,
        "source": prediction.source,
    }
    return Reason(why, facts, load.jobs)


Partner = tuple[ProfileKey, str]
"""All that a prediction asks of a GPU with one job: that job's profile, and the way of sharing."""


class Pairs:
    """Puts a one-GPU job beside another where the two are predicted to gain most (Gavel, section 3.1).

    All GPUs with one job are looked at, by the profile of that job, so a job that finds no partner finds none after
    others have found theirs.
    """

    def __init__(self, draft: Draft, pool: str, speedup_min: float) -> None:
        self._draft = draft
        self._pool = pool
        self._speedup_min = speedup_min
        self._singles: dict[str, dict[Partner, list[GpuLoad]]] = {}

    def start(self, job: Job) -> bool:
        """Start a job beside the best partner there is."""
        best: tuple[float, GpuLoad, Prediction] | None = None
        for load, prediction in self._partners(job.spec):
            if best is None or prediction.speedup > best[0]:
                best = prediction.speedup, load, prediction
        if best is None:
            return False
        self._draft.start(job, [best[1]], share_reason(Why.SHARES, best[1], best[2], self._speedup_min))
        return True

    def note(self, gpu: GpuId) -> None:
        """A job has just started alone on a GPU; it may be joined from now on."""
        load = self._draft.load(gpu)
        if load.is_open and load.gpu.type in self._singles:
            self._singles[load.gpu.type].setdefault(_partner(load), []).append(load)

    def _partners(self, spec: JobSpec) -> Iterator[tuple[GpuLoad, Prediction]]:
        """One GPU for each kind of partner that pays."""
        if not spec.share or spec.gpus > 1:
            return
        for kind in self._draft.view.gpu_types(self._pool, spec.gpu_type):
            if not is_known(self._draft, spec, kind):
                continue
            for loads in self._by_partner(kind).values():
                prediction = predict(self._draft, spec, loads[0])
                if prediction is None or prediction.speedup < self._speedup_min:
                    continue
                load = next((load for load in loads if self._fits(load, spec)), None)
                if load is not None:
                    yield load, prediction

    def _by_partner(self, kind: str) -> dict[Partner, list[GpuLoad]]:
        if kind not in self._singles:
            groups = self._singles[kind] = {}
            for load in self._draft.open_gpus((self._pool, kind), 1):
                groups.setdefault(_partner(load), []).append(load)
        return self._singles[kind]

    def _fits(self, load: GpuLoad, spec: JobSpec) -> bool:
        """Whether a GPU still has one job and room for another."""
        draft = self._draft
        memory = draft.beliefs.terms(spec, load.gpu.type).memory
        unchanged = draft.load(load.id) is load and load.id not in draft.held
        if not unchanged or not load.admits(spec.circle):
            return False
        return memory is not None and sum(memory) <= load.left_bytes and has_room(draft, load, spec)


def _partner(load: GpuLoad) -> Partner:
    return load.bookings[0].key, load.gpu.sharing
