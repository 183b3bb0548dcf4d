"""A run launcher for tests: runs are executed in this process, which has a Spark session."""

from __future__ import annotations

import threading

from dagster._core.launcher import LaunchRunContext
from dagster._core.launcher.sync_in_memory_run_launcher import SyncInMemoryRunLauncher


class ThreadRunLauncher(SyncInMemoryRunLauncher):
    """Waits for the run, which has a thread to itself: the daemon's has an event loop in it."""

    def launch_run(self, context: LaunchRunContext) -> None:
        thread = threading.Thread(target=super().launch_run, args=(context,))
        thread.start()
        thread.join()
