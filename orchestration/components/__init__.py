"""The component types of this package, for `type:` in a YAML under `defs/`."""

from orchestration.components.subject_archive import SubjectArchive

__all__ = ["SubjectArchive"]
