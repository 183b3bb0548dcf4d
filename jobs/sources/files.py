"""Finds the files of a dump, and the files beside them that are left out.

No message may be left out silently: every file is read, named as a marker of Spark, or refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import translate
from itertools import chain
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from jobs.errors import ArchiveError, text_of
from jobs.files.storage import Storage

# What Spark and Hadoop leave beside the files that they write. Messages are never in them.
_MARKER = re.compile(
    r"_SUCCESS|_temporary|_(common_)?metadata|_spark_metadata|_(started|committed)_\d+"
    r"|\..*\.crc|\.DS_Store"
)
_SIGN = re.compile(r"[*?\[{]")  # of a pattern
_ALTERNATIVES = re.compile(r"\{([^{}]*)\}")
_MOST_FOLDERS = 20  # one in another; a link that leads back to its own folder has no end


@dataclass(frozen=True, slots=True)
class DumpFile:
    """A file with messages.

    Attributes:
        path: a path of this machine, or the address of an object store.
        columns: what the names of its folders say, such as `cluster=east`, below what was given.
    """

    path: str
    size: int
    columns: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True)
class DumpFiles:
    """The files of a dump.

    Attributes:
        path: a file, a folder or a pattern, as it was given.
        read: the files with messages, in the order of their names.
        left_out: files and folders that were found but are not read: markers of Spark, links to
            files that are read, and empty folders of an object store.
    """

    path: str
    read: tuple[DumpFile, ...]
    left_out: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """The bytes of all files that are read."""
        return sum(file.size for file in self.read)


def find_files(storage: Storage, path: str) -> DumpFiles:
    """The files at a path: of a folder, also those in folders in it.

    A path that exists is meant literally; else `*`, `?`, `[a-c]` and `{a,b}` make it a pattern.
    This is a task, because only what reads the files may be able to see them.

    Raises:
        ArchiveError: there is no such file, or one of which nobody can say what it is.
    """
    start = path.removeprefix("file://")
    if "://" not in start:
        start = os.path.abspath(start.removeprefix("file:"))
    try:
        files = list(_files_below(storage, path, start))
    except (OSError, pa.ArrowException, ImportError, ValueError) as error:
        raise ArchiveError("dump-unreadable", path=path, reason=text_of(error)) from error
    others = {file for file in files if isinstance(file, str)}
    read: dict[str, DumpFile] = {}
    with_messages = [file for file in files if isinstance(file, DumpFile)]
    for file in sorted(with_messages, key=lambda file: (os.path.islink(file.path), file.path)):
        place = file.path if "://" in file.path else os.path.realpath(file.path)
        if read.setdefault(place, file).path != file.path:  # a link to it
            others.add(file.path)
    left_out = tuple(sorted(others))
    if not read:
        also = f"; left out: {', '.join(left_out)}" if left_out else ""
        raise ArchiveError("no-file-with-messages", path=path, also=also)
    in_order = sorted(read.values(), key=lambda file: file.path)
    return DumpFiles(path, tuple(in_order), left_out)


def _files_below(storage: Storage, path: str, start: str) -> Iterator[DumpFile | str]:
    """The files that are read, and the names of others."""
    server = _server(start)
    filesystem, inside = located(storage, server)
    top = (inside + f"{start}/".removeprefix(server)).rstrip("/") or "/"
    info = filesystem.get_file_info(top)
    if info.type != pafs.FileType.NotFound:
        roots, base = [info], top if info.type == pafs.FileType.Directory else None
    else:
        roots = [root for pattern in _expanded(top) for root in _matching(filesystem, pattern)]
        sign = _SIGN.search(top)
        base = top[: sign.start()].rpartition("/")[0] if sign else ""
    if not roots:
        raise ArchiveError("no-such-path", path=path)

    def below(info: Any, depth: int = 0) -> Iterator[DumpFile | str]:
        name = info.base_name
        shown = server + info.path.removeprefix(inside)
        if _MARKER.fullmatch(name):
            yield shown
        elif (name.startswith("_") and "=" not in name) or name.startswith("."):
            raise ArchiveError("dump-hidden-name", path=shown, start=name[0])
        elif name.endswith("._COPYING_"):
            raise ArchiveError("dump-being-copied", path=shown)
        elif info.type == pafs.FileType.NotFound:
            raise ArchiveError("dump-dead-link", path=shown)
        elif info.type == pafs.FileType.File:
            yield DumpFile(shown, info.size, _columns(info.path, base))
        elif info.type == pafs.FileType.Unknown:
            raise ArchiveError("dump-not-a-file", path=shown)
        elif depth == _MOST_FOLDERS:
            raise ArchiveError("dump-folders-too-deep", path=shown, most=_MOST_FOLDERS)
        else:
            entries = _inside(filesystem, info.path)
            if not entries and server:  # in a store an object of this name, perhaps with content
                yield f"{shown}/"
            for entry in entries:
                if entry.path == info.path:  # so PyArrow shows `a//b`, which it cannot open
                    raise ArchiveError("dump-two-slashes", path=shown)
                yield from below(entry, depth + 1)

    return chain.from_iterable(map(below, roots))


def located(storage: Storage, path: str) -> tuple[Any, str]:
    """The pyarrow file system of a file, and the path in it.

    By hand, because `#`, `?` and `%` in an address are characters of names here.
    """
    if "://" not in path:
        return pafs.LocalFileSystem(), path
    server = _server(path)
    filesystem, place = storage.find(f"{server}x")
    return filesystem, (place.removesuffix("x") + f"{path}/".removeprefix(server))[:-1]


def _server(path: str) -> str:
    """The start of an address, up to the path; "" for a path of this machine."""
    return "/".join([*path.split("/", 3)[:3], ""]) if "://" in path else ""


def unreadable(path: str, error: Exception) -> ArchiveError:
    """The error of a file that cannot be read, with the cure."""
    text = text_of(error)
    known = [cure for said, cure in _CAUSES if re.search(said, text, re.IGNORECASE)]
    if isinstance(error, FileNotFoundError):
        known = ["it is gone; put it back, or run again"]
    return ArchiveError("dump-unreadable", path=path, reason=known[0] if known else text)


# What pyarrow says of a file, and what people are told.
_CAUSES = (
    ("encrypt|decrypt", "it is encrypted; decrypt it"),
    (
        "file size is|magic bytes|footer",
        "it is not a Parquet file, or it was cut short; copy it again",
    ),
    ("truncated|end of (stream|file)", "it ends too early; copy it again"),
)


def _inside(filesystem: Any, folder: str) -> list[Any]:
    """What is in a folder, links to files that are gone included."""
    if isinstance(filesystem, pafs.LocalFileSystem):  # whose own list leaves those out
        return list(
            filesystem.get_file_info([os.path.join(folder, name) for name in os.listdir(folder)])
        )
    if filesystem.type_name != "gcs":
        return list(filesystem.get_file_info(pafs.FileSelector(folder)))
    # PyArrow's list of what is directly in a folder lacks the folders there.
    entries: dict[str, Any] = {}
    for entry in filesystem.get_file_info(pafs.FileSelector(folder, recursive=True)):
        name, below, _ = entry.path.removeprefix(folder).lstrip("/").partition("/")
        path = f"{folder.rstrip('/')}/{name}"
        entries[path] = pafs.FileInfo(path, pafs.FileType.Directory) if below else entry
    return list(entries.values())


def _columns(path: str, base: str | None) -> tuple[tuple[str, str | None], ...]:
    """What the folders between the base and a file say, as Spark and Hive name them."""
    if base is None:
        return ()
    folders = path.removeprefix(base).split("/")[:-1]
    pairs = [folder.partition("=")[::2] for folder in folders if "=" in folder]
    return tuple(
        (unquote(name), None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value))
        for name, value in pairs
    )


def _expanded(pattern: str) -> list[str]:
    """The patterns that one with `{a,b}` stands for."""
    alternatives = _ALTERNATIVES.search(pattern)
    if alternatives is None:
        return [pattern]
    before, after = pattern[: alternatives.start()], pattern[alternatives.end() :]
    return [
        expanded
        for choice in alternatives[1].split(",")
        for expanded in _expanded(before + choice + after)
    ]


def _matching(filesystem: Any, pattern: str) -> list[Any]:
    """The files and folders whose path is as a pattern says, folder by folder."""
    start, *parts = pattern.split("/")
    paths = [start or "/"]
    for part in parts:
        below = [path.rstrip("/") + "/" for path in paths]
        if not _SIGN.search(part):
            paths = [path + part for path in below]
            continue
        name = re.compile(translate(part.replace("[^", "[!")))
        infos = filesystem.get_file_info([path.rstrip("/") or "/" for path in below])
        folders = [info.path for info in infos if info.type == pafs.FileType.Directory]
        paths = [
            entry.path
            for folder in folders
            for entry in _inside(filesystem, folder)
            if name.match(entry.base_name)
        ]
    infos = filesystem.get_file_info(sorted(paths))
    # A link to a file that is gone is refused later.
    return [i for i in infos if i.type != pafs.FileType.NotFound or os.path.islink(i.path)]
