"""One look at the rows of a table: all that its suite judges, in a few thousand numbers.

The checks of a day read it once, so no expectation looks at rows. `measure_messages` and
`measure_transformed` take the rows of a task, batch by batch; what they return can be added up.
Digests are the kernel's, as everywhere; all else is found by other code than the kernel, so that
the checks see what a fault of the kernel would hide.
"""
