"""LangChainTask: runs any LangChain tool as a task. The task has the tool's name and arguments.

Text content is the task's text; images, audio and videos in content blocks or the artifact become files.
`output` is the artifact if the tool has one, else a dict or list that it returned, else its text. Without
text content, the output is the text too. An error keeps a dict or list as its output.

A tool without a coroutine runs in a daemon thread, so that a blocked tool delays no other.
"""

import asyncio
import base64
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, get_args, get_origin, get_type_hints

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, ToolException
from langchain_core.tools.base import get_all_basemodel_annotations
from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from jarvis_agent.core.concurrency import run_in_daemon_thread
from jarvis_agent.core.content import file_block, is_data_url, read_file_data
from jarvis_agent.core.context import RunContext, messages_of
from jarvis_agent.core.errors import BadInputError, ExpertError, InputError, words_of
from jarvis_agent.core.images import is_pil_image, png_of
from jarvis_agent.core.redaction import redact
from jarvis_agent.core.tasks.from_tool import spec_of
from jarvis_agent.core.tasks.spec import MEDIA
from jarvis_agent.core.text import map_texts
from jarvis_agent.core.types import Resource, Selection, Task, TaskResult
from jarvis_agent.execution.inputs import TaskCall
from jarvis_agent.media.detect import detect_media_type, detect_suffix
from jarvis_agent.media.run_directory import AttemptFiles, disk_errors


class LangChainTask:
    """Runs a LangChain tool as a task of a plan."""

    def __init__(self, tool: BaseTool) -> None:
        self.tool = tool
        self.spec = spec_of(tool)
        self._runnable = with_content_blocks(tool)
        # LangChain would run a tool without a coroutine in the event loop's few threads.
        has_default_arun = type(tool)._arun is BaseTool._arun and type(tool).ainvoke is BaseTool.ainvoke
        self._is_sync = has_default_arun or getattr(tool, "coroutine", tool) is None

    async def select(self, task: Task, context: RunContext) -> Selection | None:
        """None: a tool has no choice of models."""
        return None

    async def run(self, selection: Selection | None, call: TaskCall) -> TaskResult:
        """Call the tool; if it returns an error message, that is the task's error.

        Raises what the tool does, and ExpertError: a file in its output is invalid; BadInputError: an
        argument is invalid; InputError: a file cannot be written.
        """
        args = {**call.inputs, **_injected_arguments(self.tool, call)}
        tool_call = {"type": "tool_call", "id": str(call.task.id), "name": self.tool.name, "args": args}
        try:
            if self._is_sync:
                reply = await run_in_daemon_thread(self._runnable.invoke, tool_call, call.context.config)
            else:
                reply = await self._runnable.ainvoke(tool_call, call.context.config)
        except ToolException as error:
            return TaskResult(task=call.task, status="failed", error=redact(str(error)))
        except ValidationError as error:
            if error.title != self.tool.get_input_schema().__name__:  # raised by the tool itself
                raise
            raise BadInputError(f"invalid arguments: {words_of(error)}") from error
        if not isinstance(reply, ToolMessage):
            reply = ToolMessage(content=str(reply), tool_call_id=str(call.task.id))
        blocks: list[Any] = [*reply.content_blocks, *media_blocks(reply.artifact)]
        texts = [block["text"] for block in blocks if block["type"] == "text"]
        text = "\n".join(texts)
        if reply.status == "error":
            data = map_texts(json_output(reply, texts[-1] if texts else ""), redact)
            kept = {"error": redact(text), "output": data if isinstance(data, dict | list) else None}
            return TaskResult(task=call.task, status="failed", **kept)
        output = json_output(reply, text)
        resources = [Resource(kind="text", text=text)] if text else []
        if files := [block for block in blocks if block["type"] != "text"]:
            resources += await _resources(files, call)
        if not text and output != "":
            resources.append(Resource(kind="text", text=json.dumps(output, ensure_ascii=False)))
        if isinstance(output, dict | list):
            resources.append(Resource(kind="data", data=output))
        return TaskResult(task=call.task, status="ok", resources=resources, output=output)


def _injected_arguments(tool: BaseTool, call: TaskCall) -> dict[str, Any]:
    """What `create_agent` would inject, by a state that has the messages alone. There is no store."""
    # A tool whose arguments are injected has imported their types. LangGraph takes 0.5 s to import.
    types = sys.modules.get("langgraph.prebuilt.tool_node")
    if types is None:
        return {}
    state = {"messages": [*messages_of(call.context.turns), HumanMessage(call.context.request)]}
    runtime = types.ToolRuntime(
        state=state,
        context=None,
        config=call.context.config or {},
        stream_writer=lambda _: None,
        tool_call_id=str(call.task.id),
        store=None,
    )
    injected: dict[str, Any] = {}
    for name, annotation in _annotations(tool).items():
        for part in _parts(annotation):
            field = getattr(part, "field", None) if isinstance(part, types.InjectedState) else None
            if part is types.ToolRuntime:
                injected[name] = runtime
            elif _is(part, types.InjectedStore):
                injected[name] = None
            elif field in state:
                injected[name] = state[field]
            elif field is None and _is(part, types.InjectedState):
                injected[name] = state
    return injected


