"""The names of clusters that messages carry, compared with those that the mappings have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from jobs.audit.result import AuditError
from nats_transform.audit import Period
from nats_transform.words import plural


def cluster_notes(
    periods: Sequence[Period], counts: Mapping[tuple[str, str | None], int], instead: str
) -> Iterator[str]:
    """What to say of messages that name no cluster, or one that their mapping does not have.

    Args:
        counts: messages of each mapping and cluster.
        instead: what becomes of messages without a cluster name.

    Raises:
        AuditError: no message can be compared with weights of its cluster.
    """
    labelled = defaultdict[str, dict[str | None, int]](dict)
    for (source, cluster), count in counts.items():
        labelled[source][cluster] = count
    scoped = [m for p in periods for m in p.mappings.mappings if m.clusters and labelled[m.source]]
    clusters = defaultdict[str, set[str]](set)
    for mapping in scoped:
        clusters[mapping.source].update(mapping.clusters)
    for mapping in {mapping.source: mapping for mapping in scoped}.values():
        mine, known = labelled[mapping.source], clusters[mapping.source]
        total, without = sum(mine.values()), mine.pop(None, 0)
        if without == total:
            raise AuditError("no-cluster-names", source=mapping.source, total=total)
        if without:
            yield (
                f"{without:,} of {plural(total, 'message')} of {mapping.source} "
                f"{'has' if without == 1 else 'have'} no cluster name; "
                f"{instead}"
            )
        names = ", ".join(mapping.clusters)
        strange = sorted({cluster for cluster in mine if cluster} - known)
        is_general = any(d.cluster is None for d in mapping.destinations)
        if strange and not is_general and not known & mine.keys():
            raise AuditError(
                "other-cluster-names",
                source=mapping.source,
                names=names,
                strange=", ".join(strange),
            )
        folded = {cluster.casefold().strip(): cluster for cluster in known}
        for cluster in strange:
            alike = folded.get(cluster.casefold().strip())
            if alike is not None or not is_general:
                yield (
                    f"{plural(mine[cluster], 'message')} of {mapping.source} "
                    f"{'is' if mine[cluster] == 1 else 'are'} labelled {cluster}, which "
                    f"the mapping does not have (it has {names}); "
                    + (
                        f"if {alike} is meant, ingest again with that name"
                        if alike
                        else "nothing is mapped there"
                    )
                )
