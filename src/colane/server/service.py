"""The service put together: its parts, what callers may ask of them by noun, and what it does by itself."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace

from colane.core.events import Tick
from colane.server.board.turn import Turn
from colane.server.ground.access import Caller
from colane.server.ground.problems import RefusedError
from colane.server.handlers.attempts import Attempts
from colane.server.handlers.finder import JobFinder
from colane.server.handlers.forecasts import Forecasts
from colane.server.handlers.grants import Grants
from colane.server.handlers.health import Health
from colane.server.handlers.job_changes import JobChanges
from colane.server.handlers.jobs import JobViews
from colane.server.handlers.leading import Leadership
from colane.server.handlers.nodes import Nodes
from colane.server.handlers.submissions import Submissions
from colane.server.metrics.page import MetricsPage
from colane.server.notify.outbox import NotifyOutbox
from colane.server.parts import Parts
from colane.server.planning.asides import Asides
from colane.server.store.store import StoreError, SupersededError
from colane.server.tending.cleaning import Cleaning
from colane.server.tending.counting import ClusterWatch
from colane.server.tending.foreseeing import Foreseeing
from colane.server.tending.idle_jobs import IdleRuling
from colane.server.tending.teller import NotifyTeller
from colane.server.views.logs import LogReaders, Terminals
from colane.server.views.overview import OverviewMaker
from colane.settings.setting import SettingError

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Service(Parts):
    """What routes find in the application's state; made by `assembly`, which makes its parts."""

    overviews: OverviewMaker = field(init=False)
    metrics: MetricsPage = field(init=False)
    jobs: JobViews = field(init=False)
    attempts: Attempts = field(init=False)
    terminals: Terminals = field(init=False)
    job_changes: JobChanges = field(init=False)
    submissions: Submissions = field(init=False)
    forecasts: Forecasts = field(init=False)
    asides: Asides = field(init=False)
    nodes: Nodes = field(init=False)
    grants: Grants = field(init=False)
    leading: Leadership = field(init=False)
    health: Health = field(init=False)
    cleaning: Cleaning = field(init=False)
    counting: ClusterWatch = field(init=False)
    idle_ruling: IdleRuling = field(init=False)
    foreseeing: Foreseeing = field(init=False)
    log_readers: LogReaders = field(init=False, default_factory=LogReaders)
    reread: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        finder = JobFinder(self)
        self.overviews = OverviewMaker(self)
        self.metrics = MetricsPage(self.overviews)
        self.jobs = JobViews(self, self.overviews, finder)
        self.attempts = Attempts(self, finder)
        self.terminals = Terminals(self.http)
        self.job_changes = JobChanges(self)
        self.submissions = Submissions(self)
        self.forecasts = Forecasts(self, self.submissions, finder)
        self.asides = Asides(self)
        self.grants = Grants(self)
        self.leading = Leadership(self, self.grants)
        self.nodes = Nodes(self, self.grants, self.leading)
        self.health = Health(self, self.leading.behind)
        self.cleaning = Cleaning(self)
        self.counting = ClusterWatch(self, self.overviews)
        self.idle_ruling = IdleRuling(self, self.overviews)
        self.foreseeing = Foreseeing(self, self.forecasts)

    async def run(self) -> None:
        """Drive until `stop`, then let another scheduler lead; what comes out of it is a bug."""
        tending = (
            self.cleaning.clean, self.cleaning.scrub, self.cleaning.keep_samples, self.counting.run, self._notify,
            self.idle_ruling.run, self.grants.lower, self.foreseeing.run, self.asides.nightly,
        )  # fmt: skip
        tasks = [asyncio.create_task(tend()) for tend in tending]
        self.driver.lead.keep()
        try:
            await self.driver.run()
            await self._release()
        finally:
            self.driver.lead.end()
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await self.samples.flush(self.driver.now(), closing=True)
            await self.close()

    async def _notify(self) -> None:
        """Tell by the channels there are, and by others once they are read again."""
        outbox = NotifyOutbox(self.config.outbox)
        while True:
            self.reread.clear()
            telling, again = asyncio.create_task(self._tell(outbox)), asyncio.create_task(self.reread.wait())
            try:
                await again
            finally:
                for task in (telling, again):
                    task.cancel()
                await asyncio.gather(telling, again, return_exceptions=True)

    async def _tell(self, outbox: NotifyOutbox) -> None:
        if self.config.notify is not None:
            try:
                await NotifyTeller(self.overviews, self.config.notify, outbox).run()
            except Exception:  # jobs matter more than word of them
                log.exception("a fault: no more word is sent until the scheduler is started again")

    async def reload(self, caller: Caller) -> dict[str, bool]:
        """Read the files of limits and of channels again; which of the two now says something else.

        Raises:
            RefusedError: 422, a file says what cannot be: all stays as it was.
        """
        try:
            rules = await asyncio.to_thread(self.config.read)
        except SettingError as error:
            raise RefusedError.because(422, str(error)) from error

        def prepare(turn: Turn) -> dict[str, bool]:
            was, driver = self.config, self.driver
            self.config = replace(was, quotas=rules.quotas, pools=rules.pools, notify=rules.notify)
            driver.config = replace(driver.config, limits=rules.quotas)
            driver.keeper.limit(rules.quotas)
            driver.core.limit(rules.quotas)
            driver.keeper.tell_groups(turn, {job.spec.user for job in self.read_model.jobs.values()})
            turn.events.append(Tick())
            driver.keeper.tell_limits(turn, str(caller))
            self.reread.set()
            is_same = (was.quotas, was.pools) == (rules.quotas, rules.pools)
            return {"limits": not is_same, "notify": was.notify != rules.notify}

        return await self.driver.change(prepare)

    async def _release(self) -> None:
        try:
            await asyncio.to_thread(self.driver.lead.release)
        except (StoreError, SupersededError) as error:
            log.warning("another scheduler leads only once this one's lease has run out: %s", error)

    async def close(self) -> None:
        """Let go of what is open."""
        self.samples.close()
        self.forecasts.copies.close()
        await self.driver.notifier.close()
        await self.http.aclose()

    def end_streams(self) -> None:
        """Let followers of logs and events go, so that their connections can close."""
        self.stopping.set()
        self.feed.close()

    def stop(self) -> None:
        """End `run` once what waits is done."""
        self.end_streams()
        self.driver.stop()
