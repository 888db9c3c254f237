"""hf_tools_middleware: the tasks of the Hub in `create_agent`, of which the model sees the few that fit.

The schemas of seventy tools fill a prompt, and confuse a small model. This middleware has those that can
run here. It offers a call of the model only those that the last request of the conversation is likely to
need, those that were called before, and a tool that searches for others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, cast

from langchain.agents.middleware.types import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool

from jarvis_agent.core.concurrency import run_cpu_bound
from jarvis_agent.core.content import media_blocks, message_text
from jarvis_agent.core.file_mentions import mentions
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Resource
from jarvis_agent.llm.content import messages_for
from jarvis_agent.media.detect import kind_by_name
from jarvis_agent.planning.inputs import task_specs
from jarvis_agent.planning.offline import OfflinePlanner
from jarvis_agent.selection.ranking import CardVectors, similarities
from jarvis_agent.tools.hf_task_tool import HFTaskTool
from jarvis_agent.tools.toolkit import hf_tools

SEARCH = "search_tools"
"""Name of the tool that searches for tools."""

OFFERED = 8
"""Tools that are offered for a request, and at most so many that were called or found before."""

_KINDS = ("image", "audio", "video", "file")

_MAX_CHARS = 2_000
"""Longest beginning of a request that is compared with the tasks."""


def hf_tools_middleware(
    model: BaseChatModel | str | None = None, tasks: Iterable[str] | None = None, **options: Any
) -> HFToolsMiddleware:
    """The middleware with the tools of `hf_tools`, whose arguments these are, with `content="blocks"`.

    Raises ConfigError: as `hf_tools`.
    """
    return HFToolsMiddleware(hf_tools(model, tasks, **{"content": "blocks", **options}))


class HFToolsMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Offers a model the tools that fit the conversation.

    Args:
        tools: tools of `hf_tools`. Other tools of the agent are always offered. If their `content` is
            "blocks", each model reads messages with the files that it takes, by its `profile`.
        count: how many are offered for a request.
    """

    def __init__(self, tools: Sequence[BaseTool], count: int = OFFERED) -> None:
        super().__init__()
        self._experts = {tool.name: tool for tool in tools}
        self._specs = task_specs(tools)
        self._count = count
        self._planner = OfflinePlanner()
        self._vectors = CardVectors(Settings())
        self._likely = lru_cache(maxsize=256)(self._rank)
        search = StructuredTool.from_function(
            self._search,
            name=SEARCH,
            description="Find tools for other work on text, images, audio, video or tables. `query` says in "
            "words what is to be done. The tools that are found can be called afterwards.",
            response_format="content_and_artifact",
        )
        self.tools = [search, *tools]

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Call the model with the tools that fit."""
        return handler(self._adapted(request))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """As `wrap_model_call`."""
        return await handler(await run_cpu_bound(self._adapted, request))

    def close(self) -> None:
        """Free the models that the tools have loaded."""
        for tool in list(self._experts.values())[:1]:
            cast("HFTaskTool", tool).close()

    def _adapted(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """A request with the tools, and the messages, for its model."""
        others = [tool for tool in request.tools if getattr(tool, "name", "") not in self._experts]
        names = [*self._known(request.messages)[: self._count]]
        for message in reversed(request.messages):
            if isinstance(message, HumanMessage):
                kinds = tuple(str(block.get("type")) for block in media_blocks(message))
                names += self._likely(message_text(message)[:_MAX_CHARS], kinds)
                break
        tools = [*others, *(self._experts[name] for name in dict.fromkeys(names))]
        messages: list[Any] = messages_for(request.model, request.messages)
        return request.override(tools=tools, messages=messages)

    def _known(self, messages: Sequence[AnyMessage]) -> list[str]:
        """The tools that were called or found in the conversation, the latest first."""
        names: dict[str, None] = {}
        for message in reversed(messages):
            if isinstance(message, AIMessage):
                names |= dict.fromkeys(call["name"] for call in message.tool_calls)
            elif isinstance(message, ToolMessage) and message.name == SEARCH:
                names |= dict.fromkeys(message.artifact or ())
        return [name for name in names if name in self._experts]

    def _rank(self, text: str, kinds: tuple[str, ...] = ()) -> list[str]:
        """The likeliest tools for a request with files of these kinds: first those of an offline plan."""
        files = [Resource(kind=kind_by_name(name), name=name) for name in mentions(text)]
        files += [Resource(kind=cast("Any", kind), name=kind) for kind in kinds if kind in _KINDS]
        planned = self._planner.invoke({"input": text, "files": files, "tools": self._specs})
        about = [f"{name}: {spec.description}" for name, spec in self._specs.items()]
        scores = similarities(text, [[description] for description in about], about, self._vectors)
        given = {kind for file in files for kind in (file.kind, "file")}
        takes = (any(arg.kind in given for arg in spec.inputs) for spec in self._specs.values())
        # That a task takes a file of the request counts as much as a tenth of the likeness.
        points = [score + 0.1 * fits for score, fits in zip(scores, takes, strict=True)]
        likely = [name for _, name in sorted(zip(points, self._specs, strict=True), reverse=True)]
        return list(dict.fromkeys([*(task.task for task in planned.tasks), *likely]))[: self._count]

    def _search(self, query: str) -> tuple[str, list[str]]:
        names = self._likely(query[:_MAX_CHARS])
        return "\n".join(f"{name}: {self._experts[name].description}" for name in names), names
