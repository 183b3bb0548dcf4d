"""Plans that lead step by step from the mappings in force to a candidate; each step can be undone.

- `moves` finds filters of the subjects that change;
- `room` lets streams, consumers and users have both the old and the new subjects, and takes the old
  ones away in the end;
- `stages` divides the switch of the mappings into canary stages;
- `model` has the classes of a plan; `build` makes a plan, or says why there can be none.
"""
