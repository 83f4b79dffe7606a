"""Keeps the processes of a cgroup from opening some device files: a program of the kernel's device controller.

Version 2 of cgroups has no file for this; a BPF program is attached instead (bpf(2), BPF_PROG_TYPE_CGROUP_DEVICE),
which needs root or CAP_BPF and CAP_NET_ADMIN. It goes with the cgroup.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

BPF: Final = {"x86_64": 321, "aarch64": 280, "ppc64le": 361, "riscv64": 280}  # number of bpf(2) by machine
PROG_LOAD, PROG_ATTACH = 5, 8
TYPE_CGROUP_DEVICE, ATTACH_DEVICE, ALLOW_MULTI = 15, 6, 2
LOAD_WORD, JUMP_NOT_EQUAL, MOVE, EXIT = 0x61, 0x55, 0xB7, 0x95
RESULT, CONTEXT, MAJOR, MINOR = range(4)
"""Registers: 0 holds the answer, 1 the question, of which `MAJOR` and `MINOR` are copies."""
MAJOR_OFFSET, MINOR_OFFSET = 4, 8  # of `struct bpf_cgroup_dev_ctx`: access type, major, minor
ATTRIBUTE_BYTES: Final = 128


class DeviceNumber(NamedTuple):
    """A character device."""

    major: int
    minor: int


def program(denied: Iterable[DeviceNumber]) -> bytes:
    """Return a program that says no to these devices and yes to all others."""
    code = [
        _instruction(LOAD_WORD, MAJOR, CONTEXT, MAJOR_OFFSET),
        _instruction(LOAD_WORD, MINOR, CONTEXT, MINOR_OFFSET),
    ]
    for device in denied:
        code += [
            _instruction(JUMP_NOT_EQUAL, MAJOR, offset=3, value=device.major),
            _instruction(JUMP_NOT_EQUAL, MINOR, offset=2, value=device.minor),
            _instruction(MOVE, RESULT, value=0),
            _instruction(EXIT),
        ]
    return b"".join([*code, _instruction(MOVE, RESULT, value=1), _instruction(EXIT)])


def reject(cgroup: Path, denied: Iterable[DeviceNumber]) -> None:
    """Keep the processes of a cgroup, now and later, from opening these devices.

    Raises OSError: the kernel does not permit it.
    """
    code = ctypes.create_string_buffer(program(denied))
    license_name = ctypes.create_string_buffer(b"Apache-2.0")
    count = len(code.raw) // 8
    loaded = struct.pack("=IIQQ", TYPE_CGROUP_DEVICE, count, ctypes.addressof(code), ctypes.addressof(license_name))
    handle = _bpf(PROG_LOAD, loaded)
    try:
        place = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _bpf(PROG_ATTACH, struct.pack("=IIII", place, handle, ATTACH_DEVICE, ALLOW_MULTI))
        finally:
            os.close(place)
    finally:
        os.close(handle)


def _instruction(code: int, target: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("=BBhi", code, target | source << 4, offset, value)


def _bpf(command: int, attributes: bytes) -> int:
    number = BPF.get(os.uname().machine)
    if number is None:
        raise OSError(0, f"bpf(2) is not known on {os.uname().machine}")
    padded = ctypes.create_string_buffer(attributes, ATTRIBUTE_BYTES)
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(ctypes.c_long(number), ctypes.c_int(command), padded, ctypes.c_uint(ATTRIBUTE_BYTES))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(result)
