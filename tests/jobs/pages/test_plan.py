"""The page of a plan."""

from __future__ import annotations

from jobs.pages.plan import render
from nats_transform.plan.model import Accepted, Change, Need, Plan, Step
from tests.jobs.pages.markup import text_of
from tests.support.hostile import HOSTILE

LONG = ".".join(["averyverylongtokenwithoutablank"] * 5)


def plan(name: str = "east") -> Plan:
    """Room, two stages in each of two clusters, and the end of the old names."""

    def mappings(percent: int) -> Change:
        old, new = ({"destination": one, "weight": 50} for one in (f"{LONG}.$1", "shop.$1"))
        return Change(kind="mappings", name=name, before={name: [old]}, after={name: [old, new]})

    stream = Change(
        kind="stream", name=name, before={"subjects": ["a"]}, after={"subjects": [name]}
    )
    filters = ["a"], ["a", "b"]
    sides = [{"filter_subjects": one} for one in filters]
    consumer = Change(kind="consumer", name=f"ORDERS/{name}", before=sides[0], after=sides[1])
    shifts = [(cluster, percent) for cluster in (name, None) for percent in (10, 100)]
    steps = [
        Step(number=1, phase="expand", title=f"Let {name} store both", why=name, changes=(stream,)),
        Step(number=2, phase="expand", title="Let it read both", why=LONG, changes=(consumer,)),
        *(
            Step(
                number=number, phase="shift", title=f"Send {percent} % of {name}", why="it moves",
                changes=(mappings(percent),), percent=percent, cluster=cluster,
                programs=f"{name} must take both", wait=f"the audit of {name} is within",
                needs=(Need(source=name, messages=9000 * number, hours=30.0 * number),)
                if percent < 100 else (Need(source=LONG, messages=None, hours=None),),
            )
            for number, (cluster, percent) in enumerate(shifts, 3)
        ),
        Step(
            number=7, phase="contract", title="Take the old away", why="nobody needs it",
            changes=(stream,),
        ),
    ]  # fmt: skip
    return Plan(
        account=name, current="4f" * 32, candidate="5a" * 32, made_from={}, steps=tuple(steps),
        accepted=(Accepted(code="collision", about=name, reason=name),),
        at_once={name: f"it has {name}"}, blocks_because=name,
    )  # fmt: skip


def test_each_step_says_what_must_be_true_before_it() -> None:
    text = text_of(render(plan())).replace(" Copy ", " ")
    places = [
        text.index(words)
        for words in (
            "7 steps from the mappings in force to the candidate",
            "Make room for both names",
            "nats stream edit east --config 01-expand/stream-east.json --force",
            "Undo step 1 nats stream edit east --config 01-expand/undo/stream-east.json",
            "First wait until this has exit code 0 nats-transform verify --plan . --step 2 --undo",
            "Move the messages east 10 % 3.8 days 100 % step 4 all clusters 10 %",
            "Before it: step 2 is in force. East must take both.",
            "needs about 27,000 messages, 3.8 days at this traffic",
            "Before it: step 3 is in force, and the audit of east is within.",
            "no number of messages can confirm this share",
            "Remove the old names",
        )
    ]
    assert places == sorted(places)
    assert text.count("Undo step") == 7


def test_names_from_outside_stay_text() -> None:
    text = render(plan(HOSTILE))
    assert text.count("<script") == 1  # ours
    assert "&lt;script&gt;console" in text
