"""Functions and commands as jobs, with real futures: `JobExecutor(gpus=1).submit(train, 0.1).result()`.

A `JobExecutor` is one of `concurrent.futures`: `map`, `as_completed` and `wait` take what it gives, and a `JobFuture`
can be awaited. What the scheduler refuses is raised as from `Client`: `Refused`, `SchedulerUnreachable`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import pickle
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

from colane.client.call import CALL, result_path
from colane.client.client import Client
from colane.client.errors import Refused, RemoteError, SchedulerError, SchedulerUnreachable
from colane.client.shell import shell_environment
from colane.model.arrays import element_id
from colane.model.phases import ENDED

if TYPE_CHECKING:
    from colane.api.jobs import JobObject

__all__ = ["JobExecutor", "JobFailed", "JobFuture", "NotPicklable", "RemoteError"]

P = ParamSpec("P")
T = TypeVar("T")

AWAY_MAX_S: Final = 120.0  # so long a scheduler that does not answer is waited for, as while it is upgraded
AGAIN_S: Final = 0.5


class NotPicklable(SchedulerError):  # noqa: N818 - as its neighbours
    """A function or its arguments cannot be sent to a job."""


class JobFailed(SchedulerError):  # noqa: N818 - as above
    """A job has ended without a result.

    Attributes:
        job: Its id.
        state: In which it ended, as `timed-out`.
        exit_code: Of its process; None where a signal ended it, or there was none.
    """

    def __init__(self, job: int, state: str, reason: str, exit_code: int | None) -> None:
        super().__init__(f"job {job} {state}: {reason} (see colane logs {job})")
        self.job = job
        self.state = state
        self.exit_code = exit_code


class JobFuture(concurrent.futures.Future[T]):
    """A job, and what comes of it.

    Attributes:
        id: By which all commands know it.
    """

    def __init__(self, watch: _JobWatch, read: Callable[[JobObject], T]) -> None:
        super().__init__()
        self.id = 0
        self._watch = watch
        self._read = read
        self._one_at_a_time = threading.RLock()

    def __await__(self) -> Generator[Any, None, T]:
        """Wait in an event loop."""
        return asyncio.wrap_future(self).__await__()

    def cancel(self) -> bool:
        """Cancel the job, also while it runs; False where it has ended."""
        if self.done():
            return self.cancelled()
        self._watch.client.cancel(self.id)
        with self._one_at_a_time:
            if super().cancel():
                self.set_running_or_notify_cancel()  # so that those who wait for it know
                return True
        concurrent.futures.wait([self])  # it runs: its end is heard of
        return self.cancelled() or isinstance(self.exception(), concurrent.futures.CancelledError)

    def state(self) -> str:
        """Return in which state the job is."""
        return self._watch.client.job(self.id)["state"]

    def logs(self, *, follow: bool = False) -> Iterator[bytes]:
        """Yield what it writes, in all attempts; with `follow` until it has ended."""
        return self._watch.client.logs(self.id, follow=follow)

    def _tell(self, job: JobObject) -> None:
        """Take in how it is: what runs can no longer be cancelled silently, what has ended has a result."""
        with self._one_at_a_time:
            if not self.done():
                self._take_in(job)

    def _take_in(self, job: JobObject) -> None:
        if job["state"] not in ENDED:
            if job["state"] != "queued" and not self.running():
                self.set_running_or_notify_cancel()
            return
        if not self.running():
            self.set_running_or_notify_cancel()
        if job["state"] == "cancelled":
            self.set_exception(concurrent.futures.CancelledError(f"job {self.id} was cancelled"))
            return
        try:
            self.set_result(self._read(job))
        except BaseException as error:  # noqa: BLE001 - what the function has raised, or that it left nothing
            self.set_exception(error)


class _JobWatch:
    """Hears the scheduler's events for all jobs of an executor, in a thread that goes on while some have not ended."""

    def __init__(self, url: str | None, token: str | None) -> None:
        self.client = Client(url, token)
        self._token = token
        self._lock = threading.Lock()
        self._waiting: dict[int, JobFuture[Any]] = {}
        self._thread: threading.Thread | None = None

    def submit(self, request: Mapping[str, Any], jobs: Sequence[JobFuture[Any]], *, is_array: bool = False) -> None:
        """Submit, and wait for the end of what it makes."""
        with self._lock:  # so that no event of it is heard before it is known
            after = int(self.client.health()["events"]) if self._thread is None else 0
            first = self.client.submit(request)
            for ordinal, job in enumerate(jobs):
                job.id = element_id(first, ordinal) if is_array else first
                self._waiting[job.id] = job
            if self._thread is None:
                self._thread = threading.Thread(target=self._hear, args=(after,), name="colane-jobs", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Close the connections, once nothing is waited for; the next job opens them again."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread() and not self.pending():
            thread.join()
        self.client.close()

    def pending(self) -> list[JobFuture[Any]]:
        """Return the jobs that have not ended."""
        with self._lock:
            return list(self._waiting.values())

    def _hear(self, after: int) -> None:
        away_since_s: float | None = None
        while not self._is_over():
            try:
                with Client(self.client.url, self._token) as client:
                    for event in client.events(after):
                        away_since_s, after = None, event.number
                        if event.kind == "job":
                            self._take_in(client, event.body)
                            if self._is_over():
                                return
            except SchedulerUnreachable as error:
                away_since_s = away_since_s or time.monotonic()
                if time.monotonic() > away_since_s + AWAY_MAX_S:
                    self._give_up(error)
                    away_since_s = None
            except Refused as error:
                self._give_up(error)
            time.sleep(AGAIN_S)

    def _is_over(self) -> bool:
        """Whether there is nothing to hear of any more; then the next job begins another thread."""
        with self._lock:
            if not self._waiting and self._thread is threading.current_thread():
                self._thread = None
            return not self._waiting

    def _take_in(self, client: Client, change: Mapping[str, Any]) -> None:
        with self._lock:
            known = [self._waiting[change["job"]]] if change["job"] in self._waiting else []
            is_cut = change.get("happened") == "elements-cut"
            if is_cut:  # elements that were no jobs yet have no events of their own
                known += [job for job in self._waiting.values() if job.id > change["job"]]
        for job in known:
            is_over = change["state"] in ENDED or is_cut
            self._settle(job, client.job(job.id) if is_over else {"state": change["state"]})

    def _settle(self, job: JobFuture[Any], told: Any) -> None:  # noqa: ANN401 - a job object, or its state alone
        job._tell(told)  # noqa: SLF001 - its own
        if job.done():
            with self._lock:
                self._waiting.pop(job.id, None)

    def _give_up(self, error: Exception) -> None:
        for job in self.pending():
            if not job.done():
                job.set_exception(error)
        with self._lock:
            self._waiting.clear()


class JobExecutor(concurrent.futures.Executor):
    """Submits functions and commands as jobs.

    Args:
        folder: Where functions and results lie, which all machines see; None: `.colane` here.
        url: The scheduler's; None finds it as the commands do.
        token: None takes what they take.
        fields: What every job asks for, as in a job file: `gpus=1`, `time_limit="2h"`, `name="sweep"`.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
        **fields: Any,  # noqa: ANN401 - rows of model.job_fields
    ) -> None:
        self.folder = Path(folder or ".colane").absolute()
        self._fields = fields
        self._watch = _JobWatch(url, token)

    def asking(self, **fields: Any) -> Self:  # noqa: ANN401 - as above
        """Return one whose jobs ask for this besides."""
        other = object.__new__(type(self))
        other.folder, other._watch = self.folder, self._watch
        other._fields = {**self._fields, **fields}
        return other

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> JobFuture[T]:
        """Submit a call.

        Raises:
            NotPicklable: The function or an argument cannot be sent.
            SchedulerError: The scheduler refuses, or does not answer.
        """
        path = self._placed([_pickled(fn, args, kwargs)])
        job: JobFuture[T] = JobFuture(self._watch, lambda told: _result(told, result_path(path)))
        self._watch.submit(self._request(path, fn), [job])
        return job

    def array(self, fn: Callable[[Any], T], items: Iterable[Any], *, at_once: int | None = None) -> list[JobFuture[T]]:
        """Submit a call for each item, as one array; at most so many run at once.

        Raises:
            NotPicklable: The function or an item cannot be sent.
            SchedulerError: The scheduler refuses, or does not answer.
        """
        calls = [_pickled(fn, (item,), {}) for item in items]
        if not calls:
            return []
        path = self._placed(calls)
        jobs: list[JobFuture[T]] = [
            JobFuture(self._watch, _reader(result_path(path, index))) for index in range(len(calls))
        ]
        limit = "" if at_once is None else f"%{at_once}"
        request = {**self._request(path, fn), "array": f"0-{len(calls) - 1}{limit}"}
        self._watch.submit(request, jobs, is_array=True)
        return jobs

    def command(self, *words: str) -> JobFuture[int]:
        """Submit a command; its result is its exit code, also where that is not 0.

        Raises SchedulerError: the scheduler refuses, or does not answer.
        """
        job: JobFuture[int] = JobFuture(self._watch, _exit_code)
        self._watch.submit({**self._shell(), "command": list(words), **self._fields}, [job])
        return job

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for the jobs, or cancel those that have not started; jobs outlive the executor otherwise."""
        pending = self._watch.pending()
        for job in pending if cancel_futures else ():
            if not job.running():
                job.cancel()
        if wait:
            concurrent.futures.wait(pending)
            self._watch.close()

    def _placed(self, calls: Sequence[bytes]) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{uuid.uuid4().hex}{CALL}"
        path.write_bytes(pickle.dumps(calls))
        path.chmod(0o600)
        return path

    def _request(self, path: Path, fn: Callable[..., Any]) -> dict[str, Any]:
        name = getattr(fn, "__name__", type(fn).__name__).strip("<>")
        module = getattr(fn, "__module__", "")
        command = [sys.executable, "-m", "colane.client.call", str(path)]
        return {**self._shell(), "name": name, "family": f"{module}.{name}", "command": command, **self._fields}

    @staticmethod
    def _shell() -> dict[str, Any]:
        return {"env": shell_environment()[0], "workdir": str(Path.cwd())}


def _pickled(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
    name = getattr(fn, "__qualname__", repr(fn))
    try:
        import cloudpickle  # noqa: PLC0415 - where it is installed
    except ImportError:
        if getattr(fn, "__module__", None) == "__main__":
            raise NotPicklable(
                f"{name} is defined in the script itself: move it to a module, or install cloudpickle"
            ) from None
        dumps: Callable[[Any], bytes] = pickle.dumps
    else:
        dumps = cloudpickle.dumps
    try:
        return dumps((fn, args, dict(kwargs)))
    except Exception as error:
        raise NotPicklable(f"{name} cannot be sent to a job: {error}; give it what can be pickled") from error


def _reader(path: Path) -> Callable[[JobObject], Any]:
    return lambda told: _result(told, path)


def _result(job: JobObject, path: Path) -> Any:  # noqa: ANN401 - whatever the function returns
    try:
        text = path.read_bytes()
    except OSError:
        raise JobFailed(job["id"], job["state"], str(job.get("reason")), job.get("exit_code")) from None
    has_returned, value = pickle.loads(text)  # noqa: S301 - our own job's
    if has_returned:
        return value
    raise value


def _exit_code(job: JobObject) -> int:
    code = job.get("exit_code")
    if code is None or job["state"] not in {"succeeded", "failed"}:
        raise JobFailed(job["id"], job["state"], str(job.get("reason")), code)
    return code
