"""The component `SubjectArchive`: one archive and all that Dagster does with it."""

# Dagster reads the annotations of asset functions: no `from __future__ import annotations` here.
import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

import dagster as dg
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import Field, PrivateAttr, WithJsonSchema, model_validator

from nats_transform.errors import InvalidValue
from orchestration.archive import Archive
from orchestration.archive_yaml import template
from orchestration.assets import assets_of
from orchestration.assets.asset import ArchiveAsset
from orchestration.assets.checks import names_of, specs
from orchestration.automation import automation
from orchestration.dry_run import dry_run_job
from orchestration.metadata.values import Results
from orchestration.promotion import promote_job
from orchestration.settings import OptionalText, YamlPart, plain_name


class SubjectArchiveScaffolder(dg.Scaffolder[Any]):
    """Writes a YAML with a comment on every line that matters, and a mapping file to edit."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Writes the two files into the new folder."""
        name = plain_name(request.target_path.name)
        root = request.project_root or request.target_path
        warehouse = Path(os.path.relpath(root / "warehouse", request.target_path)).as_posix()
        for source, file in (("archive.yaml", "defs.yaml"), ("mapping.conf", "mapping.conf")):
            text = template(
                source, NAME=name, STREAM=name.upper(), WAREHOUSE=warehouse, TYPE=request.type_name
            )
            (request.target_path / file).write_text(self.adapt(text), encoding="utf-8")

    def adapt(self, text: str) -> str:
        """A file as another component has it."""
        return text


class Retries(YamlPart):
    """What happens when the step of an asset fails, and a person need not do anything first."""

    max: int = Field(default=1, description="How often to retry.")
    delay: float = Field(default=30.0, description="How many seconds to wait before a retry.")
    backoff: Literal["LINEAR", "EXPONENTIAL"] | None = Field(
        default=None, description="How the delay grows from one retry to the next."
    )
    jitter: Literal["FULL", "PLUS_MINUS"] | None = Field(
        default=None, description="How the delay varies at random."
    )

    @property
    def policy(self) -> dg.RetryPolicy:
        """The policy, as an op takes it."""
        backoff = None if self.backoff is None else dg.Backoff(self.backoff)
        jitter = None if self.jitter is None else dg.Jitter(self.jitter)
        return dg.RetryPolicy(self.max, self.delay, backoff, jitter)


class Op(YamlPart):
    """How the op of an asset runs: the `op` of Dagster's own components, and retries."""

    name: OptionalText = Field(default=None, description="The name of the op.")
    description: OptionalText = Field(default=None, description="The op's description in the UI.")
    tags: dict[str, Any] = Field(
        default={}, description="Tags for whatever executes the op, such as dagster-k8s/config."
    )
    pool: OptionalText = Field(
        default=None,
        description="A concurrency pool, instead of the one that the archive's assets share.",
    )
    retries: Retries | None = Field(
        default=None, description="Retry after failures that a retry can repair."
    )


