"""A plan applied to a real cluster of three servers, step by step and back, while messages flow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.rollout import NEW, OLD, Site, Traffic, site

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.cluster]

STEPS = 10


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("rollout"), servers=3) as made:
        made.make_plan()
        assert made.plan.config == "accounts.conf"
        assert len(made.plan.steps) == STEPS
        yield made


@pytest.mark.parametrize("last", range(1, STEPS + 1))
def test_up_to_a_step_and_back(cluster: Site, last: int) -> None:
    """Every step is verified before and after it is taken, and so is the way back from it."""
    steps = cluster.plan.steps[:last]
    start = cluster.state()
    with Traffic(cluster.servers).flowing() as traffic:
        for step in steps:
            cluster.up(step, traffic)
        for step in reversed(steps):
            cluster.down(step, traffic)
    assert traffic.faults() == {}
    assert cluster.state() == start
    assert cluster.verify(0)[0] == 0


@pytest.mark.parametrize("skipped", ["consumers", "programs", "wait", "wait of the undo"])
def test_what_the_plan_says_is_needed(cluster: Site, skipped: str) -> None:
    """Whoever leaves out a part loses messages; so the accounts of the test above see a loss."""
    steps = cluster.plan.steps
    room = next(step for step in steps if step.changes[0].kind == "consumer")
    contract = next(step for step in steps if step.phase == "contract")
    with Traffic(cluster.servers).flowing() as traffic:
        traffic.held = skipped == "wait"
        traffic.wait_for_more()
        todo = [step for step in steps if step.number < contract.number]
        if skipped == "consumers":
            todo.remove(room)
        for step in todo:
            if step.phase == "shift" and skipped != "programs":
                traffic.subscribe([OLD, NEW])
            cluster.apply(step)
        if skipped == "wait":
            assert cluster.verify(contract.number - 1)[0] == 1
            cluster.apply(contract)
            traffic.held = False
            traffic.wait_for_more()
            cluster.apply(contract, undo=True)
        traffic.held = skipped == "wait of the undo"
        traffic.wait_for_more()
        for step in reversed(todo):
            if step == room:
                if traffic.held:
                    assert cluster.verify(step.number, "--undo")[0] == 1
                else:
                    cluster.wait_to_undo(step)
            cluster.apply(step, undo=True)
        traffic.held = False
        traffic.subscribe([OLD])
    assert traffic.faults().keys() == {"queue group" if skipped == "programs" else "eu"}
