"""Writes docs/settings.md and docs/tasks.md from the code: python docs/write_pages.py

A test compares both with what this would write.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import AliasChoices
from pydantic.fields import FieldInfo

from jarvis_agent import Settings
from jarvis_agent.backends.hosted import CALLS
from jarvis_agent.backends.media_tools import MEDIA_TOOLS
from jarvis_agent.backends.opencv import CONTROL_MAPS
from jarvis_agent.backends.transformers_tasks import TASK_WAYS
from jarvis_agent.sources.starter import STARTERS
from jarvis_agent.tools import TASKS, TaskSpec

_SETTINGS = """\
# Settings

Each is a field of `jarvis_agent.Settings` and a variable of the environment: `Settings(task_timeout=60)` or
`JARVIS_TASK_TIMEOUT=60`. Times are seconds, sizes bytes. Lists in the environment are written as in a shell
(`JARVIS_LICENSES=mit,apache-2.0`, `JARVIS_ALLOWED_DIRS=/data:/photos`) or as JSON. `jarvis` takes `--policy`
and `--out` for two of them.

This page is written by `python docs/write_pages.py`.

| field | variable | default | what it does |
|---|---|---|---|
"""

_TASKS = """\
# Task types

What a plan may be made of, and what can run it: *starter*, a model of the extras `starter` and `starter-tts`,
or an algorithm; *local*, models of the Hub with transformers on this machine (extra `local`); *hosted*, the
Hub's Inference Providers (`HF_TOKEN`), or an endpoint of your own. Arguments in brackets may be left out.
What nothing here runs yet can still be planned, and done by a backend of yours.

This page is written by `python docs/write_pages.py`.

| task | takes | makes | starter | local | hosted | what it does |
|---|---|---|---|---|---|---|
"""


def settings_page() -> str:
    """The list of all settings."""
    return _SETTINGS + "".join(f"{row}\n" for row in _setting_rows())


def tasks_page() -> str:
    """The list of all task types."""
    return _TASKS + "".join(f"{_task_row(spec)}\n" for spec in TASKS.values())


def _setting_rows() -> Iterator[str]:
    for name, field in Settings.model_fields.items():
        variables = ", ".join(f"`{variable}`" for variable in _variables(name, field))
        yield f"| `{name}` | {variables} | {_value(field.default)} | {field.description} |"


def _variables(name: str, field: FieldInfo) -> list[str]:
    if isinstance(field.validation_alias, AliasChoices):
        return [str(choice) for choice in field.validation_alias.choices if str(choice).isupper()]
    return [f"JARVIS_{name.upper()}"]


def _value(default: Any) -> str:
    if default is None or default == ():
        return "–"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _task_row(spec: TaskSpec) -> str:
    takes = ", ".join(arg.name if arg.required else f"[{arg.name}]" for arg in spec.inputs)
    starters = {task for model in STARTERS.values() for task in model.tasks}
    starters |= CONTROL_MAPS.keys() | MEDIA_TOOLS.keys()
    runs = (spec.name in table for table in (starters, TASK_WAYS, CALLS))
    marks = " | ".join("✓" if yes else "" for yes in runs)
    return f"| `{spec.name}` | {takes} | {', '.join(spec.outputs)} | {marks} | {spec.description} |"


PAGES = {"settings.md": settings_page, "tasks.md": tasks_page}

if __name__ == "__main__":
    for name, write in PAGES.items():
        (Path(__file__).parent / name).write_text(write(), encoding="utf-8")
