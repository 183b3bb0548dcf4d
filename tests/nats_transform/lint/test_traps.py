"""Random traps: counts with one fault that an audit must not call right, and counts without.

A trap is a mapping, a day of its messages and a fault. Whether its truth is outside follows from
what the servers did and not from the draws: what came out is off by twice the tolerance or more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from nats_transform.audit import Criteria, Doubled, End, Hours, Verdict, assess
from nats_transform.audit.chance import KEYS, STRETCH, Draws
from tests.nats_transform.audit.counts import SCOPE, came, canary, hour, in_force, tallies

HOURS = [hour(n) for n in range(24)]
ENDS = [End("shop.*", f"v{n}.$1") for n in (1, 2, 3)]


@dataclass
class Day:
    """A day of a mapping.

    Attributes:
        rng: where chance comes from.
        shares: the weights of the destinations, as fractions.
        published: how many messages were published in each hour.
        stored: the stored messages, a row for each hour and a column for each destination.
        unmapped: those that are stored under the source.
        doubled: messages that are stored again, which the counts leave out.
        known: what the audit is told of `published`: nothing, one number, or one for each hour.
        hidden: destinations that the archive does not hold, as far as the audit is told.
        draws: the order and the keys of the messages, if the audit looks at them.
    """

    rng: np.random.Generator
    shares: np.ndarray
    published: np.ndarray
    stored: np.ndarray
    unmapped: np.ndarray
    doubled: int = 0
    known: str = "nothing"
    hidden: set[int] = field(default_factory=set)
    draws: Draws | None = None

    @property
    def tolerances(self) -> np.ndarray:
        """The tolerance of each share."""
        return np.minimum(0.01, np.minimum(self.shares, 1 - self.shares) / 2)

    @property
    def tolerance(self) -> float:
        """The smallest of them."""
        return float(self.tolerances.min())

    def split(self, hours: slice, shares: np.ndarray) -> None:
        """Lets the servers split the messages of some hours in another way."""
        self.stored[hours] = self.rng.multinomial(self.published[hours], shares)

    def come(self, keys: np.ndarray, ends: np.ndarray) -> None:
        """Stores all messages anew, in order: the hash of the key of each, and its destination."""
        shares = range(len(self.shares))
        hours = np.split(ends, self.published.cumsum()[:-1])
        self.stored = np.array([np.bincount(hour, minlength=len(shares)) for hour in hours])
        self.draws = Draws.none([ENDS[n] for n in shares])
        self.draws.add_keys(keys, ends)
        self.draws.add_order(ends[: len(ends) // STRETCH * STRETCH])

    def verdict(self) -> Verdict:
        weights = (self.shares * 100).round().astype(int).tolist()
        hours = zip(self.stored.tolist(), self.unmapped.tolist(), strict=True)
        counts = tallies(came(*row, unmapped=kept) for row, kept in hours)
        published: dict[str, Hours | None] = {
            "nothing": None,
            "one number": int(self.published.sum()) + self.doubled,
            "by hour": dict(zip(HOURS, self.published.tolist(), strict=True)),
        }
        of_hours = self.known == "by hour"
        sent = published[self.known]
        return assess(
            in_force(canary(*weights)),
            [one for one in counts if one.count],
            Criteria(by="hour" if self.rng.random() < 0.5 else "day"),
            hidden=frozenset(ENDS[n] for n in self.hidden),
            published=None if sent is None else {SCOPE: sent},
            doubled={SCOPE: Doubled(self.doubled, self.doubled if of_hours else None)},
            draws=self.draws and {SCOPE: self.draws},
        ).verdict


def is_off(tolerances: float) -> bool | None:
    """Whether the truth is outside, being off by so many tolerances; None if it is near one."""
    return None if 0.5 < tolerances < 2 else tolerances >= 2


def right(day: Day) -> bool:
    count = day.published.sum()
    day.come(
        day.rng.integers(KEYS, size=count), day.rng.choice(len(day.shares), count, p=day.shares)
    )
    return False


def sticky_keys(day: Day) -> bool:
    """A hundred keys always go to the same destination each; their shares are right all the same.

    The messages of up to 300 other keys are drawn for.
    """
    count = day.published.sum()
    sticky = np.repeat(np.arange(len(day.shares)), (day.shares * 100).round().astype(int))
    keys = day.rng.integers(100 * day.rng.integers(1, 5), size=count)
    drawn = day.rng.choice(len(day.shares), count, p=day.shares)
    ends = np.where(keys < 100, sticky[keys % 100], drawn)
    day.come(day.rng.integers(KEYS, size=400)[keys], ends)
    return True


def dead_arm(day: Day) -> bool:
    """A destination gets nothing: another one gets its messages."""
    n = int(day.rng.integers(len(day.shares)))
    day.stored[:, n - 1] += day.stored[:, n]
    day.stored[:, n] = 0
    return True


def loss(day: Day) -> bool | None:
    """What came to a destination is lost in part; a little of it does not matter."""
    n = int(day.rng.integers(len(day.shares)))
    day.known = str(day.rng.choice(["one number", "by hour"]))
    part = day.rng.uniform(0.1, 1)
    day.stored[:, n] -= day.rng.binomial(day.stored[:, n], part)
    return is_off(float(day.shares[n] * part / day.tolerance))


def not_in_force(day: Day) -> bool:
    """Some servers have not loaded the mapping, or none has."""
    part = day.rng.choice([1, day.rng.uniform(0.03, 1)])
    kept = day.rng.binomial(day.stored, part)
    day.stored -= kept
    if day.rng.random() < 0.2:
        day.stored[:, 0] = 0
        day.hidden.add(0)
    day.unmapped += kept.sum(axis=1)
    return True


def other_shares(day: Day) -> np.ndarray:
    """Shares two of which are off by three times the tolerance or more."""
    n, other = day.rng.permutation(len(day.shares))[:2]
    shares = day.shares.copy()
    shares[other] -= min(shares[other], 3 * day.tolerance * day.rng.uniform(1, 3))
    shares[n] = 1 - shares.sum() + shares[n]
    return shares


def stale_server(day: Day) -> bool | None:
    """The servers have other weights, all day."""
    shares = other_shares(day)
    day.split(slice(24), shares)
    return is_off(float((abs(shares - day.shares) / day.tolerances).max()))


def half_of_the_hours(day: Day) -> bool:
    """The canary is dead in half of the hours and gets twice as much in the others."""
    n = int(day.shares.argmin())
    for hours, factor in ((slice(12), 0.0), (slice(12, 24), 2.0)):
        shares = day.shares * (1 - factor * day.shares[n]) / (1 - day.shares[n])
        shares[n] = factor * day.shares[n]
        day.split(hours, shares)
    return True


def duplicates(day: Day) -> bool:
    """Publishers send messages again, under the ids of the first."""
    day.doubled = int(day.published.sum() * day.rng.uniform(0, 0.2))
    day.known = str(day.rng.choice(["nothing", "one number", "by hour"]))
    return False


def dilution(day: Day) -> bool:
    """Others publish to one destination so much that its share looks like another weight."""
    day.known = str(day.rng.choice(["one number", "by hour"]))
    n = int(day.rng.integers(len(day.shares)))
    part = day.rng.uniform(0.03, 3)
    day.stored[:, n] += (day.published * part).astype(int)
    return True


def wrong_capture(day: Day) -> bool:
    """No stream captures a destination, and nobody says so; or somebody does."""
    n = int(day.rng.integers(len(day.shares)))
    day.stored[:, n] = 0
    day.known = str(day.rng.choice(["nothing", "one number", "by hour"]))
    if day.rng.random() < 0.5:
        day.hidden.add(n)
        return False
    return True


FAULTS: list[Callable[[Day], bool | None]] = [
    right,
    dead_arm,
    loss,
    not_in_force,
    stale_server,
    half_of_the_hours,
    duplicates,
    dilution,
    wrong_capture,
    sticky_keys,
]
NOT_FINE = (Verdict.OUTSIDE, Verdict.NOT_RANDOM)


def new_day(rng: np.random.Generator) -> Day:
    small = int(rng.choice([1, 2, 5, 10, 30, 50]))
    rest = [100 - small]
    if rng.random() < 0.3 and small < 30:
        rest = [40, 60 - small]
    shares = np.array([*rest, small]) / 100
    published = rng.integers(8_000, 12_000, 24)
    stored = rng.multinomial(published, shares)
    return Day(rng, shares, published, stored, np.zeros(24, np.int64), known="nothing")


@pytest.mark.parametrize("traps", [40, pytest.param(20_000, marks=pytest.mark.slow)])
def test_traps(traps: int) -> None:
    rng = np.random.default_rng(31)
    verdicts: Counter[tuple[str, bool | None, Verdict]] = Counter()
    for n in range(traps):
        fault, day = FAULTS[n % len(FAULTS)], new_day(rng)
        if rng.random() < 0.3:
            day.known = "by hour"
        is_outside = fault(day)
        verdicts[fault.__name__, is_outside, day.verdict()] += 1
    missed = {key: count for key, count in verdicts.items() if key[1] and key[2] not in NOT_FINE}
    assert not missed  # so none has the exit code 0
    truths, alarms = Counter[bool | None](), 0
    for (_, is_outside, verdict), count in verdicts.items():
        truths[is_outside] += count
        alarms += count if is_outside is False and verdict in NOT_FINE else 0
    assert alarms <= 0.01 * truths[False], verdicts
    assert truths[True] > traps / 2
