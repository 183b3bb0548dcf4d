"""A run launcher for tests: runs are executed in this process, which has a Spark session."""

from __future__ import annotations

import signal
import threading

from dagster._core.launcher import LaunchRunContext
from dagster._core.launcher.sync_in_memory_run_launcher import SyncInMemoryRunLauncher


class ThreadRunLauncher(SyncInMemoryRunLauncher):
    """Waits for the run, which has a thread to itself: the daemon's has an event loop in it."""

    def launch_run(self, context: LaunchRunContext) -> None:
        thread = threading.Thread(target=super().launch_run, args=(context,))
        # A shell lets what it starts in the background ignore SIGINT, and Dagster gives SIGTERM the
        # handler of SIGINT. The four processes that copy the log of a run would ignore SIGTERM too:
        # Dagster gives each half a minute, and then leaves them behind.
        before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            thread.start()
            thread.join()
        finally:
            signal.signal(signal.SIGTERM, before)
