"""`nats-transform certify`: whether a real nats-server does what we predict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.command import job_command
from cli.output import Verdict, print_line, print_table
from nats_transform.errors import shown
from nats_transform.mappings.unseen import unseen_line
from nats_transform.words import plural

if TYPE_CHECKING:
    from jobs.certify.result import Certificate
    from jobs.settings.certify import CertifySettings


@job_command(
    "certify",
    exit_codes="0 the server does as predicted; 1 it doesn't; 2 we can't ask it.",
    json="holds, tried, share, divergences, draws, streams, versions and digests.",
)
def command(result: Certificate, settings: CertifySettings) -> None:
    """Try archived subjects on a private nats-server, and compare it with the prediction.

    This starts a nats-server on this machine with the candidate's mappings and the streams, and
    publishes archived subjects to it alone. For each message, the subject, the streams and the
    stored subjects must be as predicted, and the draws must agree with the weights. With
    --permissions, each user in the file also publishes the subjects and subscribes to them. Limits,
    headers and payloads are not tried.

    \b
    Examples:
      nats-transform certify --stream ORDERS --candidate new.conf --streams streams/
      nats-transform certify --stream ORDERS --candidate new.conf --sample 50000 --report page.html
    """
    print_line(
        f"{shown(result.stream)}: {plural(result.tried, 'message')} of {result.messages:,} tried "
        f"({100 * result.share:.3g} %), {plural(result.subjects, 'subject')}; "
        f"nats-server {result.nats_server or 'not asked'}"
    )
    for reason, count in result.skipped.items():
        print_line(f"not published: {plural(count, 'message')}, {reason}")
    rows = [
        ("delivered", f"{result.predicted:,}", f"{result.delivered:,}"),
        *((f"stream {s.stream}", f"{s.predicted:,}", f"{s.seen:,}") for s in result.streams),
    ]
    print_table(rows, head=("", "predicted", "nats-server"), right=(1, 2))
    print_table(
        [
            (f"user {u.user}", f"{u.subjects:,}", f"{u.published:,}", f"{u.got:,}")
            for u in result.users
        ],
        head=("", "subjects", "may publish", "gets"),
        right=(1, 2, 3),
    )
    for divergence in result.divergences:
        where = f" in {divergence.cluster}" if divergence.cluster else ""
        about = f" ({divergence.about})" if divergence.about else ""
        print_line(
            Verdict("differs"),
            f" {divergence.kind}{about}{where}: {plural(divergence.messages, 'message')}",
        )
        if divergence.subject is not None:
            print_line(f"{divergence.subject} (sequence {divergence.seq})", indent=2)
        print_line(f"predicted {divergence.predicted}", indent=2)
        print_line(f"nats-server {divergence.seen}", indent=2)
    print_line(unseen_line(result.not_looked_at))
    if not result.tried:
        print_line("nothing was tried")
    elif not result.divergences:
        print_line("nats-server does as predicted")
