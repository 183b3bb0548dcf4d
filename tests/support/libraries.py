"""What a shared library says of itself: ELF of Linux and Mach-O of macOS, both of 64 bits."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_ELF, _MACH_O = b"\x7fELF\x02\x01", b"\xcf\xfa\xed\xfe"
_OF_THE_LINKER = {"__mh_dylib_header", "___dso_handle"}
_MACHINES = {62: "x86_64", 183: "aarch64", 0x01000007: "x86_64", 0x0100000C: "arm64"}


@dataclass(frozen=True)
class SharedLibrary:
    """A library.

    Attributes:
        machine: the processor, as platforms in the names of wheels say it.
        exported: the names of its functions that others can call.
        needed: the libraries that it needs.
        oldest: the oldest glibc (Linux) or macOS that it runs on; None if it needs none.
        is_signed: whether it has a signature, without which an arm64 Mac does not load it.
    """

    machine: str
    exported: frozenset[str]
    needed: tuple[str, ...]
    oldest: tuple[int, int] | None
    is_signed: bool = False


def read_library(data: bytes) -> SharedLibrary:
    """What a library says of itself."""
    if data.startswith(_ELF):
        return _elf(data)
    assert data.startswith(_MACH_O)
    return _mach_o(data)


def _elf(data: bytes) -> SharedLibrary:
    (machine,) = struct.unpack_from("<H", data, 18)
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    # name, kind, flags, address, offset, size, link, info, alignment, size of an entry
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + size * n) for n in range(count)]

    def entries(kind: int, layout: str) -> Iterator[tuple[bytes, tuple[int, ...]]]:
        """The entries of a section, with the texts that they refer to."""
        for section in sections:
            if section[1] == kind:
                start, length = sections[section[6]][4:6]
                texts = data[start : start + length]
                for entry in struct.iter_unpack(layout, data[section[4] :][: section[5]]):
                    yield texts, entry

    # name, binding and type, other, section, address, size
    symbols = entries(11, "<IBBHQQ")
    exported = {_text(texts, s[0]) for texts, s in symbols if s[1] >> 4 == 1 and s[3] and s[0]}
    needed = tuple(_text(texts, value) for texts, (tag, value) in entries(6, "<QQ") if tag == 1)
    versions = [(int(a), int(b)) for a, b in re.findall(rb"\0GLIBC_(\d+)\.(\d+)", data)]
    return SharedLibrary(
        _MACHINES[machine], frozenset(exported), needed, max(versions, default=None)
    )


def _mach_o(data: bytes) -> SharedLibrary:
    _, machine, _, _, count, _, _, _ = struct.unpack_from("<8I", data)
    exported: set[str] = set()
    needed: list[str] = []
    oldest, is_signed, at = None, False, 32
    for _ in range(count):
        command, size = struct.unpack_from("<II", data, at)
        if command == 0x2:  # LC_SYMTAB
            symbols, number, texts, length = struct.unpack_from("<4I", data, at + 8)
            for n in range(number):
                name, kind = struct.unpack_from("<IB", data, symbols + 16 * n)
                if kind & 0x1F == 0x0F:  # external, in a section, and not hidden
                    text = _text(data[texts : texts + length], name)
                    if text not in _OF_THE_LINKER:
                        exported.add(text.removeprefix("_"))
        elif command == 0xC:  # LC_LOAD_DYLIB
            (name,) = struct.unpack_from("<I", data, at + 8)
            needed.append(_text(data[at : at + size], name))
        elif command == 0x32:  # LC_BUILD_VERSION
            (version,) = struct.unpack_from("<I", data, at + 12)
            oldest = version >> 16, version >> 8 & 0xFF
        elif command == 0x1D:  # LC_CODE_SIGNATURE
            is_signed = True
        at += size
    return SharedLibrary(_MACHINES[machine], frozenset(exported), tuple(needed), oldest, is_signed)


def _text(texts: bytes, start: int) -> str:
    return texts[start : texts.index(b"\0", start)].decode()
