"""How long answers of a server take where nothing else runs on its GPU: no policy lets it answer sooner."""

from __future__ import annotations

from typing import NamedTuple

from colane.model.job_spec import JobSpec
from colane.perf.estimates import Estimates
from colane.perf.rate import Situation


class AnswersAlone(NamedTuple):
    """What is believed of answers of a server alone on a GPU type: seconds."""

    mean_s: float  # what one takes on average
    p99_s: float | None  # what 99 of 100 take; None while too few were seen there

    def beyond_s(self, latency_s: float) -> float | None:
        """What they take, if that is more than an objective for 99 of 100: on average, else that of 99 of 100.

        None where the objective can be kept, as far as is known.
        """
        if self.mean_s > latency_s:
            return self.mean_s
        return self.p99_s if self.p99_s is not None and self.p99_s > latency_s else None

    @property
    def text(self) -> str:
        """Both numbers, where both are known."""
        more = "" if self.p99_s is None else f" (99 of 100 within {self.p99_s:.3g} s)"
        return f"{self.mean_s:.3g} s{more}"


def answers_alone(beliefs: Estimates, spec: JobSpec, gpu_type: str) -> AnswersAlone | None:
    """What is believed; None where nothing is known of its speed on this type."""
    mean_s = beliefs.rate(spec, Situation(gpu_type, spec.gpus)).step_s
    if mean_s is None:
        return None
    profile = beliefs.profiles.get(beliefs.terms(spec, gpu_type).key)
    p99 = None if profile is None else profile.answer_p99_s
    return AnswersAlone(mean_s, None if p99 is None else p99.value)
