"""One commit that takes files out of every state of a table that can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotsUpdate
from pyiceberg.table.update.snapshot import ManageSnapshots

from jobs.warehouse.tables import PROPERTY


def replace_everywhere(
    table: Table,
    files: Mapping[str, Sequence[DataFile]],
    new: Mapping[str, DataFile | None],
    properties: Mapping[str, str],
    table_properties: Mapping[str, str],
) -> TableMetadata:
    """Replaces files in all branches and tags, and removes every other snapshot.

    Each branch and tag gets a snapshot, so a commit that another job has prepared fails. Manifests
    of the new snapshots do not mention the files that left, not even as deleted.

    Args:
        files: by branch or tag, of which some are replaced.
        new: what takes the place of a file, by its path; None if nothing does.
        properties: the properties of the snapshots, without the prefix.
        table_properties: properties of the table to set in the same commit.

    Returns:
        The state with all snapshots that the table had, and those made on the way.

    Raises:
        CommitFailedException, ValueError: another job changed the table meanwhile.
    """
    about = {PROPERTY + name: value for name, value in properties.items()}
    refs = table.metadata.refs
    transaction = table.transaction()
    # PyIceberg (0.12) keeps only the first requirement of a kind, unless they come together.
    heads = ({"ref": name, "snapshot-id": ref.snapshot_id} for name, ref in refs.items())
    transaction._stage((), tuple(AssertRefSnapshotId.model_validate(head) for head in heads))
    for name, ref in refs.items():
        is_tag = ref.snapshot_ref_type == SnapshotRefType.TAG
        branch = f"{name}.erase" if is_tag else name
        if is_tag:  # which no snapshot can be added to
            ManageSnapshots(transaction).create_branch(ref.snapshot_id, branch).commit()
        if old := [file for file in files[name] if file.file_path in new]:
            with transaction.update_snapshot(about, branch).overwrite() as snapshot:
                for file in old:
                    snapshot.delete_data_file(file)
                    if (instead := new[file.file_path]) is not None:
                        snapshot.append_data_file(instead)
        transaction.update_snapshot(about, branch).fast_append().commit()
        if is_tag:
            head = transaction.table_metadata.refs[branch].snapshot_id
            moved = ManageSnapshots(transaction).remove_tag(name).create_tag(head, name)
            moved.remove_branch(branch).commit()
    metadata = transaction.table_metadata
    newest = {ref.snapshot_id for ref in metadata.refs.values()}
    gone = [s.snapshot_id for s in metadata.snapshots if s.snapshot_id not in newest]
    transaction._stage((RemoveSnapshotsUpdate.model_validate({"snapshot-ids": gone}),))
    if table_properties:
        transaction.set_properties(dict(table_properties))
    transaction.commit_transaction()
    return metadata
