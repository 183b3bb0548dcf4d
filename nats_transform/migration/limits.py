"""The limits that the documentation of NATS recommends for subjects."""

MOST_TOKENS = 16
"""The highest number of tokens."""

MOST_BYTES = 256
"""Longer subjects are legal, but they cost every server that routes them."""