def _annotations(tool: BaseTool) -> dict[str, Any]:
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None) or tool._run
    hints: dict[str, Any] = {}
    with suppress(NameError, TypeError):  # an annotation that cannot be evaluated
        hints = get_type_hints(function, include_extras=True)
    return {**hints, **get_all_basemodel_annotations(tool.get_input_schema())}


def _parts(annotation: Any) -> Iterator[Any]:
    """An annotation, its generic type, and what is within it, as in `Annotated[…]` or `A | None`."""
    yield annotation
    yield get_origin(annotation)
    for part in get_args(annotation):
        yield from _parts(part)


def _is(part: Any, marker: type) -> bool:
    """Whether a part of an annotation is a marker: the class or an instance."""
    return part is marker or isinstance(part, marker)


async def _resources(blocks: Sequence[Mapping[str, Any]], call: TaskCall) -> list[Resource]:
    """Content blocks as resources. If one is invalid, the files of all are deleted."""
    files = AttemptFiles(call.new_path)

    def write() -> list[Resource]:
        try:
            resources = [_resource(block, call, files) for block in blocks]
        finally:
            files.cleanup()
        return [resource for resource in resources if resource is not None]

    try:
        return await asyncio.to_thread(write)
    except BaseException:
        files.rollback()
        raise


def _resource(block: Mapping[str, Any], call: TaskCall, files: AttemptFiles) -> Resource | None:
    """A content block as a resource: its file, or the URL of a file elsewhere as a text."""
    block = file_block(block)
    url = str(block.get("url") or "")
    if "base64" not in block and not is_data_url(url):
        return Resource(kind="text", text=url) if url else None
    data, mime = str(block.get("base64") or url), str(block.get("mime_type") or "")
    try:
        mime, content = read_file_data(data, mime, call.settings.max_file_bytes)
    except InputError as error:
        raise ExpertError(f"{call.task.task}: {error}") from error
    path = files.new_path(detect_suffix(content, mime))
    with disk_errors(f"a file of {call.task.task}"):
        path.write_bytes(content)
    kind, mime = detect_media_type(path)
    return Resource(kind=kind, path=path, mime=mime)


_MCP_BLOCKS = ("text", "image", "audio", "resource", "resource_link")


def with_content_blocks(tool: BaseTool) -> BaseTool:
    """A copy of a tool made from functions; what LangChain would turn into its repr becomes a block.

    These are PIL images and bytes, alone or in a list. A list of texts becomes JSON, and None an empty text.
    """
    functions: dict[str, Any] = {}
    if (func := getattr(tool, "func", None)) is not None:

        @wraps(func)
        def run(*args: Any, **kwargs: Any) -> Any:
            return _as_content(func(*args, **kwargs))

        functions["func"] = run
    if (coroutine := getattr(tool, "coroutine", None)) is not None:

        @wraps(coroutine)
        async def arun(*args: Any, **kwargs: Any) -> Any:
            return _as_content(await coroutine(*args, **kwargs))

        functions["coroutine"] = arun
    return tool.model_copy(update=functions) if functions else tool


def _as_content(value: Any) -> Any:
    if value is None:
        return ""
    items = value if isinstance(value, list) else [value]
    if items is value and items and all(isinstance(item, str) for item in items):
        return json.dumps(items, ensure_ascii=False)
    if not any(_is_media(item) for item in items):
        return value
    blocks: list[Any] = []
    for item in items:
        other = item if isinstance(item, Mapping) else {"type": "text", "text": str(item)}
        blocks += media_blocks(item) if _is_media(item) else [other]
    return blocks


def _is_media(value: Any) -> bool:
    return isinstance(value, bytes) or is_pil_image(value)


def media_blocks(artifact: Any) -> list[Mapping[str, Any]]:
    """The images, audio and videos of an artifact: content blocks, PIL images or bytes."""
    if isinstance(artifact, list | tuple):
        return [block for item in artifact for block in media_blocks(item)]
    if isinstance(artifact, Mapping) and artifact.get("type") in MEDIA and "base64" in artifact:
        return [artifact]
    if not _is_media(artifact):
        return []
    kind, content = ("file", artifact) if isinstance(artifact, bytes) else ("image", png_of(artifact))
    return [{"type": kind, "base64": base64.b64encode(content).decode()}]


def json_output(message: ToolMessage, text: str) -> Any:
    """The artifact as JSON, unless it is a file or unknown; else the JSON in the text, or the text."""
    artifact = _structured(message.artifact)
    if not media_blocks(artifact):
        output = to_jsonable_python(artifact, fallback=_type_name)
        if output is not None and output != _type_name(artifact):
            return output
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _type_name(value: Any) -> str:
    return f"<{type(value).__name__}>"


def _structured(artifact: Any) -> Any:
    """An artifact as it is; of an MCP tool, its structured content, unless that repeats content blocks."""
    if not (isinstance(artifact, Mapping) and artifact.keys() == {"structured_content"}):
        return artifact
    content = artifact["structured_content"]
    if isinstance(content, Mapping) and content.keys() == {"result"}:  # the MCP SDK wraps what is no object
        content = content["result"]
    first = content[0] if isinstance(content, list) and content else content
    return None if isinstance(first, Mapping) and first.get("type") in _MCP_BLOCKS else content
