"""The check of a plan against its request: what is left out is asked for once, and then added."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool

from jarvis_agent import Plan, planning_chain
from jarvis_agent.core.errors import LLMError
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.evaluation.requests import read_requests
from jarvis_agent.planning.chain import PlanOutputParser
from jarvis_agent.planning.inputs import PlanRequest
from jarvis_agent.planning.offline import OfflinePlanner
from jarvis_agent.planning.parser import find_gaps
from jarvis_agent.testing import ScriptedLLM

pytestmark = pytest.mark.starter


def task(name: str, id_: int, *dep: int, **args: Any) -> dict[str, Any]:
    return {"task": name, "id": id_, "dep": list(dep or (-1,)), "args": args}


LOOK = task("image-to-text", 0, image="a.jpg")
CANNY = task("canny-control", 1, image="a.jpg")
HEAR = task("automatic-speech-recognition", 0, audio="speech.wav")
BOTH = "Describe a.jpg. Also make a canny edge image of it."


def planned(
    request: str, plan: list[Any], repair: Any = (), tools: Any = None, **value: Any
) -> tuple[Plan, ScriptedLLM]:
    llm = ScriptedLLM(
        {"plan": json.dumps(plan), "repair": repair if callable(repair) else json.dumps(repair)}
    )
    chain = planning_chain(llm, tools=tools, hints=OfflinePlanner())
    return chain.invoke({"input": request, **value}), llm


def calls(plan: Plan) -> list[tuple[str, dict[str, Any]]]:
    return [(each.task, each.args) for each in plan.tasks]


def test_a_file_that_is_left_out_is_sent_back_and_its_repair_is_added() -> None:
    first, repair = task("object-detection", 0, image="a.jpg"), task("object-detection", 1, image="b.jpg")
    llm = ScriptedLLM({"plan": json.dumps([first]), "repair": json.dumps([repair])})
    plan = planning_chain(llm).invoke("Find the dogs in a.jpg and b.jpg")
    assert calls(plan) == [(each["task"], each["args"]) for each in (first, repair)]
    assert plan.notes == []
    assert llm.stages() == ["plan", "repair"]
    assert '"b.jpg"' in llm.calls[1].prompt
    assert "no task uses this image" in llm.calls[1].prompt


def test_a_text_that_is_the_name_of_a_recording_is_sent_back_before_its_task_starts() -> None:
    wrong = task("text-to-speech", 0, text="speech.wav")
    plan, llm = planned("Transcribe speech.wav.", [wrong], [HEAR])
    assert calls(plan) == [("automatic-speech-recognition", {"audio": "speech.wav"})]
    assert "is only the name of the audio" in llm.calls[1].prompt
    with pytest.raises(LLMError, match="only the name of the audio"):
        planned("Transcribe speech.wav.", [wrong], [wrong])
    plan, _ = planned("Transcribe speech.wav and describe a.jpg", [wrong, {**LOOK, "id": 1}], [])
    assert calls(plan) == [(LOOK["task"], LOOK["args"])]
    assert "“speech.wav” is not planned" in plan.notes
    chat = [HumanMessage("Draw a zoo"), AIMessage("It is in /out/zoo.png.")]
    named = task("text-generation", 0, text="report.txt")
    assert len(planned("Rewrite report.txt", [named], chat_history=chat)[0]) == 1


def test_conversation_and_vague_requests_are_left_alone() -> None:
    for request, tasks in {"Hello, how are you?": [], "What about a.jpg?": [LOOK], BOTH: []}.items():
        plan, llm = planned(request, tasks)
        assert calls(plan) == [(each["task"], each["args"]) for each in tasks]
        assert (llm.stages(), plan.notes) == (["plan"], [])


def test_tools_of_the_user_are_never_added_and_may_do_any_step() -> None:
    ran = []

    @tool
    def send_email(to: str, text: str) -> str:
        """Send an email to somebody."""
        ran.append(to)
        return "sent"

    @tool
    def look_at(image: str) -> str:
        """Tell what is in a picture."""
        return image

    tools = [send_email, look_at, "text-to-speech"]
    request = "Describe a.jpg and email it to bob@example.org"
    plan, _ = planned(request, [task("look_at", 0, image="a.jpg")], tools=tools)
    assert [each.task for each in plan.tasks] == ["look_at"]
    whole = [task("look_at", 0, image="a.jpg"), task("send_email", 1, 0, to="bob", text="<resource>-0")]
    plan, llm = planned(request, whole, tools=tools)
    assert ([each.task for each in plan.tasks], llm.stages()) == (["look_at", "send_email"], ["plan"])
    assert ran == []


def test_good_plans_are_left_alone() -> None:
    """The plans written by hand for the project's own requests: next to no findings, and no change."""
    found, asked = [], read_requests("all")
    for one in asked:
        request = PlanRequest.of(one.inputs)
        plan = PlanOutputParser(specs=TASKS, needed=request.files).parse(Plan(tasks=one.plan).to_json())
        found += [(one.request, plan.notes)] if find_gaps(request.files, one.plan) else []
        assert len(plan.tasks) == len(one.plan)
    assert len(found) <= 0.02 * len(asked), found
