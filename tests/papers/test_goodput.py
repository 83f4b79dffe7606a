"""Goodput: that samples teach less in larger batches is foreseen by the noise of the gradient, as was measured."""

from __future__ import annotations

from math import inf
from pathlib import Path

import numpy as np
import pytest

from colane.adaptor import noise
from colane.lab.papers.elasticity import foreseen, goodput_claims
from colane.lab.traces.tables import pollux
from colane.scheduling.engine.sized_rates import efficiency


def test_a_batch_as_large_as_the_noise_is_worth_half_as_much_a_sample_as_a_very_small_one() -> None:
    assert efficiency(1000.0, 1, 1000) == pytest.approx(1001 / 2000)
    assert efficiency(1000.0, 1000, 4000) == pytest.approx(0.4)
    assert efficiency(inf, 8, 512) == 1.0


@pytest.mark.parametrize(("signal", "spread"), [(1.0, 50.0), (0.01, 3.0)])
def test_the_noise_scale_comes_out_of_two_norms(signal: float, spread: float) -> None:
    """The mean squared norm of the gradient of B samples is |G|^2 + tr(S) / B."""
    squared = {batch: signal + spread / batch for batch in (8, 64)}
    assert noise.from_norms(8, squared[8], 64, squared[64]) == pytest.approx(spread / signal)
    assert noise.from_norms(8, 1.0, 64, 2.0) is None, "it cannot grow with the batch"
    with pytest.raises(ValueError, match="two batch sizes, the larger last; got 64 and 64"):
        noise.from_norms(64, 1.0, 64, 1.0)


def test_pollux_trainings_take_as_many_iterations_at_twice_the_batch_as_is_foreseen(data: Path) -> None:
    table = pollux.read(data / "traces/pollux-profiles/traces")
    found = [one for each in table.applications.values() for one in foreseen(each.noise)]
    by_noise, alike = (np.abs(np.subtract(column, 1.0)) for column in zip(*found, strict=True))
    assert len(found) == 34
    assert np.mean(by_noise) < 0.02
    assert np.max(by_noise) < 0.06
    assert np.mean(alike) > 3 * np.mean(by_noise)
    assert "34 doublings" in goodput_claims(table)[0].ours
