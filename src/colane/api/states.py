"""Objects of ours as bytes and back, with all that they know of each other: a core, or a whole simulation, as it is.

By pickle, but what is read makes nothing except objects of Colane's classes and plain values. What does not change is
made whole. An object that changes is made first, where it is compiled of those of its attributes that its `__init__`
takes, and is told its attributes once all are made: circles of them do no harm, and no chain is too long.
"""

from __future__ import annotations

import inspect
import io
import pickle
from collections.abc import Mapping
from enum import Enum
from functools import cache
from types import BuiltinMethodType, MappingProxyType, MethodType
from typing import Any, Final, NamedTuple

from colane.model.limits import Quotas
from colane.model.versions import own_version

PLAIN: Final = frozenset({
    "array._array_reconstructor", "array.array", "builtins.frozenset", "builtins.set", "collections.Counter",
    "collections.OrderedDict", "collections.defaultdict", "collections.deque", "fractions.Fraction",
    "functools.partial", "numpy._core.multiarray.scalar", "numpy._core.numeric._frombuffer", "numpy.dtype",
    "numpy.random._pcg64.PCG64", "numpy.random._pickle.__bit_generator_ctor", "numpy.random._pickle.__generator_ctor",
    "numpy.random.bit_generator.SeedSequence", "numpy.random.bit_generator.__pyx_unpickle_SeedSequence",
    "pathlib.PosixPath", "random.Random",
})  # fmt: skip
"""What is made besides objects of ours."""

OWN: Final = "colane."
DECIDES: Final = ("colane.core.", "colane.cpu.", "colane.lanes.", "colane.perf.", "colane.scheduling.")
"""Rooms whose functions read and write nothing, and may stand in what is read."""
MADE: Final = (
    *DECIDES,
    "colane.api.states",
    "colane.foresee.",
    "colane.lab.simulate.",
    "colane.lab.traces.",
    "colane.model.",
)
"""Rooms and modules of whose classes objects are made."""

NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


class LiveState(NamedTuple):
    """How all stands in a live cluster."""

    state: Any  # `ClusterState`
    limits: Quotas
    now_s: float


class StateError(ValueError):
    """Bytes that are no state, or of another version; or what cannot be kept."""


def write(value: object, outside: Mapping[str, object] = NOTHING) -> bytes:
    """Return an object with all it knows but what is outside, which has a name in its place.

    Raises StateError: some of that cannot be kept.
    """
    file = io.BytesIO()
    file.write(_head())
    writer = _Writer(file, outside)
    try:
        writer.dump(value)
        for known in writer.known:
            writer.dump(_told(known))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise StateError(f"a state that knows {error} cannot be kept") from error
    return file.getvalue()


def read(data: bytes, outside: Mapping[str, object] = NOTHING) -> Any:  # noqa: ANN401 - whatever was written
    """Return what was written. Raises StateError: it is none, or was written by another version."""
    if not data.startswith(_head()):
        own, _, version = data.partition(b"\n")[0][:80].decode(errors="replace").partition(" ")
        is_state = _head().startswith(f"{own} ".encode())
        raise StateError(f"was written by Colane {version}: use that" if is_state else "is no state of Colane's")
    reader = _Reader(io.BytesIO(data[len(_head()) :]), outside)
    try:
        value, told = reader.load(), list[dict[str, Any]]()
        while len(told) < len(reader.known):
            told.append(reader.load())
        for known, attributes in zip(reader.known, told, strict=True):
            for name, one in attributes.items():
                _set(known, name, one)
    except Exception as error:
        raise StateError(f"is damaged: {error}") from error
    return value


def _head() -> bytes:
    return f"colane-state {own_version()}\n".encode()


