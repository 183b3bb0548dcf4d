"""Plans that lead step by step from the mappings in force to a candidate; each step can be undone.

`model` has the classes of a plan, and `build` makes one, or says why there can be none. `stages`
divides the switch of the mappings into canary stages, `changes` compares two states of what depends
on subjects, `files` writes the folder of a plan, and `state` says which step servers show.
"""
