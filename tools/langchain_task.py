"""LangChainTask: runs any LangChain tool as a task. The task has the tool's name and arguments.

    runner = LangChainTask(my_tool)
    runner.spec         # TaskSpec(name="weather", category="tool", …)

Text content is the task's text; images, audio and videos in content blocks or the artifact become files.
`output` is the artifact if the tool has one, else a dict or list that it returned, else its text.

A tool without a coroutine runs in a daemon thread, so that a blocked tool delays no other. A tool with too
many blocked calls is not called again, since each costs the process a thread.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, ToolException
from pydantic import ValidationError

from jarvis_agent.core.concurrency import start_daemon_thread
from jarvis_agent.core.context import RunContext
from jarvis_agent.core.errors import BadInputError, ExpertError
from jarvis_agent.core.redaction import redact
from jarvis_agent.core.tasks.from_tool import spec_of
from jarvis_agent.core.text import brief_text
from jarvis_agent.core.types import Resource, Selection, Task, TaskResult
from jarvis_agent.execution.attempt_files import AttemptFiles
from jarvis_agent.execution.inputs import TaskCall
from jarvis_agent.media.detect import detect_media_type, detect_suffix
from jarvis_agent.media.run_directory import disk_errors
from jarvis_agent.tools.content import json_output, media_blocks, with_content_blocks
from jarvis_agent.tools.injection import injected_arguments

MAX_ABANDONED_CALLS = 64
"""Cancelled calls of a tool that still run. At this number the tool is not called."""


class LangChainTask:
    """Runs a LangChain tool as a task of a plan."""

    def __init__(self, tool: BaseTool) -> None:
        self.tool = tool
        self.spec = spec_of(tool)
        self._runnable = with_content_blocks(tool)
        self._abandoned: set[Future[Any]] = set()

    async def select(self, task: Task, context: RunContext) -> Selection | None:
        """None: a tool has no choice of models."""
        return None

    async def run(self, selection: Selection | None, call: TaskCall) -> TaskResult:
        """Call the tool; if it returns an error message, that is the task's error.

        Raises:
            ExpertError: a file in its output is invalid, or too many cancelled calls still run.
            BadInputError: an argument is invalid.
            InputError: a file cannot be written, or its type is unknown.
            Exception: what the tool raises.
        """
        args = {**call.inputs, **injected_arguments(self.tool, call)}
        tool_call = {"type": "tool_call", "id": str(call.task.id), "name": self.tool.name, "args": args}
        try:
            reply = await self._invoke(tool_call, call.context.config)
        except ToolException as error:
            return TaskResult(task=call.task, status="failed", error=redact(str(error)))
        except ValidationError as error:
            if error.title != self.tool.get_input_schema().__name__:  # raised by the tool itself
                raise
            raise BadInputError(_invalid_arguments(error)) from error
        if not isinstance(reply, ToolMessage):
            reply = ToolMessage(content=str(reply), tool_call_id=str(call.task.id))
        if reply.status == "error":
            return TaskResult(task=call.task, status="failed", error=redact(str(reply.text)))
        blocks: list[Any] = [*reply.content_blocks, *media_blocks(reply.artifact)]
        text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
        output = json_output(reply, text)
        resources = [Resource(kind="text", text=text)] if text else []
        if files := [block for block in blocks if block["type"] != "text"]:
            resources += await _resources(files, call)
        if isinstance(output, dict | list):
            resources.append(Resource(kind="data", data=output))
        return TaskResult(task=call.task, status="ok", resources=resources, output=output)

    async def _invoke(self, tool_call: Any, config: Any) -> Any:
        if not _is_sync(self.tool):
            return await self._runnable.ainvoke(tool_call, config=config)
        if len(self._abandoned) >= MAX_ABANDONED_CALLS:
            raise ExpertError(
                f"{self.tool.name} is busy: {len(self._abandoned)} cancelled calls of it still run; "
                "give the tool a timeout of its own"
            )
        done = start_daemon_thread(self._runnable.invoke, tool_call, config)
        try:
            return await asyncio.wrap_future(done)
        except asyncio.CancelledError:
            self._abandoned.add(done)
            done.add_done_callback(self._abandoned.discard)
            raise


def _is_sync(tool: BaseTool) -> bool:
    """Whether a tool has no coroutine. LangChain would run it in the event loop's few threads."""
    kind = type(tool)
    has_default_arun = kind._arun is BaseTool._arun and kind.ainvoke is BaseTool.ainvoke
    return has_default_arun or getattr(tool, "coroutine", tool) is None


def _invalid_arguments(error: ValidationError) -> str:
    """The first three in one line, "argument n: must be a valid integer, not 'four'"."""
    found: dict[str, str] = {}
    for one in error.errors(include_url=False):
        place = ".".join(str(part) for part in one["loc"] if part == one["loc"][0] or isinstance(part, int))
        problem = one["msg"].split(", unable to")[0].replace("Input should", "must")
        if one["type"] == "missing":
            problem = "is missing"
        else:
            problem += f", not {brief_text(redact(repr(one['input'])), 60)}"
        found.setdefault(place, f"argument {place}: {problem}")
    return "; ".join(list(found.values())[:3])


async def _resources(blocks: Sequence[Mapping[str, Any]], call: TaskCall) -> list[Resource]:
    """Content blocks as resources. If one is invalid, the files of all are deleted."""
    files = AttemptFiles(call.new_path)

    def write() -> list[Resource]:
        try:
            found = [_resource(block, call, files) for block in blocks]
        finally:
            files.cleanup()
        return [resource for resource in found if resource is not None]

    try:
        return await asyncio.to_thread(write)
    except BaseException:
        files.rollback()
        raise


def _resource(block: Mapping[str, Any], call: TaskCall, files: AttemptFiles) -> Resource | None:
    """A content block as a resource: its file, or the URL of a file elsewhere as a text."""
    if "base64" not in block:
        return Resource(kind="text", text=str(block["url"])) if block.get("url") else None
    content = _decode(block["base64"], f"a file of {call.task.task}", call.settings.max_file_bytes)
    path = files.new_path(detect_suffix(content, block.get("mime_type")))
    with disk_errors(f"a file of {call.task.task}"):
        path.write_bytes(content)
    kind, mime = detect_media_type(path)
    return Resource(kind=kind, path=path, mime=mime)


def _decode(data: str, what: str, limit: int) -> bytes:
    # Four letters encode three bytes: the length is known before decoding.
    if len(data) // 4 * 3 > limit + 3:
        raise ExpertError(f"{what} has more than {limit:,} bytes (JARVIS_MAX_FILE_BYTES)")
    try:
        return base64.b64decode(data)
    except (binascii.Error, ValueError) as error:
        raise ExpertError(f"{what} is not valid base64") from error
