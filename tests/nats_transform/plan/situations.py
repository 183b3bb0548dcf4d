"""What people want to move, and what stands around it, with the plan that there is or is not.

A situation is planned around, or refused. One that is refused has a `twin`: the same without the
mistake, for which there is a plan.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jobs.dry_run.settings import read_question
from jobs.settings.dry_run import PlanSettings
from nats_transform.migration import DryRun, Question
from nats_transform.plan.build import build
from nats_transform.plan.model import Plan
from tests.support.dry_runs import CensusRow, of_question

Config = Mapping[str, Any]

OTHER = "OTHER"
"""Another account."""


@dataclass(frozen=True)
class Situation:
    """An account, and the mappings that somebody wants in it.

    Attributes:
        mappings, current: what stands in `mappings {...}`, wanted and today.
        census: the subjects that are published.
        streams: their configurations.
        consumers: the filters, by "STREAM.NAME".
        permissions: of the user who publishes.
        exports, imports: of the account, entry by entry.
        others: imports of the other account.
        theirs: exports of the other account.
        refused: the code and a part of the line, where there is no plan.
        server: a request of the JetStream API that shows why, and the code of its error.
        planned: the steps but those of mappings, where there is a plan.
        delivered: by who gets messages, a filter of the published subjects: each message under one
            of these comes exactly once, whatever step is taken. There are `consumer STREAM.NAME`,
            `stream NAME`, `here FILTER` and `there FILTER` (subscriptions in either account).
        requests: subjects on which the account gets answers from the other one.
        twin: the same without the mistake.
    """

    id: str
    mappings: str
    current: str = ""
    census: Sequence[str] = ("orders.eu", "orders.us")
    streams: Sequence[Config] = ()
    consumers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    permissions: str = ""
    exports: Sequence[str] = ()
    imports: Sequence[str] = ()
    others: Sequence[str] = ()
    theirs: Sequence[str] = ()
    refused: tuple[str, str] | None = None
    server: tuple[str, Config, int] | None = None
    planned: Sequence[str] = ()
    delivered: Mapping[str, str] = field(default_factory=dict)
    requests: Sequence[str] = ()
    twin: Mapping[str, Any] = field(default_factory=dict)

    @property
    def account(self) -> str:
        """Its account on the server of the tests."""
        return self.id.upper().replace("-", "_")

    @property
    def other(self) -> str:
        """The other account there."""
        return f"{self.account}_OTHER"

    def text(self, line: str) -> str:
        """A line with the accounts of this situation in it."""
        return line.replace("$SHOP", self.account).replace("$OTHER", self.other)

    def without_the_mistake(self) -> Situation:
        """The twin."""
        more = {"refused": None, "server": None, "twin": {}, "planned": ()}
        return replace(self, id=f"{self.id}-twin", **(more | dict(self.twin)))

    def blocks(self) -> dict[str, str]:
        """The parts of a server's configuration that a plan changes, by place."""

        def entries(side: str, lines: Sequence[str]) -> str:
            return f"{side}: [ {', '.join(map(self.text, lines))} ]"

        return {
            "permissions": f"permissions {self.permissions}" if self.permissions else "",
            "mappings": f"mappings {{ {self.current} }}",
            f"exports {self.account}": entries("exports", self.exports),
            f"imports {self.account}": entries("imports", self.imports),
            f"exports {self.other}": entries("exports", self.theirs),
            f"imports {self.other}": entries("imports", self.others),
        }

    def accounts(self, blocks: Mapping[str, str]) -> str:
        """Both accounts as they stand in a server's configuration."""
        here, there = self.account, self.other
        user = f"{{ user: {here}-app, password: secret, {blocks['permissions']} }}"
        return f"""
          {here} {{
            jetstream: enabled
            users: [ {user}, {{ user: {here}-admin, password: secret }} ]
            {blocks["mappings"]}
            {blocks[f"exports {here}"]}
            {blocks[f"imports {here}"]}
          }}
          {there} {{
            users: [ {{ user: {there}-admin, password: secret }} ]
            {blocks[f"exports {there}"]}
            {blocks[f"imports {there}"]}
          }}
        """

    def settings(self, folder: Path) -> PlanSettings:
        """The files that people would have."""
        given: dict[str, Any] = {
            "candidate": folder / "new.conf",
            "permissions": folder / "server.conf",
            "account": self.account,
            "census": folder / "none.parquet",
            "out": folder / "plan",
            "without_streams": True,
        }
        wanted = f"accounts {{ {self.account} {{ mappings {{ {self.mappings} }} }} }}"
        given["candidate"].write_text(wanted)
        given["permissions"].write_text(f"accounts {{ {self.accounts(self.blocks())} }}")
        if self.current:
            given["mapping"] = folder / "server.conf"
        for side, documents in (
            ("streams", {str(one["name"]): {"config": one} for one in self.streams}),
            ("consumers", {name: self.consumer(name) for name in self.consumers}),
        ):
            if documents:
                given[side] = folder / side
                given[side].mkdir(exist_ok=True)
                for name, document in documents.items():
                    (given[side] / f"{name}.json").write_text(json.dumps(document))
        return PlanSettings.model_validate(given)

    def consumer(self, name: str) -> dict[str, Any]:
        """A consumer as the server shows it."""
        stream, _, durable = name.partition(".")
        return {**filters(stream, durable, *self.consumers[name]), "name": durable}

    def dry_run(self, question: Question) -> DryRun:
        """What a dry run finds on its subjects."""
        return of_question([CensusRow(one, None, 10) for one in sorted(self.census)], question)

    def plan(self, folder: Path, **more: Any) -> Plan:
        """The plan, by the files that people would have."""
        folder.mkdir(exist_ok=True)
        settings = self.settings(folder)

        return build(
            read_question(settings),
            self.dry_run,
            account=self.account,
            percents=(50, 100),
            **more,
        )


