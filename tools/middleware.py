"""hf_tools_middleware: the tasks of the Hub in `create_agent`, and for its model the files that it can read.

The schemas of seventy tools fill a prompt. Behind this middleware, `LLMToolSelectorMiddleware` of LangChain
offers the few that fit, or its `ProviderToolSearchMiddleware` leaves them to the provider's search.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from langchain.agents.middleware.types import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool

from jarvis_agent.llm.content import messages_for
from jarvis_agent.tools.hf_task_tool import HFTaskTool
from jarvis_agent.tools.toolkit import hf_tools


def hf_tools_middleware(
    model: BaseChatModel | str | None = None, tasks: Iterable[str] | None = None, **options: Any
) -> HFToolsMiddleware:
    """The middleware with the tools of `hf_tools`, whose arguments these are, with `content="blocks"`.

    Raises ConfigError: as `hf_tools`.
    """
    return HFToolsMiddleware(hf_tools(model, tasks, **{"content": "blocks", **options}))


class HFToolsMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Gives an agent tools of `hf_tools`. Of the files in messages, each model reads those that it takes."""

    def __init__(self, tools: Sequence[BaseTool]) -> None:
        super().__init__()
        self.tools = list(tools)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Call the model with the messages as it can read them, by its `profile`."""
        messages: list[Any] = messages_for(request.model, request.messages)
        return handler(request.override(messages=messages))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """As `wrap_model_call`."""
        messages: list[Any] = messages_for(request.model, request.messages)
        return await handler(request.override(messages=messages))

    def close(self) -> None:
        """Free the models that the tools have loaded."""
        for tool in self.tools[:1]:
            if isinstance(tool, HFTaskTool):
                tool.close()
