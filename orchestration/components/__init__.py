"""The component types of this package, for `type:` in a YAML under `defs/`."""

from orchestration.components.account_archive import AccountArchive
from orchestration.components.subject_archive import SubjectArchive
from orchestration.components.submitted_job import SubmittedJob

__all__ = ["AccountArchive", "SubjectArchive", "SubmittedJob"]
