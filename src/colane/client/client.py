"""A synchronous client of the scheduler, for the command line and scripts. httpx is imported with the first call."""

from __future__ import annotations

import hashlib
import json
import secrets
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from colane.client.errors import Refused, SchedulerUnreachable, refused
from colane.client.light_httpx import prepare_httpx
from colane.client.locate import UNIX, find_token, find_url

if TYPE_CHECKING:
    import ssl
    from types import TracebackType

    import httpx

    from colane.api.jobs import JobIdAnswer, JobIdsAnswer, JobObject, JobRequestObject, ListingAnswer, WhyAnswer
    from colane.api.nodes import NodeObject, RemovedNodesAnswer
    from colane.api.records import (
        ForgottenAnswer,
        HealthAnswer,
        MeasurementObject,
        ProfileObject,
        TokenObject,
        UsageObject,
    )

TIMEOUT_S: Final = 60.0
"""Ten thousand jobs in one request take a few seconds."""

RETRIES: Final = 2
"""A request whose answer was lost is sent again with the same idempotency key."""

TOKEN_BYTES: Final = 32
"""Of chance in a token: too many to try them all."""

PAGE_JOBS: Final = 1_000
Read = TypeVar("Read")


class LogPart(NamedTuple):
    """Part of a log and the offset behind it."""

    data: bytes
    next_offset: int


class Event(NamedTuple):
    """A change, as `/events` tells it. The body of each kind has its type in `colane.api.events`, and `at_s`."""

    number: int
    kind: str
    body: Any


