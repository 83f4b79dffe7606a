"""More files open than `select` can watch: a descriptor of 1,024 and up."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

SELECT_MAX: Final = 1024


@contextmanager
def many_files() -> Iterator[None]:
    """Have so many open that what is opened next is beyond."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2 * SELECT_MAX), max(limits)))
        last = 0
        while last < SELECT_MAX:
            last = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, last)
        yield
