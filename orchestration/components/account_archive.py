"""The component `AccountArchive`: an archive of each stream of an account, by one YAML."""

# Dagster reads the annotations of asset functions: no `from __future__ import annotations` here.
import json
import re
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, Self

import dagster as dg
from dagster.components import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig
from pydantic import Field, PrivateAttr, model_validator

from jobs.jetstream.account import fits, stream_origins
from nats_transform.errors import InvalidValue
from orchestration.assets import assets_of
from orchestration.assets.asset import ArchiveAsset
from orchestration.automation import automation
from orchestration.components.subject_archive import SubjectArchive, SubjectArchiveScaffolder
from orchestration.settings import Text, plain_name

_SHARED = "mapping_version"
_STREAMS = """  # The streams; `dg utils refresh-defs-state` asks the server which there are.
  streams: ["*"]
"""
_ON_PURPOSE = DefsStateConfigArgs(
    management_type=DefsStateConfigArgs.local_filesystem().management_type, refresh_if_dev=False
)


class AccountArchiveScaffolder(SubjectArchiveScaffolder):
    """Writes the YAML of an account, and a mapping file to edit."""

    def adapt(self, text: str) -> str:
        """The file without what belongs to one stream."""
        text = re.sub(r"  # The name of the stream.*\n  stream: .*\n", _STREAMS, text)
        return re.sub(
            r"  # (If nats-server has mapped|The asset `exported).*\n(  # .*\n)*\n", "", text
        )


@dg.scaffold_with(AccountArchiveScaffolder)
class AccountArchive(SubjectArchive, dg.StateBackedComponent):
    """An archive for each stream of an account, with the same server, mapping and settings.

    Which streams there are is state that `dg utils refresh-defs-state` asks the server for. Each
    gets the assets of a `SubjectArchive` under `NAME/STREAM`, in the group `NAME_STREAM`, and each
    is worked on in runs of its own. They share `NAME/mapping_version`, schedules and sensors.
    """

    # Of each stream, and not of the YAML.
    stream: ClassVar[str] = ""
    observed: ClassVar[None] = None  # type: ignore[misc]
    export: ClassVar[None] = None  # type: ignore[misc]

    streams: list[Text] = Field(
        ["*"],
        min_length=1,
        description="Names of streams, in which * stands for any text. A * at the start leaves out "
        "the streams of buckets (KV_... and OBJ_...).",
    )
    defs_state: ResolvedDefsStateConfig = Field(
        _ON_PURPOSE, description="Where Dagster keeps the names of the streams."
    )

    _account: "AccountArchive | None" = PrivateAttr(None)
    _slug: str = PrivateAttr("")
    _origins: "list[AccountArchive]" = PrivateAttr(default_factory=list)

    build_defs = dg.StateBackedComponent.build_defs

    @model_validator(mode="after")
    def _only_a_server(self) -> Self:
        if len(self.sources) != 1 or self.live is None or self.live.from_stream is not None:
            raise InvalidValue("account-not-one-server")
        return self

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """Where the names of the streams are kept."""
        return DefsStateConfig.from_args(
            self.defs_state, default_key=f"AccountArchive[{self.name}]"
        )

    def write_state_to_path(self, state_path: Path) -> None:
        """Asks the server for all streams of the account, and what they copy from."""
        assert self.live is not None  # noqa: S101 - the YAML would be refused
        origins = stream_origins(self.live.nats.settings)
        state_path.write_text(json.dumps(origins, indent=1, sort_keys=True), encoding="utf-8")

    def build_defs_from_state(
        self, context: dg.ComponentLoadContext, state_path: Path | None
    ) -> dg.Definitions:
        """The definitions of all streams that are known."""
        origins = {} if state_path is None else json.loads(state_path.read_text(encoding="utf-8"))
        chosen = sorted(stream for stream in origins if fits(stream, self.streams))
        if not chosen:
            dg.get_dagster_logger().warning(
                f"{self.name}: no stream is known that fits {', '.join(self.streams)}; run "
                "dg utils refresh-defs-state"
            )
            return dg.Definitions()
        archives = {stream: self._of(stream, chosen) for stream in chosen}
        for stream, archive in archives.items():
            archive._origins = [archives[name] for name in origins[stream] if name in archives]
        assets = [self._definition(asset) for asset in assets_of(self) if asset.name == _SHARED]
        jobs = []
        for archive in archives.values():
            own = [asset for asset in assets_of(archive) if asset.name != _SHARED]
            assets += [archive._definition(asset) for asset in own]
            jobs += archive._jobs
        definitions = dg.Definitions(assets=assets, jobs=jobs, resources=self.resources)
        return dg.Definitions.merge(definitions, automation(self.name, [*archives.values()]))

    def _of(self, stream: str, streams: list[str]) -> Self:
        """The archive of one of the streams."""
        slug = plain_name(stream)
        if slug != stream and slug in map(plain_name, {*streams} - {stream}):
            slug += f"_{sha256(stream.encode()).hexdigest()[:8]}"
        archive: Self = self.model_copy(update={"name": f"{self.name}_{slug}", "stream": stream})
        archive._account, archive._slug, archive._keys = self, slug, {}
        return archive

    @property
    def stream_key(self) -> dg.AssetKey:
        """The key of the stream: `nats/NAME/STREAM`."""
        account = self._account or self
        return dg.AssetKey(["nats", account.name, self._slug])

    @property
    def origins(self) -> list[dg.AssetKey]:
        """The streams that the server copies this one from."""
        return [origin.key("stream") for origin in self._origins]

    def key(self, asset: str) -> dg.AssetKey:
        """The key of one of the assets; the mapping version is that of the account."""
        if asset == _SHARED and self._account is not None:
            return self._account.key(asset)
        return super().key(asset)

    def get_asset_spec(self, asset: ArchiveAsset) -> dg.AssetSpec:
        """As for any archive, under `NAME/STREAM`."""
        spec = super().get_asset_spec(asset)
        if self._account is None or asset.is_observed:
            return spec
        return spec.replace_attributes(
            key=dg.AssetKey([self._account.name, self._slug, asset.name])
        )
