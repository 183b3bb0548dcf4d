"""Streams, and the way of a message through them."""
