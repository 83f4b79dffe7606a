"""Talks with the scheduler, and knows what its silence and its refusals mean for the agent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from colane.agent.errors import AgentError, NotLaunchableError
from colane.agent.files.heard import KnownHistory, told_by
from colane.agent.files.jobdir import StateDir
from colane.agent.files.lease import since_boot_s
from colane.agent.link.messages import Scheduler, read_desired
from colane.agent.reconcile import Desired, Key
from colane.api.nodes import LaunchObject
from colane.api.reports import FinishedObject, RegistrationObject, ReportObject
from colane.client.errors import Refused, SchedulerError, SchedulerUnreachable
from colane.listening.seldom import Seldom
from colane.model.versions import own_version

# -- Which cluster this node's jobs are of: a scheduler whose records were lost counts its jobs from 1 again.


OLDER = (
    "a scheduler of this cluster that is older than the one this node follows answers (its start {told}, known is "
    "{known}): it is not obeyed. Two schedulers run; end the older one"
)


class Membership:
    """The cluster whose jobs are here, and what to do when the scheduler says that it is another one."""

    def __init__(self, state: StateDir) -> None:
        self._state = state
        self._refused = KnownHistory()

    def follow(self, cluster_id: str, desired: Desired, told: KnownHistory) -> Desired | None:
        """Return what shall run here, as far as that can be followed.

        Args:
            cluster_id: Of the scheduler that wants it; empty where it does not say.
            desired: What it wants.
            told: Its start, and how many events that cluster has had.

        Returns:
            The same; nothing at all while jobs of another cluster are still here: they end first. None where the
            scheduler is an older one of the same cluster than one that was followed: what it wants is out of date.
        """
        known = self._state.cluster_id
        if cluster_id in {"", known}:
            if self._is_older(told):
                return None
            self._state.note(told)
            return desired
        left = len(self._state.live()) if known else 0
        if left:
            log.warning("the scheduler is of another cluster than the %d jobs here: they are ended first", left)
            return replace(desired, jobs=())
        self._state.join(cluster_id)
        self._state.note(told)
        return desired

    def hears(self, cluster_id: str, told: KnownHistory) -> bool:
        """Take note of what came with another answer; False where it came from an older scheduler."""
        if cluster_id != self._state.cluster_id:
            return True
        if self._is_older(told):
            return False
        self._state.note(told)
        return True

    def _is_older(self, told: KnownHistory) -> bool:
        """Whether a newer start was heard of, or another with the same number.

        A scheduler on an older copy of the store is none of these: by what this node reports it knows, and says that it
        is of another cluster.
        """
        known = self._state.heard
        if not told.epoch or told.epoch > known.epoch or told.epoch_id == known.epoch_id:
            return False
        if told != self._refused:
            log.warning("%s", OLDER.format(told=told.epoch, known=known.epoch))
            self._refused = told
        return True


log = logging.getLogger(__name__)

NOT_FOUND, CONFLICT, GONE, SERVER_ERROR = 404, 409, 410, 500


class Contact:
    """One node's word with the scheduler. Jobs go on without it for their lease, and all is said again later."""

    def __init__(
        self, scheduler: Scheduler, name: str, describe: Callable[[], RegistrationObject], state: StateDir
    ) -> None:
        """Begin unregistered.

        Args:
            scheduler: The scheduler to talk with.
            name: The node's name.
            describe: Gives the node object to register with.
            state: The jobs here, and their lease.
        """
        self.followed = -1
        self._scheduler = scheduler
        self._name = name
        self._describe = describe
        self._membership = Membership(state)
        self._state = state
        self._registered = False
        self._reachable = True
        self._scheduler_version = own_version()
        self._seldom = Seldom()

    async def report(self, report: ReportObject) -> Desired | None:
        """Report, registering first where needed; what shall run, or None when the scheduler does not say.

        A lease that has run out is not renewed while any job of it is here that the scheduler does not know to be, and
        nothing is started: it may run elsewhere by now, and ends where it stands. Jobs that are still ours go on.
        Raises AgentError: another live agent has this node's name.
        """
        sent_s = since_boot_s()
        try:
            await self._register()
            sent_s = since_boot_s()
            node = await self._scheduler.report(self._name, report)
        except SchedulerUnreachable as error:
            self._note_silence(error)
            return None
        except SchedulerError as error:
            self._note_refusal(error)
            if isinstance(error, Refused) and error.lease_s is not None and not self._left_over():
                self._renew(sent_s, error.lease_s)
            return None
        if not self._reachable:
            log.warning("the scheduler answers again")
        self._reachable = True
        self._note_version(node.get("scheduler_version") or "")
        cluster_id, told, heard = node.get("cluster_id") or "", told_by(node), self._state.heard
        is_other = cluster_id not in {"", self._state.cluster_id} or told.epoch_id != heard.epoch_id
        desired = self._membership.follow(cluster_id, read_desired(node), told)
        if desired is None:
            return None
        if is_other:  # generations go back with a store that is put back, so they count within one start alone
            self.followed = -1
        left = self._left_over()
        if left - {job.key for job in desired.jobs} or (left and desired.generation < self.followed):
            return replace(desired, jobs=tuple(job for job in desired.jobs if job.key in left))
        halted = [self._state.job_dir(job.key).halt(told=job.halt) for job in desired.jobs]
        if all(halted) or not left:  # what stands by its lease alone must not go on in between
            self._renew(sent_s, node.get("lease_s"))
        return desired

    def describe_anew(self) -> None:
        """The node has other hardware than it was registered with."""
        self._registered = False

    async def finished(self, finished: FinishedObject) -> bool:
        """Tell that an attempt has ended; whether the scheduler knows now.

        Raises AgentError: another live agent has this node's name.
        """
        try:
            await self._register()
            answer = await self._scheduler.finished({**finished, "node": self._name})
        except SchedulerUnreachable as error:
            self._note_silence(error)
            return False
        except SchedulerError as error:
            log.warning("the end of job %s is told again later: %s", finished["id"], error)
            return False
        return self._membership.hears(answer.get("cluster_id") or "", told_by(answer))

    async def finished_together(self, ends: Sequence[FinishedObject]) -> bool | None:
        """Tell that attempts have ended, at most `ENDS_MAX`, with one request; whether the scheduler knows now.

        Returns:
            None where it refuses them as they are, as one does that is older: each is to be told alone.

        Raises:
            AgentError: Another live agent has this node's name.
        """
        try:
            await self._register()
            answer = await self._scheduler.finished_together([{**one, "node": self._name} for one in ends])
        except SchedulerUnreachable as error:
            self._note_silence(error)
            return False
        except SchedulerError as error:
            if error.status is not None and error.status < SERVER_ERROR:
                return None
            log.warning("the ends of %d jobs are told again later: %s", len(ends), error)
            return False
        return self._membership.hears(answer.get("cluster_id") or "", told_by(answer))

    async def launch_info(self, key: Key) -> LaunchObject | None:
        """Give what is needed to start an attempt; None when the scheduler does not say, or wants another one.

        Raises NotLaunchableError: the scheduler does not know any more what it would have been.
        """
        try:
            launch = await self._scheduler.launch_info(key.job)
        except SchedulerUnreachable as error:
            self._note_silence(error)
            return None
        except SchedulerError as error:
            if error.status == GONE:
                raise NotLaunchableError(str(error)) from error
            log.warning("job %s is not started: %s", key, error)
            return None
        return launch if launch["attempt"] == key.attempt else None

    async def _register(self) -> None:
        if self._registered:
            return
        try:
            await self._scheduler.register(self._describe())
        except SchedulerUnreachable:
            raise
        except SchedulerError as error:
            if error.status == CONFLICT:
                raise AgentError(f"the scheduler refuses node {self._name!r}: {error}") from error
            raise
        # A scheduler that has only now come to know us counts generations from its own beginning.
        self._registered, self.followed = True, -1

    def _left_over(self) -> frozenset[Key]:
        """Jobs that have not ended though their lease has."""
        if not self._state.lease.has_run_out(since_boot_s()):
            return frozenset()
        return frozenset(job.key for job in self._state.live() if not job.has_ended())

    def _renew(self, sent_s: float, lease_s: float | None) -> None:
        try:
            self._state.lease.renew(sent_s, lease_s)
        except OSError as error:
            log.warning("the jobs' lease could not be renewed: %s", error)

    def _note_version(self, version: str) -> None:
        if version and version != self._scheduler_version:
            log.warning("the scheduler is Colane %s, this agent %s", version, own_version())
            self._scheduler_version = version

    def _note_silence(self, error: SchedulerUnreachable) -> None:
        if self._reachable:
            log.warning("the scheduler does not answer, jobs go on without it: %s", error)
        self._reachable = False

    def _note_refusal(self, error: SchedulerError) -> None:
        if (line := self._seldom.due(f"the scheduler refuses this report: {error}")) is not None:
            log.warning("%s", line)
        if error.status in {NOT_FOUND, CONFLICT}:  # it forgot us, or gave our name away: registering will tell
            self._registered = False
