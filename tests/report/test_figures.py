from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from PIL import Image

from colane.cli import app
from colane.foresee.judged import HORIZONS
from colane.foresee.said import METHODS
from colane.lab.report import (
    elastic_plots,
    plots,
    profile_plots,
    simulated_compared,
    simulated_plots,
    style,
    time_plots,
    timeline,
)  # fmt: skip
from colane.lab.report.foreseen import foreseen_plot
from colane.lab.report.measured import Boundary, SetPoint, ThroughputCurve
from colane.lab.report.metrics import StepTimes
from colane.lab.report.mixed import DeviceSpan, LossPoint
from colane.lab.report.records import JobTime
from colane.lab.report.simulated import ClusterCurves, Interval
from colane.lab.studies import figures
from colane.model.time_spent import TimeSpent

from .batches import key

NAMES = ("fifo", "colocate", "best-fit", "a-policy-of-my-own-with-a-rather-long-name-indeed")


def times_s(jobs: int, seed: int) -> list[float]:
    rng = Random(seed)
    return [rng.lognormvariate(4, 1.5) for _ in range(jobs)]


def elastic_jobs() -> Figure:
    spans = {name: [DeviceSpan(4 - at, 10.0 * at, 10.0 * at + 10) for at in range(3)] for name in NAMES}
    losses = {name: [LossPoint(step, 1 + step // 40, 2.0 / step) for step in range(1, 100)] for name in NAMES}
    curves = {name: ThroughputCurve({1: 1.0}, {1: 1.0, 2: 2.0}) for name in NAMES[:2]}
    whole = {name: [point.loss for point in points] for name, points in losses.items()}
    return elastic_plots.elastic_jobs(spans, 4, curves, losses, whole)


def job_times(jobs: int) -> list[JobTime]:
    rng = Random(jobs)
    spent = [TimeSpent(*(rng.expovariate(0.01) for _ in TimeSpent._fields)) for _ in range(jobs)]
    return [JobTime(f"job-{n}", one, one.running_s / 3) for n, one in enumerate(spent)]


def panel(name: str, jobs: int, devices: int, lanes: int) -> timeline.Panel:
    rng, bars = Random(jobs), []
    free_s = dict.fromkeys(((device, lane) for device in range(devices) for lane in range(lanes)), 0.0)
    for job in range(jobs):
        place = min(free_s, key=lambda place: (free_s[place], place))
        start_s, free_s[place] = free_s[place], free_s[place] + rng.uniform(10, 60)
        family, succeeded = rng.choice("abcdefghijk") * 6, rng.random() > 0.02
        bar = timeline.Bar(
            device=f"node-1/{place[0]}",
            start_s=start_s,
            end_s=free_s[place],
            label=f"{family} #{job}",
            family=family,
            succeeded=succeeded,
        )
        bars.append(bar)
    return timeline.Panel(name, tuple(f"node-1/{device}" for device in range(devices)), tuple(bars))


def points(bandwidth: bool) -> list[SetPoint]:
    rng = Random(5)
    sums = [rng.uniform(1e7, 2e8) for _ in range(30)]
    return [SetPoint(f"s{c}", "mps", c, 0.7 * c if bandwidth else None, 1.8 - c / 1e8) for c in sums]


def curves(seed: int) -> ClusterCurves:
    rng = np.random.default_rng(seed)
    at_s, gpus = np.linspace(0, 2e6, 50), rng.integers(0, 9, 50).astype(float)
    names = ("active_gpus", "utilized_gpus", "stranded_gpus", "waiting", "running")
    return ClusterCurves(at_s=at_s, **dict.fromkeys(names, gpus))


STEPS = [StepTimes(key(f"family-{i}"), 0.01 * (i + 1), 2, 0.013 * (i + 1), 3) for i in range(12)]
DELTAS = {
    sharing: {f"se-resnet18 b{b} + resnet50 b{b}": 1.5 - b / 400 + extra for b in range(16, 256, 16)}
    for sharing, extra in (("mps", 0.1), ("time-slice", 0.0))
}
LINE = Boundary(1.8, -0.5e-8, -0.6e-8)
FIGURES: dict[str, Callable[[], Figure]] = {
    "log cdf": lambda: plots.cdf({n: times_s(6, 1) for n in NAMES}, title="JCT", quantity="JCT", is_log=True),
    "over load": lambda: figures.over_load(
        {n: {load: Interval(100.0 * load + at, 9.0) for load in (0.5, 1.0)} for at, n in enumerate(NAMES)},
        "jct_mean_s",
        "mean JCT",
    ),
    "cdf of 6": lambda: plots.cdf({n: times_s(6, 1) for n in NAMES}, title="Run span", quantity="run span"),
    "cdf of 1000": lambda: plots.cdf({n: times_s(1000, 2) for n in NAMES}, title="Run span", quantity="run span"),
    "cdf with zeros": lambda: plots.cdf(
        {n: [0.0] * 500 + times_s(500, 3) for n in NAMES}, title="Queueing", quantity="queueing"
    ),
    "cdf of nothing": lambda: plots.cdf({"fifo": []}, title="Run span", quantity="run span"),
    "cdf of one": lambda: plots.cdf({"fifo": [3.0], "x": []}, title="Run span", quantity="run span"),
    "cdf of no wait": lambda: plots.cdf({"fifo": [0.0] * 6}, title="Queueing", quantity="queueing"),
    "makespan": lambda: plots.makespan_bars({NAMES[0]: 98.0, NAMES[1]: 61.0, NAMES[2]: None, NAMES[3]: 9e5}),
    "makespan of nothing": lambda: plots.makespan_bars({"fifo": None}),
    "trade-off": lambda: plots.trade_off({n: (20.0 + i, 90.0 - i) for i, n in enumerate(NAMES)}),
    "trade-off of one": lambda: plots.trade_off({"fifo": None, "colocate": (20.0, 90.0)}),
    "trade-off of nothing": lambda: plots.trade_off({"fifo": None}),
    "step times": lambda: plots.step_time_pairs(STEPS),
    "step times of nothing": lambda: plots.step_time_pairs([]),
    "timeline of 6": lambda: timeline.timeline([panel("fifo", 6, 2, 1), panel("colocate", 6, 2, 3)]),
    "timeline of 1000": lambda: timeline.timeline([panel(NAMES[i], 1000, 40, 1 + i) for i in range(4)]),
    "timeline of few devices": lambda: timeline.timeline([panel("fifo", 1000, 2, 1), panel("x", 1000, 2, 3)]),
    "timeline of an empty group": lambda: timeline.timeline([timeline.Panel("fifo", ("n/0",), ())]),
    "timeline of nothing": lambda: timeline.timeline([]),
    "throughput": lambda: profile_plots.throughput(
        {f"family-{i}": [(b, 100.0 * i + b) for b in (16, 32, 64, 128, 256)] for i in range(7)}
    ),
    "throughput of nothing": lambda: profile_plots.throughput({}),
    "speed-up": lambda: profile_plots.speedup_bars(DELTAS, title="Speed-up"),
    "speed-up of one": lambda: profile_plots.speedup_bars({"cpu": {"a + b": 0.4}}, title="Speed-up"),
    "speed-up of nothing": lambda: profile_plots.speedup_bars({}, title="Speed-up"),
    "MPS gain": lambda: profile_plots.mps_gain_histogram([-0.1, 0.0, 0.02, 0.3]),
    "MPS gain of 0": lambda: profile_plots.mps_gain_histogram([0.0]),
    "MPS gain of nothing": lambda: profile_plots.mps_gain_histogram([]),
    "plane": lambda: profile_plots.speedup_plane(points(True), boundary=LINE, title="MPS"),
    "plane, exact": lambda: profile_plots.speedup_plane(points(True), boundary=LINE, exact=True, title="MPS"),
    "plane without M": lambda: profile_plots.speedup_plane(points(False), boundary=LINE, title="MPS"),
    "plane with an upright line": lambda: profile_plots.speedup_plane(
        points(True), boundary=Boundary(1.8, 0.0, -1e-8), title="MPS"
    ),
    "plane of nothing": lambda: profile_plots.speedup_plane([], title="MPS"),
    "kernels": lambda: profile_plots.kernel_histograms(
        {f"family-{i}": [x % 101 for x in times_s(900, i)] for i in range(5)}, quantity="achieved occupancy"
    ),
    "f(n)": lambda: elastic_plots.throughputs(
        {"a": ThroughputCurve({1: 2.0, 4: 6.0}, {n: 1.7 * n for n in range(1, 5)})}
    ),
    "f(n) of nothing": lambda: elastic_plots.throughputs({}),
    "elastic jobs": elastic_jobs,
    "time of jobs": lambda: time_plots.time_bars({name: job_times(5) for name in NAMES[:3]}),
    "time of many jobs": lambda: time_plots.time_bars({name: job_times(500) for name in NAMES}),
    "time of one job that ended at once": lambda: time_plots.time_bars({"a": [JobTime("x", TimeSpent())], "b": []}),
    **{
        f"comparison, {seeds} seeds": partial(
            simulated_plots.comparison,
            {
                metric: {n: Interval(0.7 if "ratio" in metric else 5e5, 0.2 if seeds > 1 else None) for n in NAMES}
                for metric in simulated_compared.COMPARED
            },
            seeds,
        )
        for seeds in (1, 20)
    },
    "GPUs over time": lambda: simulated_plots.gpus_over_time({n: curves(i) for i, n in enumerate(NAMES)}, 8),
    "jobs waiting": lambda: simulated_plots.queue_over_time({n: curves(i) for i, n in enumerate(NAMES)}),
    "foreseen": lambda: foreseen_plot(
        {
            n: [{"method": METHODS[-1], "horizons": [{"holds": 0.8, "error": 0.1 * i}] * len(HORIZONS)}]
            for i, n in enumerate(NAMES)
        }
    ),
    "kernels of nothing": lambda: profile_plots.kernel_histograms({"a": []}, quantity="achieved occupancy"),
}


IN_A_COLUMN = [
    name for name in FIGURES
    if name.startswith(("log cdf", "over load", "cdf", "comparison", "GPUs over", "jobs waiting", "foreseen", "time"))
]  # fmt: skip
"""Those of simulations and studies."""


def texts(fig: Figure) -> Iterator[Text]:
    """Texts that are drawn, but for the tick labels beyond the ends of an axis, which matplotlib leaves out."""
    for axes in fig.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            shown = [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            yield from (text for text in shown if axes.axison and text.get_visible())
        yield from (axes.xaxis.label, axes.yaxis.label, *axes.texts)
        # The title is no public attribute where it stands on the left.
        yield from (text for text in axes.get_children() if isinstance(text, Text) and text not in axes.texts)
    for legend in fig.legends:
        yield from legend.get_texts()
    yield from fig.texts


def drawn_on(fig: Figure) -> Any:
    """Canvas with the figure laid out and drawn; matplotlib leaves its methods untyped."""
    canvas: Any = FigureCanvasAgg(fig)
    canvas.draw()
    return canvas


@cache
def laid_out(name: str, inch: float | None = None) -> tuple[Figure, Any]:
    """A figure, drawn once for all tests that only look at it."""
    with style.as_wide_as(inch):
        fig = FIGURES[name]()
    return fig, drawn_on(fig)


SHOWN = [*((name, None) for name in FIGURES), *((name, 3.3) for name in IN_A_COLUMN)]


def boxes(fig: Figure, canvas: Any) -> list[tuple[str, Bbox]]:
    drawn = [text for text in texts(fig) if text and text.get_text() and text.get_visible()]
    return [(text.get_text(), text.get_window_extent(canvas.get_renderer())) for text in drawn]


def overlap(first: Bbox, second: Bbox) -> bool:
    common = Bbox.intersection(first, second)
    return common is not None and common.width > 1.0 and common.height > 1.0


@pytest.mark.parametrize(("name", "inch"), SHOWN)
def test_no_two_texts_overlap_and_none_leaves_the_figure(name: str, inch: float | None) -> None:
    fig, canvas = laid_out(name, inch)
    assert inch is None or fig.get_figwidth() == inch
    assert inch is None or min(float(text.get_fontsize()) for text in texts(fig) if text.get_text()) >= 7
    found = boxes(fig, canvas)
    assert found, "a figure says at least something"
    clashes = [
        (one, two) for i, (one, first) in enumerate(found) for two, second in found[i + 1 :] if overlap(first, second)
    ]
    assert clashes == []
    whole = fig.bbox.padded(2)
    outside = [text for text, box in found if not (whole.contains(box.x0, box.y0) and whole.contains(box.x1, box.y1))]
    assert outside == []


@pytest.mark.parametrize(("name", "inch"), SHOWN)
def test_a_legend_covers_no_axes(name: str, inch: float | None) -> None:
    fig, canvas = laid_out(name, inch)
    for legend in fig.legends:
        box = legend.get_window_extent(canvas.get_renderer())
        assert not any(overlap(box, axes.get_window_extent()) for axes in fig.axes)


@pytest.mark.parametrize("name", ["timeline of 6", "cdf of 6", "plane", "speed-up"])
def test_inline_svg_is_well_formed_with_ids_of_its_own(name: str) -> None:
    svg = style.inline_svg(FIGURES[name](), "pic", 'what "it" <shows>')
    root = ET.fromstring(svg)  # noqa: S314 - our own output
    assert root.get("aria-label") == 'what "it" <shows>'
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    assert all(name is not None and name.startswith("pic-") for name in ids)
    links = [value for element in root.iter() for attribute, value in element.items() if attribute.endswith("href")]
    assert all(link.startswith("#pic-") and link[1:] in ids for link in links)
    assert "var(--ink)" in svg
    assert style.INK not in svg


def test_a_distribution_is_logarithmic_where_that_is_asked_for() -> None:
    assert FIGURES["log cdf"]().axes[0].get_xscale() == "log"
    assert FIGURES["cdf of 6"]().axes[0].get_xscale() == "linear"


def test_the_same_figure_gives_the_same_bytes(tmp_path: Path) -> None:
    for suffix in ("png", "svg"):
        first = style.save(FIGURES["timeline of 6"](), tmp_path / f"a/one.{suffix}")
        second = style.save(FIGURES["timeline of 6"](), tmp_path / f"b/one.{suffix}")
        assert first.read_bytes() == second.read_bytes()
    with Image.open(tmp_path / "a/one.png") as picture:
        assert picture.width == pytest.approx(style.WIDE_INCH * style.PNG_DPI, abs=1)


def test_a_thousand_devices_stay_one_readable_figure() -> None:
    fig = timeline.timeline([panel("fifo", 2000, 1000, 1)])
    assert fig.get_size_inches()[1] < 20
    assert "the 64 busiest of 1,000 devices" in fig.axes[0].get_title(loc="left")


def test_a_dollar_sign_in_a_name_is_no_formula() -> None:
    fig = plots.makespan_bars({"a$b$c": 3.0})
    drawn_on(fig)
    assert fig.axes[0].get_yticklabels()[0].get_text() == r"a\$b\$c"


def test_users_settings_do_not_leak_in_or_ours_out() -> None:
    import matplotlib as mpl  # noqa: PLC0415 - only here

    before = dict(mpl.rcParams)
    with mpl.rc_context({"font.size": 40.0}):
        fig = FIGURES["makespan"]()
        assert fig.axes[0].xaxis.label.get_fontsize() == style.RC["font.size"]
    assert dict(mpl.rcParams) == before


def test_families_beyond_the_palette_share_grey() -> None:
    colours = style.family_colours([f"f{i:02}" for i in range(12)] + ["f11"])
    assert colours["f11"] == style.FAMILY_COLOURS[0]
    assert list(colours.values()).count(style.OTHER_COLOUR) == 12 - len(style.FAMILY_COLOURS)


@pytest.mark.parametrize("families", [1, 2, 5, len(style.FAMILY_COLOURS), 12])
def test_families_in_a_column_are_told_apart_in_grey(families: int) -> None:
    with style.as_wide_as(3.3):
        colours = set(style.family_colours([f"f{i:02}" for i in range(families)]).values()) - {style.OTHER_COLOUR}
    grey = sorted(float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114))) for colour in colours)
    assert len(grey) == min(families, len(style.FAMILY_COLOURS))
    assert min(np.diff(grey), default=1.0) > 0.05


def test_a_simulation_draws_every_figure_for_a_column(tmp_path: Path) -> None:
    words = ["simulate", "-p", "fifo", "-p", "srtf", "--seeds", "2", "--foresee", "--figure-inch", "3.3"]
    assert app.run([*words, "--out", str(tmp_path)]) == 0
    pictures = {path.stem for path in tmp_path.glob("*.png")}
    assert pictures >= {"comparison", "foreseen", "time_spent", "gpus_over_time", "jct_cdf"}
    assert {path.stem for path in tmp_path.glob("*.pdf")} == pictures
    for path in tmp_path.glob("*.png"):
        with Image.open(path) as picture:
            assert picture.width == 950


spans = st.tuples(st.integers(min_value=0, max_value=30), st.integers(min_value=0, max_value=30))


@given(st.lists(spans, max_size=20))
def test_stacked_bars_never_overlap_and_need_no_more_rows_than_jobs_at_once(raw: list[tuple[int, int]]) -> None:
    bars = [timeline.Bar(device="n/0", start_s=float(min(s)), end_s=float(max(s)), label="", family="a") for s in raw]
    rows = timeline.stack(bars)
    for i, one in enumerate(bars):
        for j, two in enumerate(bars[:i]):
            if rows[i] == rows[j]:
                assert one.end_s <= two.start_s or two.end_s <= one.start_s
    at_once = max((sum(b.start_s <= t < b.end_s for b in bars) for t in range(31)), default=0)
    longer_than_0 = {row for row, bar in zip(rows, bars, strict=True) if bar.end_s > bar.start_s}
    assert len(longer_than_0) <= at_once