def steps(plan: Plan) -> list[str]:
    """The steps but those of mappings, one line for each change."""
    return [
        f"{step.phase} {change.kind} {change.name}"
        for step in plan.steps
        for change in step.changes
        if change.kind != "mappings"
    ]


def stream(name: str, *subjects: str, **more: Any) -> Config:
    return {"name": name, "subjects": list(subjects), "storage": "memory", **more}


def filters(stream: str, name: str, *subjects: str) -> Config:
    """A request that creates or changes a consumer."""
    config = {"durable_name": name, "name": name, "ack_policy": "explicit"}
    return {"stream_name": stream, "config": {**config, "filter_subjects": list(subjects)}}


MOVE = '"orders.*": "shop.orders.$1"'
ORDERS = stream("ORDERS", "orders.*")

SITUATIONS = (
    Situation(
        "two-become-one",
        '"orders.*": shop.orders',
        streams=[ORDERS],
        refused=("collision", "2 subjects become 1, because the new subject leaves out wildcard 1"),
        twin={"mappings": MOVE},
    ),
    Situation(
        "partition-count",
        '"orders.*": "p.{{partition(8,1)}}.$1"',
        current='"orders.*": "p.{{partition(5,1)}}.$1"',
        census=[f"orders.{n}" for n in range(20)],
        streams=[stream("ORDERS", "p.*.*")],
        consumers={f"ORDERS.p{n}": [f"p.{n}.*"] for n in range(5)},
        refused=("partition-moves", "mapping orders.*"),
        twin={"mappings": '"orders.*": "p.{{partition(5,1)}}.$1", "other.*": "x.$1"'},
    ),
    Situation(
        "another-stream-there",
        MOVE,
        streams=[ORDERS, stream("SHOP", "shop.>")],
        refused=("streams-overlap", "subject 'shop.>' of stream SHOP cover the same subjects"),
        server=("STREAM.UPDATE.ORDERS", stream("ORDERS", "orders.*", "shop.orders.*"), 10065),
        twin={"streams": [ORDERS, stream("SHOP", "shop.bills.>")]},
    ),
    Situation(
        "new-covers-old",
        '"orders.*": "$1.new"',
        census=["orders.eu"],
        streams=[ORDERS],
        refused=("stream-refused", "overlaps with"),
        server=("STREAM.UPDATE.ORDERS", stream("ORDERS", "orders.*", "*.new"), 10052),
        twin={"mappings": '"orders.*": "new.orders.$1"'},
    ),
    Situation(
        "republish-into-itself",
        '"orders.*": "live.orders.$1"',
        streams=[{**ORDERS, "republish": {"src": ">", "dest": "live.>"}}],
        refused=("stream-refused", "republish destination forms a cycle"),
        server=(
            "STREAM.UPDATE.ORDERS",
            stream("ORDERS", "orders.*", "live.orders.*", republish={"src": ">", "dest": "live.>"}),
            10052,
        ),
        twin={"mappings": MOVE},
    ),
    Situation(
        "republish-cannot-follow",
        MOVE,
        streams=[
            stream("ORDERS", "orders.*", republish={"src": "orders.*", "dest": "live.$1.order"})
        ],
        refused=("republish-stops", "stream ORDERS"),
        twin={
            "streams": [
                stream(
                    "ORDERS", "orders.*", republish={"src": "orders.*", "dest": "live.orders.$1"}
                )
            ]
        },
    ),
    Situation(
        "transform-cannot-follow",
        MOVE,
        streams=[
            stream("ORDERS", "orders.*", subject_transform={"src": "orders.*", "dest": "o.$1"})
        ],
        refused=("ingress-stops", "stream ORDERS"),
        twin={"streams": [ORDERS]},
    ),
    Situation(
        "more-than-before",
        '"orders.*": "shop.{{left(1,1)}}"',
        census=["orders.eu", "orders.es"],
        streams=[ORDERS],
        consumers={"ORDERS.eu": ["orders.eu"]},
        refused=("consumer-more", "consumer eu of stream ORDERS"),
        twin={"mappings": MOVE},
    ),
    Situation(
        "filters-overlap",
        '"orders.*": "$1.new"',
        census=["orders.eu"],
        streams=[stream("ALL", ">", no_ack=True)],
        consumers={"ALL.both": ["orders.*", "a.new"]},
        refused=("consumer-filters-overlap", "consumer both of stream ALL"),
        server=(
            "CONSUMER.CREATE.ALL.both",
            filters("ALL", "both", "orders.*", "a.new", "*.new"),
            10138,
        ),
        twin={"mappings": MOVE},
    ),
    Situation(
        "work-queue",
        '"orders.*": "shop.{{left(1,1)}}"',
        census=["orders.eu", "orders.es"],
        streams=[stream("ORDERS", "orders.*", retention="workqueue")],
        consumers={"ORDERS.eu": ["orders.eu"], "ORDERS.es": ["orders.es"]},
        refused=("work-queue-overlap", "the consumer eu would get the same subjects"),
        server=(
            "CONSUMER.CREATE.ORDERS.es",
            filters("ORDERS", "es", "orders.es", "orders.eu"),
            10100,
        ),
        twin={"mappings": MOVE},
    ),
    Situation(
        "limit-of-a-subject",
        '"orders.*": shop.orders',
        streams=[
            stream(
                "ORDERS",
                "orders.*",
                max_msgs_per_subject=10,
                discard="new",
                discard_new_per_subject=True,
            )
        ],
        refused=("limit-refuses", "the stream keeps 10 messages of each subject"),
        twin={"mappings": MOVE},
    ),
    Situation(
        "mirror",
        MOVE,
        streams=[
            ORDERS,
            {
                "name": "EU",
                "mirror": {"name": "ORDERS", "filter_subject": "orders.eu"},
                "storage": "memory",
            },
        ],
        refused=("mirror-filter", "nats-server doesn't let you change a mirror"),
        server=(
            "STREAM.UPDATE.EU",
            {
                "name": "EU",
                "mirror": {
                    "name": "ORDERS",
                    "subject_transforms": [
                        {"src": "orders.eu", "dest": ""},
                        {"src": "shop.orders.eu", "dest": ""},
                    ],
                },
                "storage": "memory",
            },
            10055,
        ),
        twin={
            "streams": [ORDERS, {"name": "EU", "mirror": {"name": "ORDERS"}, "storage": "memory"}]
        },
    ),
    Situation(
        "bucket",
        '"$KV.B.>": "$KV.C.>"',
        census=["$KV.B.key"],
        streams=[stream("KV_B", "$KV.B.>", max_msgs_per_subject=1)],
        refused=("bucket-moves", "stream KV_B"),
        twin={"mappings": MOVE, "census": ["$KV.B.key", "orders.eu"]},
    ),
    Situation(
        "cut-token",
        '"orders.*": "shop.{{splitFromLeft(1,1)}}"',
        streams=[stream("ALL", "orders.*", "shop.>")],
        refused=("irreversible", "no mapping can change the new subjects back into these"),
        twin={"mappings": '"orders.*": "shop.$1.{{splitFromLeft(1,1)}}"'},
    ),
    Situation(
        "chain",
        f'{MOVE}, "shop.orders.*": "all.$1"',
        census=["orders.eu", "shop.orders.x"],
        refused=("check-not-chained", "nats-server does not apply it"),
        twin={
            "mappings": f'{MOVE}, "old.orders.*": "all.$1"',
            "census": ["orders.eu", "old.orders.x"],
        },
    ),
    Situation(
        "random-order",
        f'{MOVE}, "orders.eu": "eu.orders"',
        refused=("rule-shadowed", "mapping orders.eu"),
        twin={"mappings": MOVE},
    ),
    Situation(
        "opens-more",
        '"orders.*": "shop.{{left(1,1)}}"',
        census=["orders.eu", "orders.es"],
        permissions='{ publish: ["orders.eu"] }',
        refused=("publish-opened", "-app"),
        twin={"mappings": MOVE},
    ),
    Situation(
        "import-cannot-follow",
        '"orders.*": "shop.{{partition(3,1)}}.$1"',
        exports=["{ stream: orders.* }"],
        others=['{ stream: { account: $SHOP, subject: "orders.*" } }'],
        refused=("import-none", "import of orders.* by account"),
        twin={"mappings": MOVE},
    ),
    Situation(
        "request-cannot-follow",
        '"orders.*.*": "shop.$2.$1"',
        census=["orders.eu.1"],
        imports=['{ service: { account: $OTHER, subject: "req.*.*" }, to: "orders.*.*" }'],
        theirs=["{ service: req.*.* }"],
        refused=("service-import", "no import can take them"),
        twin={"mappings": '"orders.*.*": "shop.$1.$2"'},
    ),
    Situation(
        "loses",
        '"orders.eu": [{destination: orders.eu, weight: 0}, {destination: shop.eu, weight: 90}]',
        streams=[stream("ALL", "orders.*", "shop.*")],
        refused=("lost", "the weights of the candidate lose these messages"),
        twin={"mappings": '"orders.eu": shop.eu'},
    ),
)
"""Those that are refused."""


