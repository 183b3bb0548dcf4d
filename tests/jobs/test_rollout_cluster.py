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
    cluster.up_and_down(cluster.plan.steps[:last])
    assert cluster.verify(0)[0] == 0


def test_a_step_left_out_is_seen_as_a_loss(cluster: Site) -> None:
    """The accounts of the test above are worth something only if they show a loss."""
    steps = [step for step in cluster.plan.steps if step.phase != "contract"]
    steps.remove(next(step for step in steps if step.changes[0].kind == "consumer"))
    with Traffic(cluster.servers).flowing() as traffic:
        for step in steps:
            if step.phase == "shift":
                traffic.subscribe([OLD, NEW])
            cluster.apply(step)
        traffic.wait_for_more()
        for step in reversed(steps):
            cluster.apply(step, undo=True)
        traffic.subscribe([OLD])
    assert traffic.faults().keys() == {"eu"}
