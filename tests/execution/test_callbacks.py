"""Tasks as tool runs in LangChain's callbacks, for LangSmith, `astream_events` and LangGraph."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.tools import tool
from langchain_core.tracers.context import collect_runs
from served import endless_expert
from small_agents import CAPTION, DESCRIBE_ALOUD, plan, small_agent

from jarvis_agent.backends.base import Call
from jarvis_agent.core.errors import TransientError

REQUEST = "Describe a.jpg aloud"


pytestmark = pytest.mark.usefixtures("home")


async def _events(runnable: Any, value: Any) -> list[Any]:
    config = {"configurable": {"thread_id": "chat"}}
    return [event async for event in runnable.astream_events(value, config, version="v2")]


def _tools(events: list[Any]) -> list[tuple[str, str]]:
    return [(event["event"], event["name"]) for event in events if event["event"].startswith("on_tool")]


async def test_each_task_is_a_tool_run_of_the_agent_and_of_graphs() -> None:
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.func import entrypoint

    agent, _, _ = small_agent(DESCRIBE_ALOUD)

    @entrypoint()
    async def flow(request: str) -> str:
        return (await agent.ainvoke(request)).answer

    durable = agent.copy(checkpointer=InMemorySaver()).graph
    for runnable, value in ((agent, REQUEST), (flow, REQUEST), (durable, {"input": REQUEST})):
        events = await _events(runnable, value)
        tasks = ("image-to-text", "text-to-speech")
        assert _tools(events) == [(f"on_tool_{point}", task) for task in tasks for point in ("start", "end")]
        root = next(event["run_id"] for event in events if event["event"] == "on_chain_start")
        started = [event for event in events if event["event"] == "on_tool_start"]
        assert all(event["parent_ids"][0] == root for event in started)
        assert [event["metadata"]["jarvis_task_id"] for event in started] == [0, 1]


async def test_inputs_and_outputs_are_plain_json() -> None:
    agent, _, _ = small_agent(DESCRIBE_ALOUD)
    events = await _events(agent, REQUEST)
    spoken = [event["data"] for event in events if event["name"] == "text-to-speech"]
    assert spoken[0]["input"] == {"text": CAPTION}
    assert spoken[1]["output"]["model"] == "text-to-speech/only"
    assert spoken[1]["output"]["resources"][0]["path"].endswith(".wav")
    looked = next(event["data"] for event in events if event["event"] == "on_tool_start")
    assert looked["input"]["image"]["name"] == "a.jpg"
    json.dumps([spoken, looked])


async def test_the_server_that_ran_an_attempt_is_in_its_trace_and_in_the_run() -> None:
    def fail_once(call: Call) -> str:
        call.trace["endpoint"] = f"server {len(backend.calls)}"
        if len(backend.calls) == 1:
            raise TransientError("its server was lost")
        return CAPTION

    agent, _, backend = small_agent(experts={"image-to-text": fail_once})
    with collect_runs() as traced:
        run = await agent.ainvoke("Describe a.jpg")
    assert [attempt.endpoint for attempt in run.results[0].attempts] == ["server 1", "server 2"]
    (task,) = [child for child in traced.traced_runs[0].child_runs if child.name == "image-to-text"]
    failed, done = task.child_runs
    assert done.inputs["image"]["name"] == "a.jpg"
    assert done.outputs is not None
    assert done.outputs["output"] == {"generated_text": CAPTION}
    assert (done.outputs["endpoint"], done.outputs["resources"][0]["text"]) == ("server 2", CAPTION)
    assert "its server was lost" in str(failed.error)
    model = {"ls_provider": "fake", "ls_model_name": "image-to-text/only"}
    for attempt in task.child_runs:
        known = {key: attempt.metadata[key] for key in ("ls_provider", "ls_model_name", "task", "backend")}
        assert known == model | {"task": "image-to-text", "backend": "fake"}


class Handler(AsyncCallbackHandler):
    """Records the names of tasks that start, and the errors of those that fail."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def on_tool_start(self, serialized: Any, input_str: str, **kwargs: Any) -> None:
        self.seen.append(kwargs["name"])

    async def on_tool_error(self, error: BaseException, **kwargs: Any) -> None:
        self.seen.append(str(error) or type(error).__name__)


