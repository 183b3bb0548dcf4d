"""The faults that are really injected, what is promised of each, and the tests that do it.

`make faults` runs them all and prints the table with what held.
"""

from __future__ import annotations

from dataclasses import dataclass

HERE = "tests/faults/test_faults.py"
DAGSTER = "tests/faults/test_dagster.py"
TASKS = "tests/faults/test_tasks.py"
CHAIN = "tests/jobs/jetstream/test_chain.py"
CLUSTER = "tests/jobs/test_cluster.py"
ERASE = "tests/jobs/test_erase.py"


@dataclass(frozen=True)
class Fault:
    """One row of the table.

    Attributes:
        name: what is done to a running system.
        promise: what must hold then and after the next run.
        tests: that do it and look; ids as pytest has them, without parameters.
    """

    name: str
    promise: str
    tests: tuple[str, ...]


FAULTS = (
    Fault(
        "kill -9 of the driver at random moments",
        "the last commit stays; the next run completes it exactly",
        (
            "tests/jobs/test_ingest.py::test_killed_and_run_again",
            "tests/jobs/test_ingest.py::test_killed_at_twenty_moments",
        ),
    ),
    Fault(
        "kill -9 between the commits of the quarantine and of the table",
        "`verify-table` sees messages in both tables; the next run leaves each in one",
        ("tests/jobs/test_quarantine.py::test_a_run_that_is_killed_between_the_two_commits",),
    ),
    Fault(
        "kill -9 of an erasure at random moments",
        "the next run finishes it: no byte stays, a tombstone says what left, checks hold",
        (f"{ERASE}::test_killed_at_three_moments", f"{ERASE}::test_killed_at_thirty_moments"),
    ),
    Fault(
        "an erasure beside ingests, transforms, a census, maintenance and another erasure",
        "a job may have to run again; no byte stays, and nothing comes back",
        (
            f"{ERASE}::test_a_job_that_is_about_to_publish",
            f"{ERASE}::test_two_at_once",
            f"{ERASE}::test_beside_jobs_that_work",
        ),
    ),
    Fault(
        "kill -9 of executors of a standalone cluster, and of their Python processes",
        "an ingest and a transform go on and end complete, each message once",
        (
            f"{CLUSTER}::test_executors_that_are_killed_in_an_ingest",
            f"{CLUSTER}::test_workers_that_are_killed_in_a_transform",
        ),
    ),
    Fault(
        "kill -9 of executors of a Spark Connect server, of a pod, of a container of YARN",
        "a transform goes on and ends complete, each message once",
        (
            f"{CLUSTER}::test_executors_of_a_connect_server_that_are_killed",
            "tests/platform/test_kubernetes.py::test_a_pod_that_is_killed",
            "tests/platform/test_yarn.py::test_a_container_that_is_killed",
        ),
    ),
    Fault(
        "kill -9 of the driver of a cluster once its tasks have written files",
        "its executors end, nothing is published; the next run does it all",
        (f"{CLUSTER}::test_a_driver_that_is_killed_on_a_cluster",),
    ),
    Fault(
        "kill -9 of a Spark Connect server once its tasks have written files",
        "one line, nothing is published; the next run does it all",
        (f"{CLUSTER}::test_a_connect_server_that_is_killed",),
    ),
    Fault(
        "kill -9 of a Dagster run at known moments",
        "the old or the new state; the run is seen as failed, a retry finishes it",
        (
            "tests/orchestration/test_killed.py::test_a_killed_run_leaves_the_old_or_the_new_state",
            "tests/orchestration/test_killed.py::test_a_killed_run_is_seen_and_can_be_retried",
        ),
    ),
    Fault(
        "kill -9 of the code server, with no run and with one",
        "runs in the queue wait for the next one; what it ran is seen as failed and made again",
        (f"{DAGSTER}::test_a_code_server_that_is_killed_with_its_run",),
    ),
    Fault(
        "kill -9 of the Dagster daemon at random moments",
        "every run it had queued or launched ends once; nothing is done twice",
        (f"{DAGSTER}::test_a_daemon_that_is_killed_again_and_again",),
    ),
    Fault(
        "kill -9 of a plan at every file, and of a verify at random moments",
        "the whole plan or none, and nothing on the server; the next run does it all",
        (
            "tests/faults/test_plans.py::test_a_plan_that_is_killed_at_every_file",
            "tests/faults/test_plans.py::test_a_verify_that_is_killed_at_random_moments",
        ),
    ),
    Fault(
        "nats-server stopped and killed in mid-read, back after a while",
        "the read goes on where it was",
        ("tests/jobs/jetstream/test_reader.py::test_a_server_that_restarts_in_mid_read",),
    ),
    Fault(
        "nats-server stopped for good in mid-read",
        "one line after the patience; nothing published",
        ("tests/jobs/jetstream/test_reader.py::test_a_server_that_stays_away",),
    ),
    Fault(
        "the stream purged, limited, deleted or made anew in mid-ingest",
        "what was read is archived as it was, the rest counts as a gap; or one line",
        (f"{HERE}::test_a_stream_that_changes_in_mid_ingest",),
    ),
    Fault(
        "connections cut in mid-message, again and again",
        "every message once, in order",
        (f"{HERE}::test_connections_that_break_in_mid_message",),
    ),
    Fault(
        "a slow network",
        "every message once, in order",
        (f"{HERE}::test_a_slow_network",),
    ),
    Fault(
        "credentials that expire in mid-read",
        "one line at once",
        ("tests/jobs/jetstream/test_credentials.py::test_credentials_that_expire_in_mid_read",),
    ),
    Fault(
        "a stream deleted or made anew in mid-read",
        "one line; nothing published",
        ("tests/jobs/jetstream/test_reader.py::test_a_stream_that_vanishes_in_mid_read",),
    ),
    Fault(
        "kill -9 of a replay at random moments",
        "what is stored has no holes; the next run completes it, each message once",
        (
            f"{CHAIN}::test_killed_at_three_moments",
            f"{CHAIN}::test_killed_at_forty_moments",
            "tests/jobs/test_replay.py::test_the_job_is_killed_and_run_again",
        ),
    ),
    Fault(
        "several replays into one stream at once, and other clients beside one",
        "each message stored once, in order",
        (f"{CHAIN}::test_several_replays_at_once", f"{CHAIN}::test_beside_another_client"),
    ),
    Fault(
        "nats-server stopped, killed and frozen in mid-replay, back after a while or never",
        "the replay goes on and stores each message once; or one line after the patience",
        (
            f"{CHAIN}::test_a_server_that_restarts",
            f"{CHAIN}::test_a_server_that_stays_away",
            f"{CHAIN}::test_a_server_that_freezes",
        ),
    ),
    Fault(
        "the target purged, limited, deleted or made anew in mid-replay",
        "no message twice; what the target holds is said, or one line",
        (
            f"{CHAIN}::test_a_stream_that_is_purged",
            f"{CHAIN}::test_limits_that_change",
            f"{CHAIN}::test_a_subject_that_is_taken_away",
            f"{CHAIN}::test_a_stream_that_vanishes",
        ),
    ),
    Fault(
        "answers lost in mid-replay, and then what they spoke of",
        "one line: nothing is guessed",
        (f"{CHAIN}::test_without_evidence_nothing_is_guessed",),
    ),
    Fault(
        "an archive whose subjects and headers are operations of the protocol",
        "nothing is sent; each kind is counted and named",
        (
            "tests/jobs/test_replay.py::test_hostile_archives_send_nothing",
            "tests/jobs/jetstream/test_wire.py::test_what_arrives_is_what_was_meant_or_nothing",
        ),
    ),
    Fault(
        "a full disk while Parquet is written",
        "one line that names the folder; nothing left there",
        (
            f"{TASKS}::test_a_disk_that_is_full_while_tasks_write",
            "tests/jobs/warehouse/test_tables.py::test_a_full_disk_is_named_and_left_clean",
        ),
    ),
    Fault(
        "a full disk while a commit is written",
        "one line; the table as it was; a later run completes it",
        (f"{HERE}::test_a_disk_that_is_full_at_the_commit",),
    ),
    Fault(
        "a full temporary folder",
        "one line that names the folder",
        (f"{HERE}::test_a_temporary_folder_that_is_full",),
    ),
    Fault(
        "a full disk while a report, a census, tables of a dry run or a backup are written",
        "one line; what was there before stays as it was",
        (f"{HERE}::test_a_disk_that_is_full_for_a_file",),
    ),
    Fault(
        "a warehouse that may only be read",
        "reading works; other jobs end with one line and change nothing",
        (f"{HERE}::test_a_warehouse_that_may_only_be_read",),
    ),
    Fault(
        "the SQLite catalog locked by another process",
        "a commit waits for it; reading need not",
        (
            "tests/jobs/warehouse/test_catalog_file.py::test_reading_takes_no_lock",
            f"{HERE}::test_a_catalog_that_is_locked_at_the_commit",
        ),
    ),
    Fault(
        "Postgres with the catalog gone at the commit, then back",
        "one line; the table as it was; a later run completes it",
        (f"{HERE}::test_postgres_that_is_gone_at_the_commit",),
    ),
    Fault(
        "Postgres with Dagster's storage restarted or gone for a while, under a run",
        "the run ends, or is seen as failed and made again; never mixed",
        (f"{DAGSTER}::test_postgres_that_is_gone_under_a_run",),
    ),
    Fault(
        "the clock of the stream's server set back and forth",
        "every message once, on the day it says",
        (f"{HERE}::test_a_clock_that_jumps",),
    ),
    Fault(
        "data files of a snapshot corrupt, cut short, swapped or gone",
        "one line, or the same rows: never others",
        (
            f"{HERE}::test_a_corrupt_data_file",
            f"{TASKS}::test_a_data_file_that_is_cut_short_or_gone",
        ),
    ),
    Fault(
        "several runs on the same stream and day at once",
        "never mixed, nothing doubled",
        (
            "tests/orchestration/test_concurrency.py::test_without_a_pool_the_tables_refuse_the_second_writer",
            "tests/jobs/test_ingest.py::test_concurrent_ingests_never_mix",
            "tests/jobs/test_transform.py::test_days_that_someone_else_changed",
            "tests/jobs/warehouse/test_tables.py::test_the_second_writer_of_a_day_gets_a_conflict",
        ),
    ),
    Fault(
        "maintenance beside jobs",
        "neither notices the other",
        ("tests/jobs/test_maintain.py::test_beside_a_job_that_publishes",),
    ),
    Fault(
        "a mapping file changed in mid-run",
        "all rows under the mapping that was read first",
        (f"{HERE}::test_a_mapping_that_changes_in_mid_run",),
    ),
    Fault(
        "damaged stream backups",
        "one line; nothing published",
        ("tests/jobs/sources/test_backup.py::test_damaged_backups",),
    ),
    Fault(
        "dumps that are encrypted, cut short, damaged, or gone in mid-ingest",
        "one line that names the file; nothing published",
        (
            "tests/jobs/sources/test_dumps.py::test_files_that_cannot_be_read",
            "tests/jobs/sources/test_dumps.py::test_a_file_that_vanishes",
        ),
    ),
    Fault(
        "another user of the host, who looks at ps, event logs, Dagster's ports and its storage",
        "no secret is seen; sockets and storage are closed, ports are on loopback only",
        (
            "tests/test_secrets.py::test_event_logs_and_ps_have_no_secrets",
            "tests/jobs/test_session.py::test_nobody_else_reads_the_scratch_folders",
            f"{DAGSTER}::test_what_another_user_reaches_of_dagster",
        ),
    ),
    Fault(
        "kill -9 of a dry run that simulates streams",
        "the table has no simulation or a whole one; the next run completes it",
        (f"{HERE}::test_a_simulation_that_is_killed",),
    ),
    Fault(
        "two jobs on the same stream at once, one of them killed; kills at random moments",
        "every warehouse holds what it must; the other job ends well or says to run it again",
        ("tests/test_archive.py::test_long_histories_with_kills",),
    ),
    Fault(
        "warehouses copied, moved, put back and maintained between jobs",
        "nothing lost, doubled, mixed or written outside",
        (
            "tests/test_archive.py::test_a_short_history",
            "tests/test_archive.py::test_long_histories",
        ),
    ),
    Fault(
        "a million messages on 100,000 subjects of 200 tokens, in a heap of 1 GiB",
        "every job ends well",
        (f"{HERE}::test_many_long_subjects_in_a_heap_of_1_gib",),
    ),
)
