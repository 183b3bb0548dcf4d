"""The literal texts of the tables, one after another."""

from __future__ import annotations

from nats_transform.errors import NatsTransformError, printable
from nats_transform.mappings.subject import encode


class Texts:
    """Texts, each stored once, with the place where each of them starts."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._places: dict[bytes, int] = {}

    @staticmethod
    def encoded(text: str) -> bytes:
        """The bytes of a text.

        Raises:
            NatsTransformError: it has none: it holds half of a surrogate pair.
        """
        try:
            return encode(text)
        except UnicodeEncodeError:
            raise NatsTransformError("text-half-surrogate", text=printable(text)) from None

    def add(self, text: str) -> tuple[int, int]:
        """Adds a text; returns the place where it starts, and its number of bytes."""
        data = self.encoded(text)
        place = self._places.setdefault(data, len(self._data))
        if place == len(self._data):
            self._data += data
        return place, len(data)

    def data(self) -> bytes:
        """The bytes of all texts."""
        return bytes(self._data)