class _Writer(pickle.Pickler):
    """Writes a value, and notes which objects it knows, to be told of after it."""

    def __init__(self, file: io.BytesIO, outside: Mapping[str, object]) -> None:
        super().__init__(file, 5)
        self.known: list[object] = []
        self._places: dict[int, int | str] = {id(one): name for name, one in outside.items()}

    def persistent_id(self, obj: Any) -> object:  # noqa: ANN401 - as pickle has it
        """What stands for an object that changes: its place, and, the first time, what makes it."""
        cls: Any = type(obj)
        place = self._places.get(id(obj))
        if place is not None:
            return (place,)
        if not (cls.__module__.startswith(OWN) and _changes(cls)):
            return None
        self._places[id(obj)] = len(self.known)
        self.known.append(obj)
        is_plain = not hasattr(cls, "__mypyc_attrs__") or hasattr(cls, "__dataclass_fields__")
        taken = None if is_plain else {name: getattr(obj, of) for name, of in _taken(cls).items()}
        return len(self.known) - 1, cls, taken

    def reducer_override(self, obj: Any) -> Any:  # noqa: ANN401 - as pickle has it
        """Records are made whole, of their fields."""
        if isinstance(obj, (MethodType, BuiltinMethodType)) and _is_own(obj.__self__):
            return _method, (obj.__self__, obj.__name__)
        if _is_own(obj) and hasattr(type(obj), "__dataclass_fields__"):
            fields = type(obj).__dataclass_fields__.items()
            return _record, (type(obj), {name: getattr(obj, name) for name, one in fields if one.init})
        return NotImplemented


class _Reader(pickle.Unpickler):
    """Reads what a writer has written."""

    def __init__(self, file: io.BytesIO, outside: Mapping[str, object]) -> None:
        super().__init__(file)
        self.known: list[Any] = []
        self._outside = outside

    def persistent_load(self, pid: Any) -> object:  # noqa: ANN401 - as pickle has it
        """The object of that place."""
        place, *made = pid
        if made:
            cls, taken = made
            self.known += [None] * (place + 1 - len(self.known))
            self.known[place] = cls.__new__(cls) if taken is None else cls(**taken)
        return self._outside[place] if isinstance(place, str) else self.known[place]

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - as pickle has it
        """A class of ours, or what is plain. Raises pickle.UnpicklingError: it is neither."""
        if f"{module}.{name}" in PLAIN:
            return super().find_class(module, name)
        if module.startswith(MADE):
            found = super().find_class(module, name)
            own = getattr(found, "__module__", None), getattr(found, "__qualname__", None)
            is_there = own == (module, name)  # and not what the module imports, nor by a name that leads on from it
            if is_there and (isinstance(found, type) or module.startswith(DECIDES) or found in {_method, _record}):
                return found
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def _method(of: Any, name: str) -> Any:  # noqa: ANN401 - any of any
    if not _is_own(of):
        raise pickle.UnpicklingError(f"it names {name} of a {type(of).__name__}")
    return getattr(of, name)


def _record(cls: type, told: dict[str, Any]) -> object:
    return cls(**told)


def _told(known: Any) -> dict[str, Any]:  # noqa: ANN401 - any object of ours
    """Its attributes, as far as it has them."""
    state = known.__getstate__()
    return {**(state[0] or {}), **state[1]} if isinstance(state, tuple) else state or {}


def _set(known: object, name: str, value: Any) -> None:  # noqa: ANN401 - any attribute
    try:
        object.__setattr__(known, name, value)
    except AttributeError:  # compiled, what is Final is as it was made
        there = getattr(known, name)
        if isinstance(there, dict):
            there |= value


def _is_own(known: object) -> bool:
    return type(known).__module__.startswith(OWN)


@cache
def _changes(cls: Any) -> bool:  # noqa: ANN401 - a class
    """Whether objects of a class of ours change: all but records, rows and names do."""
    is_record = hasattr(cls, "__dataclass_fields__") and cls.__hash__ not in {None, object.__hash__}
    return not is_record and not issubclass(cls, (Enum, tuple, BaseException))


@cache
def _taken(cls: Any) -> dict[str, str]:  # noqa: ANN401 - a class
    """By what the `__init__` of a compiled class takes, the attribute that says it: of its name, it is that."""
    names, taken = frozenset(cls.__mypyc_attrs__), inspect.signature(cls).parameters.items()
    needed = {name: f"_{name}" for name, one in taken if one.default is one.empty and f"_{name}" in names}
    return needed | {name: name for name, _ in taken if name in names}
