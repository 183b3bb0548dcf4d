"""Definitions load where they can: a broken archive is shown as such, and the others go on."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import dagster as dg
import pytest

from orchestration.loading import STRICT, load_archives
from tests.support.dagster_project import ASSETS, Project, failures, materialized
from tests.support.saying import mistakes

pytestmark = pytest.mark.dagster

BAD = {f"bad_{n}": case.values for n, case in enumerate(mistakes("archive"))}


def test_broken_archives_leave_the_others_alone(
    bare_project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bare_project.add("good", "  nightly: { cron: '30 1 * * *' }\n", count=4)
    for name, (text, _) in BAD.items():
        bare_project.add(name, f"  {text}\n", count=4)

    defs = load_archives(bare_project.root)

    repository = defs.get_repository_def()
    stand_ins = {dg.AssetKey([name, "defs_yaml"]) for name in BAD}
    good = {dg.AssetKey(["good", asset]) for asset in ASSETS}
    assert repository.asset_graph.materializable_asset_keys == stand_ins | good
    assert [schedule.name for schedule in repository.schedule_defs] == ["good_nightly"]
    for name, (_, told) in BAD.items():
        description = defs.resolve_assets_def(dg.AssetKey([name, "defs_yaml"])).op.description
        assert re.search(told, description), description
        assert "\n" not in description
        assert re.search(rf"{name} is left out: .*{told}", caplog.text), caplog.text

    # Who tries to make the asset is told the same; the others can be made.
    result = bare_project.run(assets=["bad_0/defs_yaml", "good/mapping_version"], defs=defs)
    assert re.search(BAD["bad_0"][1], failures(result).pop("bad_0/defs_yaml"))
    assert materialized(result) == {("good/mapping_version", None)}

    monkeypatch.setenv(STRICT, "1")
    with pytest.raises(Exception, match=r"bad_0/defs\.yaml"):
        load_archives(bare_project.root)


PYTHON = {
    "plain": "@dg.asset\ndef plain(): ...\n",
    "given": "@dg.asset\ndef given(): ...\ndefs = dg.Definitions(assets=[given])\n",
    "made": "@dg.definitions\ndef defs(): return dg.Definitions(assets=[dg.AssetSpec('made')])\n",
}


@pytest.mark.parametrize("broken", ["bad", "group/west", "group", "module.py"])
def test_one_mistake_leaves_python_and_folders_of_folders_alone(
    bare_project: Project, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    defs = bare_project.defs_folder
    for name in ("group/east", "group/west", "bad"):
        bare_project.add(name, count=1)
        if name.startswith("group/"):
            bare_project.edit(name, ("group/", ""), ("GROUP/", ""))
    (defs / "group" / "defs.yaml").write_text("type: dagster.DefsFolderComponent\nattributes: {}\n")
    for name, text in (PYTHON | {"module": ""}).items():
        (defs / f"{name}.py").write_text(f"import dagster as dg\n{text}")
    file = defs / broken if broken == "module.py" else defs / broken / "defs.yaml"
    with file.open("a") as opened:
        opened.write("  colour: [red\n")

    keys = bare_project.graph().get_all_asset_keys()

    name = file.parent.name if broken != "module.py" else "module"
    assert dg.AssetKey([name, f"defs_{file.suffix[1:]}"]) in keys
    assert f"{Path(broken).name} is left out: " in caplog.text
    expected = {"bad", "east", "west"} - {broken.removeprefix("group/")}
    assert {dg.AssetKey([one, "messages"]) for one in expected} <= keys
    assert {dg.AssetKey(one) for one in PYTHON} <= keys


def test_what_no_folder_alone_is_to_blame_for_is_raised(bare_project: Project) -> None:
    """Two archives with one name: which of the two is meant, nobody can say."""
    bare_project.add("good", count=4)
    bare_project.add("other", count=4)
    bare_project.edit("other", ("name: other", "name: good"))
    with pytest.raises(Exception, match="good"):
        load_archives(bare_project.root).get_repository_def()


def test_loading_prints_nothing(bare_project: Project) -> None:
    bare_project.add("east", count=1)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        load_archives(bare_project.defs_folder)
    # Python itself hides deprecations from who runs a program.
    assert [one for one in told if not issubclass(one.category, DeprecationWarning)] == []
