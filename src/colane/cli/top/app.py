"""The screen with keys: what is drawn elsewhere, shown by Textual and drawn anew as answers come."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult, RenderResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, Static

from colane.cli import output
from colane.cli.jobs import objects as jobs
from colane.cli.top.drawing import SORTS, TopPicture, TopView
from colane.cli.top.snapshot import ClusterShot, ShotTaker
from colane.client.client import Client
from colane.client.errors import SchedulerError
from colane.model.words import count

if TYPE_CHECKING:
    from collections.abc import Callable

    from colane.api.jobs import JobObject

LOG_BYTES: Final = 8_000
STALE_S: Final = 15.0


class TopScreen(Widget):
    """All of it but questions and details."""

    can_focus = True
    picture: TopPicture | None = None

    def render(self) -> RenderResult:
        """Draw what is known."""
        if self.picture is None:
            return Text("asking the scheduler ...", "dim")
        return Text("\n").join(self.picture.lines())


class ConfirmScreen(ModalScreen[bool]):
    """A question about an act that says what it costs; keeping is what happens unless y is pressed."""

    BINDINGS: ClassVar = [Binding("y", "dismiss(True)"), Binding("n,escape,enter,q", "dismiss(False)")]
    DEFAULT_CSS = "ConfirmScreen { align: center middle; } ConfirmScreen > Static { width: 72; height: auto; border: solid $warning; padding: 0 1; }"  # noqa: E501

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """Show the question."""
        yield Static(Text(f"{self._question}\n\ny cancels it, any of n, Enter, Escape keeps it"))


class JobScreen(ModalScreen[None]):
    """Why a job is where it is, its story, and the end of its log."""

    BINDINGS: ClassVar = [Binding("escape,q,enter", "dismiss")]
    DEFAULT_CSS = "JobScreen > VerticalScroll { background: $surface; } JobScreen Static { height: auto; }"

    def __init__(self, text: Text) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """Show it; arrows scroll."""
        with VerticalScroll():
            yield Static(self._text)


class TopApp(App[None]):
    """The screen with keys.

    Args:
        user: Who looks.
        mine: Whether only that user's jobs are listed at first.
        sort: By what they are sorted at first.
        every_s: How often the scheduler is asked.
        client: Makes clients of the scheduler.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = "TopScreen { width: 100%; height: 1fr; } #filter { display: none; height: 1; border: none; dock: bottom; }"
    BINDINGS: ClassVar = [
        Binding("q,ctrl+c", "quit"),
        Binding("slash", "filter"),
        Binding("s", "sort"),
        Binding("u", "mine"),
        Binding("k", "cancel"),
        Binding("enter", "details"),
        Binding("down,j", "move(1)"),
        Binding("up", "move(-1)"),
        Binding("pagedown", "nodes(1)"),
        Binding("pageup", "nodes(-1)"),
        Binding("escape", "plain"),
    ]

    def __init__(
        self, *, user: str, mine: bool, sort: str, every_s: float, client: Callable[[], Client] = jobs.client
    ) -> None:
        super().__init__(ansi_color=True)
        self.view = TopView(user=user, mine=mine, sort=sort, keys=True)
        self._every_s = every_s
        self._client = client
        self._shot: ClusterShot | None = None
        self._answered_s = time.monotonic()
        self._shown: list[str] = []
        self._is_asking = False

    def compose(self) -> ComposeResult:
        """One widget, and the line of the filter below it."""
        with Vertical():
            yield TopScreen()
            yield Input(placeholder="filter: a word of name, user, state, reason", id="filter")

    def on_mount(self) -> None:
        """Ask at once, then again and again."""
        self._taker = ShotTaker(self._client())
        self.query_one(TopScreen).focus()
        self.set_interval(self._every_s, self._ask)
        self._ask()

    def on_resize(self) -> None:
        """Draw for another size."""
        self._draw()

    # -- asking

    def _ask(self) -> None:
        if not self._is_asking:
            self._is_asking = True
            self.run_worker(self._answer, thread=True, exit_on_error=False)

    def _answer(self) -> None:
        try:
            shot = self._taker.take(self._shown)
        except SchedulerError:
            shot = None
        finally:
            self._is_asking = False
        self.call_from_thread(self._take, shot)

    def _take(self, shot: ClusterShot | None) -> None:
        if shot is not None:
            is_first, self._shot, self._answered_s = self._shot is None, shot, time.monotonic()
            if is_first:
                self.call_after_refresh(self._ask)  # by now it is known which nodes are shown
        self._draw()

    def _draw(self) -> None:
        if self._shot is None:
            return
        stale_s = time.monotonic() - self._answered_s
        is_filtering = self.query_one("#filter", Input).display
        size = replace(
            self.view, width=self.size.width, height=self.size.height - is_filtering,
            stale_s=stale_s if stale_s >= STALE_S else 0.0,
        )  # fmt: skip
        screen = self.query_one(TopScreen)
        screen.picture = picture = TopPicture(self._shot, size)
        picture.lines()
        if picture.listed and self.view.chosen not in picture.listed:
            self.view = replace(self.view, chosen=picture.listed[0])
            screen.picture = picture = TopPicture(self._shot, replace(size, chosen=self.view.chosen))
            picture.lines()
        self._shown = picture.nodes_shown
        screen.refresh()

    # -- keys

    def action_sort(self) -> None:
        """Sort by the next word."""
        after = SORTS[(SORTS.index(self.view.sort) + 1) % len(SORTS)]
        self.view = replace(self.view, sort=after)
        self._draw()

    def action_mine(self) -> None:
        """List own jobs only, or all."""
        self.view = replace(self.view, mine=not self.view.mine)
        self._draw()

    def action_move(self, by: int) -> None:
        """Choose another job."""
        ids = self._all_rows()
        if ids:
            place = ids.index(self.view.chosen) if self.view.chosen in ids else 0
            self.view = replace(self.view, chosen=ids[min(len(ids) - 1, max(0, place + by))])
            self._draw()

    def _all_rows(self) -> list[int]:
        if self._shot is None:
            return []
        whole = TopPicture(self._shot, replace(self.view, width=80, height=None))
        whole.lines()
        return whole.listed

    def action_nodes(self, by: int) -> None:
        """Go through the nodes, a screen at a time."""
        if self._shot is not None:
            first = self.view.node_first + by * max(1, len(self._shown))
            most = max(0, len(self._shot.nodes) - 1)
            self.view = replace(self.view, node_first=min(most, max(0, first)) if by > 0 else max(0, first))
            self._draw()
            self._ask()

    def action_filter(self) -> None:
        """Type a filter."""
        field = self.query_one("#filter", Input)
        field.display, field.value = True, self.view.filter
        field.focus()
        self._draw()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is typed."""
        self.view = replace(self.view, filter=event.value)
        self._draw()

    def on_input_submitted(self) -> None:
        """Keep the filter."""
        self._close_filter()

    def action_plain(self) -> None:
        """Let the filter go."""
        self.view = replace(self.view, filter="")
        self._close_filter()

    def _close_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.display = False
        self.query_one(TopScreen).focus()
        self._draw()

    def action_details(self) -> None:
        """Show why, story and log of the chosen job."""
        if self.view.chosen is not None:
            job = self.view.chosen
            self.run_worker(lambda: self._tell(job), thread=True, exit_on_error=False)

    def _tell(self, job: int) -> None:
        try:
            with self._client() as client:
                text = details(client, job)
        except SchedulerError as error:
            text = Text(output.clean(str(error), output.LINES), "yellow")
        self.call_from_thread(self.push_screen, JobScreen(text))

    def action_cancel(self) -> None:
        """Ask whether the chosen job is to be cancelled."""
        job = self.view.chosen
        known = None if self._shot is None else next((one for one in self._shot.jobs if one["id"] == job), None)
        if job is None or known is None:
            return

        self.run_worker(lambda: self._ask_whether(job, known), thread=True, exit_on_error=False)

    def _ask_whether(self, job: int, known: JobObject) -> None:
        """Ask what it costs first; an older scheduler does not tell which jobs wait for it."""
        helped = 0
        with suppress(SchedulerError), self._client() as client:
            helped = client.cost(job)["helped"]

        def answered(is_yes: bool | None) -> None:
            if is_yes:
                self.run_worker(lambda: self._cancel(job), thread=True, exit_on_error=False)

        question = what_it_costs(known) + (f" {count(helped, 'job')} waiting for it by name." if helped else "")
        self.call_from_thread(self.push_screen, ConfirmScreen(question), answered)

    def _cancel(self, job: int) -> None:
        try:
            with self._client() as client:
                client.cancel(job)
            said = f"job {job} is cancelled"
        except SchedulerError as error:
            said = output.clean(str(error))
        self.call_from_thread(self.notify, Text(said).plain, markup=False)
        self.call_from_thread(self._ask)


def what_it_costs(job: JobObject) -> str:
    """Return the question whether a job is to be cancelled, and what is lost then."""
    name = output.clean(job["name"][:60])
    asked = f"Cancel job {jobs.name_of(job)} {name} of {output.clean(job['user'])}?"
    if job["start_s"] is None or job["node"] is None:
        return f"{asked} It waits, and has not run."
    saved = job["saved_s"]
    since_s = job["start_s"] if saved is None else max(saved, job["start_s"])
    lost = output.duration(max(0.0, time.time() - since_s))
    what = "has saved nothing that is known of" if saved is None else f"saved {jobs.saved_text(job)} ago"
    return f"{asked} It {what}: {lost} of its work on {max(1, len(job['gpus']))} GPU is lost."


def details(client: Client, job: int) -> Text:
    """Return why a job is where it is, its story, and the end of its log."""
    found, why = client.job(job), client.why(job)
    text = Text(f"job {jobs.name_of(found)} {output.clean(found['name'][:200])}   {found['state']}\n", "bold")
    text.append(output.clean(why["sentence"]) + "\n")
    for said in why["now"]:
        text.append(f"  {output.clean(said)}\n")
    text.append("\nstory\n", "bold")
    for line in found["story"]:
        at = time.strftime("%H:%M:%S", time.localtime(line["at_s"]))
        text.append(f"{at}  {line['state']:<18} {output.clean(line['sentence'])}\n")
    text.append("\nend of its log\n", "bold")
    try:
        data = client.log(job, -LOG_BYTES).data.decode(errors="replace")
    except SchedulerError as error:
        data = str(error)
    text.append(output.clean(data, output.LINES))
    text.append("\n\nEscape goes back, arrows scroll", "dim")
    return text
