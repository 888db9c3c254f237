"""The Hub's inference API: its requests as the arguments of a task, and results as its responses.

    {"inputs": "a cat", "parameters": {"seed": 7}}        # or a file as it is, with parameters in the query
    {"inputs": {"image": "data:image/png;base64,…", "text": "What is it?"}}

A response is JSON as specified for the task, or the file that the model made; with the parameter
`return_files` the whole result: `output`, its `resources` with the content of their files, and `notes`.
"""

import asyncio
import base64
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from starlette.responses import Response

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.outputs.adapters import Result
from jarvis_agent.core.content import read_file_data
from jarvis_agent.core.errors import BadInputError, InputError, describe_error
from jarvis_agent.core.notes import write_notes
from jarvis_agent.core.tasks.spec import ARG_ALIASES, MEDIA, Arg, TaskSpec
from jarvis_agent.core.text import replace_surrogates_in
from jarvis_agent.interfaces.common.limits import json_excess
from jarvis_agent.media.access import describe_file
from jarvis_agent.media.detect import detect_suffix
from jarvis_agent.media.store import MAX_FILES, ResourceStore
from jarvis_agent.media.tables import write_table

Fields = dict[str, Any]

_FILE_NAME = re.compile(r"data:[^,]{0,200};name=([^;,]{1,300})")


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """A request for "org/name" or "org/name@revision".

    `task` is "" for the one of the model that fits best; `parameters` are JSON from the query.
    """

    model: str
    task: str = ""
    body: bytes = b""
    mime: str = ""
    parameters: str = "{}"


def read_fields(request: InferenceRequest) -> Fields:
    """The fields of a request by name. Blocks. Raises BadInputError: no JSON, or too many values."""
    is_object = request.body[:64].lstrip()[:1] in (b"{", b"") and not request.mime.startswith("text/csv")
    try:
        parameters = dict(json.loads(request.parameters))
        if not is_object and "json" not in request.mime:
            return {**parameters, "inputs": (request.mime, request.body)}
        if excess := json_excess(request.body):
            raise BadInputError(excess)
        fields = json.loads(request.body or b"{}")
        inputs, more = fields.pop("inputs", None), fields.pop("parameters", None) or {}
        fields |= {**parameters, **more, **(inputs if isinstance(inputs, dict) else {"inputs": inputs})}
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise BadInputError(f"the body cannot be read: {error}") from error
    # huggingface_hub's client sends these two as False where they are not set.
    switches = ("details", "stream")
    unset = {name for name, value in fields.items() if value is None or (name in switches and not value)}
    return {name: replace_surrogates_in(value) for name, value in fields.items() if name not in unset}


def split_fields(spec: TaskSpec, fields: Fields) -> tuple[list[str], Fields, Fields]:
    """The arguments that a task lacks, those that it has, and its options: the other fields."""
    aliases = ARG_ALIASES | {"inputs": spec.inputs[0].name if spec.inputs else ""}
    names = {name: name if spec.arg(name) else aliases.get(name, "") for name in fields}
    named = {names[name]: value for name, value in fields.items() if spec.arg(names[name])}
    options = {name: value for name, value in fields.items() if not spec.arg(names[name])}
    return [name for name in spec.required if name not in named], named, options


async def bind(arg: Arg, value: Any, store: ResourceStore) -> Any:
    """The value of an argument; a file is written to the directory of the store.

    BadInputError: it is of another kind, a path or a URL. InputError: a file exceeds a limit of the settings.
    """
    if arg.kind not in MEDIA:
        texts = value if arg.many and isinstance(value, list) else [value]
        if (arg.many or arg.kind == "text") and not all(isinstance(text, str) for text in texts):
            raise BadInputError(f"{arg.name} must be text")
        return texts if arg.many else value
    if arg.many and isinstance(value, list):
        if len(value) > MAX_FILES:
            raise BadInputError(f"{arg.name} has {len(value)} files, more than {MAX_FILES}")
        return [await bind(arg, each, store) for each in value]
    path = await asyncio.to_thread(_write, arg, value, store)
    return await store.resolve(describe_file(path, path.name), arg.kind)


def _write(arg: Arg, value: Any, store: ResourceStore) -> Path:
    """The path of a file that was sent: media type and content, base64 or, for a table, columns."""
    new_path, limit, stem = store.directory.new_path, store.settings.max_file_bytes, arg.name
    try:
        if isinstance(value, dict):
            write_table(path := new_path(".csv", stem), value)
            return path
        if isinstance(value, str) and (named := _FILE_NAME.match(value)):
            stem = Path(unquote(named[1])).stem[:60] or stem
        mime, content = value if isinstance(value, tuple) else read_file_data(value, "", limit)
    except (TypeError, ValueError, AttributeError, InputError) as error:
        form = "{name} is base64 or columns, not a path or URL: {reason}"
        raise BadInputError(form, name=arg.name, reason=describe_error(error)) from error
    if len(content) > limit:
        raise InputError(f"{arg.name} has {len(content):,} bytes, more than {limit:,}")
    is_csv = arg.kind == "table" and mime != "text/tab-separated-values"  # content of its own goes before
    path = new_path(detect_suffix(content, "text/csv" if is_csv else mime), stem)
    path.write_bytes(content)
    return path


def write_result(result: Result, call: Call, folder: Path) -> Response:
    """The whole result; paths are those of the call's folder, without its own."""
    rows = [file.model_dump(mode="json") for file in result.resources]
    for row, file in zip(rows, result.resources, strict=True):
        if file.path is not None:
            row["content"] = base64.b64encode(file.path.read_bytes()).decode()
    text = json.dumps({"output": result.output, "resources": rows, "notes": write_notes(call.notes)})
    text = text.replace(json.dumps(str(folder))[1:-1], folder.parent.name)
    return Response(text, media_type="application/json")


def write_response(spec: TaskSpec, result: Result, top_k: int | None) -> Response:
    """A result in the shape of the task's specification."""
    output, files = result
    first = files[0]
    if spec.name == "audio-to-audio":
        output = [{"label": file.name, "content-type": file.mime, "blob": str(file.path)} for file in files]
    elif first.path and "data" not in spec.outputs:
        return Response(first.path.read_bytes(), media_type=first.mime)
    if spec.name == "question-answering" and top_k is None:
        output = output[0] if output else {"answer": "", "score": 0.0}
    output = output[:top_k] if isinstance(output, list) else output
    is_text = isinstance(output, dict) and next(iter(output)).endswith("_text")
    text = json.dumps([output] if is_text or spec.name == "text-classification" else output)
    text = text.replace('"similarity": ', '"score": ')  # embeddings do not give probabilities
    for path in (file.path for file in files if file.path):
        content = base64.b64encode(path.read_bytes()).decode()
        text = text.replace(json.dumps(str(path)), f'"{content}"')
    return Response(text, media_type="application/json")