async def test_a_task_that_fails_is_an_error_and_a_skipped_one_never_starts() -> None:
    agent, _, _ = small_agent(DESCRIBE_ALOUD, {"image-to-text": RuntimeError("it broke")})
    handler = Handler()
    run = await agent.ainvoke(REQUEST, {"callbacks": [handler]})
    assert [result.status for result in run.results] == ["failed", "skipped"]
    assert handler.seen == ["image-to-text", run.results[0].error]


def test_a_run_is_one_tree_in_a_tracer() -> None:
    choice = '{"id": "image-to-text/first", "reason": "it is good"}'
    experts = {"image-to-text/first": RuntimeError("it broke")}
    agent, _, _ = small_agent(experts=experts, models=["first", "second"], select=choice)
    with collect_runs() as collected:
        agent.invoke("Describe a.jpg")
    (root,) = collected.traced_runs
    assert root.name == "JarvisAgent"
    below = {run.name: run for run in root.child_runs}
    assert [name for name in below if name in ("plan", "select", "image-to-text", "respond")] == list(below)
    assert below.keys() == {"plan", "select", "image-to-text", "respond"}
    task = below["image-to-text"]
    assert task.run_type == "tool"
    assert [(run.name, bool(run.error)) for run in task.child_runs] == [
        ("image-to-text/first", True),
        ("image-to-text/second", False),
    ]
    for name in ("plan", "select", "respond"):
        kinds = [run.run_type for run in _leaves(below[name])]
        assert kinds == ["prompt", "llm", "parser"], name


def _leaves(run: Any) -> Iterator[Any]:
    if not run.child_runs:
        yield run
    for child in run.child_runs:
        yield from _leaves(child)


async def test_another_langchain_tool_is_reported_once() -> None:
    @tool
    def weather(place: str) -> str:
        """The weather at a place."""
        return f"sunny in {place}"

    agent, _, _ = small_agent(plan(("weather", [], {"place": "Oslo"})), tools=[weather])
    reported = _tools(await _events(agent, "How is Oslo?"))
    assert reported == [("on_tool_start", "weather"), ("on_tool_end", "weather")]


async def test_a_cancelled_task_is_reported_as_an_error() -> None:
    never, entered, _ = endless_expert()
    handler = Handler()
    agent, _, _ = small_agent(DESCRIBE_ALOUD, {"image-to-text": never})
    running = asyncio.create_task(agent.ainvoke(REQUEST, {"callbacks": [handler]}))
    assert await asyncio.to_thread(entered.wait, 60)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert handler.seen == ["image-to-text", "CancelledError"]


def test_opentelemetry_gets_one_trace_through_the_exporter_of_langsmith() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from langchain_core.tracers import LangChainTracer
    from langsmith import Client
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    kept, provider = memory.InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    client = Client(api_key="none", tracing_mode="otel", otel_tracer_provider=provider)
    agent, _, _ = small_agent(DESCRIBE_ALOUD)
    agent.invoke(REQUEST, {"callbacks": [LangChainTracer(client=client)]})
    client.flush()
    spans = {span.name: span for span in kept.get_finished_spans()}
    tasks = {"image-to-text", "text-to-speech"}
    assert {"JarvisAgent", "plan", "respond", *tasks, *(f"{task}/only" for task in tasks)} <= spans.keys()
    root = spans["JarvisAgent"]
    assert {span.context.trace_id for span in spans.values()} == {root.context.trace_id}
    attempt = spans["image-to-text/only"]
    assert attempt.parent.span_id == spans["image-to-text"].context.span_id
    assert attempt.attributes["gen_ai.request.model"] == "image-to-text/only"
    assert CAPTION in attempt.attributes["gen_ai.completion"]
