"""Cases for tests/test_every_task.py: multimodal."""

from __future__ import annotations

from task_case import Case

CASES: list[Case] = []
