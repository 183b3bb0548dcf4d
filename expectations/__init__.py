"""Great Expectations for the tables: what must hold, and the evidence that it does.

A table has a module (`messages`, `census`, `transformed`): it measures the rows in one pass, judges
the measures, and lists in a suite what must hold. Larger topics stand apart. `great` says all that
in the words of Great Expectations, which only `great`, `docs` and `quarantine` load.
"""
