"""`colane top`: drawn for any size, of any cluster; printed by Rich alone; with keys by Textual."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from rich.cells import cell_len

from colane.cli.app import run
from colane.cli.jobs import objects
from colane.cli.top.app import ConfirmScreen, JobScreen, TopApp, TopScreen
from colane.cli.top.drawing import TopPicture, TopView
from colane.cli.top.snapshot import NODES_EVERY_LARGE_S, ClusterShot, ShotTaker
from colane.cli.top.texts import cut, cut_end, left, right, short_span, spark
from colane.client.client import Client
from colane.client.errors import SchedulerUnreachable
from tests.cli.shots import busy_shot, empty_overview, empty_shot, job, node, sampled, waiting

HOSTILE = ("\x1b[31mred\x1b[0m\x07", "\N{RIGHT-TO-LEFT OVERRIDE}dlrow", "\N{PARTY POPPER}" * 40, "x" * 4096, "\u65e5\u672c" * 30, "[bold]b[/]", "<script>")  # fmt: skip  # noqa: E501


def drawn(shot: ClusterShot, **view: Any) -> list[str]:
    picture = TopPicture(shot, TopView(**{"user": "heron", "keys": True, **view}))
    return [line.plain for line in picture.lines()]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 50), (100, 30), (250, 80), (60, 16)])
@pytest.mark.parametrize("shot", [busy_shot(), empty_shot()])
def test_it_fits_every_screen(shot: ClusterShot, width: int, height: int) -> None:
    lines = drawn(shot, width=width, height=height)
    assert len(lines) == height
    assert max(map(cell_len, lines)) <= width


def test_eighty_by_twentyfour_has_all_devices_their_jobs_and_what_needs_a_look() -> None:
    lines = drawn(busy_shot(), width=80, height=24, chosen=4121)
    text = "\n".join(lines)
    assert lines[0].startswith("colane top  26 of 32 GPUs work, 1 broken")
    assert "40 run, 120 wait" in lines[0]
    assert lines[1].startswith("✕ a100-2/3 broken  ▲ a100-2 drains  ▲ 4115* idle 42m  ▲ 4088 slow")
    assert "4098 ═════════════════════════════╡ 4121* ══════════╡ 4127 +3  4131* +1" in text
    assert "▲4115*+1" in text
    assert "‖4091" in text
    assert "✕ broken" in text
    assert "┄4170┄   ┄kept┄" in text
    assert "4136~" in text, "work that is not Colane's"
    assert "wait 120: 74 no free gpu · 21 behind" in text
    assert next(line for line in lines if line.startswith(">")).split()[:4] == [">", "4121", "vit-h-sweep", "heron*"]
    assert "more · sorted by state" in lines[-2]


def test_a_large_screen_has_a_line_a_lane() -> None:
    text = "\n".join(drawn(busy_shot(), width=160, height=50))
    assert "▌4098 llm-7b-pretrain 1.00 ════" in text
    for said in ("▌4157", "71/80G", "a100-2▲", "▲ drains", "3.20 (3.02)", "sharing gives 1.95 on 10"):
        assert said in text


def test_nothing_is_left_out_without_being_counted() -> None:
    shot = busy_shot()
    picture = TopPicture(shot, TopView(width=80, height=24, keys=True))
    (more,) = [line.plain for line in picture.lines() if " more · " in line.plain]
    assert int(more.split()[0]) + len(picture.listed) == len(shot.jobs) + shot.left_out
    many = replace(shot, nodes=[node(f"n{number}", {}) for number in range(1_000)])
    lines = drawn(many, width=80, height=24, node_first=400)
    assert any("more nodes, 400 of them above" in line for line in lines)
    assert any(line.startswith("n400") for line in lines)


def test_names_do_nothing_to_a_terminal_and_move_no_column() -> None:
    shot = replace(busy_shot(), jobs=[job(number, name, gpus=["h100-1/0"]) for number, name in enumerate(HOSTILE, 1)])
    for width in (80, 160):
        rows = drawn(shot, width=width, height=None)
        mine = [row for row in rows if " wren " in row]
        assert len(mine) == len(HOSTILE)
        assert len({cell_len(row[: row.index(" wren ")]) for row in mine}) == 1
        assert all(row.isprintable() for row in rows)


def test_a_filter_sorts_and_mine() -> None:
    def ids(**view: Any) -> list[int]:
        picture = TopPicture(busy_shot(), TopView(user="heron", **view))
        picture.lines()
        return picture.listed

    assert ids(filter="UNET") == [4131]
    assert ids(filter="idle42") == [4115]
    assert set(ids(mine=True)) >= {4115, 4121, 4131, 4170}
    assert 4088 not in ids(mine=True)
    assert ids(sort="speed")[0] == 4088
    assert ids(sort="age")[0] == 4088
    assert ids()[:2] == [4115, 4088]


def test_what_is_not_known_is_no_zero_and_a_gap_is_a_gap() -> None:
    shot = replace(busy_shot(), samples={})
    assert "   -" in drawn(shot, width=80, height=24)[4]
    assert spark([None, 0.0, 1.0, None], 4) == " ▁█ "
    assert spark([], 3) == "   "
    assert TopPicture(shot, TopView(stale_s=90.0)).lines()[0].plain.count("no word for 90s") == 1


@pytest.mark.parametrize(("text", "width", "said"), [
    ("table-retrieval-1", 8, "tabl…l-1"), ("short", 8, "short"), ("\u65e5\u672c\u8a9e", 4, "\u65e5… "),
    ("abc", 2, "ab"), ("", 3, ""),
])  # fmt: skip
def test_cutting(text: str, width: int, said: str) -> None:
    assert cut(text, width) == said
    assert cell_len(left(text, width)) == cell_len(right(text, width)) == width


def test_a_sentence_is_cut_at_its_end() -> None:
    assert cut_end("needs 8 GPUs, 0 free", 12) == "needs 8 GPU…"
    assert [cut_end("abc", width) for width in (0, 1, 3)] == ["", "…", "abc"]


def test_spans() -> None:
    told = [short_span(seconds) for seconds in (-5, 42, 2520, 11_100, 400_000)]
    assert told == ["0s", "42s", "42m", "3h05", "4d15h"]


# -- what it asks, and printing


def scheduler_of(shot: ClusterShot) -> Mock:
    made = Mock(Client)
    made.overview.return_value, made.nodes.return_value = shot.overview, shot.nodes
    left_out = {"running": shot.left_out, "queued": 0, "ended": False}
    made.listing.return_value = {"jobs": shot.jobs, "left_out": left_out}
    made.node_samples.side_effect = lambda name, _last_s: sampled(name)
    made.__enter__ = lambda _: made
    made.__exit__ = lambda *_: None
    return made


def test_samples_are_asked_of_the_nodes_that_are_shown_and_not_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("colane.cli.top.snapshot.time.monotonic", lambda: now[0])
    many = replace(busy_shot(), nodes=[node(f"n{number}", {}) for number in range(500)])
    scheduler = scheduler_of(many)
    taker = ShotTaker(scheduler)
    for _ in range(5):
        taker.take(["n3", "n4", "gone"])
        now[0] += 1
    assert scheduler.node_samples.call_count == 2
    assert (scheduler.nodes.call_count, scheduler.overview.call_count) == (1, 1), "of a large cluster less often"
    now[0] += NODES_EVERY_LARGE_S
    assert set(taker.take(["n4"]).samples) == {"n3", "n4"}
    assert (scheduler.nodes.call_count, scheduler.overview.call_count) == (2, 2)
    small = scheduler_of(busy_shot())
    taker = ShotTaker(small)
    for _ in range(3):
        taker.take([])
        now[0] += 2
    assert (small.nodes.call_count, small.overview.call_count) == (3, 3)


def test_a_pipe_gets_it_once_and_whole(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(objects, "client", lambda: nullcontext(scheduler_of(busy_shot())))
    assert run(["top"]) == 0
    out = capsys.readouterr().out
    assert "4189" in out
    assert "\x1b" not in out
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", plain)
    assert run(["top", "--once"]) == 0
    plain.seek(0)
    assert "x a100-2/3 broken  ! a100-2 drains" in plain.read()


def test_programs_get_what_it_is_drawn_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shot = busy_shot()
    monkeypatch.setattr(objects, "client", lambda: nullcontext(scheduler_of(shot)))
    assert run(["top", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {"at_s", "overview", "nodes", "jobs", "left_out", "samples"}
    assert [each["id"] for each in told["jobs"]] == [each["id"] for each in shot.jobs]


@pytest.mark.parametrize("words", [["--sort", "size"], ["--every", "0.1"]])
def test_what_makes_no_sense_is_named(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["top", *words]) == 2
    assert f"colane: {words[0]}: must be" in capsys.readouterr().err


def test_printing_imports_no_textual() -> None:
    code = (
        "import sys, colane.cli.top.drawing, colane.cli.top.snapshot, colane.cli.top.command; "
        "assert 'textual' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- keys


def app_of(scheduler: Mock) -> TopApp:
    return TopApp(user="heron", mine=False, sort="state", every_s=60.0, client=lambda: scheduler)


def screen_text(app: TopApp) -> str:
    picture = app.query_one(TopScreen).picture
    return "" if picture is None else "\n".join(line.plain for line in picture.lines())


async def ready(app: TopApp, pilot: Any) -> None:
    await app.workers.wait_for_complete()
    await pilot.pause()
    await app.workers.wait_for_complete()
    await pilot.pause()


async def test_keys_sort_filter_and_list_ones_own() -> None:
    app = app_of(scheduler_of(busy_shot()))
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app, pilot)
        assert "26 of 32 GPUs work" in screen_text(app)
        assert app.view.chosen == 4115
        await pilot.press("down", "down")
        assert app.view.chosen == 4121
        await pilot.press("s")
        assert "sorted by age" in screen_text(app)
        await pilot.press("u")
        assert "· mine" in screen_text(app)
        await pilot.press("u", "slash", *"unet", "enter")
        assert "1 with 'unet'" in screen_text(app)
        assert app.query_one(TopScreen).picture.listed == [4131]  # type: ignore[union-attr]
        await pilot.press("escape")
        assert app.view.filter == ""


@pytest.mark.parametrize(("key", "is_cancelled"), [("y", True), ("enter", False), ("escape", False)])
async def test_cancelling_asks_and_says_what_it_costs(key: str, is_cancelled: bool) -> None:
    scheduler = scheduler_of(busy_shot())
    scheduler.cost.return_value = {"helped": 3}
    app = app_of(scheduler)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app, pilot)
        await pilot.press("k")
        await ready(app, pilot)
        assert isinstance(app.screen, ConfirmScreen)
        asked = app.screen._question
        assert asked.endswith("3 jobs waiting for it by name.")
        assert asked.startswith("Cancel job 4115 nb-explore of heron? It has saved nothing that is known of: ")
        await pilot.press(key)
        await ready(app, pilot)
        assert not isinstance(app.screen, ConfirmScreen)
        assert scheduler.cancel.call_args_list == ([((4115,), {})] if is_cancelled else [])


async def test_enter_shows_why_story_and_log() -> None:
    scheduler = scheduler_of(busy_shot())
    one = {**job(4115, "nb"), "story": [{"at_s": 1.0, "state": "running", "sentence": "first step reached"}]}
    scheduler.job.return_value = one
    scheduler.why.return_value = {"sentence": "first step reached", "now": ["idle for 42 min"]}
    scheduler.log.return_value.data = b"\x1b[2Jloss 0.1\n"
    app = app_of(scheduler)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app, pilot)
        await pilot.press("enter")
        await ready(app, pilot)
        assert isinstance(app.screen, JobScreen)
        text = app.screen._text.plain
        assert "idle for 42 min" in text
        assert "\\x1b[2Jloss 0.1" in text
        await pilot.press("escape")
        await pilot.pause()
        assert not isinstance(app.screen, JobScreen)


async def test_a_scheduler_that_is_silent_is_told_and_the_figures_stay() -> None:
    scheduler = scheduler_of(busy_shot())
    app = app_of(scheduler)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app, pilot)
        scheduler.overview.side_effect = SchedulerUnreachable("http://head", "refused")
        app._answered_s -= 90
        app._ask()
        await ready(app, pilot)
        assert "no word for 90s" in screen_text(app)
        assert "26 of 32 GPUs work" in screen_text(app)
        scheduler.overview.side_effect = None
        app._ask()
        await ready(app, pilot)
        assert "no word" not in screen_text(app)


async def test_no_node_and_no_job() -> None:
    shot = replace(empty_shot(), overview=empty_overview(), jobs=[waiting(1, "alone")])
    app = app_of(scheduler_of(shot))
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app, pilot)
        assert "no node has registered yet" in screen_text(app)
        await pilot.press("down", "up", "pagedown", "pageup", "s")
        assert app.view.chosen == 1
