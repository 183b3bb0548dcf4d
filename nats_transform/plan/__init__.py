"""From the mappings that are in force to a candidate, step by step, with a way back from each.

- `moves` finds which subjects change, as filters;
- `room` gives streams, consumers and users room for the old and the new subjects, and takes the old
  ones away in the end;
- `stages` splits the switch of the mappings into canary stages;
- `model` is what a plan says, as data; `build` makes one, or says why there can be none.
"""
