"""A policy by its text: a registered name, or `FILE.py:NAME` of a user's own file; options follow either."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from colane.core.policy import Policy
from colane.scheduling import registry
from colane.scheduling.engine.options import PolicyOptionError, configured
from colane.scheduling.registry import NAMES, UnknownPolicyError

TEXT: Final = re.compile(r"(?P<path>.*?\.py)(?::(?P<name>[^:]*))?(?::(?P<options>.*))?")
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Of a policy: reports make names of files and columns of it."""


class PolicyFileError(UnknownPolicyError):
    """A user's file, or the policy named in it, cannot be used; one line that names the file and the fix."""


class _Requested(NamedTuple):
    """What a text asks for."""

    path: Path
    name: str
    options: str


def is_file(text: str) -> bool:
    """Whether a text asks for a policy of a file, rightly or not."""
    return TEXT.fullmatch(text) is not None or "/" in text.partition(":")[0]


def create(text: str, *, as_published: bool = False) -> Policy:
    """A policy: `pack`, `pack:share_when=always`, `mine.py:Shortest` or `mine.py:Shortest:depth=3`.

    Args:
        text: Its name, or its file and name there.
        as_published: A registered one without the guards that its publication lacks.

    Raises:
        UnknownPolicyError: There is none, or it has no such option or not with that value.
        PolicyFileError: The file cannot be used: it is missing, does not run, or has no such policy.
    """
    return _from_file(text) if is_file(text) else registry.create(text, as_published=as_published)


def where_in(path: Path, error: BaseException) -> str:
    """The line of a file at which an error came out of it, as ` line 12`; empty where it is in no line of it."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f" line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f" line {lines[-1]}" if lines else ""


def said(error: BaseException) -> str:
    """An error in one line."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {' '.join(text.split())}" if text else type(error).__name__


def path_of(text: str) -> Path:
    """The file a text names, absolute. Raises PolicyFileError: it names none, or there is none."""
    return _parsed(text).path


def _from_file(text: str) -> Policy:
    asked = _parsed(text)
    module = _run(asked.path)
    policy = _made(module, asked)
    _judge(policy, asked)
    if not asked.options:
        return policy
    if not is_dataclass(policy) or "name" not in {field.name for field in fields(policy)}:
        raise PolicyFileError(f"policy: {asked.name} of {asked.path} takes no options: make it a dataclass with a name")
    try:
        return configured(policy, f"{policy.name}:{asked.options}")
    except PolicyOptionError as error:
        raise PolicyFileError(str(error)) from error


def _parsed(text: str) -> _Requested:
    found = TEXT.fullmatch(text)
    if found is None:
        raise PolicyFileError(f"policy: {text}: a policy of your own is FILE.py:NAME")
    path = Path(found["path"]).expanduser().absolute()
    if not path.is_file():
        raise PolicyFileError(f"policy: there is no file {path}")
    return _Requested(path, found["name"] or "", found["options"] or "")


def _run(path: Path) -> ModuleType:
    """The file as a module; what it defines is found again by its module's name, as dataclasses need."""
    name = f"colane_policy_{sha256(str(path).encode()).hexdigest()[:16]}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PolicyFileError(f"policy: {path} cannot be read as Python")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise PolicyFileError(f"policy: {path}{where_in(path, error)}: {said(error)}") from error
    return module


def _made(module: ModuleType, asked: _Requested) -> Policy:
    """What the name stands for; a class or a function is called for it."""
    value = vars(module).get(asked.name)
    if value is None:
        raise PolicyFileError(_unknown(module, asked))
    if not isinstance(value, type) and hasattr(value, "plan"):
        made: Any = value
    elif callable(value):
        made = _called(value, asked)
    else:
        made = value
    if not callable(getattr(made, "plan", None)):
        raise PolicyFileError(f"policy: {asked.name} of {asked.path} is no policy: it has no plan(view)")
    policy: Policy = made
    return policy


def _called(make: Callable[[], Any], asked: _Requested) -> Any:  # noqa: ANN401 - as the user's code makes it
    try:
        return make()
    except (Exception, SystemExit) as error:
        where = where_in(asked.path, error)
        raise PolicyFileError(f"policy: {asked.path}{where}: {asked.name}() failed: {said(error)}") from error


def _unknown(module: ModuleType, asked: _Requested) -> str:
    own = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and callable(getattr(value, "plan", value))
        and getattr(value, "__module__", "") == module.__name__
    ]
    near = get_close_matches(asked.name, own, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    has = f"it has {', '.join(own)}" if own else "it defines nothing"
    wants = f"has no {asked.name!r}" if asked.name else "needs the name of a policy in it, as FILE.py:NAME"
    return f"policy: {asked.path} {wants}; {hint}{has}"


def _judge(policy: Policy, asked: _Requested) -> None:
    """Refuse what would fail at the first decision, or be taken for another policy in reports."""
    whose = f"policy: {asked.name} of {asked.path}"
    try:
        signature(policy.plan).bind(None)
    except TypeError:
        raise PolicyFileError(f"{whose}: plan must take one argument, the view") from None
    except ValueError:
        pass  # not written in Python: found out when it is called
    name = getattr(policy, "name", None)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise PolicyFileError(f"{whose}: its name must be text of letters, digits, '.', '_' and '-', got {name!r}")
    if name in NAMES:
        raise PolicyFileError(f"{whose}: a policy that comes with Colane is named {name!r}; name it otherwise")
