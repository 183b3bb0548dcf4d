"""Any bytes at all: a result, or an error of one line; soon, and never anything else.

`make fuzz` runs `python -m tests.fuzz` for a while and saves what fails under `tests/corpus`;
`test_corpus.py` replays everything that is there.
"""
