"""The files of the repository: the lock, the links in documents, and what none may hold."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.architecture import drawing, parts
from tests.support.programs import output_of

ROOT = Path(__file__).parents[1]


def tracked_files(pattern: str) -> list[Path]:
    """The files of the checkout that git knows and that match a pattern."""
    # Git refuses a checkout that belongs to somebody else; listing names is harmless.
    command = ("git", "-c", "safe.directory=*", "ls-files", "-z", "--", pattern)
    listing = output_of(*command, cwd=ROOT)
    return [ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file()]


def locked_requirements() -> list[str]:
    """The requirements of the lock, each with its hashes on one line, comments left out."""
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    return text.replace("\\\n", "").splitlines()


def wanted_requirements() -> list[str]:
    """What pyproject.toml asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return project["project"]["dependencies"] + project["dependency-groups"]["dev"]


class TestLock:
    def test_every_requirement_has_a_version_and_hashes(self) -> None:
        locked = locked_requirements()
        assert len(locked) > 100
        form = re.compile(r"[a-z0-9-]+==[^\s;]+( ; [^#@]+?)?( +--hash=sha256:[0-9a-f]{64})+")
        assert [line for line in locked if not form.fullmatch(line)] == []

    def test_every_python_gets_the_same_versions(self) -> None:
        """So types and styles that hold with one hold with all; two numpys have other types."""
        names = Counter(line.partition("==")[0] for line in locked_requirements())
        assert [name for name, count in names.items() if count > 1] == []
        settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        oldest = settings["project"]["requires-python"].removeprefix(">=")
        assert settings["tool"]["mypy"]["python_version"] == oldest
        assert settings["tool"]["ruff"]["target-version"] == "py" + oldest.replace(".", "")

    def test_names_no_index_and_no_machine(self) -> None:
        text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
        assert re.findall(r"^.*(?:://|--(?!hash)|file:|\s/\w).*$", text, re.MULTILINE) == []

    def test_answers_pyproject(self) -> None:
        locked: dict[str, list[str]] = {}
        for line in locked_requirements():
            requirement = Requirement(line.split(" ;")[0].split(" --hash")[0])
            (version,) = requirement.specifier
            locked.setdefault(requirement.name, []).append(version.version)
        for text in wanted_requirements():
            wanted = Requirement(text)
            versions = locked.get(canonicalize_name(wanted.name))
            assert versions, f"{text} is not locked: run `make lock`"
            assert all(map(wanted.specifier.contains, versions)), f"{text}: run `make lock`"


def test_upper_bounds_have_a_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    bounded = [requirement for requirement in wanted_requirements() if "<" in requirement]
    assert bounded
    assert [line for line in bounded if not re.search(f'"{re.escape(line)}", +# \\w', text)] == []


def test_no_paths_of_a_machine() -> None:
    own = re.compile(rb"(?<![\w.})-])/(?:root|work|Users|home/[a-z]+)/[^\s]*")
    this = Path(__file__)
    found = {
        str(path.relative_to(ROOT)): matches
        for path in tracked_files("*")
        if path != this and (matches := own.findall(path.read_bytes()))
    }
    assert found == {}


def anchors(markdown: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a document."""
    headings = re.findall(r"^#+ +(.+?) *$", without_code_blocks(markdown), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def without_code_blocks(markdown: str) -> str:
    return re.sub(r"^(```+)[^\n]*\n.*?^\1$", "", markdown, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", tracked_files("*.md"), ids=lambda path: path.name)
def test_links_resolve(document: Path) -> None:
    text = without_code_blocks(document.read_text(encoding="utf-8"))
    targets = re.findall(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)", re.sub(r"`[^`\n]*`", "", text))
    broken = []
    for target in targets:
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (document.parent / name).resolve() if name else document
        if not file.exists() or (anchor and anchor not in anchors(file.read_text("utf-8"))):
            broken.append(target)
    assert broken == []


def test_security_names_tests_that_exist() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", text)
    assert len(named) > 15
    assert [name for name in named if f"def {name}(" not in tests] == []
    paths = re.findall(r"`(tests/[\w/.]+)`", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_architecture_names_files_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = [path for path in re.findall(r"`([\w.]+/[\w./]*)`", text) if "NAME" not in path]
    assert len(named) > 30
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_picture_of_the_parts_is_up_to_date() -> None:
    picture = (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8")
    assert picture == drawing(parts()), "run `python scripts/architecture.py`"


def test_make_lists_every_target() -> None:
    listing = output_of("make", "--no-print-directory", cwd=ROOT)
    phony = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"^  make (\S+) +\S", listing, re.MULTILINE)) == set(phony[0].split())


def test_types_are_checked_for_one_python_and_apart_from_the_tests() -> None:
    """A user's Python, whichever it is, decides nothing but whether the tests pass."""

    def recipe(target: str) -> str:
        return output_of("make", "--no-print-directory", "--dry-run", target, cwd=ROOT)

    assert re.findall(r"\b(?:mypy|ruff check)\b", recipe("lint")) == ["ruff check", "mypy"]
    assert not re.search(r"\b(?:mypy|ruff)\b", recipe("test"))


def test_no_merge_was_left_half_done() -> None:
    marks = re.compile(rb"^(?:<{7}|>{7}) ", re.MULTILINE)
    assert [str(path) for path in tracked_files("*") if marks.search(path.read_bytes())] == []
