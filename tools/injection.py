"""Arguments of a tool that LangGraph injects, and no plan gives: `ToolRuntime`, state and store.

injected_arguments(tool, call)     # {"runtime": ToolRuntime(state={"messages": […]}, …)}
last_human_message(runtime)        # "Describe a.jpg"
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import BaseTool, InjectedToolArg
from langchain_core.tools.base import get_all_basemodel_annotations

from jarvis_agent.core.content import message_text
from jarvis_agent.core.context import messages_of
from jarvis_agent.execution.inputs import TaskCall

if TYPE_CHECKING:
    from langchain.tools import ToolRuntime as ToolRuntime
else:  # LangGraph, which injects it by its name, takes 0.5 s to import.
    ToolRuntime = Annotated[Any, InjectedToolArg]


def injected_arguments(tool: BaseTool, call: TaskCall) -> dict[str, Any]:
    """What `create_agent` would inject. The state has the chat's messages; the store is None.

    An argument of another key of the state is left out.
    """
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
    found: dict[str, Any] = {}
    for name, annotation in _annotations(tool).items():
        for part in _parts(annotation):
            field = getattr(part, "field", None) if isinstance(part, types.InjectedState) else None
            if part is types.ToolRuntime:
                found[name] = runtime
            elif _is(part, types.InjectedStore):
                found[name] = None
            elif field in state:
                found[name] = state[field]
            elif field is None and _is(part, types.InjectedState):
                found[name] = state
    return found


def messages_in(runtime: Any) -> Sequence[Any]:
    """The messages in the state of an injected ToolRuntime: of a mapping, an object, or a list of them."""
    state = getattr(runtime, "state", None)
    messages = state.get("messages") if isinstance(state, Mapping) else getattr(state, "messages", state)
    return messages or ()


def last_human_message(runtime: Any) -> str:
    """The text of the last human message in an injected ToolRuntime's state; "" without one."""
    found = (message for message in reversed(messages_in(runtime)) if isinstance(message, HumanMessage))
    return next((message_text(message) for message in found), "")


def call_number(runtime: Any) -> int:
    """The number of the call of an injected ToolRuntime among the tool calls of the messages, from 0."""
    calls = [call for one in messages_in(runtime) if isinstance(one, AIMessage) for call in one.tool_calls]
    own = getattr(runtime, "tool_call_id", None)  # some models count from one again in each message
    return max((number for number, call in enumerate(calls) if call["id"] == own), default=0)


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