class Client:
    """Talks to one scheduler.

    Every method raises `SchedulerUnreachable` when there is no answer and `Refused` when it is a refusal.

    Args:
        url: Base URL; None finds it (`colane.client.locate.find_url`).
        token: None takes what `locate.find_token` finds.
        timeout_s: For each request.
    """

    def __init__(self, url: str | None = None, token: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self.url = (url or find_url()).rstrip("/")
        self._token = token or find_token(self.url)
        self._timeout_s = timeout_s
        self._base, self._socket = address_of(self.url)
        self._connection: httpx.Client | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- jobs

    def submit(self, job: Mapping[str, Any]) -> int:
        """Submit one job and return its id."""
        answer: JobIdAnswer = self._change("POST", "/job", job)
        return answer["id"]

    def submit_batch(self, jobs: Sequence[Mapping[str, Any]]) -> list[int]:
        """Submit jobs, all or none, and return their ids in order."""
        answer: JobIdsAnswer = self._change("POST", "/jobs", list(jobs))
        return answer["ids"]

    def queued(self) -> list[JobObject]:
        """Return all queued jobs in order."""
        return list(self._get("/jobs"))

    def live_jobs(self) -> list[JobObject]:
        """Return all jobs that have not ended, with progress."""
        return list(self._get("/live_jobs"))

    def listing(
        self,
        limit: int,
        *,
        ended: bool = False,
        user: str | None = None,
        labels: Mapping[str, str] | None = None,
        elements: bool = False,
    ) -> ListingAnswer:
        """Return `jobs` as a screen shows them, at most `limit` that run, wait, have ended, and who is `left_out`.

        An array stands for its elements, unless these are asked for.
        """
        label = [f"{name}={value}" for name, value in (labels or {}).items()]
        asked = {"limit": limit, "ended": ended, "label": label, **_without_none(user=user)}
        listed: ListingAnswer = self._get("/listing", **asked, **({"elements": True} if elements else {}))
        return listed

    def job(self, job_id: int) -> JobObject:
        """Return a job, live or ended."""
        job: JobObject = self._get(f"/job/{job_id}")
        return job

    def request(self, job_id: int) -> JobRequestObject:
        """Return the request by which a job like this one of the caller's is submitted, without an environment."""
        return dict(self._get(f"/job/{job_id}/request"))

    def why(self, job_id: int) -> WhyAnswer:
        """Return why a job is where it is."""
        reason: WhyAnswer = self._get(f"/job/{job_id}/why")
        return reason

    def cancel(self, job_id: int, by: str | None = None, *, elements: str | None = None) -> None:
        """Cancel a job; of an array, only the elements with these indexes where some are given, as `3,7-9`."""
        self._change("DELETE", f"/job/{job_id}", None, _without_none(by=by, elements=elements))

    def requeue(self, job_id: int, by: str | None = None) -> None:
        """Take a running job off its GPUs; it is queued again, and goes on from what it has saved."""
        self._change("POST", f"/job/{job_id}/requeue", {}, _without_none(by=by))

    def suspend(self, job_id: int, by: str | None = None, *, to_host: bool = False) -> None:
        """Keep a job from going on; `to_host` moves its GPU memory to the host besides."""
        self._change("POST", f"/job/{job_id}/suspend", {"to_host": True} if to_host else {}, _without_none(by=by))

    def resume(self, job_id: int, by: str | None = None, *, at: str | None = None) -> None:
        """Let a suspended job go on; one that waits, not before a time such as `now+2h` or `16:00`."""
        self._change("POST", f"/job/{job_id}/resume", _without_none(at=at), _without_none(by=by))

    def cancel_queued(self, by: str | None = None) -> list[int]:
        """Cancel all queued jobs and return their ids."""
        answer: JobIdsAnswer = self._change("DELETE", "/jobs", None, _without_none(by=by))
        return answer["ids"]

    def log(self, job_id: int, offset: int = 0, limit: int | None = None, attempt: int | None = None) -> LogPart:
        """Return a range of the log of an attempt, the latest if none is named; negative offsets count from its end."""
        params = _without_none(offset=offset, limit=limit, attempt=attempt)
        answer = self._ask("GET", f"/job/{job_id}/log", params=params)
        return LogPart(answer.content, int(answer.headers["X-Colane-Next-Offset"]))

    def follow_log(self, job_id: int, offset: int = 0) -> Iterator[bytes]:
        """Yield the log of a job's latest attempt, and of further ones, as it grows, until the job has ended."""
        return self._log_stream(job_id, offset=offset, follow="true")

    def logs(
        self, job_id: int, attempt: int | None = None, offset: int = 0, *, joined: bool = True, follow: bool = False
    ) -> Iterator[bytes]:
        """Yield the logs of all attempts from one on, a line that says why one ended between two, or of that one alone.

        Args:
            job_id: The job.
            attempt: Where to begin; None for the first, or where they are not joined for the latest.
            offset: Where in that one's log.
            joined: Whether those of further attempts follow.
            follow: Whether to go on until the job, or that one attempt, has ended.
        """
        told = {name: "true" for name, is_so in (("joined", joined), ("follow", follow)) if is_so}
        return self._log_stream(job_id, offset=offset, **told, **_without_none(attempt=attempt))

    def _log_stream(self, job_id: int, **params: Any) -> Iterator[bytes]:  # noqa: ANN401 - query parameters
        with self._stream(f"/job/{job_id}/log", params) as answer:
            yield from answer.iter_bytes()

    def finished_jobs(self, after: int = 0, labels: Mapping[str, str] | None = None) -> Iterator[JobObject]:
        """Yield the records of finished jobs with ids above `after` that carry all labels, in order of id."""
        label = [f"{name}={value}" for name, value in (labels or {}).items()]
        while page := list(self._get("/finished_jobs", after=after, limit=PAGE_JOBS, label=label)):
            yield from page
            after = page[-1]["id"]

    def remove_finished(self) -> None:
        """Forget all finished jobs."""
        self._change("DELETE", "/finished_jobs")

    # -- nodes and knowledge

    def nodes(self) -> list[NodeObject]:
        """Return all nodes."""
        return list(self._get("/nodes"))

    def node(self, name: str) -> NodeObject:
        """Return a node."""
        node: NodeObject = self._get(f"/node/{name}")
        return node

    def remove_nodes(self) -> list[str]:
        """Forget all nodes; refused while jobs are assigned."""
        answer: RemovedNodesAnswer = self._change("DELETE", "/nodes")
        return answer["removed"]

    def drain(self, name: str, *, deadline_s: float | None = None, reason: str = "") -> None:
        """Let a node take no new jobs, and its jobs go; those still there after so many seconds are stopped."""
        self._change("POST", f"/node/{name}/drain", _without_none(deadline_s=deadline_s, reason=reason))

    def undrain(self, name: str) -> None:
        """Let a node take jobs again."""
        self._change("DELETE", f"/node/{name}/drain")

    def profiles(self) -> list[ProfileObject]:
        """Return all profiles."""
        return list(self._get("/profiles"))

    def declare_profile(self, profile: Mapping[str, Any]) -> None:
        """Declare what is known of a family."""
        self._change("PUT", "/profiles", profile)

    def forget_profiles(self, family: str) -> int:
        """Forget all that is known of a family; return how many profiles, measured sets and lengths that were."""
        answer: ForgottenAnswer = self._change("DELETE", "/profiles", params={"family": family})
        return answer["forgotten"]

    def measurements(self) -> list[MeasurementObject]:
        """Return all sets of jobs measured together."""
        return list(self._get("/measurements"))

    def health(self) -> HealthAnswer:
        """Return the scheduler's state in numbers."""
        health: HealthAnswer = self._get("/health")
        return health

    def events(self, after: int | None = None) -> Iterator[Event]:
        """Yield every change from behind a number, or from now on; ends when the scheduler stops."""
        with self._stream("/events", _without_none(after=after)) as answer:
            yield from read_events(answer.iter_lines())

    def usage(self, since_s: float = 0.0) -> list[UsageObject]:
        """Return what users have had since a unix time, and what they have now."""
        return list(self._get("/usage", since_s=max(0.0, since_s)))

    # -- tokens

    def tokens(self) -> list[TokenObject]:
        """Return what is known of tokens: an operator's client of all, a user's of that user's own."""
        return list(self._get("/tokens"))

    def make_token(self, *, user: str | None = None, node: str | None = None, role: str | None = None) -> str:
        """Make a token for a user or for the agent of a node, and return it: it is kept nowhere else."""
        token = secrets.token_urlsafe(TOKEN_BYTES)
        digest = hashlib.sha256(token.encode()).hexdigest()
        self._change("POST", "/tokens", {"digest": digest, **_without_none(user=user, node=node, role=role)})
        return token

    def revoke_token(self, token_id: str) -> None:
        """Let a token count no longer."""
        self._change("DELETE", f"/token/{token_id}")

    # -- HTTP

    def _get(self, path: str, **params: Any) -> Any:  # noqa: ANN401 - JSON
        return self._ask("GET", path, params=params).json()

    def _change(self, method: str, path: str, body: object = None, params: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            headers["Content-Type"] = "application/json"
        for attempt in range(RETRIES + 1):
            try:
                return self._ask(method, path, content=content, headers=headers, params=params).json()
            except SchedulerUnreachable as error:
                if attempt == RETRIES or not error.was_sent:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401 - passed through
        answer = self._reach(lambda http: http.request(method, self._base + path, **options))
        if not answer.is_success:
            raise refused(answer.status_code, _json(answer))
        return answer

    @contextmanager
    def _stream(self, path: str, params: Mapping[str, Any]) -> Iterator[httpx.Response]:
        prepare_httpx()
        import httpx  # noqa: PLC0415 - imported late

        quiet = httpx.Timeout(self._timeout_s, read=None)
        request = self._http().build_request("GET", self._base + path, params=params, timeout=quiet)
        answer = self._reach(lambda http: http.send(request, stream=True))
        try:
            if not answer.is_success:
                answer.read()
                raise refused(answer.status_code, _json(answer))
            try:
                yield answer
            except httpx.HTTPError as error:
                raise SchedulerUnreachable(self.url, "the connection broke", was_sent=True) from error
        finally:
            answer.close()

    def _reach(self, call: Callable[[httpx.Client], Read]) -> Read:
        prepare_httpx()
        import httpx  # noqa: PLC0415 - imported late

        try:
            return call(self._http())
        except httpx.ConnectError as error:
            raise SchedulerUnreachable(self.url, str(error)) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            cause = str(error) or type(error).__name__
            raise SchedulerUnreachable(self.url, cause, was_sent=True) from error

    def _http(self) -> httpx.Client:
        if self._connection is None:
            prepare_httpx()
            import httpx  # noqa: PLC0415 - imported late

            headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
            self._connection = httpx.Client(
                transport=None if self._socket is None else httpx.HTTPTransport(uds=self._socket),
                headers=headers,
                timeout=self._timeout_s,
                trust_env=False,
                verify=_trust(self.url),
            )
        return self._connection


def _trust(url: str) -> ssl.SSLContext | bool:
    """What is trusted of https; reading the certificates takes 20 ms, and http has none."""
    if not url.startswith("https:"):
        return False
    from colane.client.tls import trusted  # noqa: PLC0415 - imported late

    return trusted()


def address_of(url: str) -> tuple[str, str | None]:
    """Return what requests to a scheduler begin with, and the path of its socket, None for TCP."""
    return ("http://localhost", url.removeprefix(UNIX)) if url.startswith(UNIX) else (url, None)


def read_events(lines: Iterator[str]) -> Iterator[Event]:
    """Yield events from the lines of a `text/event-stream`; comments and other fields are passed over."""
    fields: dict[str, str] = {}
    for line in lines:
        if line and not line.startswith(":"):
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif not line and "data" in fields:
            yield Event(int(fields.get("id", 0)), fields.get("event", "message"), json.loads(fields["data"]))
            fields = {}


def _without_none(**values: Any) -> dict[str, Any]:  # noqa: ANN401 - query parameters
    return {name: value for name, value in values.items() if value is not None}


def _json(answer: httpx.Response) -> Any:  # noqa: ANN401 - whatever JSON the answer holds
    try:
        return answer.json()
    except ValueError:
        return None


__all__ = ["Client", "Event", "LogPart", "Refused", "SchedulerUnreachable", "read_events"]