EXPAND = ("expand stream ORDERS", "expand consumer ORDERS/eu")
CONTRACT = ("contract consumer ORDERS/eu", "contract stream ORDERS")

PLANNED = (
    Situation(
        "filters",
        MOVE,
        streams=[ORDERS],
        consumers={"ORDERS.all": [], "ORDERS.eu": ["orders.eu"]},
        planned=[*EXPAND, *CONTRACT],
        delivered={"consumer ORDERS.all": "orders.*", "consumer ORDERS.eu": "orders.eu"},
    ),
    Situation(
        "queue-of-work",
        MOVE,
        streams=[stream("ORDERS", "orders.*", retention="workqueue", duplicate_window=10**10)],
        consumers={"ORDERS.eu": ["orders.eu"], "ORDERS.us": ["orders.us"]},
        planned=[
            *EXPAND,
            "expand consumer ORDERS/us",
            "contract consumer ORDERS/eu",
            "contract consumer ORDERS/us",
            "contract stream ORDERS",
        ],
        delivered={"consumer ORDERS.eu": "orders.eu", "consumer ORDERS.us": "orders.us"},
    ),
    Situation(
        "permissions",
        MOVE,
        streams=[ORDERS],
        consumers={"ORDERS.eu": ["orders.eu"]},
        permissions="""{
          publish: { allow: ["orders.*"], deny: "orders.secret" }
          subscribe: ["_INBOX.>", "orders.* workers"]
          allow_responses: { max: 5, expires: "1m" }
        }""",
        planned=[
            *EXPAND,
            "expand permissions $SHOP-app",
            *CONTRACT,
            "contract permissions $SHOP-app",
        ],
        delivered={"consumer ORDERS.eu": "orders.eu"},
    ),
    Situation(
        "sources",
        MOVE,
        streams=[
            ORDERS,
            stream("AGG", sources=[{"name": "ORDERS", "filter_subject": "orders.eu"}]),
            stream(
                "NEW",
                sources=[
                    {
                        "name": "ORDERS",
                        "subject_transforms": [{"src": "orders.*", "dest": "new.$1.x"}],
                    }
                ],
            ),
        ],
        consumers={"AGG.eu": ["orders.eu"], "NEW.eu": ["new.eu.*"]},
        planned=[
            "expand stream AGG",
            "expand stream NEW",
            "expand stream ORDERS",
            "expand consumer AGG/eu",
            "contract consumer AGG/eu",
            "contract stream AGG",
            "contract stream NEW",
            "contract stream ORDERS",
        ],
        delivered={
            "consumer AGG.eu": "orders.eu",
            "consumer NEW.eu": "orders.eu",
            "stream NEW": "orders.*",
        },
    ),
    Situation(
        "republish",
        MOVE,
        permissions='{ subscribe: ["_INBOX.>", "live.orders.*"] }',
        streams=[
            stream("ORDERS", "orders.*", republish={"src": "orders.*", "dest": "live.orders.$1"}),
            stream("LIVE", "live.orders.eu"),
        ],
        consumers={"LIVE.eu": ["live.orders.eu"]},
        planned=[
            "expand stream LIVE",
            "expand stream ORDERS",
            "expand consumer LIVE/eu",
            "expand permissions $SHOP-app",
            "contract consumer LIVE/eu",
            "contract stream LIVE",
            "contract stream ORDERS",
            "contract permissions $SHOP-app",
        ],
        delivered={"here live.>": "orders.*", "consumer LIVE.eu": "orders.eu"},
    ),
    Situation(
        "exports",
        MOVE,
        exports=["{ stream: orders.* }", "{ stream: orders.eu, accounts: [$OTHER] }"],
        others=[
            '{ stream: { account: $SHOP, subject: "orders.us" } }',
            '{ stream: { account: $SHOP, subject: "orders.*" }, to: "in.*.x" }',
            "{ stream: { account: $SHOP, subject: orders.eu }, prefix: eu }",
        ],
        planned=[
            "expand exports $SHOP",
            "expand imports $OTHER",
            "contract imports $OTHER",
            "contract exports $SHOP",
        ],
        delivered={
            "there orders.us": "orders.us",
            "there in.*.x": "orders.*",
            "there eu.orders.eu": "orders.eu",
        },
    ),
    Situation(
        "requests",
        MOVE,
        imports=['{ service: { account: $OTHER, subject: "req.*" }, to: "orders.*" }'],
        theirs=["{ service: req.* }"],
        planned=["expand imports $SHOP", "contract imports $SHOP"],
        requests=["orders.eu"],
    ),
    Situation(
        # What the weights leave under the old subjects needs them for ever.
        "half-of-it",
        '"orders.*": [{destination: "shop.orders.$1", weight: 50},'
        ' {destination: "orders.$1", weight: 50}]',
        streams=[ORDERS],
        consumers={"ORDERS.eu": ["orders.eu"]},
        planned=EXPAND,
        delivered={"consumer ORDERS.eu": "orders.eu"},
    ),
    Situation(
        "one-cluster-of-many",
        '"orders.*": [{destination: "shop.orders.$1", weight: 100, cluster: east}]',
        streams=[ORDERS],
        planned=["expand stream ORDERS"],
        delivered={"stream ORDERS": "orders.*"},
    ),
    Situation(
        # The new subjects are under the old filter.
        "below-itself",
        '"orders.>": "orders.v2.>"',
        streams=[stream("ORDERS", "orders.>", "bills.>")],
        planned=(),
        delivered={"stream ORDERS": "orders.>"},
    ),
    Situation(
        # The filters of what mappings and consumers share, and of the tokens that are known.
        "a-part-of-a-mapping",
        '"fleet.*.*.*": "telemetry.v2.$1.{{left(2,2)}}.$2.$3"',
        census=["fleet.eu.bus.1", "fleet.us.bus.1", "fleet.eu.x"],
        streams=[stream("FLEET", "fleet.>")],
        consumers={"FLEET.eu": ["fleet.eu.>"]},
        planned=["expand stream FLEET", "expand consumer FLEET/eu"],
        delivered={"consumer FLEET.eu": "fleet.eu.>"},
    ),
    Situation(
        "a-mapping-today",
        '"in.*": "shop.$1"',
        current='"in.*": "orders.$1"',
        census=["in.eu", "in.us"],
        streams=[ORDERS],
        consumers={"ORDERS.all": []},
        exports=["{ stream: orders.* }"],
        others=['{ stream: { account: $SHOP, subject: "orders.*" } }'],
        planned=["expand stream ORDERS", "expand exports $SHOP", "expand imports $OTHER"],
        delivered={"consumer ORDERS.all": "in.*", "there orders.*": "in.*"},
    ),
)
"""Those that are planned around."""
