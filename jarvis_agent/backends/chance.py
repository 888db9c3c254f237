"""Chance from a seed, for models that draw from torch's own generator, which all threads share.

with seeded(settings.seed):
    sound = model.generate(...)      # the same each time, whatever runs beside it
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ONE_AT_A_TIME = threading.Lock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """A block whose draws come from the seed; such blocks run one after the other."""
    import torch

    with _ONE_AT_A_TIME, torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
