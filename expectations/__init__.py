"""Great Expectations for the tables: what must hold, and the evidence that it does.

A table has a module: `messages`, `census`, `transformed`. It measures the rows in one pass, judges
the measures, and lists in a suite what must hold. The larger topics stand apart: `outcomes`,
`partitions` and `weights`. `great` says all that in the words of Great Expectations, for `batches`
of any project, and `docs` runs checkpoints. `quarantine` finds single rows.

Importing this package loads neither Spark nor Great Expectations; `great`, `docs` and `quarantine`
load the latter.
"""
