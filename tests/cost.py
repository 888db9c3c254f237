"""What work costs, counted in functions that are called: the same on every machine, however busy it is.

assert cost_of(lambda: read(8 * text)) <= 10 * cost_of(lambda: read(text))

What regular expressions do inside does not count.
"""

import sys
from collections.abc import Callable
from time import thread_time


def best_time(work: Callable[[], object]) -> float:
    """The CPU time of work in seconds, the least of three."""
    times = []
    for _ in range(3):
        started = thread_time()
        work()
        times.append(thread_time() - started)
    return min(times)


def cost_of(work: Callable[[], object]) -> int:
    """How many calls and returns of functions there are while the work is done."""
    count = 0

    def profile(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
