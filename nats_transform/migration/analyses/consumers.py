"""The messages that consumers get."""

from __future__ import annotations

from collections.abc import Iterator

from nats_transform.errors import shown
from nats_transform.migration.analysis import Analysis, Draft
from nats_transform.migration.count import Count, listed, messages
from nats_transform.migration.database import Database
from nats_transform.migration.seen import Seen


class Consumers(Analysis):
    """Counts the messages that consumers will miss, and those that they will get besides."""

    name = "consumers"
    is_layered = True
    _shares = """
    SELECT way, layer, receiver, coalesce(sum(percent) FILTER (side = 'before'), 0) AS before,
           coalesce(sum(percent) FILTER (side = 'after'), 0) AS after
    FROM ways JOIN receivers USING (form) WHERE how = 'consumer' GROUP BY ALL
    """
    gains = f"""
    SELECT s.layer, CASE WHEN before > after THEN 'gone' ELSE 'more' END, [receiver],
           way, number, abs(before - after)
    FROM ({_shares}) s JOIN ways USING (way)
    WHERE before <> after AND side = 'after' AND is_likeliest
    """  # noqa: S608 - our own text

    def prepare(self, database: Database) -> bool:
        return any(question.consumers for question in database.questions)

    def findings(self, database: Database, layer: int) -> Iterator[Draft]:
        counts = {(code, *about): n for code, about, n in database.counts(self.name, layer)}
        left = dict(
            database.rows(
                f"SELECT receiver, sum(after * messages)::HUGEINT FROM ({self._shares}) "  # noqa: S608
                "JOIN way_messages USING (way) WHERE layer = ? GROUP BY ALL",
                layer,
            )
        )
        question = database.questions[layer]
        archive, unseen = Seen(question), []
        for number, consumer in enumerate(question.consumers):
            about = f"consumer {shown(consumer.name)} of stream {shown(consumer.stream)}"
            gone, rest = counts.get(("gone", number)), int(left.get(number, 0))
            if gone is not None:
                message = "the consumer will not get these messages"
                message += (
                    f", but will still get {messages(rest)}" if rest else ", and no others either"
                )
                yield "consumer-fewer" if rest else "consumer-none", about, message, gone
            if ("more", number) in counts:
                message = "the consumer will get these messages too"
                yield "consumer-more", about, message, counts["more", number]
            if rest or gone is not None:
                continue
            if not archive.shows_all_of(consumer):
                unseen.append(shown(f"{consumer.stream}/{consumer.name}"))
                continue
            message = "the stream gets no message"
            if consumer.filters:
                filters = " and ".join(map(shown, consumer.filters))
                message = f"the filter {filters} matches no message of the stream"
            yield "consumer-never", about, f"{message}, today or after the switch", Count()
        if unseen:
            message = "the archive cannot show whether these consumers get messages: "
            yield "consumer-not-seen", "", message + listed(unseen), Count()
