"""Records of `model` in what is said over HTTP and stored: declared there alone, all else comes of their annotations.

That is how they are judged (`Sent`), described (`Of`), written and read (`form_of`). Records in modules that are
compiled have no annotations at run time: `server.store.documents` says how they are written, `api.nodes` what is told
of them.

Measured on 2026-11-29, the least of 60 tries: what a report tells of a job is judged so in 2.8 us, and is a record in
our time after 4.4 more, where a model that was checked first took 6.5 and 6.0. `msgspec` would judge it in 2.4, but
names one fault of a body and not all, and would be a second library that judges, beside pydantic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from types import NoneType
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    NotRequired,
    Protocol,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from typing_extensions import TypedDict

from colane.api.forms import Form, choice, maybe, record, row, several
from colane.model.device_use import DeviceUsage, JobUsage
from colane.model.profile import CorePace, MemoryWindow, Profile, ProfileKey, SetMeasurement
from colane.model.progress import Progress, Stall

T = TypeVar("T")
Schema = dict[str, Any]
SHAPE: Any = TypedDict
MAY_LACK: Any = NotRequired
ANNOTATED: Any = Annotated
UNION: Any = Union
"""As values: the fields are known at run time."""


class Schemas(Protocol):
    """What pydantic hands to what says a schema of its own."""

    def __call__(self, source: object, /) -> Schema: ...

    def generate_schema(self, source: object, /) -> Schema: ...


def _shape(kind: type, hints: dict[str, object], told: type) -> object:
    shape = SHAPE(kind.__name__, hints)
    shape.__doc__ = told.__doc__
    return shape


class Of(NamedTuple):
    """A JSON object with all fields of a record, and none besides; records in it that are rows are lists."""

    kind: type
    rows: tuple[type, ...] = ()

    def __get_pydantic_core_schema__(self, _source: object, schemas: Schemas) -> Schema:
        """Return the schema of such an object."""
        hints = get_type_hints(self.kind, include_extras=True)
        told = {name: self._told(hint) for name, hint in hints.items()}
        return schemas.generate_schema(_shape(self.kind, told, self.kind))

    def _told(self, hint: Any) -> Any:  # noqa: ANN401 - a type
        """Return the type of a value as JSON has it."""
        origin, parts = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return ANNOTATED[self._told(parts[0]), *parts[1:]]
        if origin is tuple and parts[-1] is ...:
            return list[self._told(parts[0])]  # type: ignore[misc]
        if parts:
            return UNION[tuple(map(self._told, parts))]
        if issubclass(hint, Enum):
            return str
        if hint in self.rows:
            return tuple[tuple(map(self._told, get_type_hints(hint).values()))]  # type: ignore[misc]
        return ANNOTATED[dict[str, Any], Of(hint, self.rows)] if is_record(hint) else hint


class Sent(NamedTuple):
    """A JSON object that tells of a record, by its own annotations or in a shape: it lacks what it has defaults for."""

    kind: type
    shape: type | None = None

    def __get_pydantic_core_schema__(self, _source: object, schemas: Schemas) -> Schema:
        """Return the schema of such an object."""
        lacks = {field.name for field in fields(self.kind) if field.default is not MISSING}
        hints = get_type_hints(self.shape or self.kind, include_extras=True)
        told = {name: MAY_LACK[hint] if name in lacks else hint for name, hint in hints.items()}
        return schemas.generate_schema(_shape(self.kind, told, self.shape or self.kind))


SentProgress = Annotated[dict[str, Any], Sent(Progress)]
SentJobUse = Annotated[dict[str, Any], Sent(JobUsage)]
SentDeviceUse = Annotated[dict[str, Any], Sent(DeviceUsage)]
ProfileKeyObject = Annotated[dict[str, Any], Of(ProfileKey)]
ProfileObject = Annotated[dict[str, Any], Of(Profile, (CorePace, MemoryWindow))]
MeasurementObject = Annotated[dict[str, Any], Of(SetMeasurement)]
StallObject = Annotated[dict[str, Any], Of(Stall)]
ProgressObject = Annotated[dict[str, Any], Of(Progress)]
JobUseObject = Annotated[dict[str, Any], Of(JobUsage)]
DeviceUseObject = Annotated[dict[str, Any], Of(DeviceUsage)]


AS_JSON: Final = (int, float, str, bool)


def is_record(kind: type) -> bool:
    """Whether a class is a dataclass or a named tuple."""
    return is_dataclass(kind) or hasattr(kind, "_fields")


@cache
def _names(kind: Any) -> tuple[tuple[str, ...], Callable[[object], tuple[object, ...]]]:  # noqa: ANN401 - as below
    names = tuple(field.name for field in fields(kind))
    return names, attrgetter(*names)


def as_object(record: Any) -> dict[str, Any]:  # noqa: ANN401 - any dataclass
    """Return the fields of a flat record by name, as JSON has them."""
    kind: Any = type(record)
    names, values_of = _names(kind)
    return dict(zip(names, values_of(record), strict=True))


def form_of(kind: Callable[..., T], *rows: type, otherwise: Mapping[Any, Any] | None = None) -> Form[T]:
    """Return how a record is written and read, with all that is in it.

    Args:
        kind: The record's class.
        rows: Of the records in it, those that are written as lists.
        otherwise: By enumeration, what a word is read as that is not known.

    Raises:
        TypeError: A type that JSON does not know.
    """
    return cast("Form[T]", _form(kind, rows, otherwise or {}))


def _form(hint: Any, rows: tuple[type, ...], otherwise: Mapping[Any, Any]) -> Form[Any] | None:  # noqa: ANN401 - a type
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _form(parts[0], rows, otherwise)
    if origin is tuple and parts[-1] is ...:
        return several(_form(parts[0], rows, otherwise))
    if parts:
        (kind,) = [part for part in parts if part is not NoneType]
        form = _form(kind, rows, otherwise)
        return None if form is None else maybe(form)
    if is_record(hint):
        forms = {name: _form(of, rows, otherwise) for name, of in get_type_hints(hint, include_extras=True).items()}
        return (row if hint in rows else record)(hint, **{name: form for name, form in forms.items() if form})
    if issubclass(hint, Enum):
        return choice(hint, otherwise.get(hint))
    if hint not in AS_JSON:
        raise TypeError(f"{hint} is none of {', '.join(kind.__name__ for kind in AS_JSON)}, which JSON knows")
    return None
