"""What people want to move, and what stands around it, with the plan that there is or is not.

A situation is planned around, or refused. One that is refused has a `twin`: the same without the
mistake, for which there is a plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jobs.dry_run.question import read_question
from jobs.settings.dry_run import PlanSettings
from nats_transform.migration import DryRun, Question
from nats_transform.plan.build import build
from nats_transform.plan.model import Plan
from tests.cases import load
from tests.support.dry_runs import CensusRow, of_question
from tests.support.files import write_files

Config = Mapping[str, Any]

OTHER = "OTHER"
"""Another account."""
_ANSWERS: dict[str, DryRun] = {}


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
        checked: what `check` finds of the wanted mappings and the streams, where there is no plan.
        not_checked: why the configuration that `check` reads does not show it.
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
    refused: Sequence[str] | None = None
    checked: str = ""
    not_checked: str = ""
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
        files: dict[str, Any] = {"new.conf": wanted}
        files["server.conf"] = f"accounts {{ {self.accounts(self.blocks())} }}"
        files |= {f"streams/{one['name']}.json": {"config": one} for one in self.streams}
        files |= {f"consumers/{name}.json": self.consumer(name) for name in self.consumers}
        write_files(folder, files)
        given |= {"mapping": folder / "server.conf"} if self.current else {}
        given |= {"streams": folder / "streams"} if self.streams else {}
        given |= {"consumers": folder / "consumers"} if self.consumers else {}
        return PlanSettings.model_validate(given)

    def consumer(self, name: str) -> dict[str, Any]:
        """A consumer as the server shows it."""
        stream, _, durable = name.partition(".")
        return {**filters(stream, durable, *self.consumers[name]), "name": durable}

    def dry_run(self, question: Question, *, anew: bool = False) -> DryRun:
        """What a dry run finds on its subjects; tests that ask the same share the answer."""
        asked = f"{sorted(self.census)} {question}"
        if anew or asked not in _ANSWERS:
            rows = [CensusRow(one, None, 10) for one in sorted(self.census)]
            _ANSWERS[asked] = of_question(rows, question)
        return _ANSWERS[asked]

    def plan(self, folder: Path, **more: Any) -> Plan:
        """The plan, by the files that people would have."""
        folder.mkdir(exist_ok=True)
        settings = self.settings(folder)
        return build(
            read_question(settings), self.dry_run, account=self.account, percents=(50, 100), **more
        )


def steps(plan: Plan) -> list[str]:
    """The steps but those of mappings, one line for each change."""
    return [
        f"{step.phase} {change.kind} {change.name}"
        for step in plan.steps
        for change in step.changes
        if change.kind != "mappings"
    ]


def filters(stream: str, name: str, *subjects: str) -> Config:
    """A request that creates or changes a consumer."""
    config = {"durable_name": name, "name": name, "ack_policy": "explicit"}
    return {"stream_name": stream, "config": {**config, "filter_subjects": list(subjects)}}


def situation(row: dict[str, Any]) -> Situation:
    """A row of tests/cases/situations.yaml."""
    given = {"mappings": '"orders.*": "shop.orders.$1"', **row}
    for part in (given, given.get("twin", {})):
        if "streams" in part:
            part["streams"] = [{"storage": "memory", **one} for one in part["streams"]]
    return Situation(**given)


EVERY = [situation(row) for row in load("situations.yaml")]
SITUATIONS = [one for one in EVERY if one.refused is not None]
PLANNED = [one for one in EVERY if one.refused is None]
