"""Which files a dump is made of, file by file, and which files beside them are left out.

Spark takes every path as a pattern, reads no folder in a folder, and skips names that start with
`_` or `.` without a word. So its reader is given the files that are found here, one by one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pyspark.sql import SparkSession

from jobs.errors import SPARK_ERRORS, ArchiveError, job_error
from jobs.warehouse.paths import is_pattern, is_readable, literal_path

# What Spark and Hadoop leave beside the files that they write. Messages are never in them.
_MARKER = re.compile(
    r"_SUCCESS|_temporary|_(common_)?metadata|_spark_metadata|_(started|committed)_\d+"
    r"|\..*\.crc|\.DS_Store"
)
_MOST_FOLDERS = 20  # one in another; a link that leads back to its own folder has no end


@dataclass(frozen=True)
class DumpFiles:
    """The files of a dump.

    Attributes:
        path: a file, a folder or a pattern, as it was given.
        base: the folder below which `name=value` folders are columns; None for one file.
        read: the files with messages, in the order of their names.
        left_out: files and folders that were found but are not read: markers of Spark.
    """

    path: str
    base: str | None
    read: tuple[str, ...]
    left_out: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{_some(self.read)}; leaves out {_some(self.left_out)}"

    @property
    def literal(self) -> list[str]:
        """The files as Spark's readers take them."""
        return [literal_path(file) for file in self.read]


def dump_files(spark: SparkSession, path: str) -> DumpFiles:
    """The files at a path: of a folder, also those in folders in it.

    A path that exists is meant literally; else `*`, `?`, `[a-c]` and `{a,b}` make it a pattern.

    Raises:
        ArchiveError: there is no such file, or one that Spark cannot read.
    """
    try:
        found = _on_server(spark, path) if is_remote(spark) else _listed(spark, path)
    except SPARK_ERRORS as error:
        raise ArchiveError(f"{path} cannot be read: {job_error(error)}") from error
    if not found.read:
        others = f"; left out: {', '.join(map(shown, found.left_out))}" if found.left_out else ""
        raise ArchiveError(f"no file with messages in {path}{others}")
    for file in found.read:
        if not is_readable(file) or ":" in file.rpartition("/")[2]:
            raise ArchiveError(
                f"{shown(file)} has a `:` in its name, or one in its path together with one of "
                "`* ? [ ] { } \\`, which Spark cannot read; rename it"
            )
    return found


def shown(file: str) -> str:
    """A file as people write it: without the scheme of local files, and not percent-encoded."""
    if file.startswith("file:///"):  # a URI, as Spark writes it
        return unquote(file.removeprefix("file://"))
    return file.removeprefix("file:")


def _listed(spark: SparkSession, path: str) -> DumpFiles:
    """With the file systems of Hadoop, which are those that Spark reads with."""
    jvm: Any = spark.sparkContext._jvm
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    if ":" in path and "://" not in path and os.path.exists(path):
        path = f"file:{os.path.abspath(path)}"  # the colon is no end of a scheme
    top = jvm.org.apache.hadoop.fs.Path(path)
    filesystem = top.getFileSystem(configuration)
    if filesystem.exists(top):
        roots, base = [filesystem.getFileStatus(top)], top
    else:
        roots, base = list(filesystem.globStatus(top) or []), _above_pattern(top)
    if not roots:
        raise ArchiveError(f"no file or folder {shown(path)}")
    read: list[str] = []
    left_out: list[str] = []
    for root in roots:
        for file, is_read in _walk(filesystem, root):
            (read if is_read else left_out).append(file)
    if len(roots) == 1 and roots[0].isFile():
        return DumpFiles(path, None, tuple(read), tuple(left_out))
    return DumpFiles(path, str(base.toString()), tuple(sorted(read)), tuple(sorted(left_out)))


def _above_pattern(pattern: Any) -> Any:
    """The last folder of a pattern's path above its first sign."""
    while is_pattern(pattern.toString()):
        pattern = pattern.getParent()
    return pattern


def _walk(filesystem: Any, status: Any, depth: int = 0) -> Iterator[tuple[str, bool]]:
    """The files below a file or folder, each with whether it is read."""
    path = status.getPath()
    name, location = path.getName(), path.toString()
    if _MARKER.fullmatch(name):
        yield location, False
    elif (name.startswith("_") and "=" not in name) or name.startswith("."):
        raise ArchiveError(
            f"{shown(location)} starts with `{name[0]}`, and Spark leaves such names out; "
            "rename it, or move it away if it has no messages"
        )
    elif name.endswith("._COPYING_"):
        raise ArchiveError(f"{shown(location)} is still being copied; wait, or remove it")
    elif status.isFile():
        yield location, True
    elif depth == _MOST_FOLDERS:
        raise ArchiveError(
            f"{shown(location)} is in more than {_MOST_FOLDERS} folders; "
            "perhaps a link leads back to its own folder"
        )
    else:
        if location.startswith("file:"):  # Hadoop lists no link to a file that is gone
            _refuse_dead_links(shown(location))
        for below in filesystem.listStatus(path):
            yield from _walk(filesystem, below, depth + 1)


def _some(files: tuple[str, ...]) -> str:
    """How many, and the names of the first ones."""
    count = f"{len(files)} file{'' if len(files) == 1 else 's'}"
    names = [shown(file).rpartition("/")[2] for file in files[:5]]
    return f"{count} ({', '.join(names)}{', ...' if len(files) > 5 else ''})" if files else count


def _refuse_dead_links(folder: str) -> None:
    try:
        paths = [os.path.join(folder, name) for name in os.listdir(folder)]
    except OSError as error:
        raise ArchiveError(f"{folder} cannot be read: {error.strerror}") from error
    for path in paths:
        if not os.path.exists(path):
            raise ArchiveError(f"{path} leads to a file that is not there; remove the link")


def is_remote(spark: SparkSession) -> bool:
    """Whether a Spark Connect server works for this session: then there is no JVM here."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _on_server(spark: SparkSession, path: str) -> DumpFiles:
    """What a Spark Connect server finds; it does not tell what it leaves out."""
    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(path)
    found = sorted(row["path"] for row in files.select("path").collect())
    return DumpFiles(path, None, tuple(found))
