"""What callers may have under way at once: none takes what others need, and all leave something to agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from colane.server.ground.access import Caller, Role
from colane.server.ground.problems import RefusedError

REQUESTS_MAX: Final = 256
"""Of one user, or agent: those that wait for an answer, and streams."""
FRACTION: Final = 4
"""One of so many parts of the bodies may be one user's, or one agent's; one part is kept for agents."""
AGENTS_PATHS: Final = "/node"
"""Begin of the paths at which agents report: what they send there, by whichever token, may take what is kept."""


@dataclass(slots=True)
class Shares:
    """Requests and the bytes of their bodies, from when they come until they are answered."""

    bodies_bytes_max: int  # all bodies together
    _requests: Counter[Caller] = field(default_factory=Counter)
    _bytes: Counter[Caller] = field(default_factory=Counter)
    _all_bytes: int = 0

    @contextmanager
    def request(self, caller: Caller, path: str) -> Iterator[Callable[[int], int]]:
        """Count a request while it is answered; give what adds to the bytes of its body and returns how many it has.

        Raises:
            RefusedError: 503, the caller has too many already; when bytes are added, too, there are too many of them.
        """
        one = Caller(caller.name, caller.role)  # all jobs of a user are the user
        if self._requests[one] >= REQUESTS_MAX and one.role is not Role.OPERATOR:
            text = f"{one} waits for {REQUESTS_MAX} answers already; ask again when some have come"
            raise RefusedError.because(503, text)
        part = self.bodies_bytes_max // FRACTION
        is_agents = one.role is not Role.USER and path.startswith(AGENTS_PATHS)
        most = self.bodies_bytes_max - (0 if is_agents else part)
        taken = 0

        def add(size: int) -> int:
            nonlocal taken
            taken += size
            self._bytes[one] += size
            self._all_bytes += size
            if self._all_bytes > most:
                raise RefusedError.because(503, "too much is being sent to the scheduler at once; try again")
            if self._bytes[one] > part and one.role is not Role.OPERATOR:
                text = f"{one} sends more than {part} bytes at once; send this again when the rest is answered"
                raise RefusedError.because(503, text)
            return taken

        self._requests[one] += 1
        try:
            yield add
        finally:
            self._all_bytes -= taken
            for counted, number in ((self._requests, 1), (self._bytes, taken)):
                counted[one] -= number
                if not counted[one]:
                    del counted[one]
