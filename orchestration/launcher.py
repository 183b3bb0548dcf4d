"""Starts runs as processes of the code server, and notices when that server is replaced.

Dagster's own launcher cannot tell whether a run still goes on. When the code server's machine or
container is gone, its runs stay STARTED for ever, and the archives' next runs wait for their pools.
"""

from __future__ import annotations

from time import monotonic

import dagster as dg

# What a launcher gives and gets has no public names.
from dagster._core.errors import DagsterLaunchFailedError, DagsterUserCodeUnreachableError
from dagster._core.launcher.base import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster._grpc.types import GetCurrentRunsResult
from dagster._serdes import ConfigurableClassData

SETTLED_SECONDS = 30
"""How long a new code server must have answered before its predecessor's runs count as over.

Dagster starts a failed run again at once. If its daemon has not loaded the definitions of the new
server by then, it gives the run up for good. The daemon looks for new servers every second.
"""


class CodeServerLauncher(dg.DefaultRunLauncher):
    """Dagster's default launcher that run monitoring can ask about its runs.

    Name it as `run_launcher` in `dagster.yaml`. A run that its code server does not know is over:
    the monitor fails it, and `run_retries` says what comes then.
    """

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(inst_data)
        # Since when the code server of a run answers that it does not know it.
        self._unknown: dict[str, float] = {}

    def launch_run(self, context: LaunchRunContext) -> None:
        """Starts a run; one that comes as the server shuts down stays in the queue.

        Raises:
            DagsterUserCodeUnreachableError: the server is gone or going. The queue tries again as
                `max_user_code_failure_retries` says; it gives up at once after any other error.
            DagsterLaunchFailedError: the server cannot start a process.
        """
        try:
            super().launch_run(context)
        except DagsterLaunchFailedError as error:
            if "shut down" not in str(error):
                raise
            raise DagsterUserCodeUnreachableError(str(error)) from error

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Whether the monitor may ask."""
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """Whether the code server that a started run was given to still has it.

        While the server does not answer, nothing is known and the run is left alone: if only the
        network was gone, its retry would run beside it.
        """
        since = self._unknown.pop(run.run_id, monotonic())
        client = self._get_grpc_client_for_termination(run.run_id)  # type: ignore[no-untyped-call]
        if client is None:  # it has ended meanwhile, or nobody knows where it is
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        try:
            answer = client.get_current_runs()
        except DagsterUserCodeUnreachableError as error:
            return CheckRunHealthResult(WorkerStatus.RUNNING, str(error))
        current = dg.deserialize_value(answer, GetCurrentRunsResult)
        if current.serializable_error_info or run.run_id in current.current_runs:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        where = f"{client.host}:{client.port or client.socket}"
        reason = f"the code server at {where} was started after this run"
        if monotonic() - since < SETTLED_SECONDS:
            self._unknown[run.run_id] = since
            return CheckRunHealthResult(WorkerStatus.RUNNING, reason)
        return CheckRunHealthResult(WorkerStatus.NOT_FOUND, reason)
