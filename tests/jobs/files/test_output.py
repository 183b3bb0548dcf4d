"""A file that could not be written is refused before the work, and one is whole or not there."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from jobs.errors import JobError
from jobs.files.output import refuse_unwritable, whole
from tests.support.refused import refused

NOT_AS_ROOT = pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        pytest.param(".", "it is a folder; name a file", id="a folder"),
        pytest.param("none/page", "there is no folder .*none; make it first", id="no folder"),
        pytest.param("file/page", "there is no folder .*file; make it first", id="below a file"),
        pytest.param("closed/page", "you may not write there", id="closed", marks=NOT_AS_ROOT),
        pytest.param("file", None, id="a file"),
        pytest.param("new", None, id="a new file"),
        pytest.param("/dev/null", None, id="no file of a folder"),
    ],
)
def test_what_cannot_be_written(
    name: str, why: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "closed").mkdir(mode=0o500)
    if why is None:
        refuse_unwritable("the page", Path(name))
        return
    with refused(JobError, "output-unwritable", what="the page", path=name, why=re.compile(why)):
        refuse_unwritable("the page", Path(name))


def test_until_a_file_is_whole_the_other_one_stays(tmp_path: Path) -> None:
    page, link = tmp_path / "page", tmp_path / "link"
    page.write_text("old")
    link.symlink_to(page)

    def write_half() -> None:
        with whole(link) as part:
            part.write_text("ne")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write_half()
    assert page.read_text() == "old"
    with whole(link) as part:
        part.write_text("new")
        assert page.read_text() == "old"
    assert (page.read_text(), link.readlink()) == ("new", page)
    assert {*tmp_path.iterdir()} == {page, link}


def test_what_is_no_file_is_written_as_it_is() -> None:
    with whole(Path("/dev/null")) as part:
        part.write_text("lost")
    assert Path("/dev/null").is_char_device()
