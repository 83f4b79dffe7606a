"""From changes to messages: reads the events that all may follow, in its own time, and sends what channels tell."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import httpx

from colane.client.tls import trusted
from colane.facts.job import start_in_s
from colane.model.job import ENDED, Job, JobId, JobState
from colane.model.words import count
from colane.server.notify.channels import MAIL, OWNERS, Happening, NotifyChannel, NotifyConfig
from colane.server.notify.outbox import NotifyOutbox, Waiting
from colane.server.notify.ways import NotSentError, send
from colane.server.store import documents
from colane.server.store.store import FINISHED_JOBS, AuditLine, Document, StoreError, job_key
from colane.server.store.unreadable import read_one
from colane.server.views.look import span
from colane.server.views.overview import OverviewMaker

LOOK_EVERY_S: Final = 30.0
SOON_S: Final = 600.0
SOON_LOOK_EVERY_S: Final = 60.0
AGAIN_MIN_S: Final = 1.0
AGAIN_MAX_S: Final = 900.0
KEPT_S: Final = 2 * 86_400.0  # a message that could not be sent for so long is let go of

FAILED: Final = frozenset({JobState.FAILED, JobState.OUT_OF_MEMORY, JobState.TIMED_OUT})
HAPPENED: Final[Mapping[str | None, Happening]] = MappingProxyType(
    {"started": Happening.START, "taken-off": Happening.PREEMPTED, "parked-idle": Happening.IDLE}
)
log = logging.getLogger(__name__)


def happening_of(line: AuditLine) -> Happening | None:
    """What a change tells of a job; None where it tells nothing. Of an array's elements only failures are told."""
    if line.kind != "job":
        return None
    body = line.body
    found = HAPPENED.get(body.get("happened"))
    if body["state"] in ENDED:
        found = Happening.FAILURE if body["state"] in FAILED else Happening.END
    return found if body.get("element") is None or found is Happening.FAILURE else None


