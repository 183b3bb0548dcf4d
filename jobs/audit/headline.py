"""An audit in one line: what kind it is, its verdict, where, when, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.audit.result import AuditResult
from nats_transform.audit import WORST_FIRST, MappingAudit, Split, Verdict


def headline(result: AuditResult) -> str:
    """The line; pages, checks and messages to people start with it."""
    kind = "Observed" if result.kind == "observed" else "Rehearsal"
    rules = [rule for rule in worst_first(result) if rule.verdict is not Verdict.NOTHING]
    if not rules:
        next_step = "give a mapping with weights and a stream with its messages"
        return f"{kind}: nothing to audit; {next_step}"
    same = [rule for rule in rules if rule.verdict is result.verdict]
    worst = rules[0]
    where = f"{worst.source} in {worst.cluster}" if worst.cluster else worst.source
    more = len(same) - 1
    others = f" and {more} more {'rule' if more == 1 else 'rules'}" if more > 0 else ""
    match result.verdict:
        case Verdict.WITHIN:
            every = "the one rule" if len(rules) == 1 else f"all {len(rules)} rules"
            if result.silent:
                every = f"{len(rules)} of {len(rules) + len(result.silent)} rules"
            next_step = (
                "nothing to do"
                if result.kind == "observed"
                else "roll out, then audit what the servers did (--observed)"
            )
            return f"{kind}: within the tolerance in {every}{_when([result])}; {next_step}"
        case Verdict.NOT_RANDOM | Verdict.UNDECIDED:
            return f"{kind}: {result.verdict}: {where}{others}{_when([worst])}: {worst.reason}"
        case _:
            of_all = [one for one in result.clusters if one.total.verdict is result.verdict]
            cluster: str | None = worst.cluster
            parts: Sequence[Split] = outside_parts(worst) or [worst]
            if not same:  # only all clusters together are outside
                where, cluster, parts = f"all clusters of {of_all[0].source}", "", [of_all[0].total]
            part = max(parts, key=lambda part: part.distance)
            at_worst = f" at the worst,{_when([part])}" if len(parts) > 1 else ""
            next_step = (
                f"check which mapping the servers {f'of {cluster} ' if cluster else ''}"
                "had loaded then"
                if result.kind == "observed"
                else "correct the weights, and rehearse again"
            )
            why = part.cause or f"{_share(part)}{at_worst}; {next_step}"
            return f"{kind}: outside the tolerance: {where}{others}{_when(parts)}: {why}"


def worst_first(result: AuditResult) -> list[MappingAudit]:
    """The rules, those first that are wrong, and of these what is furthest off."""

    def order(rule: MappingAudit) -> tuple[int, float]:
        furthest = max(part.distance for part in outside_parts(rule) or [rule])
        return WORST_FIRST.index(rule.verdict), -furthest

    return sorted(result.rules, key=order)


def outside_parts(rule: MappingAudit) -> Sequence[Split]:
    """The hours, days or regimes that are outside; the whole if all are, or if it alone is."""
    for parts in (rule.buckets, rule.regimes):
        out = [part for part in parts if part.verdict is Verdict.OUTSIDE]
        if out and len(out) < len(parts):
            return out
    return [rule] if rule.verdict is Verdict.OUTSIDE else []


def _share(part: Split) -> str:
    """The share that is furthest off, in words."""
    end = part.furthest
    return f"{end.name} got {end.share or 0:.2f} % instead of {end.expected:g} %"


def _when(parts: Sequence[Split | AuditResult]) -> str:
    """From the first to the last of some times."""
    starts = [part.from_ for part in parts if part.from_]
    ends = [part.to for part in parts if part.to]
    if not starts or not ends:
        return ""
    first, last = min(starts), max(ends)
    to = f"{last:%H:%M}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M}"
    inside = f" ({len(parts)} times)" if len(parts) > 1 else ""
    return f" from {first:%Y-%m-%d %H:%M} to {to} UTC{inside}"
