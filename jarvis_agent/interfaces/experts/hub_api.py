"""The Hub's inference API: `POST /models/{model}`, or `/models/{model}/pipeline/{task}`.

    InferenceClient(model="http://127.0.0.1:8765/models/org/name").image_classification("cat.jpg")

A request is a file, or JSON with `inputs`, `parameters` and the other fields of the task's specification, in
which files are base64. A response is JSON as specified, or the file that the model made.
"""

from __future__ import annotations

import asyncio
import base64
import json
import mimetypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.outputs.adapters import adapt
from jarvis_agent.core.errors import (
    BadInputError,
    InputError,
    TransientError,
    UnsupportedError,
    describe_error,
)
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS, find_task
from jarvis_agent.core.tasks.spec import ARG_ALIASES, MEDIA, TaskSpec
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.interfaces.common.disconnect import unless_disconnected
from jarvis_agent.interfaces.experts.runner import ExpertRunner
from jarvis_agent.media.detect import detect_from_bytes
from jarvis_agent.media.tables import write_table
from jarvis_agent.selection.placement import place
from jarvis_agent.selection.sources import default_sources
from jarvis_agent.selection.sources.base import RemoteSource

_ALIASES = {**ARG_ALIASES, "source_sentence": "text"}
_LISTED, _HEAD_BYTES = 1_000, 8192
_folder = partial(TemporaryDirectory, prefix="jarvis-", ignore_cleanup_errors=True)


class InferenceRoute:
    """Runs such requests. `hold` counts a call of an owner, and raises HTTPException for one too many."""

    def __init__(
        self, runner: ExpertRunner, settings: Settings, hold: Callable[[str], AbstractContextManager[None]]
    ) -> None:
        self._runner, self._hold = runner, hold
        self._settings = settings.model_copy(update={"policy": "local-only", "policies": {}})
        self._sources = [one for one in default_sources(settings) if not isinstance(one, RemoteSource)]

    async def answer(self, request: Request) -> Response:
        """Run a call. An error is {"error": "…"}."""
        try:
            with self._hold(request.state.owner), _folder() as folder:
                work = self._run(request.path_params["model"], await request.body(), Path(folder))
                async with asyncio.timeout(self._settings.task_timeout):
                    return await unless_disconnected(request, work)
        except HTTPException as error:
            return JSONResponse({"error": error.detail}, error.status_code, error.headers)
        except Exception as error:
            refused = isinstance(error, BadInputError | InputError | UnsupportedError)
            status = 400 if refused else 503 if isinstance(error, TransientError) else 500
            return JSONResponse({"error": self._runner.redactor.clean(describe_error(error))}, status)

    async def _run(self, path: str, body: bytes, folder: Path) -> Response:
        fields, numbers = await asyncio.to_thread(_read, body), count()
        candidate = await self._find(path, fields)
        spec, new_path = TASKS[candidate.task], lambda suffix: folder / f"{next(numbers)}{suffix}"
        named, options = _split(spec, fields)
        if missing := [name for name in spec.required if name not in named]:
            raise BadInputError(f"{spec.name} by {candidate.id} needs {', '.join(missing)}")
        for name in ("top_k", "seed"):
            if not isinstance(options.get(name, 0), int):
                raise BadInputError(f"{name} must be a whole number")
        top_k = options.pop("top_k", None) if "data" in spec.outputs else None
        settings = self._settings.model_copy(update={"seed": options.pop("seed", self._settings.seed)})
        metadata = {**candidate.metadata, "options": {**candidate.metadata.get("options", {}), **options}}
        inputs = await asyncio.to_thread(
            lambda: {name: _bound(spec.arg(name), value, new_path) for name, value in named.items()}
        )
        call = Call(spec, candidate.model_copy(update={"metadata": metadata}), inputs, new_path, settings)
        raw = await self._runner.call(self._runner.backends[candidate.backend or ""], call)
        return await asyncio.to_thread(lambda: _response(spec, top_k, *adapt(spec, raw, call)))

    async def _find(self, path: str, fields: Mapping[str, Any]) -> Candidate:
        """The model, for the task that fits the fields best, with its backend."""
        model, _, task = path.partition("/pipeline/")
        specs = [find_task(task)] if task else TASKS.values()
        lists = [await source.candidates(spec, _LISTED) for spec in specs if spec for source in self._sources]
        listed = [one for found in lists for one in found if one.id.lower() == model.lower()]
        if not listed:
            raise HTTPException(404, f"this machine has no model {path}")

        def misfit(one: Candidate) -> tuple[bool, int]:
            named, options = _split(TASKS[one.task], fields)
            return not named.keys() >= {*TASKS[one.task].required}, len(options)

        found = min(listed, key=misfit)
        placed = place(found, TASKS[found.task], [*self._runner.backends.values()], self._settings)
        if isinstance(placed, str):
            raise UnsupportedError(f"{found.id} cannot run here: {placed}")
        return placed.primary


def _read(body: bytes) -> dict[str, Any]:
    """The fields of a request by name."""
    if body[:64].lstrip()[:1] != b"{":
        return {"inputs": body}
    try:
        fields = json.loads(body)
        inputs, parameters = fields.pop("inputs", None), fields.pop("parameters", None) or {}
        fields |= {**parameters, **(inputs if isinstance(inputs, dict) else {"inputs": inputs})}
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInputError(f"the body cannot be read: {error}") from error
    # huggingface_hub's client sends False for options that are not set.
    return {name: value for name, value in fields.items() if value is not None and value is not False}


def _split(spec: TaskSpec, fields: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of a task among the fields, and its options: the others."""
    main = next((arg.name for arg in spec.inputs if arg.kind in MEDIA), "text")
    names = {name: name if spec.arg(name) else _ALIASES.get(name, "") for name in fields} | {"inputs": main}
    named = {names[name]: value for name, value in fields.items() if spec.arg(names[name])}
    return named, {name: value for name, value in fields.items() if not spec.arg(names[name])}


def _bound(arg: Any, value: Any, new_path: Callable[[str], Path]) -> Any:
    """The value of an argument; a file is written to a new path."""
    if arg.kind not in MEDIA:
        texts = value if arg.many and isinstance(value, list) else [value]
        if (arg.many or arg.kind == "text") and not all(isinstance(text, str) for text in texts):
            raise BadInputError(f"{arg.name} must be text")
        return texts if arg.many else value
    try:
        if isinstance(value, dict):
            write_table(path := new_path(".csv"), value)
            return Resource(kind="table", path=path, mime="text/csv")
        data = value if isinstance(value, bytes) else base64.b64decode(value, validate=True)
    except (TypeError, ValueError) as error:
        raise BadInputError(
            f"{arg.name} must be the {arg.kind} itself (in JSON as base64, or a table as columns of one "
            f"length), not a path or URL: {error}"
        ) from error
    kind, mime = detect_from_bytes(data[:_HEAD_BYTES], Path(arg.name + ".csv" * (arg.kind == "table")))
    if kind != arg.kind:
        raise BadInputError(f"{arg.name} is {mime}, and {arg.kind} is needed")
    (path := new_path(mimetypes.guess_extension(mime) or "")).write_bytes(data)
    return Resource(kind=kind, path=path, mime=mime)


def _response(spec: TaskSpec, top_k: int | None, output: Any, made: Sequence[Resource]) -> Response:
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
    for path in (one.path for one in made if one.path):
        text = text.replace(f'"{path}"', f'"{base64.b64encode(path.read_bytes()).decode()}"')
    return Response(text, media_type="application/json")
