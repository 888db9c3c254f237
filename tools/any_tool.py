"""Any LangChain tool as a task: its name is the task's name, its arguments are the task's arguments.

    worker = AnyTool(my_tool)
    worker.spec         # TaskSpec(name="weather", category="tool", …)

A str result is text; content blocks of images, audio and video become files; an artifact becomes the output.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool

from jarvis_agent.execute import Step
from jarvis_agent.media import sniff, suffix_of, writing
from jarvis_agent.request import Brief
from jarvis_agent.tools.tool_spec import spec_of
from jarvis_agent.types import Resource, Selection, Task, TaskResult


class AnyTool:
    """Runs a LangChain tool as a task of a plan."""

    def __init__(self, tool: BaseTool) -> None:
        self.tool = tool
        self.spec = spec_of(tool)

    async def select(self, task: Task, brief: Brief) -> Selection | None:
        """There is nothing to choose: the tool is the expert."""
        return None

    async def perform(self, selection: Selection | None, step: Step) -> TaskResult:
        """Call the tool; its error message, if it gives one, is the task's error."""
        call = {
            "type": "tool_call",
            "id": str(step.task.id),
            "name": self.tool.name,
            "args": dict(step.inputs),
        }
        reply = await self.tool.ainvoke(call, config=step.brief.config)
        if not isinstance(reply, ToolMessage):
            reply = ToolMessage(content=str(reply), tool_call_id=str(step.task.id))
        if reply.status == "error":
            return TaskResult(task=step.task, status="failed", error=str(reply.text))
        resources = [_resource(block, step) for block in reply.content_blocks]
        return TaskResult(
            task=step.task,
            status="ok",
            resources=[resource for resource in resources if resource is not None],
            output=_plain(reply.artifact) if reply.artifact is not None else str(reply.text),
        )


def _resource(block: Mapping[str, Any], step: Step) -> Resource | None:
    """A content block as a resource; None for blocks that hold neither text nor a file."""
    if block["type"] == "text":
        return Resource(kind="text", text=block["text"])
    if "base64" not in block:
        return None
    content = base64.b64decode(block["base64"])
    path = step.new_path(suffix_of(content, block.get("mime_type")))
    with writing(f"a file of {step.task.task}"):
        path.write_bytes(content)
    kind, mime = sniff(path)
    return Resource(kind=kind, path=path, mime=mime)


def _plain(value: Any) -> Any:
    """An artifact as plain JSON; what JSON has no form for is put as text."""
    return json.loads(json.dumps(value, default=str))
