"""The Hub's inference API: `POST /models/{model}`, or `/models/{model}/pipeline/{task}`.

    InferenceClient(model="http://127.0.0.1:8765/models/org/name").image_classification("cat.jpg")

A request is a file, or JSON with `inputs`, `parameters` and the other fields of the task's specification, in
which files are base64. A response is JSON as specified, or the file that the model made.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.outputs.adapters import adapt
from jarvis_agent.core import errors
from jarvis_agent.core.content import read_file_data
from jarvis_agent.core.tasks.registry import TASKS, find_task
from jarvis_agent.core.tasks.spec import ARG_ALIASES, MEDIA, TaskSpec
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.interfaces.common.disconnect import unless_disconnected
from jarvis_agent.interfaces.common.limits import RunLimits
from jarvis_agent.interfaces.experts.runner import ExpertRunner, call_folder
from jarvis_agent.media.access import describe_file
from jarvis_agent.media.store import ResourceStore
from jarvis_agent.media.tables import write_table
from jarvis_agent.selection.placement import place
from jarvis_agent.selection.sources import default_sources
from jarvis_agent.selection.sources.base import RemoteSource

_REFUSED = errors.BadInputError | errors.InputError | errors.UnsupportedError
Fields = dict[str, Any]


class InferenceRoute:
    """Runs such requests, within the limits of each client."""

    def __init__(self, runner: ExpertRunner, limits: RunLimits) -> None:
        self._runner, self._limits = runner, limits
        self._settings = runner.settings.model_copy(update={"policy": "local-only", "policies": {}})
        self._sources = [one for one in default_sources(self._settings) if not isinstance(one, RemoteSource)]

    async def answer(self, request: Request) -> Response:
        """Run a call. An error is {"error": "…"}."""
        try:
            with self._limits.hold(request.state.owner), call_folder() as folder:
                store = ResourceStore(self._settings, directory=folder)
                work = self._run(request.path_params["model"], await request.body(), store)
                return await asyncio.wait_for(unless_disconnected(request, work), self._settings.task_timeout)
        except HTTPException as error:
            return JSONResponse({"error": error.detail}, error.status_code, error.headers)
        except Exception as error:
            refused = isinstance(error, _REFUSED) and not isinstance(error.__cause__, OSError)
            status = 400 if refused else 503 if isinstance(error, errors.TransientError) else 500
            return JSONResponse({"error": self._runner.redactor.clean(errors.describe_error(error))}, status)

    async def _run(self, path: str, body: bytes, store: ResourceStore) -> Response:
        candidate, named, options = await self._find(path, await asyncio.to_thread(_read, body))
        spec = TASKS[candidate.task]
        if wrong := [name for name in ("top_k", "seed") if not isinstance(options.get(name, 0), int)]:
            raise errors.BadInputError(f"{wrong[0]} must be a whole number")
        top_k = options.pop("top_k", None) if "data" in spec.outputs else None
        settings = self._settings.model_copy(update={"seed": options.pop("seed", self._settings.seed)})
        metadata = {**candidate.metadata, "options": {**candidate.metadata.get("options", {}), **options}}
        candidate = candidate.model_copy(update={"metadata": metadata})
        inputs = {name: await _bound(spec.arg(name), value, store) for name, value in named.items()}
        call = Call(spec, candidate, inputs, store.directory.new_path, settings)
        raw = await self._runner.call(self._runner.backends[candidate.backend or ""], call)
        return await asyncio.to_thread(lambda: _response(spec, top_k, *adapt(spec, raw, call)))

    async def _find(self, path: str, fields: Fields) -> tuple[Candidate, Fields, Fields]:
        """The model with its backend, for the task that fits the fields best; its arguments and options."""
        model, _, task = path.partition("/pipeline/")
        specs = [find_task(task)] if task else TASKS.values()
        lists = [await source.candidates(spec, 1_000) for spec in specs if spec for source in self._sources]
        if not (listed := [one for found in lists for one in found if one.id.lower() == model.lower()]):
            raise HTTPException(404, f"this machine has no model {path}")
        fits = [(one, *_split(TASKS[one.task], fields)) for one in listed]
        found, missing, named, options = min(fits, key=lambda fit: (bool(fit[1]), len(fit[3])))
        if missing:
            raise errors.BadInputError(f"{found.task} by {found.id} needs {', '.join(missing)}")
        placed = place(found, TASKS[found.task], [*self._runner.backends.values()], self._settings)
        if isinstance(placed, str):
            raise errors.UnsupportedError(f"{found.id} cannot run here: {placed}")
        return placed.primary, named, options


def _read(body: bytes) -> Fields:
    """The fields of a request by name."""
    if body[:64].lstrip()[:1] != b"{":
        return {"inputs": body}
    try:
        fields = json.loads(body)
        inputs, parameters = fields.pop("inputs", None), fields.pop("parameters", None) or {}
        fields |= {**parameters, **(inputs if isinstance(inputs, dict) else {"inputs": inputs})}
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.BadInputError(f"the body cannot be read: {error}") from error
    # huggingface_hub's client sends False for options that are not set.
    return {name: value for name, value in fields.items() if value is not None and value is not False}


def _split(spec: TaskSpec, fields: Fields) -> tuple[list[str], Fields, Fields]:
    """The arguments that a task lacks, those that it has, and its options: the other fields."""
    aliases = ARG_ALIASES | {"inputs": spec.inputs[0].name if spec.inputs else ""}
    names = {name: name if spec.arg(name) else aliases.get(name, "") for name in fields}
    named = {names[name]: value for name, value in fields.items() if spec.arg(names[name])}
    options = {name: value for name, value in fields.items() if not spec.arg(names[name])}
    return [name for name in spec.required if name not in named], named, options


async def _bound(arg: Any, value: Any, store: ResourceStore) -> Any:
    """The value of an argument; a file is written to the directory of the store."""
    if arg.kind not in MEDIA:
        texts = value if arg.many and isinstance(value, list) else [value]
        if (arg.many or arg.kind == "text") and not all(isinstance(text, str) for text in texts):
            raise errors.BadInputError(f"{arg.name} must be text")
        return texts if arg.many else value
    try:
        if isinstance(value, str):
            _, value = await asyncio.to_thread(read_file_data, value, "", store.settings.max_file_bytes)
        if isinstance(value, dict):
            write_table(path := store.directory.new_path(".csv"), value)
        else:
            mime = "text/csv" if arg.kind == "table" else ""
            path = await asyncio.to_thread(store.directory.save_input, value, mime)
    except (TypeError, ValueError, errors.InputError) as error:
        raise errors.BadInputError(f"{arg.name} is base64 or columns, not a path or URL: {error}") from error
    return await store.resolve(describe_file(path, arg.name), arg.kind)


def _response(spec: TaskSpec, top_k: int | None, output: Any, made: list[Resource]) -> Response:
    """A result in the shape of the task's specification."""
    first = made[0]
    if spec.name == "audio-to-audio":
        output = [{"label": first.name, "content-type": first.mime, "blob": str(first.path)}]
    elif first.path and "data" not in spec.outputs:
        return Response(first.path.read_bytes(), media_type=first.mime)
    if isinstance(output, list):
        output = output[0] if spec.name == "question-answering" and top_k is None else output[:top_k]
    is_text = isinstance(output, dict) and next(iter(output)).endswith("_text")
    text = json.dumps([output] if is_text or spec.name == "text-classification" else output)
    text = text.replace('"similarity": ', '"score": ')  # embeddings do not give probabilities
    for path in (one.path for one in made if one.path):
        text = text.replace(f'"{path}"', f'"{base64.b64encode(path.read_bytes()).decode()}"')
    return Response(text, media_type="application/json")
