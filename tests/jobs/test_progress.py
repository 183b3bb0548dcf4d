"""What a job says it does, and how far it is."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from jobs.files.engine import run
from jobs.progress import Step, advance, current, step, watched


def seen(steps: list[Step]) -> list[tuple[str, int, int | None]]:
    return [(one.what, one.done, one.total) for one in steps]


def test_steps_are_at_work_while_they_last() -> None:
    began: list[str] = []
    with watched(began.append) as steps:
        with step("outer", 10, "files"):
            advance(3)
            with suppress(KeyError), step("inner"):
                advance()
                assert seen(steps) == [("outer", 3, 10), ("inner", 1, None)]
                raise KeyError
            advance(7)
            assert seen(steps) == [("outer", 10, 10)]
            assert steps[0].unit == "files"
        advance(5)  # of nothing
        assert steps == []
    assert began == ["outer", "inner"]


def test_nobody_need_watch() -> None:
    with step("alone", 1):
        advance()
        assert seen([current()]) == [("alone", 1, 1)]
    assert current() is None
    with watched() as steps, ThreadPoolExecutor(1) as pool:
        pool.submit(advance).result()  # a thread without the context of the job
        assert steps == []


def test_tasks_on_threads_count_in_the_step_of_the_job() -> None:
    meeting = threading.Barrier(2, timeout=60)

    def work(number: int) -> int:
        if number < 2:
            meeting.wait()
        for _ in range(5_000):
            advance()
        return number

    with watched() as steps, step("working", 40_000):
        assert run(work, range(8), None) == list(range(8))
        assert seen(steps) == [("working", 40_000, 40_000)]
