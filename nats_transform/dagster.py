"""The component types, for `type:` in a YAML under `defs/` of a Dagster project.

The same name in a checkout and in a wheel, which holds `orchestration` as
`nats_transform.orchestration`.
"""

from orchestration.components import SubjectArchive, SubmittedJob

__all__ = ["SubjectArchive", "SubmittedJob"]
