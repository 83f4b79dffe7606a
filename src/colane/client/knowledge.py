"""What the scheduler has learnt, as model types: profiles and sets measured together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from colane.model.profile import Profile, ProfileKey, SetMeasurement, Value, ValueSource
from colane.model.versions import read_as

if TYPE_CHECKING:
    from colane.client.client import Client

VALUES: Final = (
    "step_s",
    "step_median_s",
    "persistent_bytes",
    "ephemeral_bytes",
    "occupancy",
    "bandwidth",
    "answer_p99_s",
)
"""Fields of a profile that carry a source and a sample count."""

_SCALARS: Final = ("sharing", "delta", "delta_general", "at_s")
_LISTS: Final = ("step_alone_s", "step_together_s", "steps")


def read_profiles(client: Client) -> dict[ProfileKey, Profile]:
    """Return all profiles by key."""
    profiles = map(decode_profile, client.profiles())
    return {profile.key: profile for profile in profiles}


def read_measurements(client: Client) -> list[SetMeasurement]:
    """Return all measured sets, oldest first."""
    return [decode_measurement(body) for body in client.measurements()]


def decode_profile(body: Mapping[str, Any]) -> Profile:
    """Return a profile of `GET /profiles`."""
    values: dict[str, Any] = {name: _value(body.get(name)) for name in VALUES}
    users = tuple(body.get("users", ()))
    return Profile(key=_key(body["key"]), updated_s=body.get("updated_s", 0.0), users=users, **values)


def encode_profile(profile: Profile) -> dict[str, Any]:
    """Return a profile as JSON carries it; `decode_profile` reads it back."""
    values = {name: _value_object(getattr(profile, name)) for name in VALUES}
    return {"key": profile.key._asdict(), **values, "updated_s": profile.updated_s, "users": list(profile.users)}


def decode_measurement(body: Mapping[str, Any]) -> SetMeasurement:
    """Return a measured set of `GET /measurements`."""
    lists: dict[str, Any] = {name: tuple(body[name]) for name in _LISTS}
    scalars = {name: body[name] for name in _SCALARS}
    return SetMeasurement(keys=tuple(map(_key, body["keys"])), **scalars, **lists)


def encode_measurement(measured: SetMeasurement) -> dict[str, Any]:
    """Return a measured set as JSON carries it; `decode_measurement` reads it back."""
    scalars = {name: getattr(measured, name) for name in _SCALARS}
    lists = {name: list(getattr(measured, name)) for name in _LISTS}
    return {"keys": [key._asdict() for key in measured.keys], **scalars, **lists}


def _key(body: Mapping[str, Any] | Sequence[Any]) -> ProfileKey:
    """Read a key: an object, or its fields in order."""
    return ProfileKey(**_fields(ProfileKey, body)) if isinstance(body, Mapping) else ProfileKey(*body)


def _value(body: Mapping[str, Any] | None) -> Value | None:
    if body is None:
        return None
    source = read_as(ValueSource, body["source"], ValueSource.DEFAULT)
    return Value(**{**_fields(Value, body), "source": source})


def _fields(kind: type[ProfileKey | Value], body: Mapping[str, Any]) -> dict[str, Any]:
    """What this version knows of an object."""
    return {name: body[name] for name in kind._fields if name in body}


def _value_object(value: Value | None) -> dict[str, Any] | None:
    return None if value is None else {**value._asdict(), "source": value.source.value}
