"""A chat model that replies from a script.

ScriptedLLM(["first reply", "second reply"])                      # in order
ScriptedLLM({"plan": "[]", "chat": "Hello!"})                     # by stage, for every call
ScriptedLLM({"plan": [broken, repaired]})                         # by stage, in order
ScriptedLLM(lambda messages: "you said " + messages[-1].text)
"""

import asyncio
import json
import re
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.chat_models import generate_from_stream
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field, PrivateAttr

from jarvis_agent.llm.usage import STAGE_KEY


class Script:
    """The order of the replies of a double; thread-safe.

    Script(["first", "second"])                  one a call, in order
    Script({"plan": "[]", "chat": ["a", "b"]})   by stage; a single reply as often as needed
    Script(lambda given: "…")                    whatever it makes of what it is given
    """

    def __init__(self, replies: Any) -> None:
        """`replies`: a reply, a list of them, a dict of either by stage, or a callable that gives a reply."""
        self._replies = replies
        self._used: Counter[str] = Counter()
        self._lock = threading.Lock()

    def next(self, stage: str, given: Any) -> Any:
        """The next reply for a stage.

        Raises:
            AssertionError: the script has none for the stage, or none any more.
        """
        if not isinstance(self._replies, Mapping):
            return self._resolve("", self._replies, given)
        if stage not in self._replies:
            stages = ", ".join(self._replies)
            raise AssertionError(f"the script has no reply for the stage {stage!r}, only for {stages}")
        return self._resolve(stage, self._replies[stage], given)

    def _resolve(self, counter: str, reply: Any, given: Any) -> Any:
        if isinstance(reply, list):
            with self._lock:
                place = self._used[counter]
                self._used[counter] += 1
            if place >= len(reply):
                raise AssertionError(
                    f"the script has {len(reply)} replies {counter}, and this is call {place + 1}"
                )
            reply = reply[place]
        return self._resolve(counter, reply(given), given) if callable(reply) else reply


def first_candidate(given: Any) -> str:
    """A scripted reply for the stage "select": the first model in the list.

    `given` are the messages (of a ScriptedLLM) or the request's body (of an OpenAIDouble).
    """
    messages = given["messages"] if isinstance(given, Mapping) else given
    texts = (str(m["content"]) if isinstance(m, Mapping) else str(m.text) for m in messages)
    models = re.findall(r'"model_id": "([^"]+)"', "\n".join(texts))
    return json.dumps({"id": models[0], "reason": "it is the first"})


Piece = float | AIMessageChunk


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """One call of a ScriptedLLM: the stage ("" without one), the messages, and the bound arguments."""

    stage: str
    messages: tuple[BaseMessage, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def prompt(self) -> str:
        """The text of all messages."""
        return "\n".join(str(message.text) for message in self.messages)


class ScriptedLLM(BaseChatModel):
    """A chat model that replies from a script: a list, one reply a call, or a dict of them by stage.

    A reply is a text, an exception to raise, an AIMessage (such as one with tool calls), or a tuple of
    pieces: texts, exceptions, and numbers, which are pauses in seconds. Any of them may be a callable of the
    messages. Replies stream in pieces of `chunk` characters (0: whole), `delay` seconds apart.

    `calls` records every call. Tokens are counted as words. `model_name` is its name in displays; a name
    such as "qwen-0.5b" makes it a small model.
    """

    replies: Any
    model_name: str = "scripted"
    chunk: int = 8
    delay: float = 0.0
    calls: list[ScriptedCall] = Field(default_factory=list)
    _script: Script = PrivateAttr()

    def __init__(self, replies: Any, **fields: Any) -> None:
        super().__init__(replies=replies, **fields)
        self._script = Script(replies)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def stages(self) -> list[str]:
        """The stages of the calls, in order."""
        return [call.stage for call in self.calls]

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """The same script; the tools are recorded in the calls."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return generate_from_stream(self._stream(messages, stop, None, **kwargs))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for piece in self._pieces(messages, kwargs):
            if isinstance(piece, float):
                time.sleep(piece)
            else:
                yield ChatGenerationChunk(message=piece)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for piece in self._pieces(messages, kwargs):
            if isinstance(piece, float):
                await asyncio.sleep(piece)
            else:
                yield ChatGenerationChunk(message=piece)

    def _pieces(self, messages: Sequence[BaseMessage], kwargs: Mapping[str, Any]) -> Iterator[Piece]:
        """The pieces of the next reply, with pauses as floats and the token counts last."""
        stage = next((str(m.additional_kwargs.get(STAGE_KEY, "")) for m in messages), "")
        call = ScriptedCall(stage, tuple(messages), kwargs)
        self.calls.append(call)
        reply = self._script.next(stage, messages)
        spoken = 0
        for piece in reply if isinstance(reply, tuple) else (reply,):
            if isinstance(piece, int | float):
                yield float(piece)
            elif isinstance(piece, AIMessage):
                yield from self._cut(str(piece.text))
                yield _tool_calls(piece)
            else:
                yield from self._cut(piece)
                spoken += len(str(piece).split())
        words = len(call.prompt.split())
        usage = {"input_tokens": words, "output_tokens": spoken, "total_tokens": words + spoken}
        named = {"model_name": self.model_name}
        yield AIMessageChunk(content="", usage_metadata=usage, response_metadata=named)

    def _cut(self, piece: str | BaseException) -> Iterator[Piece]:
        if isinstance(piece, BaseException):
            raise piece
        size = self.chunk or len(piece) or 1
        for place in range(0, len(piece), size):
            if self.delay:
                yield self.delay
            yield AIMessageChunk(content=piece[place : place + size])


def _tool_calls(message: AIMessage) -> AIMessageChunk:
    calls = [
        tool_call_chunk(name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=place)
        for place, call in enumerate(message.tool_calls)
    ]
    return AIMessageChunk(
        content="",
        tool_call_chunks=calls,
        additional_kwargs=message.additional_kwargs,
        response_metadata=message.response_metadata,
    )
