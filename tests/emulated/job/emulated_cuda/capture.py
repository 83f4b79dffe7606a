"""What CUDA forbids while streams are captured into a graph, and what becomes of the graph.

From the CUDA programming guide ("Creating a graph using stream capture") and the runtime's reference
(`cudaThreadExchangeStreamCaptureMode`, errors 900 to 908). Every refusal that meets a capture spoils it: nothing can be
captured any more, and its end fails too.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .torch_cuda import EventBase, Stream

CAPTURING = "operation not permitted when stream is capturing"
SPOILT = "operation failed due to a previous error during capture"
MERGED = "operation would result in a merge of separate capture sequences"
UNMATCHED = "capture was not ended in the same stream as it began"
UNJOINED = "capturing stream has unjoined work"
ISOLATED = "dependency created on uncaptured work in another stream"
IMPLICIT = "operation would make the legacy stream depend on a capturing blocking stream"
CAPTURED_EVENT = "operation not permitted on an event last recorded in a capturing stream"
OTHER_THREAD = "attempt to terminate a thread-local capture sequence from another thread"

GLOBAL, THREAD_LOCAL, RELAXED = MODES = ("global", "thread_local", "relaxed")
LEGACY = 0
"""The stream that PyTorch calls the default one."""


class Refused(Exception):  # noqa: N818 - CUDA refuses
    """CUDA does not do it; the text is the driver's."""


class Capture:
    """One capture: of the stream that it began in, and of those that have waited for what is captured.

    Attributes:
        kernels: Seconds of each kernel so far.
        known: What each stream has done or waited for: how much of each stream's work.
    """

    def __init__(self, origin: Stream, mode: str) -> None:
        self.origin, self.mode = origin, mode
        self.thread = threading.get_ident()
        self.kernels: list[float] = []
        self.known: dict[Stream, dict[Stream, int]] = {origin: {origin: 0}}
        self.is_spoilt = self.has_ended = False

    def refuse(self, text: str) -> Refused:
        """Spoil it."""
        self.is_spoilt = True
        return Refused(text)

    def add(self, stream: Stream, kernel_s: float) -> None:
        """Take a kernel in."""
        self.check()
        self.kernels.append(kernel_s)
        self.known[stream][stream] += 1

    def check(self) -> None:
        """Raise if it is spoilt."""
        if self.is_spoilt:
            raise Refused(SPOILT)

    def forbids(self) -> bool:
        """Whether this thread must make no call that may be unsafe, as taking memory or asking whether work is done."""
        own = self.thread == threading.get_ident()
        return self.mode != RELAXED if own else self.mode == GLOBAL


class Captures:
    """All that are under way in a process."""

    def __init__(self) -> None:
        self.under_way: list[Capture] = []

    def begin(self, stream: Stream, mode: str) -> Capture:
        """Begin to capture a stream."""
        if mode not in MODES:
            raise Refused(f"Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got {mode}")
        if stream.number == LEGACY:
            raise Refused("CUDA graphs must be captured on a non-default stream.")
        if stream.capture is not None:
            raise stream.capture.refuse(CAPTURING)
        stream.capture = capture = Capture(stream, mode)
        self.under_way.append(capture)
        return capture

    def end(self, capture: Capture, current: Stream) -> None:
        """End it; all of its streams do again what they are told."""
        if capture.mode != RELAXED and capture.thread != threading.get_ident():
            raise capture.refuse(OTHER_THREAD)
        if current is not capture.origin:
            raise capture.refuse(UNMATCHED)
        self.under_way.remove(capture)
        capture.has_ended = True
        for stream in capture.known:
            stream.capture = None
        capture.check()
        joined = capture.known[capture.origin]
        if any(joined.get(stream, 0) != known[stream] for stream, known in capture.known.items()):
            raise capture.refuse(UNJOINED)

    def may_be_unsafe(self, *streams: Stream) -> None:
        """Judge a call of this thread that waits for streams or asks for them, or takes or gives memory of a GPU."""
        forbidding = [one for one in self.under_way if one.forbids()]
        forbidding += [stream.capture for stream in streams if stream.capture is not None]
        for one in forbidding:
            one.is_spoilt = True
        if forbidding:
            raise Refused(CAPTURING)

    def asks_for(self, event: EventBase) -> None:
        """Judge a call that waits for an event, or asks whether it is passed."""
        if event.captured is not None:
            raise event.captured.refuse(CAPTURED_EVENT)
        if event.is_recorded:  # PyTorch makes an event when it is recorded: before, it calls nothing
            self.may_be_unsafe()

    def uses(self, stream: Stream) -> None:
        """Judge work that is put into a stream: the legacy one waits for all that are not made to be beside it."""
        if stream.number == LEGACY:
            for capture in self.under_way:
                if any(one.waits_for_legacy and one.device is stream.device for one in capture.known):
                    raise capture.refuse(IMPLICIT)

    def records(self, event: EventBase, stream: Stream) -> None:
        """Let an event stand behind what a stream has captured."""
        event.captured = stream.capture
        if stream.capture is not None:
            stream.capture.check()
            event.known = dict(stream.capture.known[stream])

    def waits(self, stream: Stream, event: EventBase) -> bool:
        """Let a stream wait for an event; whether that is captured: it joins the capture of the event."""
        if event.captured is None or event.captured.has_ended:
            if stream.capture is not None and event.is_recorded:
                raise stream.capture.refuse(ISOLATED)
            return False
        capture = event.captured
        capture.check()
        if stream.capture is not None and stream.capture is not capture:
            capture.is_spoilt = True
            raise stream.capture.refuse(MERGED)
        stream.capture = capture
        known = capture.known.setdefault(stream, {stream: 0})
        known.update({one: max(count, known.get(one, 0)) for one, count in event.known.items()})
        return True


def told(error: Any) -> str:
    """The text as PyTorch gives it."""
    return f"CUDA error: {error}"
