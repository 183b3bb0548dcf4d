"""YAML of components that nobody meant well: refused in one line, before Dagster reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nats_transform.errors import InvalidConfig
from orchestration.component_files import check_file
from tests.orchestration.test_settings import ARCHIVE, RUNS
from tests.support.dagster_processes import environment
from tests.support.dagster_project import Project
from tests.support.programs import printed_in_python
from tests.support.saying import saying

pytestmark = pytest.mark.dagster

TYPE = "type: nats_transform.dagster.SubjectArchive\nattributes:\n"
MERGES = "x: &a {k: v}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 10)}]}}\n"
    for before, name in zip("abcd", "bcde", strict=True)
)
BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
REFUSED = [
    pytest.param(BOMB, r":5: e: it has more than 20,000 values, aliases counted", id="bomb"),
    pytest.param(MERGES, r":5: e\.<<: it has more than 20,000 values", id="bomb-of-merges"),
    pytest.param("a: " + "[" * 490_000, r":1: a: it has more than 50 levels", id="deep-lists"),
    pytest.param("a: " + "{b: " * 240_000, r":1: a\.b\.b.*b: it has more than 50", id="deep-maps"),
    pytest.param(
        "".join(" " * n + "a:\n" for n in range(1300)),
        r":50: a\.a.*a: it has more",
        id="deep-block",
    ),
    pytest.param("a: 1\nb: {c: 2, c: 3}\n", r":2: b\.c: it is there twice", id="twice"),
    pytest.param("a: 1\nb: 1\na: 2\n", r":3: a: it is there twice", id="twice-at-the-top"),
    pytest.param("a:\n  [b]: c\n", r":2: a: a key must be text", id="key-list"),
    pytest.param("a:\n  ? {b: c}\n  : d\n", r":2: a: a key must be text", id="key-mapping"),
    pytest.param("a: &a b\n*a : c\n", r":2: a key must be text", id="key-alias"),
    pytest.param(
        "a: !!python/object/apply:os.system [ls]\n",
        r":1: a: the tag !!python/object/apply:os\.system is not allowed",
        id="python-object",
    ),
    pytest.param("a: !!omap [b: c]\n", r":1: a: the tag !!omap is not allowed", id="omap"),
    pytest.param("a: !!binary aGk=\n", r":1: a: the tag !!binary is not allowed", id="binary"),
    pytest.param("a: b\nc: " + "9" * 5000, r":2: c: a number has at most 1,000 dig", id="digits"),
    pytest.param("a: b\nc: \x1b[31m\n", r":2: the character \\x1b is not allowed", id="control"),
    pytest.param("a: b\nc: \0\n", r":2: the character \\x00 is not allowed", id="zero"),
    pytest.param(b"a: b\nc: \xe9\n", r":2: the byte 0xe9 is not UTF-8", id="latin-1"),
    pytest.param("a: b\n".encode("utf-16"), r":1: the byte 0xff is not UTF-8", id="utf-16"),
    pytest.param(
        "post_processing:\n  a: ['{{ cycler.__init__ }}']\n",
        r":2: post_processing\.a: a template may only look up names",
        id="template-outside-attributes",
    ),
    pytest.param("#" * 1_000_001, saying("component-too-large"), id="large"),
    pytest.param(
        f"a: [{'b, ' * 20_000}]", r":1: a: it has more than 20,000 values", id="many-values"
    ),
]


@pytest.mark.parametrize(("text", "told"), REFUSED)
def test_hostile_yaml_is_refused_with_its_line(
    tmp_path: Path, text: str | bytes, told: str
) -> None:
    file = tmp_path / "defs.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidConfig, match=told) as raised:
        check_file(file)
    assert str(raised.value).startswith(str(file))
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: &a {b: c}\nd: {<<: *a, b: e}\nf: *a\n", id="aliases-and-merge"),
        pytest.param("a: 1\n---\na: 2\n", id="documents"),
        pytest.param("a: [{b: 1}, {b: 1}]\nc: {b: 1}\n", id="same-key-elsewhere"),
        pytest.param("a: '" + "9" * 5000 + "'\n", id="digits-in-quotes"),
        pytest.param("a: !!str 1\n", id="a-tag-that-is-plain"),
        pytest.param("\ufeffa: ü\u2028\U0001f600\n", id="characters"),
        pytest.param("attributes: {a: '{% if b %}c{% endif %}'}\n", id="another-component"),
        pytest.param("b: '{{ dg.AutomationCondition.on_cron(1) }}'\n", id="post-processing"),
        pytest.param("a: [b\n", id="no-yaml"),  # Dagster says where
        pytest.param("", id="empty"),
    ],
)
def test_other_yaml_is_let_through(tmp_path: Path, text: str) -> None:
    file = tmp_path / "defs.yaml"
    file.write_text(text)
    check_file(file)


LOAD = """
import resource, sys, warnings
from pathlib import Path
from orchestration.loading import load_archives
warnings.simplefilter("ignore")
resource.setrlimit(resource.RLIMIT_CPU, (300, 300))
defs = load_archives(Path(sys.argv[1]))
keys = defs.get_repository_def().asset_graph.get_all_asset_keys()
assert {key.path[0] for key in keys if key.path[1] != "defs_yaml"} == {"good"}, keys
print(len([key for key in keys if key.path[1] == "defs_yaml"]))
# Not ru_maxrss: Linux lets a new program inherit the peak of the process that started it.
status = Path("/proc/self/status").read_text().splitlines()
print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""


@pytest.mark.slow
def test_a_project_of_hostile_yaml_loads_in_bounded_memory(bare_project: Project) -> None:
    """All files of this page and all templates of test_settings, beside a good archive."""
    bare_project.add("good", count=1)
    attributes = "".join(f"  {line}\n" for line in ARCHIVE.splitlines())
    texts = [case.values[0] for case in REFUSED]
    texts += [f'{TYPE}{attributes}  seed: "{case.values[0]}"\n' for case in RUNS]
    for number, text in enumerate(texts):
        folder = bare_project.defs_folder / f"bad_{number}"
        folder.mkdir()
        (folder / "defs.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    told = printed_in_python(LOAD, bare_project.root, env=environment(bare_project))
    count, kilobytes = map(int, told.split())
    assert count == len(texts)
    assert kilobytes < 600_000
