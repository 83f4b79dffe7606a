"""A synchronous client of the scheduler, for the command line and scripts. httpx is imported with the first call."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from colane.client.errors import Refused, SchedulerUnreachable, refused
from colane.client.light_httpx import prepare_httpx
from colane.client.locate import UNIX, find_token, find_url, urls_of, web_url
from colane.verbs.of_jobs import CANCEL, CHANGE, JobVerb
from colane.verbs.of_others import (
    ADOPT_STORE,
    DECLARE_PROFILE,
    DRAIN,
    FORGET_PROFILES,
    HAND_OVER,
    MAKE_TOKEN,
    RELOAD,
    REMOVE_FINISHED,
    REMOVE_NODE,
    REMOVE_NODES,
    RESERVE,
    REVOKE_TOKEN,
    UNDRAIN,
    UNRESERVE,
    Verb,
)

if TYPE_CHECKING:
    import ssl
    from types import TracebackType

    import httpx

    from colane.api.jobs import JobIdAnswer, JobIdsAnswer, JobObject, JobRequestObject, ListingAnswer, WhyAnswer
    from colane.api.nodes import (
        AgentSettingsAnswer,
        NodeObject,
        PoolObject,
        QosObject,
        RemovedNodesAnswer,
        ReservedObject,
    )
    from colane.api.of_record import MeasurementObject, ProfileObject
    from colane.api.plans import PlanAnswer, StartAnswer, SubmittedAnswer
    from colane.api.records import (
        AdoptedAnswer,
        ForgottenAnswer,
        HealthAnswer,
        ReloadedAnswer,
        TokenObject,
        UsageObject,
    )
    from colane.api.samples import NodeSamplesAnswer
    from colane.api.seeing import ActCostObject, BudgetObject, EfficiencyAnswer, OverviewAnswer, SharedDayObject
    from colane.api.stacks import StacksAnswer

PORT_MAX: Final = 65_535
TIMEOUT_S: Final = 60.0  # ten thousand jobs in one request take a few seconds

RETRIES: Final = 2  # a request whose answer was lost is sent again with the same idempotency key

TOKEN_BYTES: Final = 32  # of chance in a token: too many to try them all

PAGE_JOBS: Final = 1_000

ELSEWHERE: Final = frozenset({307, 503})
"""Answers of a scheduler that does not lead, or cannot tell whether it does: where others are known, they are asked."""
MOVED: Final = 307
NOT_FOUND: Final = 404
ASKED_AT_ONCE: Final = frozenset({"/health", "/plan"})  # paths whose 503 says what is asked
ANSWER_MAX_S: Final = 8.0  # where several schedulers are known, the next is asked after so long: this one may be frozen
CONNECT_MAX_S: Final = 2.0
SILENT_S: Final = 6.0  # one that did not answer in time is asked again only after so long, where another answers at all
TURN_MAX_S: Final = 20.0  # so long all schedulers that are known are asked in turn; a standby leads within its lease
TURN_PAUSE_S: Final = 0.1
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
        url: Base URL; None finds it (`colane.client.locate.find_url`). Of several, with commas between, the one that
            leads is asked.
        token: None takes what `locate.find_token` finds.
        timeout_s: For each request.
        through: Name of the program through which the caller acts, for the stories of jobs.
    """

    def __init__(
        self, url: str | None = None, token: str | None = None, *, timeout_s: float = TIMEOUT_S, through: str = ""
    ) -> None:
        self.url = (url or find_url()).rstrip("/")
        self._token = token or find_token(self.url)
        self._timeout_s = timeout_s
        self._through = through
        self._places = [_SchedulerPlace(each, *address_of(each)) for each in urls_of(self.url)]
        self._connections: dict[_SchedulerPlace, httpx.Client] = {}
        self._silent_until_s: dict[_SchedulerPlace, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        while self._connections:
            self._connections.popitem()[1].close()

    # -- jobs

    def submit(self, job: Mapping[str, Any], if_plan: str | None = None) -> int:
        """Submit one job and return its id; with the index of a plan, only while that still holds."""
        answer: JobIdAnswer = self._change("POST", "/job", job, _without_none(if_plan=if_plan))
        return answer["id"]

    def submit_told(self, job: Mapping[str, Any], if_plan: str | None = None) -> SubmittedAnswer:
        """The same, and when it starts; an older scheduler tells its id alone."""
        answer: SubmittedAnswer = self._change("POST", "/job", job, {"start": "true", **_without_none(if_plan=if_plan)})
        return answer

    def submit_batch(self, jobs: Sequence[Mapping[str, Any]], if_plan: str | None = None) -> list[int]:
        """Submit jobs, all or none, and return their ids in order; with the index of a plan, only while that holds."""
        answer: JobIdsAnswer = self._change("POST", "/jobs", list(jobs), _without_none(if_plan=if_plan))
        return answer["ids"]

    def plan(self, jobs: Sequence[Mapping[str, Any]]) -> PlanAnswer:
        """Return what would become of jobs if they were submitted now; nothing is."""
        plan: PlanAnswer = self._change("POST", "/plan", list(jobs))
        return plan

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
        """Return `jobs` as a screen shows them, at most `limit` that run, wait, have ended; `left_out` counts others.

        An array stands for its elements, unless these are asked for.
        """
        label = [f"{name}={value}" for name, value in (labels or {}).items()]
        asked = {"limit": limit, "ended": ended, "label": label, **_without_none(user=user)}
        listed: ListingAnswer = self._get("/listing", **asked, **({"elements": True} if elements else {}))
        return listed

    def last_job(self, back: int = 0) -> int:
        """Return the id of the job that the caller submitted last, or of the one so many before it."""
        return int(self._get("/last_job", back=back)["id"])

    def job(self, job_id: int) -> JobObject:
        """Return a job, live or ended."""
        job: JobObject = self._get(f"/job/{job_id}")
        return job

    def request(self, job_id: int) -> JobRequestObject:
        """Return the request by which a job like this one of the caller's is submitted, without an environment."""
        return dict(self._get(f"/job/{job_id}/request"))

    def why(self, job_id: int, *, not_on: str = "", not_now: bool = False, instead: int | None = None) -> WhyAnswer:
        """Return why a job is where it is, and of one that waits why not on a node, not now, or not instead of one."""
        asked = {"not_on": not_on or None, "not_now": not_now or None, "instead": instead}
        reason: WhyAnswer = self._get(f"/job/{job_id}/why", **_without_none(**asked))
        return reason

    def start_of(self, job_id: int, *, changes: bool = True) -> StartAnswer:
        """Return when a job that waits would start, and if wanted with which changes of its needs at once."""
        start: StartAnswer = self._get(f"/job/{job_id}/start", **({} if changes else {"changes": False}))
        return start

    def act(self, verb: JobVerb | Verb, of: int | str = "", by: str | None = None, **given: Any) -> Any:  # noqa: ANN401 - JSON
        """Do to a job, a node or another what a verb says, and return the answer.

        Args:
            verb: A row.
            of: Id or name of what it is done to.
            by: Who asks, of a job.
            **given: Its arguments, as the API names them; None is left out.
        """
        said = {name: value for name, value in given.items() if value is not None}
        query = {name: said.pop(name) for name in given if name in verb.in_query and name in said}
        body = None if verb.method == "DELETE" else said
        return self._change(verb.method, verb.path_of(of), body, _without_none(by=by) | query)

    def cancel(self, job_id: int, by: str | None = None, *, elements: str | None = None) -> None:
        """Cancel a job; of an array, only the elements with these indexes where some are given, as `3,7-9`."""
        self.act(CANCEL, job_id, by, elements=elements)

    def change(self, job_id: int, limits: Mapping[str, Any], by: str | None = None) -> None:
        """Give a live job other limits: `time_limit_s`, or `at_once` for an array; None takes one away."""
        self._change(CHANGE.method, CHANGE.path_of(job_id), limits, _without_none(by=by))

    def stacks(self, job_id: int, *, text: bool = True) -> StacksAnswer:
        """Return where the processes of a running job are in their code, with their stacks unless `text` is False."""
        answer: StacksAnswer = self._get(f"/job/{job_id}/stacks", text=str(text).lower())
        return answer

    def cancel_queued(self, by: str | None = None, *, user: str | None = None) -> list[int]:
        """Cancel all queued jobs, or those of a user, and return their ids."""
        answer: JobIdsAnswer = self._change("DELETE", "/jobs", None, _without_none(by=by, user=user))
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

    def terminal(self, job_id: int, said: Mapping[str, Any], typed: bytes = b"") -> LogPart:
        """Type at a job's terminal, and return what it shows.

        Args:
            job_id: The job.
            said: Fields of `TerminalBody`.
            typed: Bytes, at most `TYPED_MAX_BYTES` of `colane.api.terminals`.
        """
        body = {"typed": base64.b64encode(typed).decode(), **said}
        answer = self._ask(
            "POST", f"/job/{job_id}/terminal", content=json.dumps(body), headers={"Content-Type": "application/json"}
        )
        return LogPart(answer.content, int(answer.headers["X-Colane-Next-Offset"]))

    def finished_jobs(self, after: int = 0, labels: Mapping[str, str] | None = None) -> Iterator[JobObject]:
        """Yield the records of finished jobs with ids above `after` that carry all labels, in order of id."""
        label = [f"{name}={value}" for name, value in (labels or {}).items()]
        while page := list(self._get("/finished_jobs", after=after, limit=PAGE_JOBS, label=label)):
            yield from page
            after = page[-1]["id"]

    def remove_finished(self) -> None:
        """Forget all finished jobs."""
        self.act(REMOVE_FINISHED)

    # -- nodes and knowledge

    def nodes(self) -> list[NodeObject]:
        """Return all nodes."""
        return list(self._get("/nodes"))

    def pools(self) -> dict[str, PoolObject]:
        """Return what the jobs of each pool may be, by name; nothing of a scheduler that tells of none."""
        try:
            told: list[PoolObject] = self._get("/pools")
        except Refused as refused:
            if refused.status != NOT_FOUND:
                raise
            return {}
        return {pool["name"]: pool for pool in told}

    def node(self, name: str) -> NodeObject:
        """Return a node."""
        node: NodeObject = self._get(f"/node/{name}")
        return node

    def node_if_known(self, name: str) -> NodeObject | None:
        """Return one node; None where there is none of that name."""
        try:
            return self.node(name)
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def remove_nodes(self) -> list[str]:
        """Forget all nodes; refused while jobs are assigned."""
        answer: RemovedNodesAnswer = self.act(REMOVE_NODES)
        return answer["removed"]

    def remove_node(self, name: str, *, is_gone: bool = False) -> None:
        """Forget a node; refused while its agent reports and has jobs, unless it is known to be gone with them."""
        self.act(REMOVE_NODE, name, gone="true" if is_gone else None)

    def drain(self, name: str, *, deadline_s: float | None = None, reason: str = "") -> None:
        """Let a node take no new jobs, and its jobs go; those still there after so many seconds are stopped."""
        self.act(DRAIN, name, deadline_s=deadline_s, reason=reason)

    def undrain(self, name: str) -> None:
        """Let a node take jobs again."""
        self.act(UNDRAIN, name)

    def qos(self) -> list[QosObject]:
        """Return how jobs may be served."""
        return list(self._get("/qos"))

    def reservations(self) -> list[ReservedObject]:
        """Return for which users nodes are kept, and from when to when."""
        return list(self._get("/reservations"))

    def reserve(self, **asked: Any) -> ReservedObject:  # noqa: ANN401 - JSON
        """Keep nodes for jobs of some users for a time; fields as of `POST /reservations`."""
        made: ReservedObject = self.act(RESERVE, **asked)
        return made

    def unreserve(self, name: str) -> None:
        """Keep nodes no longer."""
        self.act(UNRESERVE, name)

    def profiles(self) -> list[ProfileObject]:
        """Return all profiles."""
        return list(self._get("/profiles"))

    def declare_profile(self, profile: Mapping[str, Any]) -> None:
        """Declare what is known of a family."""
        self.act(DECLARE_PROFILE, **profile)

    def forget_profiles(self, family: str) -> int:
        """Forget all that is known of a family; return how many profiles, measured sets and lengths that were."""
        answer: ForgottenAnswer = self.act(FORGET_PROFILES, family=family)
        return answer["forgotten"]

    def measurements(self) -> list[MeasurementObject]:
        """Return all sets of jobs measured together."""
        return list(self._get("/measurements"))

    def health(self) -> HealthAnswer:
        """Return the scheduler's state in numbers."""
        health: HealthAnswer = self._get("/health")
        return health

    def state(self) -> bytes:
        """Return how all stands, for simulations to go on from."""
        return self._ask("GET", "/state").content

    def store_behind(self) -> AdoptedAnswer:
        """Return how many events the scheduler's store lacks that agents have heard of, and on which nodes."""
        found: AdoptedAnswer = self._get("/store/behind")
        return found

    def adopt_store(self, lost: int) -> AdoptedAnswer:
        """Let the scheduler go on from a store that lacks so many changes."""
        found: AdoptedAnswer = self.act(ADOPT_STORE, lost=lost)
        return found

    def hand_over(self) -> None:
        """Let the scheduler end for a standby to lead."""
        self.act(HAND_OVER)

    def reload(self) -> ReloadedAnswer:
        """Have the scheduler read its files of limits and of channels again; which say something else."""
        answer: ReloadedAnswer = self.act(RELOAD)
        return answer

    def events(self, after: int | None = None, until: int | None = None) -> Iterator[Event]:
        """Yield every change from behind a number, or from now on; ends when the scheduler stops, or with a number.

        A scheduler of before 0.3 knows no such number, and does not end.
        """
        with self._stream("/events", _without_none(after=after, until=until)) as answer:
            yield from read_events(answer.iter_lines())

    def usage(self, since_s: float = 0.0) -> list[UsageObject]:
        """Return what users have had since a unix time, and what they have now."""
        return list(self._get("/usage", since_s=max(0.0, since_s)))

    def budgets(self) -> list[BudgetObject]:
        """Return what is used of the GPU-hours that users and groups may use in this month; empty without budgets."""
        return list(self._get("/usage/budgets"))

    def shared(self) -> list[SharedDayObject]:
        """Return what sharing did for users on the last days, the last first; none of an older scheduler's."""
        try:
            return list(self._get("/usage/shared"))
        except Refused:
            return []

    def agent_settings(self) -> AgentSettingsAnswer:
        """Return what agents are set to where nothing else is said to them."""
        found: AgentSettingsAnswer = self._get("/agent_settings")
        return found

    def overview(self) -> OverviewAnswer:
        """Return the cluster in numbers."""
        found: OverviewAnswer = self._get("/overview")
        return found

    def efficiency(self, job_id: int) -> EfficiencyAnswer:
        """Return how much of what it asked for a job has used."""
        found: EfficiencyAnswer = self._get(f"/job/{job_id}/efficiency")
        return found

    def cost(self, job_id: int) -> ActCostObject:
        """Return what stopping a live job costs now, and which jobs wait for it by name."""
        found: ActCostObject = self._get(f"/job/{job_id}/cost")
        return found

    def node_samples(self, name: str, last_s: float) -> NodeSamplesAnswer:
        """Return how the devices of a node were used."""
        found: NodeSamplesAnswer = self._get(f"/samples/nodes/{name}", last_s=last_s)
        return found

    # -- tokens

    def tokens(self) -> list[TokenObject]:
        """Return what is known of tokens: an operator's client of all, a user's of that user's own."""
        return list(self._get("/tokens"))

    def make_token(self, *, user: str | None = None, node: str | None = None, role: str | None = None) -> str:
        """Make a token for a user or for the agent of a node, and return it: it is kept nowhere else."""
        token = secrets.token_urlsafe(TOKEN_BYTES)
        digest = hashlib.sha256(token.encode()).hexdigest()
        self.act(MAKE_TOKEN, digest=digest, user=user, node=node, role=role)
        return token

    def page_link(self) -> str:
        """Return a link that signs a browser in to the scheduler's page as the caller, once."""
        base = web_url(self._places[0].url)
        return f"{base}{self._change('POST', '/page_link', {})['path']}"

    def revoke_token(self, token_id: str) -> None:
        """Let a token count no longer."""
        self.act(REVOKE_TOKEN, token_id)

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
        answer = self._reach(path, lambda http, base: http.request(method, base + path, **options))
        if not answer.is_success:
            raise refused(answer.status_code, _json(answer))
        return answer

    @contextmanager
    def _stream(self, path: str, params: Mapping[str, Any]) -> Iterator[httpx.Response]:
        prepare_httpx()
        import httpx  # noqa: PLC0415 - imported late

        quiet = httpx.Timeout(self._timeout_s, read=None)

        def send(http: httpx.Client, base: str) -> httpx.Response:
            return http.send(http.build_request("GET", base + path, params=params, timeout=quiet), stream=True)

        answer = self._reach(path, send)
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

    def _reach(self, path: str, call: Callable[[httpx.Client, str], httpx.Response]) -> httpx.Response:
        """Ask the scheduler; of several the one that answered last, then the others in turn, for a while.

        What is asked twice is done once: changes have idempotency keys.
        """
        until_s, tries = time.monotonic() + TURN_MAX_S, 0
        while True:
            tries += 1
            is_last = len(self._places) == 1 or (time.monotonic() >= until_s and tries >= len(self._places))
            try:
                answer = self._ask_one(call)
            except SchedulerUnreachable:
                if is_last:
                    raise
            else:
                is_asked = path in ASKED_AT_ONCE and answer.status_code != MOVED
                if is_last or is_asked or answer.status_code not in ELSEWHERE:
                    return answer
                answer.close()
            if self._go_on() or tries % len(self._places) == 0:
                time.sleep(TURN_PAUSE_S)

    def _go_on(self) -> bool:
        """Ask the next one from now on, one that was silent of late only where all were; whether it is the same one."""
        asked, now_s = self._places[0], time.monotonic()
        self._places.append(self._places.pop(0))
        heard = [place for place in self._places if self._silent_until_s.get(place, 0.0) <= now_s]
        if not heard or len(heard) == len(self._places):
            return False
        self._places.sort(key=lambda place: place not in heard)
        return self._places[0] is asked

    def _ask_one(self, call: Callable[[httpx.Client, str], httpx.Response]) -> httpx.Response:
        prepare_httpx()
        import httpx  # noqa: PLC0415 - imported late

        place = self._places[0]
        try:
            return call(self._http(place), place.base)
        except httpx.ConnectError as error:
            raise SchedulerUnreachable(place.url, str(error)) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            if isinstance(error, httpx.TimeoutException):
                self._silent_until_s[place] = time.monotonic() + SILENT_S
            cause = str(error) or type(error).__name__
            raise SchedulerUnreachable(place.url, cause, was_sent=True) from error

    def _http(self, place: _SchedulerPlace) -> httpx.Client:
        if place not in self._connections:
            prepare_httpx()
            import httpx  # noqa: PLC0415 - imported late

            headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
            headers |= {"Colane-Through": self._through} if self._through else {}
            limits = httpx.Timeout(self._timeout_s)
            if len(self._places) > 1:
                limits = httpx.Timeout(min(self._timeout_s, ANSWER_MAX_S), connect=CONNECT_MAX_S)
            if (httpx.URL(place.base).port or 0) > PORT_MAX:  # the system would take another
                raise httpx.InvalidURL(f"there is no port above {PORT_MAX}")
            self._connections[place] = httpx.Client(
                transport=None if place.socket is None else httpx.HTTPTransport(uds=place.socket),
                headers=headers,
                timeout=limits,
                trust_env=False,
                verify=_trust(place.url),
            )
        return self._connections[place]


class _SchedulerPlace(NamedTuple):
    """A scheduler: its URL, what requests to it begin with, and its socket, None for TCP."""

    url: str
    base: str
    socket: str | None


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
