"""Write docs/settings.md, docs/tasks.md, docs/prompts.md and a table: python docs/write_pages.py

A test compares the pages with the output of this script.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import huggingface_hub
import yaml
from langchain_core.messages import BaseMessage
from pydantic import AliasChoices
from pydantic.fields import FieldInfo

from jarvis_agent import (
    Plan,
    Resource,
    Settings,
    Task,
    TaskResult,
    planning_chain,
    response_chain,
    selection_chain,
)
from jarvis_agent.backends import diffusers as diffusers_tasks
from jarvis_agent.backends import sentence_transformers, tabular
from jarvis_agent.backends.algorithms.backend import ALGORITHMS
from jarvis_agent.backends.chat_model import PROMPTS
from jarvis_agent.backends.hosted.inference_providers import CALLS
from jarvis_agent.backends.starter.backend import STARTERS
from jarvis_agent.backends.transformers import backend as transformers_tasks
from jarvis_agent.core.settings import EnvironmentSettings, ServerSettings
from jarvis_agent.core.tasks.table import NOT_CALLABLE
from jarvis_agent.core.types import Candidate
from jarvis_agent.planning.offline.network import PLANNER
from jarvis_agent.selection.advice import RecommendedModel, recommended
from jarvis_agent.testing import ScriptedLLM
from jarvis_agent.tools import TASKS, TaskSpec

_SETTINGS = """\
# Settings

Each setting is a field of `jarvis_agent.Settings` and an environment variable: `Settings(task_timeout=60)`
or `JARVIS_TASK_TIMEOUT=60`. Times are in seconds, sizes in bytes. Lists in the environment are written as
in a shell (`JARVIS_LICENSES=mit,apache-2.0`, `JARVIS_ALLOWED_DIRS=/data:/photos`) or as JSON. `jarvis` has
the options `--policy` and `--out` for two of them. An unknown field is an error. A misspelt
variable has no effect: `jarvis`, `jarvis doctor` and the log suggest the right name.

`python docs/write_pages.py` writes this page.

| field | variable | default | description |
|---|---|---|---|
"""

_SERVER_SETTINGS = """
## The server

`jarvis serve`, `jarvis ui` and `jarvis mcp --http` also have these: variables, and fields of
`jarvis_agent.core.settings.ServerSettings`. [The server](server.md) explains them.

| field | variable | default | description |
|---|---|---|---|
"""

_TASKS = """\
# Task types

