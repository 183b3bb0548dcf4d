"""The component `SubmittedJob`: runs a job with spark-submit and reports its result."""

# Dagster reads the annotations of asset functions: no `from __future__ import annotations` here.
from pathlib import Path

import dagster as dg
import pyspark
from pydantic import Field, field_validator

from jobs.registry import JOBS
from nats_transform.errors import InvalidValue
from nats_transform.untrusted import visible
from orchestration.archive import CHECKS
from orchestration.assets.checks import specs
from orchestration.metadata.values import Results
from orchestration.settings import FilePath, OptionalText, Text, YamlPart

_TABLES = {"ingest": "messages", "transform": "transformed_messages"}


class SubmittedJob(YamlPart, dg.Component):
    """An asset that is made by `spark-submit deploy/spark_job.py`, in the folder of the YAML.

    Its driver is a process with Python, packages and memory of its own, as spark-submit is told.
    The job's steps, checks and result come back through Dagster Pipes.
    """

    name: Text = Field(pattern="^[A-Za-z0-9_]+$", description="The key of the asset.")
    job: Text = Field(description=f"One of {', '.join(JOBS)}.")
    arguments: list[Text] = Field(
        description="What follows the job on the command line: its settings file and options."
    )
    main: FilePath = Field(description="The path of deploy/spark_job.py.")
    options: list[Text] = Field(
        [], description="Options of spark-submit, such as --master and --py-files."
    )
    pool: OptionalText = Field(
        None, description="A concurrency pool. `archive_NAME` waits for that archive's runs."
    )

    @field_validator("job")
    @classmethod
    def _known(cls, job: str) -> str:
        if job not in JOBS:
            raise InvalidValue("no-such-job", job=job, jobs=", ".join(JOBS))
        return job

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The asset."""
        submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        command = [str(submit), *self.options, str(self.main), self.job, *self.arguments]
        folder = str(context.path)
        names = CHECKS.get(_TABLES.get(self.job, ""), {})
        topics = {topic: name for name, topic in names.items()}

        @dg.asset(
            name=self.name,
            pool=self.pool,
            kinds={"spark"},
            check_specs=specs(dg.AssetKey(self.name), [*names]),
            description=f"The result of the job {self.job}, run by spark-submit.",
        )
        def submitted(context: dg.AssetExecutionContext) -> Results:
            done = dg.PipesSubprocessClient().run(
                context=context, command=command, cwd=folder, extras={"checks": topics}
            )
            yield from done.get_results(implicit_materializations=False)
            for message in done.get_custom_messages():
                result = {"result": dg.MetadataValue.json(message["result"])}
                raise dg.Failure(visible(message["reason"]), result, allow_retries=False)

        return dg.Definitions(assets=[submitted])
