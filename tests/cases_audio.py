"""Cases for tests/test_every_task.py: audio."""

from __future__ import annotations

from task_case import Case

CASES: list[Case] = []
