"""One pass over a table: all that its suite judges, in a few thousand numbers.

The checks of a day may read it once, so no expectation looks at rows. `prepare_messages` and
`prepare_transformed` add Columns that say of each row what a check needs; `measure_messages` and
`measure_transformed` add them up in one Spark job.
"""
