"""What is not simulated as it was published has what a scheduler does beside its policy."""

from __future__ import annotations

from dataclasses import replace

from colane.lab.simulate.request import LIVE, LiveSettings, Request, inputs, load
from colane.settings import table
from colane.settings.sources import gather


def test_live_is_what_a_scheduler_does_by_default() -> None:
    values = gather(table.SERVER, {}, environment={})
    assert LiveSettings(table.tuning(values), values[table.GUARD]) == LIVE
    assert LIVE.tuning is not None


def test_what_is_not_as_published_is_simulated_as_it_runs_live() -> None:
    request = Request(cluster="dgx1", trace="sweep:jobs=4", live=LIVE)
    loaded = load(request, 0)

    def found(policy: str, asked: Request = request) -> LiveSettings:
        given = inputs(asked, loaded, policy, 0)
        return LiveSettings(given.tuning, given.guard_margin_ratio)

    assert found("colane") == found("srtf:as_published=no") == LIVE
    assert found("srtf") == found("fifo") == LiveSettings(None, None)
    assert found("srtf", replace(request, guard_margin_ratio=0.5)) == LiveSettings(None, 0.5)
    assert found("colane", replace(request, live=None)) == LiveSettings(None, None)
