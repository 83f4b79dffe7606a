"""Other users, for tests that root runs: a second uid without a name needs no account."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

OTHER_UID = 54321
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users")


def as_user(uid: int, act: Callable[[], Any]) -> Any:
    """Do something as another user, in a process of its own, and return what JSON keeps of the result."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.chdir("/")
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.write(writing, json.dumps(act()).encode())
            status = 0
        except BaseException as error:  # noqa: BLE001 - said by the parent
            os.write(writing, json.dumps(repr(error)).encode())
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        result = json.loads(said.read() or b"null")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, result
    return result


@contextmanager
def open_directory() -> Iterator[Path]:
    """A directory that every user can pass, unlike pytest's own."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="colane-users-") as name:
        Path(name).chmod(0o755)
        yield Path(name)
