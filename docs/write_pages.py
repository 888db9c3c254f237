"""Write docs/settings.md, docs/tasks.md and a table of docs/security.md: python docs/write_pages.py

A test compares the pages with the output of this script.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import AliasChoices
from pydantic.fields import FieldInfo

from jarvis_agent import Settings
from jarvis_agent.backends import diffusers as diffusers_tasks
from jarvis_agent.backends import sentence_transformers, tabular
from jarvis_agent.backends.algorithms.backend import ALGORITHMS
from jarvis_agent.backends.chat_model import PROMPTS
from jarvis_agent.backends.hosted.inference_providers import CALLS
from jarvis_agent.backends.starter.backend import STARTERS
from jarvis_agent.backends.transformers import backend as transformers_tasks
from jarvis_agent.core.settings import EnvironmentSettings, ServerSettings
from jarvis_agent.core.tasks.table import NOT_CALLABLE
from jarvis_agent.planning.offline.network import PLANNER
from jarvis_agent.tools import TASKS, TaskSpec

_SETTINGS = """\
# Settings

After this page you set any limit, place or key. Each setting is an environment variable and a field of
`jarvis_agent.Settings`: `JARVIS_TASK_TIMEOUT=60` is `Settings(task_timeout=60)`. Times are in seconds, sizes
in bytes. Lists in variables are JSON, or `JARVIS_LICENSES=mit,apache-2.0`, `JARVIS_ALLOWED_DIRS=/a:/b`.
"""

_SERVER_SETTINGS = """
## The server

[`jarvis serve`](server.md), `jarvis ui` and `jarvis mcp --http` also have these: variables, and fields of
`jarvis_agent.core.settings.ServerSettings`.
"""

_SETTINGS_HEAD = """
| variable | default | description |
|---|---|---|
"""

_TASKS = """\
# Task types

After this page you know what a plan can do, and what runs it. `jarvis tasks` shows what can run here.

| backend | runs | requires |
|---|---|---|
| starter | the starter models, without the Hub | extra `starter` |
| algorithms | OpenCV, PyAV and Pillow, without a model | extra `starter` or `local` |
| transformers, diffusers, sentence-transformers | models of the Hub on this machine | extra `local` |
| sklearn, chronos | models for tables, as skops files, and for time series | extra `tabular` |
| hf-inference | Inference Providers of Hugging Face, or an endpoint of yours | `HF_TOKEN` |
| chat-model | your language model, one on a server, or in a GGUF file; media if it takes them | – |
| spaces | any task in a Gradio Space that you name or that a search finds | extra `spaces` |

Optional arguments stand in brackets. By default, weights have at most 2 GB (`JARVIS_MAX_DOWNLOAD`) and are
safetensors (`JARVIS_ALLOW_PICKLE`); most models that generate images, videos or 3D models are larger.
`jarvis models TASK` lists models; advice proposes the small ones in `jarvis_agent/selection/recommended.csv`,
which has their licences.

The tests run starter models, algorithms, and tiny models with random weights for all other tasks. The models
that advice proposes, hosted models and Spaces were not run.
"""

_TASKS_HEAD = """
| task | description | backends |
|---|---|---|
"""

_CONTROLS = """
## Control maps and ControlNets

`canny-control(image)` draws the map of an image. `canny-text-to-image(text, image)` generates an image from a
text and the map of another image, with diffusers and a ControlNet. Other maps in place of `canny`: `hed`
(soft edges), `mlsd` (straight lines) and `scribble`, by algorithms; `depth`, `normal`, `openpose` and `seg`
(segments), by transformers.
"""

_TYPES = """
## Types of outputs

`result.output` is plain JSON. `result.output_as(form)` reads it as a type of huggingface_hub, or as any other
type that pydantic reads:

- `list[ImageClassificationOutputElement]` for `image-classification`, and likewise for the other
  classifications, object detection and `fill-mask`;