The task types of a plan, and the backends that run them. A task without a local model can run on a hosted
model, on your own server, or in a Gradio Space. [Selection](selection.md) explains how models are found,
[Add a model](extending.md#add-a-model) how to register your own.

| backend | runs | requires |
|---|---|---|
| starter | the starter models, without the Hub | extra `starter` |
| algorithm | OpenCV, PyAV and Pillow, without a model | extra `starter` or `local` |
| transformers, diffusers, sentence-transformers | models of the Hub on this machine | extra `local` |
| skops, chronos | models for tables and time series | extra `tabular` |
| hosted | Hugging Face Inference Providers, or your own endpoint | `HF_TOKEN` |
| chat model | your language model, one on a server, or in a GGUF file; media if it takes them | – |

A registered Gradio Space can run any task (extra `spaces`). Arguments in brackets are optional. The
suggested model is an example, with its licence and size; it is not preferred in selection.

"by default" tells whether the default settings accept the suggested model: its weights are safetensors (else
`JARVIS_ALLOW_PICKLE=1` is needed) and have at most 2 GB (`JARVIS_MAX_DOWNLOAD`). Sizes were looked up once
on the Hub's pages; "unknown" was not found. Most models that generate images, videos or 3D models, and those
with more than a billion parameters, are larger than 2 GB.

"tested with" tells what the tests of this project run: *pretrained* weights of a starter model, an
*algorithm*, or *tiny* models of the same architectures with random weights. The suggested models themselves,
hosted models, servers and Spaces were not run: calls of the latter are tested with doubles.

`python docs/write_pages.py` writes this page.
"""

_TASKS_HEAD = """
| task | description | inputs | outputs | backends | suggested model | by default | tested with |
|---|---|---|---|---|---|---|---|
"""

_TYPES = """
## Types of outputs

`result.output` is plain JSON. `result.output_as(form)` reads it as a type of huggingface_hub, or as any other
type that pydantic reads. Answers to questions need a type of yours: not every model knows their score.
Other outputs are files and vectors, which `result.resources` has.

| task | `form` |
|---|---|
"""

_TYPED = (
    "text-classification zero-shot-classification token-classification fill-mask "
    "table-question-answering translation summarization text-generation image-classification "
    "zero-shot-image-classification object-detection zero-shot-object-detection video-classification "
    "image-to-text automatic-speech-recognition "
    "audio-classification"
)

_TASKS_END = """
## Unsupported task types

These task types of the Hub are not supported.

| task | reason |
|---|---|
"""

_CATEGORIES = {
    "text": "Text",
    "vision": "Images and video",
    "audio": "Audio",
    "multimodal": "Multimodal",
    "tabular": "Tables",
    "media": "Media tools",
    "control": "Control maps and ControlNets",
}

_CASES: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parents[1] / "tests" / "data" / "task_cases.yaml").read_text(encoding="utf-8")
)
_STARTED = {task for model in STARTERS.values() for task in model.tasks}
_RUN_BY: dict[str, Iterable[str]] = {
    "starter": _STARTED,
    "algorithm": ALGORITHMS,
    "transformers": transformers_tasks.PIPELINES,
    "diffusers": diffusers_tasks.PIPELINES,
    "sentence-transformers": sentence_transformers.EMBEDDING_TASKS,
    "skops": tabular.TABULAR_TASKS,
    "chronos": {tabular.FORECASTING},
    "hosted": CALLS,
    "chat model": PROMPTS,
}
"""The tasks that each backend can run, by the name of the backend on the page."""


def settings_page() -> str:
    """The list of all settings."""
    tables = ((_SETTINGS, Settings), (_SERVER_SETTINGS, ServerSettings))
    return "".join(intro + "".join(f"{row}\n" for row in _setting_rows(of)) for intro, of in tables)


def tasks_page() -> str:
    """The list of all task types by category, and of the unsupported types of the Hub."""
    parts = [_TASKS]
    for category, title in _CATEGORIES.items():
        rows = [_task_row(spec) for spec in TASKS.values() if spec.category == category]
        parts += [f"\n## {title}\n{_TASKS_HEAD}", *(f"{row}\n" for row in rows)]
    parts += [_TYPES, *map(_type_row, _TYPED.split())]
    return "".join([*parts, _TASKS_END, *(f"| `{task}` | {why} |\n" for task, why in NOT_CALLABLE.items())])


def _setting_rows(settings: type[EnvironmentSettings]) -> Iterator[str]:
    for name, field in settings.model_fields.items():
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
    makes = ", ".join(spec.outputs)
    cells = [spec.description, takes, makes, run_by, *_suggested(recommended(spec)), _tested_with(spec)]
    return f"| `{spec.name}` | {' | '.join(cells)} |"


def _type_row(task: str) -> str:
    name = "".join(map(str.capitalize, task.split("-")))
    is_list = hasattr(huggingface_hub, f"{name}OutputElement") and task != "table-question-answering"
    element = f"{name}Output{'Element' * hasattr(huggingface_hub, f'{name}OutputElement')}"
    return f"| `{task}` | `{f'list[{element}]' if is_list else element}` |\n"


def _tested_with(spec: TaskSpec) -> str:
    """What tests/backends runs for a task; every starter model and algorithm has a test."""
    cases = _CASES.get(spec.name, ())
    found = {
        word for word, tasks in (("algorithm", ALGORITHMS), ("pretrained", _STARTED)) if spec.name in tasks
    }
    return ", ".join(sorted(found | {"tiny" for case in cases if "models" in case})) or "–"


def _suggested(model: RecommendedModel | None) -> tuple[str, str]:
    """A model with its licence and size, and whether the default settings accept it."""
    if model is None:
        return "–", "–"
    size = f"{model.size / 1e6:,.0f} MB" if model.size else "size unknown"
    shown = f"[{model.id}](https://huggingface.co/{model.id}) ({model.license}, {size})"
    if model.safetensors is False:
        return shown, "no: no safetensors"
    if model.size and model.size > Settings.model_fields["max_download"].default:
        return shown, "no: too large"
    return shown, "yes" if model.size and model.safetensors else "unknown"


def security_page() -> str:
    """The page as it stands, with the table of the starter models' files made anew."""
    page = (Path(__file__).parent / "security.md").read_text(encoding="utf-8")
    titles = ("model", "author, licence", "package", "commit on the Hub", "files and their SHA-256")
    head = f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|\n"
    before, _, after = page.partition(head)
    _, end, after = after.partition("\n\n")
    return f"{before}{head}{chr(10).join(_weight_rows())}{end}{after}"


def _weight_rows() -> Iterator[str]:
    for model in (*STARTERS.values(), PLANNER):
        commit = f"`{model.revision[:12]}`" if model.revision else "–"
        made_by = f"{model.author}; {model.license}"
        files = ", ".join(f"`{file.name}` `{file.sha256[:12]}`" for file in model.files)
        yield f"| [{model.id}]({model.source}) | {made_by} | `{model.package}` | {commit} | {files} |"


_PROMPTS = """\
# Prompts

Each prompt of the default set, filled in for one request, as a model with a long window reads it. Only four
of the [task types](tasks.md) are listed here. `---` stands between the system message and the user message.
[Change the prompts](chains.md#change-the-prompts) tells how to replace one.

`python docs/write_pages.py` writes this page.
"""
_REQUEST = "How many cups are in desk.jpg? Read note.txt aloud, and save a small copy of the larger picture."
_NAMES = ("object-detection", "text-to-speech", "media-info", "resize-image")


def prompts_page() -> str:
    """Every prompt of the default set, filled in."""
    parts = [_PROMPTS]
    for stage, messages in _conversations():
        text = "\n---\n".join(str(message.text) for message in messages)
        parts.append(f"\n## {stage}\n\n```text\n{text}\n```\n")
    return "".join(parts)


def _conversations() -> Iterator[tuple[str, Sequence[BaseMessage]]]:
    """The name and the messages of each call of the language model in an imagined run."""
    files = [
        Resource(kind="image", path=Path("/photos/desk.jpg"), name="desk.jpg"),
        Resource(kind="image", path=Path("/photos/shelf.jpg"), name="shelf.jpg"),
        Resource(kind="text", path=Path("/notes/note.txt"), name="note.txt"),
    ]
    detect = Task(task="object-detection", id=0, args={"image": "desk.jpg"})
    speak = Task(task="text-to-speech", id=1, args={"text": "note.txt"})
    box = {"xmin": 10, "ymin": 20, "xmax": 90, "ymax": 80}
    drawn = Resource(kind="image", path=Path("/out/1/0-object-detection.png"))
    found = [{"label": "cup", "score": 0.93, "box": box}]
    results = [
        TaskResult(task=detect, status="ok", output=found, resources=[drawn]),
        TaskResult(task=speak, status="failed", error="no model can do text-to-speech here"),
    ]
    given = {"input": _REQUEST, "files": files}
    broken = (
        '[{"task": "object-count", "id": 0, "args": {"image": "desk.jpg"}}, ' + speak.model_dump_json() + "]"
    )
    llm = ScriptedLLM(
        {"plan": broken, "repair": "[]", "select": '{"id": "org/detr"}', "respond": "1", "chat": "Hi"}
    )
    planning_chain(llm, tools=_NAMES).invoke(given)
    cards = [
        Candidate(
            id="org/detr", task=detect.task, description="Finds the 80 kinds of COCO.", downloads=90_000
        ),
        Candidate(id="org/cups", task=detect.task, description="Finds cups and mugs.", downloads=120),
    ]
    selection_chain(llm).invoke({"input": _REQUEST, "task": detect, "candidates": cards})
    plan = Plan(tasks=[detect, speak])
    response_chain(llm).invoke({**given, "plan": plan, "results": results, "tools": _NAMES})
    response_chain(llm).invoke({"input": "Hi, what can you do?"})
    names = {
        "plan": "Planning",
        "repair": "Repair",
        "select": "Selection",
        "respond": "Answer",
        "chat": "Conversation",
    }
    for call in llm.calls:
        yield names[call.stage], call.messages


PAGES = {
    "settings.md": settings_page,
    "tasks.md": tasks_page,
    "prompts.md": prompts_page,
    "security.md": security_page,
}

if __name__ == "__main__":
    for name, write in PAGES.items():
        (Path(__file__).parent / name).write_text(write(), encoding="utf-8")