class NotifyTeller:
    """Turns changes into messages, and sends them.

    Args:
        overviews: Tells which jobs are idle.
        config: The channels.
        outbox: What is yet to be sent.
        http: By which webhooks are asked; None makes one.
    """

    def __init__(
        self,
        overviews: OverviewMaker,
        config: NotifyConfig,
        outbox: NotifyOutbox,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._overviews = overviews
        self._parts = overviews.parts
        self._config = config
        self.outbox = outbox
        self._http = http or httpx.AsyncClient(trust_env=False, verify=trusted())
        self._saving = asyncio.Lock()
        self._news = {channel.name: asyncio.Event() for channel in config.channels}

    async def run(self) -> None:
        """Tell, until it is cancelled. A channel that hangs delays no other, and nothing else either."""
        tending = [
            self._follow(),
            self._watch_idle(),
            self._watch_soon(),
            *(self._deliver(one) for one in self._config.channels),
        ]
        tasks = [asyncio.create_task(part) for part in tending]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                if not task.cancelling():  # one that ends its last write would leave that by a second call
                    task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._http.aclose()

    async def _follow(self) -> None:
        feed = self._parts.feed
        if self.outbox.seen is None or self.outbox.seen > feed.last_number:
            self.outbox.seen = feed.last_number  # what was before the first start with channels is told no more
        async for lines in feed.batches(self.outbox.seen):
            for line in lines:
                happening = happening_of(line)
                if happening is not None:
                    job = await self._job(JobId(line.body["job"]))
                    if job is not None:
                        message = message_of(job, happening, line.at_s, line.body["state"], line.body["sentence"])
                        self._add(job, happening, {**message, "id": f"{self._parts.history.cluster_id}-{line.number}"})
            self.outbox.seen = lines[-1].number
            await self._save()

    async def _save(self) -> None:
        async with self._saving:
            writing = asyncio.ensure_future(asyncio.to_thread(self.outbox.write, self.outbox.text()))
            try:
                await asyncio.shield(writing)
            except OSError as error:
                log.warning("what is yet to be told is not kept: %s", error)
            except asyncio.CancelledError:
                await asyncio.gather(writing, return_exceptions=True)  # the next one to write must not meet it
                raise

    async def _job(self, job_id: JobId) -> Job | None:
        live = self._parts.read_model.jobs.get(job_id)
        if live is not None:
            return live
        try:
            return await asyncio.to_thread(lambda: read_one(self._parts.store, FINISHED_JOBS, job_key(job_id), _job))
        except StoreError:  # one that is forgotten, or cannot be read: whose it was is not known
            return None

    def _add(self, job: Job, happening: Happening, message: Waiting) -> None:
        for channel in self._config.channels:
            if channel.tells(happening, job.spec.user, job.spec.labels):
                to = {"mail": job.spec.labels[MAIL]} if channel.mail == OWNERS else {}
                self.outbox.add(channel.name, {**message, **to})
                self._news[channel.name].set()

    async def _watch_idle(self) -> None:
        while True:
            await self.look_for_idle()
            await asyncio.sleep(LOOK_EVERY_S)

    async def look_for_idle(self) -> None:
        """Tell of jobs that have become idle, of each once for each time it is."""
        parts, now_s = self._parts, self._parts.driver.now()
        idle = {JobId(one["job"]): one for one in self._overviews.idle(now_s)}
        told = {job: since_s for job, since_s in self.outbox.idle_told.items() if job in idle}
        fresh = [one for job, one in idle.items() if told.get(job) != one["since_s"]]
        for one in fresh:
            job = parts.read_model.jobs[JobId(one["job"])]
            said = f"idle for {span(one['idle_s'])}: no step, no kernel, {count(len(job.gpus_held), 'GPU')} held"
            message = message_of(job, Happening.IDLE, now_s, job.state.value, said)
            self._add(job, Happening.IDLE, {**message, "id": f"{parts.history.cluster_id}-idle-{job.id}-{now_s:.0f}"})
            told[one["job"]] = one["since_s"]
        self.outbox.idle_told = dict(told)
        if fresh:
            await self._save()

    async def _watch_soon(self) -> None:
        while any(Happening.SOON in channel.on for channel in self._config.channels):
            await self.look_for_soon()
            await asyncio.sleep(SOON_LOOK_EVERY_S)

    async def look_for_soon(self) -> None:
        """Tell of jobs that start within `SOON_S` by what is foreseen, of each once for each attempt."""
        parts, told, jobs = self._parts, self.outbox.soon_told, self._parts.read_model.jobs
        driver, is_news = parts.driver, False
        for gone in told.keys() - jobs.keys():
            del told[gone]
        for job in [job for job in jobs.values() if self._may_start_soon(job)]:
            left_s = start_in_s(driver.shown.get(job.id), driver.now())
            if left_s is not None and 0 < left_s <= SOON_S:  # one that could start at once is about to
                said = f"starts in about {span(left_s)}, by what is known of the jobs that run"
                message = message_of(job, Happening.SOON, driver.now(), job.state.value, said)
                number = f"{parts.history.cluster_id}-soon-{job.id}-{job.attempt}"
                self._add(job, Happening.SOON, {**message, "id": number})
                told[job.id], is_news = job.attempt, True
        if is_news:
            await self._save()

    def _may_start_soon(self, job: Job) -> bool:
        if job.state is not JobState.QUEUED or job.array is not None or job.element is not None or job.holds:
            return False
        is_wanted = any(one.tells(Happening.SOON, job.spec.user, job.spec.labels) for one in self._config.channels)
        return is_wanted and self.outbox.soon_told.get(job.id) != job.attempt

    async def _deliver(self, channel: NotifyChannel) -> None:
        wait_s, news = AGAIN_MIN_S, self._news[channel.name]
        while True:
            waiting = self.outbox.pending.get(channel.name)
            if not waiting:
                news.clear()
                await news.wait()
                continue
            message = waiting[0]
            try:
                await send(channel, self._config, shown(message), self._http)
            except NotSentError as error:
                if time.time() < message["first_s"] + KEPT_S:
                    log.warning("channel %s: %s is told again in %g s: %s", channel.name, message["id"], wait_s, error)
                    await asyncio.sleep(wait_s)
                    wait_s = min(AGAIN_MAX_S, 2 * wait_s)
                    continue
                log.warning("channel %s: %s is not told, as that failed for two days", channel.name, message["id"])
            wait_s = AGAIN_MIN_S
            if waiting and waiting[0] is message:
                waiting.popleft()
            await self._save()


def message_of(job: Job, happening: Happening, at_s: float, state: str, sentence: str) -> Waiting:
    """Return what is told of a job; `text` alone is enough for people, and is what Slack and its like show."""
    name = f" {job.spec.name}" if job.spec.name else ""
    of = f" of {job.spec.user}" if job.spec.user else ""
    text = f"job {job.said}{name}{of} {WORDS[happening]} ({state}): {sentence}"
    return {
        "event": happening.value,
        "at_s": at_s,
        "job": job.id,
        "name": job.spec.name,
        "user": job.spec.user,
        "state": state,
        "sentence": sentence,
        "text": "".join(one if one.isprintable() else " " for one in text),
        "first_s": time.time(),
    }


def _job(ended: Document) -> Job:
    return documents.decode_job(ended["job"])


WORDS: Final = {
    Happening.START: "has started",
    Happening.END: "has ended",
    Happening.FAILURE: "has failed",
    Happening.IDLE: "is idle",
    Happening.PREEMPTED: "was taken off its devices",
    Happening.SOON: "is about to start",
}


def shown(message: Waiting) -> dict[str, Any]:
    """Return a message as it is sent."""
    return {name: value for name, value in message.items() if name != "first_s"}
