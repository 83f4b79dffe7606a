"""Samples as bytes of a fixed size; what is not known has a value of its own in each field."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import reduce
from operator import itemgetter, or_
from typing import Any, Final, NamedTuple

import numpy as np

from colane.model.device_use import THROTTLES

KIB: Final = 1024.0
FLOAT_MAX: Final = 3e38  # about the largest that four bytes hold


class Join(Enum):
    """How several samples become one."""

    MEAN = "mean"
    MOST = "most"
    ANY = "any"
    LAST = "last"


JOINERS: Final[Mapping[Join, Callable[[Sequence[float]], float]]] = {
    Join.MEAN: lambda known: sum(known) / len(known),
    Join.MOST: max,
    Join.ANY: lambda known: reduce(or_, map(int, known)),
    Join.LAST: itemgetter(-1),
}
"""How the known values of a tick become one."""


Values = Sequence[float | None]  # a sample: one number for each field, None where it is not known

Column = np.ndarray[Any, np.dtype[np.float64]]  # one number of a series over time, NaN where it is not known


def joined(values: Column, count: int, join: Join) -> Column:
    """Return one value for each `count` of them, as samples of one tick are joined; unknown ones are left out."""
    if count == 1:
        return values
    rows = values.reshape(-1, count)
    known = ~np.isnan(rows)
    if join is Join.MEAN:
        total = np.where(known, rows, 0.0).sum(axis=1)
        found = total / np.maximum(known.sum(axis=1), 1)
    elif join is Join.ANY:
        found = np.bitwise_or.reduce(np.where(known, rows, 0.0).astype(np.int64), axis=1).astype(np.float64)
    elif join is Join.MOST:
        found = np.where(known, rows, -np.inf).max(axis=1)
    else:
        last = count - 1 - np.argmax(known[:, ::-1], axis=1)
        found = rows[np.arange(len(rows)), last]
    return np.where(known.any(axis=1), found, np.nan)


class SampleField(NamedTuple):
    """One number of a sample."""

    name: str  # as the API calls it
    code: str  # of `struct`; numpy's is the same
    scale: float  # what is written is the value times this, rounded; 0 writes it as it is
    join: Join  # how samples of one tick become one

    @property
    def unknown(self) -> float | int:
        """What stands where it is not known."""
        return math.nan if self.code == "f" else int((1 << 8 * struct.calcsize(f"<{self.code}")) - 1)


class Kind:
    """What a sample of one kind of thing holds."""

    def __init__(self, *fields: SampleField) -> None:
        self.fields: Final = fields
        self._joiners: Final = tuple([JOINERS[field.join] for field in fields])
        self._struct = struct.Struct("<" + "".join(field.code for field in fields))
        self._dtype = np.dtype([(field.name, f"<{_NUMPY[field.code]}") for field in fields])
        self.size_bytes: Final = self._struct.size
        self._unknown: Final = tuple([field.unknown for field in fields])
        self.unknown: Final = self._struct.pack(*self._unknown)
        self._is_mean: Final = np.array([field.join is Join.MEAN for field in fields])
        self._is_special: Final = np.array([field.join not in {Join.MEAN, Join.MOST} for field in fields])
        self._is_whole: Final = np.array([field.code != "f" for field in fields])
        self._scales: Final = np.array([field.scale or 1.0 for field in fields])
        self._least: Final = np.where(self._is_whole, 0.0, -np.inf)
        self._most: Final = np.array([FLOAT_MAX if field.code == "f" else field.unknown - 1.0 for field in fields])
        self._whole: Final = tuple([
            None if field.code == "f" else (field.scale or 1, int(field.unknown) - 1) for field in fields
        ])  # fmt: skip

    def joined_many(self, samples: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[list[bytes], list[Values]]:
        """Return what samples of a tick come to, of several things at once: packed, and as values.

        Args:
            samples: Of each report, each thing, each field; NaN where it is not known.
        """
        found = np.where(self._is_mean, samples.mean(axis=0), samples.max(axis=0))
        unknown = np.isnan(samples)
        for place in map(int, np.flatnonzero(unknown.any(axis=(0, 1)) | self._is_special)):
            if not unknown[:, :, place].all():
                found[:, place] = joined(samples[:, :, place].T.reshape(-1), len(samples), self.fields[place].join)
        whole = found * self._scales
        np.rint(whole, out=whole, where=self._is_whole)
        whole = np.where(np.isnan(found), self._unknown, np.clip(whole, self._least, self._most))
        rows = np.empty(len(found), self._dtype)
        for place, field in enumerate(self.fields):
            rows[field.name] = whole[:, place]
        data, size = rows.tobytes(), self.size_bytes
        packed = [data[at : at + size] for at in range(0, len(data), size)]
        return packed, [tuple([None if value != value else value for value in row]) for row in found.tolist()]  # noqa: PLR0124

    def joined(self, samples: Iterable[Values]) -> list[float | None]:
        """Return what the samples of a tick come to; None in each field of which none is known."""
        found = list[float | None]()
        for join, column in zip(self._joiners, zip(*samples, strict=True), strict=True):
            known = [value for value in column if value is not None] if None in column else column
            found.append(join(known) if known else None)
        return found

    def pack_into(self, data: bytearray, place: int, values: Values) -> None:
        """Write a sample; what a field cannot hold is written as the nearest that it can."""
        raw = list[float]()
        for unknown, whole, value in zip(self._unknown, self._whole, values, strict=True):
            if value is None:
                raw.append(unknown)
            elif whole is None:
                raw.append(min(FLOAT_MAX, value))
            else:
                number = round(value * whole[0])
                raw.append(number if 0 <= number <= whole[1] else 0 if number < 0 else whole[1])
        self._struct.pack_into(data, place * self.size_bytes, *raw)

    def read(self, data: bytes | bytearray) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
        """Return each field over time, NaN where it is not known."""
        rows = np.frombuffer(data, self._dtype)
        found = {}
        for field in self.fields:
            raw = rows[field.name].astype(np.float64)
            if field.code != "f":
                raw[rows[field.name] == field.unknown] = np.nan
            found[field.name] = raw / field.scale if field.scale else raw
        return found


_NUMPY: Final[Mapping[str, str]] = {"B": "u1", "H": "u2", "I": "u4", "f": "f4"}


DEVICE: Final = Kind(
    SampleField("busy_ratio", "B", 200.0, Join.MEAN),
    SampleField("used_bytes", "I", 1 / KIB, Join.MOST),
    SampleField("power_w", "H", 10.0, Join.MEAN),
    SampleField("temperature_c", "B", 1.0, Join.MOST),
    SampleField("throttle", "B", 0.0, Join.ANY),
    SampleField("xid", "H", 0.0, Join.LAST),
)
JOB: Final = Kind(
    SampleField("busy_ratio", "B", 200.0, Join.MEAN),
    SampleField("device_bytes", "I", 1 / KIB, Join.MOST),
    SampleField("cpu_cores", "H", 100.0, Join.MEAN),
    SampleField("host_bytes", "I", 1 / KIB, Join.MOST),
    SampleField("steps_per_s", "f", 0.0, Join.MEAN),
    SampleField("share_ratio", "B", 200.0, Join.MEAN),
)
CLUSTER: Final = Kind(
    SampleField("devices", "I", 10.0, Join.MEAN),
    SampleField("working", "I", 10.0, Join.MEAN),
    SampleField("sharing", "I", 10.0, Join.MEAN),
    SampleField("running", "I", 10.0, Join.MEAN),
    SampleField("waiting", "I", 10.0, Join.MEAN),
    SampleField("busy_ratio", "B", 200.0, Join.MEAN),
)


def mask_of(words: Sequence[str] | None) -> int | None:
    """Return throttle reasons as bits; words that are not known are left out."""
    return None if words is None else sum(1 << place for place, word in enumerate(THROTTLES) if word in words)


def words_of(mask: float) -> list[str]:
    """Return the reasons of `mask_of`."""
    return [word for place, word in enumerate(THROTTLES) if int(mask) >> place & 1]
