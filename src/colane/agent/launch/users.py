"""The users jobs run as: their submitters where the agent is root, else the agent's own user alone."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

NOBODYS_GROUP = 65534  # group of a user that has only a number: the kernel's overflow id

ALL_USERS = ""  # what a node says that runs the jobs of all users


class UnknownUserError(Exception):
    """A job's user cannot be made the user of a process here; the message is one line."""


class Account(NamedTuple):
    """A user of this machine."""

    name: str  # the user's name
    uid: int  # numeric id
    gid: int  # numeric id of the primary group
    groups: tuple[int, ...]  # all groups of the user
    home: str  # home directory
    shell: str  # login shell, empty where there is none

    @property
    def variables(self) -> Mapping[str, str]:
        """What a login would set, and a job gets where its request does not say."""
        named = {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}
        return {**named, "SHELL": self.shell} if self.shell else named


def own_account() -> Account:
    """Return the agent's own user."""
    uid = os.geteuid()
    try:
        return account_of(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return Account(str(uid), uid, os.getegid(), tuple(os.getgroups()), os.environ.get("HOME", "/"), "")


def account_of(name: str) -> Account:
    """Look a user up; one without a name has a number for one.

    Raises UnknownUserError: this machine knows no such user.
    """
    try:
        known = pwd.getpwnam(name)
    except KeyError:
        return _nameless(name)
    groups = tuple(os.getgrouplist(known.pw_name, known.pw_gid))
    return Account(known.pw_name, known.pw_uid, known.pw_gid, groups, known.pw_dir, known.pw_shell)


def account_of_uid(uid: int) -> Account:
    """Look a user up by number. Raises UnknownUserError: it is no user's."""
    try:
        return account_of(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return _nameless(str(uid))


def _nameless(name: str) -> Account:
    if not name.isascii() or not name.isdecimal() or not 0 < int(name[:11]) < 2**32 - 1:
        raise UnknownUserError(f"this machine knows no user {name!r}")
    return Account(name, int(name), NOBODYS_GROUP, (NOBODYS_GROUP,), "/", "")


def account_for(user: str, runs_as: str) -> Account:
    """Return the user a job runs as here.

    Args:
        user: Owner of the job.
        runs_as: The one user whose jobs run here, `ALL_USERS` for those of all users.

    Raises:
        UnknownUserError: It cannot run here.
    """
    if not user:
        raise UnknownUserError("the job names no user")
    if runs_as not in {ALL_USERS, user}:
        raise UnknownUserError(f"this node runs jobs of {runs_as} only, not of {user}")
    return account_of(user)


def whose_jobs(root: Path) -> tuple[str, str]:
    """Return the users whose jobs an agent with its files below `root` can run, and what keeps out the others'."""
    own = own_account().name
    if os.geteuid() != 0:
        return own, ""
    closed = [path for path in (root, *root.parents) if not path.stat().st_mode & stat.S_IXOTH]
    if closed:
        return own, f"only {own} may submit here: others may not pass {closed[-1]} to reach their jobs' files"
    return ALL_USERS, ""
