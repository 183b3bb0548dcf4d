"""The component in somebody's own project: made by `create-dagster`, with the wheel installed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts.sessions import blocks
from tests.support.dagster_project import MAPPING, write_messages
from tests.support.files import edit, write_files
from tests.support.programs import BIN, output_of
from tests.test_wheel import installed
from tests.test_wheel import wheel as wheel

pytestmark = [pytest.mark.dagster, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "orchestration.md"


@pytest.fixture
def python(wheel: Path, tmp_path: Path) -> Path:
    """The Python of a new environment: the wheel, and beside it what its extra `dagster` brings."""
    home = tmp_path / "environment"
    packages = installed(wheel, home)
    # The folder alone: what .pth files in it add, such as this checkout, does not come along.
    packages.joinpath("beside.pth").write_text(str(Path(pytest.__file__).parents[1]) + "\n")
    packages.joinpath("shop.pth").write_text(str(tmp_path / "shop" / "src") + "\n")
    return home / "bin" / "python"


def test_scaffolded_checked_and_materialized(python: Path, tmp_path: Path) -> None:
    """Two archives in a project that has packages with the names of our folders."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYSPARK"))}
    clean |= {
        "DAGSTER_HOME": str(tmp_path / "home"),
        "DAGSTER_DG_UPDATE_CHECK_ENABLED": "0",  # it would ask an index for the newest version
        "DAGSTER_DISABLE_TELEMETRY": "1",
        "VIRTUAL_ENV": str(python.parents[1]),
        "COLUMNS": "200",
    }
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "dagster.yaml").write_text("telemetry: { enabled: false }\n")

    def run(*command: str, folder: Path = tmp_path / "shop") -> str:
        return output_of(*command, cwd=folder, env=clean)

    def dg(*arguments: str) -> str:
        return run(str(python), "-W", "ignore", "-m", "dagster_dg_cli.cli", *arguments)

    run(str(BIN / "create-dagster"), "project", "shop", "--no-uv-sync", folder=tmp_path)
    mine = {f"{name}/__init__.py": "MINE = True\n" for name in ("jobs", "orchestration")}
    write_files(tmp_path / "shop" / "src", mine)
    assert "nats_transform.dagster.SubjectArchive" in dg("list", "components")
    added = {block.title: block.text for block in blocks(PAGE.read_text(encoding="utf-8"))}
    ours = tmp_path / "shop" / "src" / "shop" / "components" / "our_archive.py"
    dg("scaffold", "component", "OurArchive")
    assert ours.is_file()
    ours.write_text(added["our_archive.py"])
    dg("scaffold", "defs", "nats_transform.dagster.SubjectArchive", "orders")
    dg("scaffold", "defs", "shop.components.our_archive.OurArchive", "parcels")
    dg("check", "yaml")
    dg("check", "defs")

    folder = tmp_path / "shop" / "src" / "shop" / "defs" / "orders"
    file = folder / "defs.yaml"
    source = "    - server: nats://127.0.0.1:4222\n"
    edit(file, (source, "    - jsonl: messages.jsonl\n"), ("2026-01-01", "2026-03-01"))
    edit(file, ("  tolerance: 1.0\n", "  tolerance: 15\n"))
    (folder / "mapping.conf").write_text(MAPPING)
    write_messages(folder / "messages.jsonl", 40)
    for name in ("people.py", "unmapped.py"):
        (folder.parent / name).write_text(added[name])
    other = folder.parent / "parcels" / "defs.yaml"
    assert "type: shop.components.our_archive.OurArchive\n" in other.read_text()
    changes = added["attributes in defs.yaml"] + added["end of defs.yaml"]
    other.write_text(other.read_text() + changes.replace("orders", "parcels"))
    dg("check", "yaml", str(other.parent))
    dg("check", "defs")
    listed = dg("list", "defs", "--json")
    for name in ("lake/parcels/weight_audit", "orders/messages", "sales", "parcels_spark"):
        assert f'"{name}"' in listed, listed
    dg("launch", "--assets", "key:lake/parcels/mapping_version")
    dg("launch", "--assets", "key:orders/mapping_version")
    # Three assets, each in a process of its own, as the executor of this project does it.
    made = "key:orders/messages or key:orders/transformed_messages or key:unmapped"
    dg("launch", "--assets", made, "--partition", "2026-03-01")
    count = (
        "import jobs; from pathlib import Path\n"
        "from nats_transform.jobs.warehouse import specs, tables\n"
        "warehouse = tables.Warehouse(dir=Path('warehouse'))\n"
        "table = tables.open_table(warehouse, specs.TRANSFORMED)\n"
        "print(jobs.MINE, table.scan().to_arrow().num_rows, specs.__name__)"
    )
    assert run(str(python), "-c", count) == "True 20 nats_transform.jobs.warehouse.specs\n"