@dg.scaffold_with(SubjectArchiveScaffolder)
class SubjectArchive(Archive, dg.Component):
    """One archive of NATS messages, transformed under a versioned mapping and audited, day by day.

    It makes the assets `mapping_version`, `messages`, `subject_census`, `transformed_messages` and
    `weight_audit` with their checks, `exported_backup` if it is asked for, `nats/STREAM` if a
    server is among the sources, three jobs, the schedules and sensors of its YAML, and the
    resources `NAME_warehouse`, `NAME_spark`, `NAME_nats`.
    """

    translation: Annotated[
        Annotated[TranslationFn[ArchiveAsset], WithJsonSchema({"type": "object"})] | None,
        TranslationFnResolver(template_vars_for_translation_fn=lambda asset: {"asset": asset}),
    ] = Field(
        None,
        description="Other keys, groups, tags, descriptions and so on for the assets. A template "
        "can use `asset` (name, description, kinds) and `spec`.",
    )
    op: dict[str, Op] = Field({}, description="How an asset's op runs, by the asset's name.")

    _keys: dict[str, dg.AssetKey] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _known_ops(self) -> Self:
        assets = [asset.name for asset in assets_of(self) if not asset.is_observed]
        for name in self.op.keys() - {*assets}:
            raise InvalidValue("no-such-asset", name=name, assets=", ".join(assets))
        return self

    def get_asset_spec(self, asset: ArchiveAsset) -> dg.AssetSpec:
        """The key of an asset, and what Dagster's catalog shows of it, before `translation`.

        Override it to change what `translation` cannot express:

            class OurArchive(SubjectArchive):
                def get_asset_spec(self, asset):
                    spec = super().get_asset_spec(asset)
                    return spec.replace_attributes(code_version=our_release())
        """
        return asset.spec(self)

    def execute(self, context: dg.AssetExecutionContext, asset: ArchiveAsset) -> Results:
        """Makes an asset: yields the results of its checks, and its materialization.

        Override it to do something before or after, or to add metadata:

            class OurArchive(SubjectArchive):
                def execute(self, context, asset):
                    with our_maintenance_window():
                        yield from super().execute(context, asset)
        """
        yield from asset.run(self, context)

    @property
    def resource_keys(self) -> set[str]:
        """The resources that `execute` asks the context for; for a subclass to override."""
        return set()

    def key(self, asset: str) -> dg.AssetKey:
        """The key of one of the archive's assets, as it was translated."""
        if asset not in self._keys:
            known = {a.name: a for a in assets_of(self)}
            self._keys[asset] = self._translated(known[asset]).key
        return self._keys[asset]

    def op_name(self, asset: str) -> str:
        """The name of the op that makes an asset."""
        op = self.op.get(asset)
        return op.name if op is not None and op.name else super().op_name(asset)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The definitions of this archive."""
        definitions = dg.Definitions(
            assets=[self._definition(asset) for asset in assets_of(self)],
            jobs=self._jobs,
            resources=self.resources,
        )
        return dg.Definitions.merge(definitions, automation(self.name, [self]))

    @property
    def _jobs(self) -> list[dg.JobDefinition]:
        """The jobs that make no assets."""
        return [dry_run_job(self), *([promote_job(self)] if self.promote == "manual" else [])]

    def _translated(self, asset: ArchiveAsset) -> dg.AssetSpec:
        spec = self.get_asset_spec(asset)
        return spec if self.translation is None else self.translation(spec, asset)

    def _definition(self, asset: ArchiveAsset) -> dg.AssetsDefinition:
        if asset.is_observed:

            @dg.multi_observable_source_asset(  # type: ignore[untyped-decorator]
                name=self.op_name(asset.name),
                specs=[self._translated(asset)],
                required_resource_keys=self.resource_keys,
            )
            def observe(context: dg.AssetExecutionContext) -> Results:
                yield from self.execute(context, asset)

            return cast(dg.AssetsDefinition, observe)
        op = self.op.get(asset.name, Op())
        # Dagster asks each asset of a run over a range of days for a policy, also one without days.
        policy = self.backfill_policy if asset.is_daily else dg.BackfillPolicy.single_run()

        @dg.multi_asset(
            name=self.op_name(asset.name),
            specs=[self._translated(asset)],
            check_specs=specs(self.key(asset.name), names_of(self, asset)),
            description=op.description,
            op_tags=op.tags,
            # What makes it from nothing and has no days writes no rows of the archive.
            pool=op.pool or (self.pool if asset.deps or asset.is_daily else None),
            retry_policy=None if op.retries is None else op.retries.policy,
            backfill_policy=policy,
            config_schema=None if asset.config is None else asset.config.to_fields_dict(),
            required_resource_keys=self.resource_keys,
        )
        def make(context: dg.AssetExecutionContext) -> Results:
            yield from self.execute(context, asset)

        return make
