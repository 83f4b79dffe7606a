"""Forms: how a type is written as JSON and read again. A record's form covers every field of its type by construction.

A field is written as it is unless the form says how; what a form leaves out of that is found by the law in
`tests/server/test_documents.py`, which goes over all fields of all stored types. Fields that a document lacks take the
type's default, fields that the type lacks are ignored: stores of older and newer Colanes are readable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from colane.model.versions import read_as

UNREADABLE = (KeyError, TypeError, ValueError, AttributeError)
"""What reading a document raises that is not as it was written."""

FORMER_NAMES: Final = (
    ("company", "measurement_group"),
    ("company", "co_runners"),
    ("company_size", "measurement_group_size"),
    ("circle", "sharing_domain"),
    ("hood", "neighbours"),
)
"""Fields' names in records that versions before 0.2 wrote, and what they are now, whatever record has them."""

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


@dataclass(frozen=True, slots=True)
class Form(Generic[T]):
    """How values of a type are written and read.

    Attributes:
        write: Gives JSON values.
        read: Gives the value again; raises ValueError, TypeError or KeyError where there is none.
    """

    write: Callable[[T], Any]
    read: Callable[[Any], T]


def choice(kind: type[E], otherwise: E | None = None) -> Form[E]:
    """One of an enumeration, by its value; a value that this version does not know is `otherwise`, where that is given.

    Where it is not, such a document cannot be read.
    """
    read = kind if otherwise is None else lambda body: read_as(kind, body, otherwise)
    return Form(attrgetter("_value_"), read)  # `value` itself is a property, five times as slow


def maybe(form: Form[T]) -> Form[T | None]:
    """A value or None."""
    write, read = form.write, form.read
    return Form(
        lambda value: None if value is None else write(value), lambda body: None if body is None else read(body)
    )


def several(form: Form[T] | None = None) -> Form[tuple[T, ...]]:
    """A tuple; without a form its items are as JSON has them."""
    if form is None:
        return Form(list, tuple)
    write, read = form.write, form.read
    return Form(
        lambda values: [write(value) for value in values], lambda bodies: tuple([read(body) for body in bodies])
    )


MAPPING: Form[Mapping[str, Any]] = Form(dict, dict)
"""Names and values that JSON knows."""


def field_names(kind: type) -> tuple[str, ...]:
    """Return the fields by which a dataclass or a named tuple is made."""
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind) if field.init)
    names: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
    return names


def record(kind: Callable[..., T], /, **forms: Form[Any]) -> Form[T]:
    """All fields by name.

    Args:
        kind: A dataclass or a named tuple.
        forms: How the fields are written that JSON does not know as they are.

    Raises:
        TypeError: A form for a field that is not there.
    """
    names = _names(kind, forms)
    told = tuple(forms.items())
    writes = [(name, form.write) for name, form in told]
    former = [(old, new) for old, new in FORMER_NAMES if new in names and old not in names]
    fields_of = _getter(names)

    def write(value: T) -> dict[str, Any]:
        body = dict(zip(names, fields_of(value), strict=True))
        for name, write_field in writes:
            if body[name] is not None:
                body[name] = write_field(body[name])
        return body

    def read(body: Mapping[str, Any]) -> T:
        values = {name: body[name] for name in names if name in body}
        for old, new in former:
            if old in body:
                values.setdefault(new, body[old])
        for name, form in told:
            if name in values:
                values[name] = form.read(values[name])
        return kind(**values)

    return Form(write, read)


SMALL_MAX: Final = 256
"""Up to here equal whole numbers are one object; fractions never are."""
_NOTHING: Final = object()


def lean(plain: T, /, *told: str, **forms: Form[Any]) -> Form[T]:
    """All fields by name but those that are as in a plain value, where that is nothing or a small number, or a word.

    What is left out is read as the default of the Colane that reads it, so such a default never changes: to be held by
    a test (`tests/server/test_documents.py`).

    Args:
        plain: A dataclass or a named tuple whose fields have their defaults, but for those in `told`.
        told: Fields that are written whatever they are: they have no default, or are looked for in the text.
        forms: See `record`.

    Raises:
        TypeError: A form for a field that is not there.
    """
    kind = type(plain)
    names, whole, writes = (
        _names(kind, forms),
        record(kind, **forms),
        [(name, form.write) for name, form in forms.items()],
    )
    fields_of = _getter(names)
    defaults = zip(names, fields_of(plain), strict=True)
    silent = [default if name not in told and _is_one(default) else _NOTHING for name, default in defaults]

    def write(value: T) -> dict[str, Any]:
        if value is plain:
            return {**plain_body}
        values = zip(names, fields_of(value), silent, strict=True)
        body = {name: one for name, one, default in values if one is not default}
        for name, write_field in writes:
            if name in body:
                body[name] = write_field(body[name])
        return body

    plain_body = {name: one for name, one in whole.write(plain).items() if silent[names.index(name)] is _NOTHING}
    return Form(write, whole.read)


def _is_one(value: object) -> bool:
    """Whether all values that are equal to it and of its type are one object."""
    is_small = type(value) is int and 0 <= value <= SMALL_MAX
    return value is None or isinstance(value, bool | Enum) or is_small or (isinstance(value, str | tuple) and not value)


def flat(form: Form[T], name: str) -> Form[T]:
    """A record with the fields of one of its fields among its own."""

    def write(value: T) -> dict[str, Any]:
        body = form.write(value)
        own = body.pop(name)
        return {**body, **own}

    return Form(write, lambda body: form.read({**body, name: body}))


def row(kind: Callable[..., T], /, **forms: Form[Any]) -> Form[T]:
    """All fields in their order, without names: for small values that come by the dozen."""
    whole = record(kind, **forms)
    names = _names(kind, forms)

    def write(value: T) -> list[Any]:
        return list(whole.write(value).values())

    def read(body: Iterable[Any]) -> T:
        return whole.read(dict(zip(names, body, strict=False)))

    return Form(write, read)


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what gives these fields of a value at once."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])


def _names(kind: Any, forms: Mapping[str, Form[Any]]) -> tuple[str, ...]:  # noqa: ANN401 - any record's class
    names = field_names(kind)
    unknown = forms.keys() - set(names)
    if unknown:
        raise TypeError(f"{kind.__name__} has no field {', '.join(sorted(unknown))}")
    return names
