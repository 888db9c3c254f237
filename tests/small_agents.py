"""A JarvisAgent with a scripted language model and fake experts.

agent, llm, backend = small_agent(plan(("image-to-text", [], {"image": "a.jpg"})))
agent.invoke("What is in a.jpg?").answer        # "A cat on a mat."
"""

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.decisions import BaseDecisionModel, ClassifierResponse
from langchain_core.messages import AIMessage
from PIL import Image

from jarvis_agent import JarvisAgent, Run, hf_tools
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

CAPTION = "a cat on a mat"
BOXES = [{"label": "cat", "score": 0.9, "box": {"xmin": 1, "ymin": 2, "xmax": 9, "ymax": 9}}]
EXPERTS: dict[str, Any] = {
    "image-to-text": CAPTION,
    "object-detection": BOXES,
    "text-to-speech": {"audio": np.zeros(1600, dtype=np.float32), "sampling_rate": 16_000},
    "automatic-speech-recognition": {"text": "hello there"},
    "translation": "une phrase",
}
Row = tuple[str, list[int], dict[str, Any]]


def plan(*rows: Row) -> str:
    """A plan as a language model writes it, from (task, deps, args), numbered from 0."""
    numbered = enumerate(rows)
    return json.dumps(
        [{"task": t, "id": n, "dep": deps or [-1], "args": args} for n, (t, deps, args) in numbered]
    )


DESCRIBE = plan(("image-to-text", [], {"image": "a.jpg"}))
DESCRIBE_ALOUD = plan(
    ("image-to-text", [], {"image": "a.jpg"}), ("text-to-speech", [0], {"text": "<resource>-0"})
)


def call_of(tool: str, **args: Any) -> AIMessage:
    """A message that calls a tool; the id of the call is the tool's name."""
    return AIMessage("", tool_calls=[{"name": tool, "args": args, "id": tool, "type": "tool_call"}])


def small_agent(
    plan: Any = DESCRIBE,
    experts: Mapping[str, Any] | None = None,
    *,
    respond: Any = "A cat on a mat.",
    select: Any = None,
    structure: Any = None,
    models: Iterable[str] = ("only",),
    pins: Mapping[str, str] | None = None,
    llm_name: str = "scripted",
    **options: Any,
) -> tuple[JarvisAgent, ScriptedLLM, FakeBackend]:
    """An agent with its language model and its backend.

    Args:
        plan, respond, select, structure: replies at these stages; to an empty plan it is "Hello!".
        experts: results by task, in addition to `EXPERTS`.
        models: names of the models of every task, the most downloaded first; their ids are "<task>/<name>".
        pins: the argument `models` of JarvisAgent.
        llm_name: the language model's name, which may state its size.
        options: its other arguments.
    """
    results = {**EXPERTS, **(experts or {})}
    names = list(models)
    source = FakeSource(
        fake_candidate(task, f"{task}/{name}", downloads=len(names) - place)
        for task in results
        for place, name in enumerate(names)
        if "/" not in task
    )
    replies = {"plan": plan, "respond": respond, "chat": "Hello!"} | ({"select": select} if select else {})
    replies |= {"structure": structure} if structure else {}
    llm = ScriptedLLM(replies, model_name=llm_name)
    backend = FakeBackend(results)
    given = {"sources": [source], "backends": [backend], "models": pins} | options
    return JarvisAgent(llm, **given), llm, backend


def small_run(request: Any, *args: Any, **options: Any) -> tuple[Run, ScriptedLLM, FakeBackend]:
    """A run of a small agent, which is closed then, with its language model and its backend."""
    agent, llm, backend = small_agent(*args, **options)
    with agent:
        return agent.invoke(request), llm, backend


class Judge(BaseDecisionModel):
    """A decision model that answers each question about a state by a function of both; None is no answer."""

    answer: Callable[[Any, Any], Any]

    @property
    def _provider(self) -> str:
        return "test"

    def _classify(self, state: Any, questions: Any) -> ClassifierResponse:
        answers = {name: self.answer(state, question) for name, question in questions.items()}
        given = {name: answer for name, answer in answers.items() if answer is not None}
        return ClassifierResponse(model=self.model, answers=given)


def picture(path: Path, color: str = "orange") -> Path:
    """Write a small image."""
    Image.new("RGB", (16, 12), color).save(path)
    return path


def block(path: str | Path, kind: str = "image", mime: str = "image/jpeg") -> dict[str, Any]:
    """A file as a content block of a message."""
    return {"type": kind, "base64": base64.b64encode(Path(path).read_bytes()).decode(), "mime_type": mime}


def hub_tools(*tasks: str, experts: Any = EXPERTS, **options: Any) -> list[Any]:
    """Tools for these tasks, with fake experts; `options` are other arguments of `hf_tools`."""
    backends = experts if isinstance(experts, list) else [FakeBackend(experts)]
    source = FakeSource(map(fake_candidate, tasks))
    return hf_tools(tasks=tasks, sources=[source], backends=backends, **options)
