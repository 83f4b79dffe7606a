"""What the scheduler has learnt, as model types: profiles and sets measured together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from colane.api.of_record import MeasurementObject, ProfileObject, form_of
from colane.model.profile import CorePace, MemoryWindow, Profile, ProfileKey, SetMeasurement, ValueSource

if TYPE_CHECKING:
    from colane.client.client import Client

PROFILE: Final = form_of(Profile, CorePace, MemoryWindow, otherwise={ValueSource: ValueSource.DEFAULT})
MEASUREMENT: Final = form_of(SetMeasurement)


def read_profiles(client: Client) -> dict[ProfileKey, Profile]:
    """Return all profiles by key."""
    profiles = map(decode_profile, client.profiles())
    return {profile.key: profile for profile in profiles}


def read_measurements(client: Client) -> list[SetMeasurement]:
    """Return all measured sets, oldest first."""
    return [decode_measurement(body) for body in client.measurements()]


def decode_profile(body: Mapping[str, Any]) -> Profile:
    """Return a profile of `GET /profiles`, also of another version: what is not known here is left aside."""
    return PROFILE.read(body)


def encode_profile(profile: Profile) -> ProfileObject:
    """Return a profile as JSON carries it; `decode_profile` reads it back."""
    told: ProfileObject = PROFILE.write(profile)
    return told


def decode_measurement(body: Mapping[str, Any]) -> SetMeasurement:
    """Return a measured set of `GET /measurements`."""
    return MEASUREMENT.read(body)


def encode_measurement(measured: SetMeasurement) -> MeasurementObject:
    """Return a measured set as JSON carries it; `decode_measurement` reads it back."""
    told: MeasurementObject = MEASUREMENT.write(measured)
    return told
