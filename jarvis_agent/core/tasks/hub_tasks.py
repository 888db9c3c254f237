"""The Hub's own task types: its official list, less what cannot be run (`NOT_CALLABLE`).

The list is `PIPELINE_DATA` of the npm package @huggingface/tasks; names are spelt as there.
The task types are in data/hub_tasks.txt, by category.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from jarvis_agent.core.tasks.rows import task_rows

_TEXT = (Path(__file__).parent / "data" / "hub_tasks.txt").read_text(encoding="utf-8")
_TABLES: list[tuple[Any, str]] = re.findall(r"^\[(\w+)\]\n(.+?)(?=^\[|\Z)", _TEXT, re.MULTILINE | re.DOTALL)
HUB_TASKS = tuple(spec for category, table in _TABLES for spec in task_rows(category, table))

NOT_CALLABLE: dict[str, str] = {
    "reinforcement-learning": "it acts in an environment, and a run has none",
    "robotics": "it moves a robot, and a run has none",
    "graph-ml": "its models share no form of input that could be asked for",
    "multiple-choice": "hidden on the Hub: zero-shot-classification and question-answering do its work",
    "text-retrieval": "hidden on the Hub: sentence-similarity and text-ranking do its work",
    "tabular-to-text": "hidden on the Hub: text-generation does its work",
    "table-to-text": "hidden on the Hub: table-question-answering and text-generation do its work",
    "other": "it names no task",
}
"""The task types of the Hub's list that are no tasks here, and why."""
