"""The main file for spark-submit: runs one of our jobs, named first.

spark-submit --py-files nats_transform.zip deploy/spark_job.py ingest settings.json

A file of its own, because a folder `jobs` in front of Python's path would hide other packages.
"""

import runpy
import sys

JOBS = ("ingest", "transform", "dry_run")

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in JOBS:
        sys.exit(f"usage: spark_job.py {'|'.join(JOBS)} ARGUMENT ...")
    runpy.run_module(f"jobs.{sys.argv.pop(1)}", run_name="__main__", alter_sys=True)