- `TranslationOutput` for `translation`, and likewise for `summarization`, `text-generation`, `image-to-text`
  and `automatic-speech-recognition`;
- `TableQuestionAnsweringOutputElement` for `table-question-answering`. Other answers to questions need a type
  of yours: not every model knows their score.

Files and vectors are in `result.resources`.
"""

_TASKS_END = """
## Unsupported task types

These task types of the Hub are not supported:
"""

_CATEGORIES = {
    "text": "Text",
    "vision": "Images and video",
    "audio": "Audio",
    "multimodal": "Multimodal",
    "tabular": "Tables",
    "media": "Media tools",
}

_STARTED = {task for model in STARTERS.values() for task in model.tasks}
_RUN_BY: dict[str, Iterable[str]] = {
    "starter": _STARTED,
    "algorithms": ALGORITHMS,
    "transformers": transformers_tasks.PIPELINES,
    "diffusers": diffusers_tasks.PIPELINES,
    "sentence-transformers": sentence_transformers.SentenceTransformersBackend.tasks,
    "sklearn": tabular.TABULAR_TASKS,
    "chronos": tabular.ChronosBackend.tasks,
    "hf-inference": CALLS,
    "chat-model": PROMPTS,
}
"""The tasks that each backend can run, by the name of the backend on the page."""


def settings_page() -> str:
    """The list of all settings."""
    tables = ((_SETTINGS, Settings), (_SERVER_SETTINGS, ServerSettings))
    return "".join(
        intro + _SETTINGS_HEAD + "".join(f"{row}\n" for row in _setting_rows(of)) for intro, of in tables
    )


def tasks_page() -> str:
    """The list of all task types by category, and of the unsupported types of the Hub."""
    parts = [_TASKS]
    for category, title in _CATEGORIES.items():
        rows = [_task_row(spec) for spec in TASKS.values() if spec.category == category]
        parts += [f"\n## {title}\n{_TASKS_HEAD}", *(f"{row}\n" for row in rows)]
    return "".join(
        [*parts, _CONTROLS, _TYPES, _TASKS_END, ", ".join(f"`{task}`" for task in NOT_CALLABLE), ".\n"]
    )


def _setting_rows(settings: type[EnvironmentSettings]) -> Iterator[str]:
    body: Any = ast.parse(inspect.getsource(settings)).body[0]
    docs = {
        field.target.id: doc.value.value for field, doc in pairwise(body.body) if hasattr(field, "target")
    }
    for name, field in settings.model_fields.items():
        variables = ", ".join(f"`{variable}`" for variable in _variables(name, field))
        yield f"| {variables} | {_value(field.default)} | {' '.join(docs[name].split())} |"


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
    call = f"`{spec.name}({takes})` → {', '.join(spec.outputs)}"
    return f"| {call} | {spec.description} | {_backends(spec)} |"


def _backends(spec: TaskSpec) -> str:
    return ", ".join(backend for backend, tasks in _RUN_BY.items() if spec.name in tasks)


def security_page() -> str:
    """The page as it stands, with the table of the starter models made anew."""
    page = (Path(__file__).parent / "security.md").read_text(encoding="utf-8")
    titles = ("model", "author, licence", "package")
    head = f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|\n"
    before, _, after = page.partition(head)
    _, end, after = after.partition("\n\n")
    return f"{before}{head}{chr(10).join(_weight_rows())}{end}{after}"


def _weight_rows() -> Iterator[str]:
    for model in (*STARTERS.values(), PLANNER):
        yield f"| [{model.id}]({model.source}) | {model.author}; {model.license} | `{model.package}` |"


PAGES = {
    "settings.md": settings_page,
    "tasks.md": tasks_page,
    "security.md": security_page,
}

if __name__ == "__main__":
    for name, write in PAGES.items():
        (Path(__file__).parent / name).write_text(write(), encoding="utf-8")
