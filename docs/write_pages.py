"""Writes docs/settings.md and docs/tasks.md from the code: python docs/write_pages.py

A test compares both with what this would write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import AliasChoices
from pydantic.fields import FieldInfo

from jarvis_agent import Settings
from jarvis_agent.backends import sentence_transformers
from jarvis_agent.backends.algorithms.backend import ALGORITHMS
from jarvis_agent.backends.diffusers import pipelines as diffusers_tasks
from jarvis_agent.backends.hosted.openai_compatible import PROMPTS
from jarvis_agent.backends.hosted.provider_calls import CALLS
from jarvis_agent.backends.starter.models import STARTERS
from jarvis_agent.backends.tabular import sklearn
from jarvis_agent.backends.tabular import time_series as chronos
from jarvis_agent.backends.transformers import pipelines as transformers_tasks
from jarvis_agent.core.tasks.hub_tasks import NOT_CALLABLE
from jarvis_agent.selection.sources.recommended import recommended
from jarvis_agent.tools import TASKS, TaskSpec

_SETTINGS = """\
# Settings

Each is a field of `jarvis_agent.Settings` and a variable of the environment: `Settings(task_timeout=60)` or
`JARVIS_TASK_TIMEOUT=60`. Times are seconds, sizes bytes. Lists in the environment are written as in a shell
(`JARVIS_LICENSES=mit,apache-2.0`, `JARVIS_ALLOWED_DIRS=/data:/photos`) or as JSON. `jarvis` takes `--policy`
and `--out` for two of them. A field that is not in this list is an error. A misspelt variable changes
nothing: `jarvis`, `jarvis doctor` and the log say which one was meant.

This page is written by `python docs/write_pages.py`.

| field | variable | default | what it does |
|---|---|---|---|
"""

_TASKS = """\
# Task types

What a plan may be made of, and what can run it here. Where this machine has no model for a task, those who
host some can still do it, or your own server, or a Space: [models.md](models.md) says how models are found
and how to name your own.

| run by | what it is | needs |
|---|---|---|
| starter | the starter models, without the Hub | extras `starter`, `starter-tts` |
| algorithm | no model: OpenCV, PyAV, Pillow | extra `starter` or `local` |
| transformers, diffusers, sentence-transformers | models of the Hub on this machine | extra `local` |
| skops, chronos | models of tables and time series | extra `tabular` |
| hosted | the Hub's Inference Providers, or an endpoint of your own | `HF_TOKEN` |
| server | a chat or vision model on a server that speaks OpenAI's API | its address |

A Gradio Space that you name may do any task (extra `spaces`). Arguments in brackets may be left out. The
model to begin with is a suggestion, with its licence. Most that make images, videos or 3D models are larger
than the 2 GB that are downloaded unless `JARVIS_MAX_DOWNLOAD` allows more; a model without safetensors is
refused unless `JARVIS_ALLOW_PICKLE=1` trusts it.

This page is written by `python docs/write_pages.py`.
"""

_TASKS_HEAD = """
| task | takes | makes | run by | model to begin with | what it does |
|---|---|---|---|---|---|
"""

_TASKS_END = """
## What can not be run

These types of the Hub's list are no tasks here.

| task | why |
|---|---|
"""

_CATEGORIES = {
    "text": "Text",
    "vision": "Images and video",
    "audio": "Sound",
    "multimodal": "Several kinds at once",
    "tabular": "Tables",
    "media": "Tools for media",
    "control": "Control maps, and images made from them",
}

_RUN_BY: dict[str, Iterable[str]] = {
    "starter": {task for model in STARTERS.values() for task in model.tasks},
    "algorithm": ALGORITHMS,
    "transformers": transformers_tasks.PIPELINES,
    "diffusers": diffusers_tasks.PIPELINES,
    "sentence-transformers": sentence_transformers.EMBEDDING_TASKS,
    "skops": sklearn.TABULAR_TASKS,
    "chronos": {chronos.FORECASTING},
    "hosted": CALLS,
    "server": PROMPTS,
}
"""By the word that the page has for it: the tasks that it can run."""


def settings_page() -> str:
    """The list of all settings."""
    return _SETTINGS + "".join(f"{row}\n" for row in _setting_rows())


def tasks_page() -> str:
    """The list of all task types, by category, and of those of the Hub that can not be run."""
    parts = [_TASKS]
    for category, title in _CATEGORIES.items():
        rows = [_task_row(spec) for spec in TASKS.values() if spec.category == category]
        parts += [f"\n## {title}\n{_TASKS_HEAD}", *(f"{row}\n" for row in rows)]
    return "".join([*parts, _TASKS_END, *(f"| `{task}` | {why} |\n" for task, why in NOT_CALLABLE.items())])


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
    takes = ", ".join(arg.name if arg.required else f"[{arg.name}]" for arg in spec.inputs) or "–"
    run_by = ", ".join(word for word, tasks in _RUN_BY.items() if spec.name in tasks)
    model = recommended(spec)
    first = f"[{model.id}](https://huggingface.co/{model.id}) ({model.license})" if model else "–"
    return (
        f"| `{spec.name}` | {takes} | {', '.join(spec.outputs)} | {run_by} | {first} | {spec.description} |"
    )


PAGES = {"settings.md": settings_page, "tasks.md": tasks_page}

if __name__ == "__main__":
    for name, write in PAGES.items():
        (Path(__file__).parent / name).write_text(write(), encoding="utf-8")
