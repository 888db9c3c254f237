"""Any LangChain tool as a task: its name is the task's name, its arguments are the task's arguments.

    worker = LangChainTask(my_tool)
    worker.spec         # TaskSpec(name="weather", category="tool", …)

A str result is text; content blocks of images, audio and video become files; an artifact becomes the output.
A tool without a coroutine runs in a thread of its own, so that one which hangs keeps no other from running.
One that never comes back is not called for ever, since each such call costs the process a thread.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool

from jarvis_agent.execution.attempt_files import AttemptFiles
from jarvis_agent.core.errors import ExpertError
from jarvis_agent.execution.executor import TaskCall
from jarvis_agent.core.redaction import redact
from jarvis_agent.media.files import sniff, suffix_of, writing
from jarvis_agent.core.request import RunContext
from jarvis_agent.core.threads import in_daemon
from jarvis_agent.core.tasks.from_tool import spec_of
from jarvis_agent.core.types import Resource, Selection, Task, TaskResult

_MOST_LEFT = 64
"""Calls of a tool that still run when nobody waits for them any more; with so many it is not called."""


class LangChainTask:
    """Runs a LangChain tool as a task of a plan."""

    def __init__(self, tool: BaseTool) -> None:
        self.tool = tool
        self.spec = spec_of(tool)
        self._left: set[Future[Any]] = set()

    async def select(self, task: Task, brief: RunContext) -> Selection | None:
        """There is nothing to choose: the tool is the expert."""
        return None

    async def perform(self, selection: Selection | None, step: TaskCall) -> TaskResult:
        """Call the tool; its error message, if it gives one, is the task's error.

        Raises:
            ExpertError: a file that it gave can not be used, or too many calls of it have not come back.
            InputError: a file can not be written, or is of no kind that is known.
            Exception: what the tool raises.
        """
        call = {
            "type": "tool_call",
            "id": str(step.task.id),
            "name": self.tool.name,
            "args": dict(step.inputs),
        }
        config = step.brief.config
        if _blocks(self.tool):
            reply = await self._in_thread(call, config)
        else:
            reply = await self.tool.ainvoke(call, config=config)
        if not isinstance(reply, ToolMessage):
            reply = ToolMessage(content=str(reply), tool_call_id=str(step.task.id))
        if reply.status == "error":
            return TaskResult(task=step.task, status="failed", error=redact(str(reply.text)))
        return TaskResult(
            task=step.task,
            status="ok",
            resources=await _resources(reply.content_blocks, step),
            output=_plain(reply.artifact) if reply.artifact is not None else str(reply.text),
        )

    async def _in_thread(self, call: Any, config: Any) -> Any:
        if len(self._left) >= _MOST_LEFT:
            raise ExpertError(
                f"{self.tool.name} is busy: {len(self._left)} calls of it that were given up still run; "
                "give the tool a time limit of its own"
            )
        done = in_daemon(self.tool.invoke, call, config)
        try:
            return await asyncio.wrap_future(done)
        except asyncio.CancelledError:
            self._left.add(done)
            done.add_done_callback(self._left.discard)
            raise


def _blocks(tool: BaseTool) -> bool:
    """Whether a tool has no coroutine of its own; LangChain would run it in the event loop's few threads."""
    kind = type(tool)
    as_it_comes = kind._arun is BaseTool._arun and kind.ainvoke is BaseTool.ainvoke
    return as_it_comes or getattr(tool, "coroutine", tool) is None


async def _resources(blocks: Sequence[Mapping[str, Any]], step: TaskCall) -> list[Resource]:
    """Content blocks as resources. If one of them can not be used, no file is left of the others."""
    drafts = AttemptFiles(step.new_path)

    def write() -> list[Resource]:
        try:
            found = [_resource(block, step, drafts) for block in blocks]
        finally:
            drafts.sweep()
        return [resource for resource in found if resource is not None]

    try:
        return await asyncio.to_thread(write)
    except BaseException:
        drafts.discard()
        raise


def _resource(block: Mapping[str, Any], step: TaskCall, drafts: AttemptFiles) -> Resource | None:
    """A content block as a resource; None for blocks that hold neither text nor a file."""
    if block["type"] == "text":
        return Resource(kind="text", text=block["text"])
    if "base64" not in block:
        return None
    content = _decoded(block["base64"], f"a file that {step.task.task} gave", step.settings.max_file_bytes)
    path = drafts.new_path(suffix_of(content, block.get("mime_type")))
    with writing(f"a file of {step.task.task}"):
        path.write_bytes(content)
    kind, mime = sniff(path)
    return Resource(kind=kind, path=path, mime=mime)


def _decoded(data: str, what: str, limit: int) -> bytes:
    # Four letters for three bytes; it is not decoded to find out.
    if len(data) // 4 * 3 > limit + 3:
        raise ExpertError(f"{what} has more than {limit:,} bytes (JARVIS_MAX_FILE_BYTES)")
    try:
        return base64.b64decode(data)
    except (binascii.Error, ValueError) as error:
        raise ExpertError(f"{what} is not valid base64") from error


def _plain(value: Any) -> Any:
    """An artifact as plain JSON; what JSON has no form for is put as text."""
    return json.loads(json.dumps(value, default=str))
