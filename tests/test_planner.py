"""The language model's plan starts while it is being written, is mended once, and survives its failures."""

import asyncio
import json

import pytest

from jarvis_agent.errors import LLMError
from jarvis_agent.llm import Controller
from jarvis_agent.planner import LLMPlanner, plan_schema
from jarvis_agent.prompting import load_prompts
from jarvis_agent.request import Brief, Turn
from jarvis_agent.settings import Settings
from jarvis_agent.testing import ScriptedLLM
from jarvis_agent.tools.spec import Arg, TaskSpec
from jarvis_agent.tools.table import TASKS
from jarvis_agent.types import Resource

LOOK = '{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "a.jpg"}}'
SPEAK = '{"task": "text-to-speech", "id": 1, "dep": [0], "args": {"text": "<resource>-0"}}'
NOISE = '{"task": "make-noise", "id": 0, "dep": [-1], "args": {"loud": true}}'
BRIEF = Brief("Read a.jpg aloud", specs=TASKS)


class Planning:
    """A planner with a scripted model, and the tasks that it gave out."""

    def __init__(self, replies, **fields):
        settings = Settings(**fields)
        self.llm = ScriptedLLM(replies)
        self.planner = LLMPlanner(Controller(self.llm, settings), settings, load_prompts("default"))
        self.given_out = []

    async def plan(self, brief=BRIEF):
        return await self.planner.plan(brief, self.given_out.append)


async def test_a_plan_is_planned():
    planning = Planning({"plan": f"[{LOOK}, {SPEAK}]"})
    plan = await planning.plan()
    assert [(task.task, task.dep) for task in plan.tasks] == [
        ("image-to-text", [-1]),
        ("text-to-speech", [0]),
    ]
    assert planning.given_out == plan.tasks
    assert plan.notes == []
    assert planning.llm.stages() == ["plan"]


async def test_tasks_are_given_out_before_the_plan_is_complete():
    planning, given_out = Planning({"plan": (f"[{LOOK}, ", 60.0, f"{SPEAK}]")}), asyncio.Queue()
    running = asyncio.create_task(planning.planner.plan(BRIEF, given_out.put_nowait))
    assert (await given_out.get()).task == "image-to-text"
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_the_prompt_shows_tasks_request_files_and_earlier_turns():
    planning = Planning({"plan": "[]"})
    turn = Turn("Draw a zoo", "Here it is.", (Resource(kind="image", path="/out/zoo.png"),))
    await planning.plan(Brief("What is in it?", (Resource(kind="image", name="b.jpg"),), (turn,), TASKS))
    prompt = planning.llm.calls[0].prompt
    for part in ("What is in it?", "b.jpg", "Draw a zoo", "/out/zoo.png", "openpose-text-to-image"):
        assert part in prompt


async def test_what_is_broken_goes_back_once_with_its_error_and_nothing_else():
    planning = Planning({"plan": f"[{NOISE}, {SPEAK}]", "repair": "[]"})
    await planning.plan()
    assert planning.llm.stages() == ["plan", "repair"]
    prompt = planning.llm.calls[1].prompt
    assert "make-noise" in prompt
    assert "is not one of the tasks that can be used" in prompt
    assert BRIEF.request not in prompt
    assert SPEAK not in prompt


async def test_what_waits_for_a_broken_task_is_given_out_when_it_is_mended():
    planning = Planning({"plan": f"[{NOISE}, {SPEAK}]", "repair": LOOK})
    plan = await planning.plan()
    assert [(task.id, task.task) for task in planning.given_out] == [
        (0, "image-to-text"),
        (1, "text-to-speech"),
    ]
    assert planning.given_out == plan.tasks
    assert plan.notes == ["task 0 (image-to-text): it was mended by its planner"]


async def test_what_is_broken_still_is_left_out_with_what_needs_it():
    planning = Planning({"plan": f"[{NOISE}, {SPEAK}]", "repair": f"[{NOISE}]"})
    plan = await planning.plan()
    assert plan.tasks == planning.given_out == []
    assert planning.llm.stages() == ["plan", "repair"]
    assert [note.split(":")[0] for note in plan.notes] == [
        "task 0",
        "task 0 was left out",
        "task 1 (text-to-speech) was left out",
    ]


@pytest.mark.parametrize(("rounds", "stages"), [(0, ["plan"]), (3, ["plan", "repair", "repair", "repair"])])
async def test_the_settings_say_how_often_a_plan_is_mended(rounds, stages):
    planning = Planning({"plan": f"[{NOISE}]", "repair": f"[{NOISE}]"}, repair_rounds=rounds)
    await planning.plan()
    assert planning.llm.stages() == stages


async def test_an_empty_plan_is_not_mended():
    planning = Planning({"plan": "[]"})
    assert (await planning.plan()).tasks == []
    assert planning.llm.stages() == ["plan"]


async def test_words_instead_of_a_plan_go_back_once():
    planning = Planning({"plan": "I would look at a.jpg first.", "repair": f"[{LOOK}]"})
    plan = await planning.plan()
    assert [task.id for task in plan.tasks] == [0]
    assert "I would look at a.jpg first." in planning.llm.calls[1].prompt


async def test_words_again_are_an_empty_plan_with_a_note():
    planning = Planning({"plan": "Hello!", "repair": "Hello again!"})
    plan = await planning.plan()
    assert plan.tasks == []
    assert plan.notes == ["no plan was found in: Hello!"]
    assert planning.llm.stages() == ["plan", "repair"]


async def test_a_failure_in_the_middle_keeps_what_was_planned():
    planning = Planning({"plan": (f"[{LOOK}, {SPEAK[:40]}", LLMError("the line went dead"))})
    plan = await planning.plan()
    assert [task.id for task in plan.tasks] == [0]
    assert planning.given_out == plan.tasks
    assert any("the line went dead" in note for note in plan.notes)
    assert any("task 1 was left out: the text ends in the middle of it" in note for note in plan.notes)
    assert planning.llm.stages() == ["plan"]


@pytest.mark.parametrize("begun", ["", "[", f"[{NOISE}", "Let me see"])
async def test_a_failure_before_the_first_task_is_raised(begun):
    planning = Planning({"plan": (begun, LLMError("the line went dead"))})
    with pytest.raises(LLMError, match="the line went dead"):
        await planning.plan()
    assert planning.given_out == []


async def test_a_failure_while_mending_keeps_the_rest():
    planning = Planning({"plan": f"[{NOISE}, {LOOK.replace('0', '1')}]", "repair": LLMError("too busy")})
    plan = await planning.plan()
    assert [task.id for task in plan.tasks] == [1]
    assert any("could not mend its plan: too busy" in note for note in plan.notes)


async def test_only_the_tasks_of_the_brief_may_be_used():
    planning = Planning({"plan": f"[{LOOK}, {SPEAK}]", "repair": "[]"})
    plan = await planning.plan(Brief("Read it", specs={"image-to-text": TASKS["image-to-text"]}))
    assert [task.task for task in plan.tasks] == ["image-to-text"]


class RecordingController:
    """Writes an empty plan and remembers what form was asked for."""

    async def stream(self, stage, messages, brief, *, schema=None, bias=()):
        self.asked = (stage, schema, list(bias))
        yield "[]"


@pytest.mark.parametrize(("bias", "words"), [(0.2, list(TASKS)), (None, [])])
async def test_the_model_is_given_the_schema_and_with_a_bias_the_names(bias, words):
    settings, controller = Settings(logit_bias=bias), RecordingController()
    await LLMPlanner(controller, settings, load_prompts("paper")).plan(BRIEF, lambda task: None)
    assert controller.asked == ("plan", plan_schema(TASKS), words)


def test_the_schema_names_the_tasks_and_their_arguments_and_is_closed():
    names = ("zero-shot-classification", "object-detection", "image-to-text", "depth-estimation")
    schema = plan_schema({name: TASKS[name] for name in names})
    sort, look, read = schema["properties"]["tasks"]["items"]["anyOf"]
    assert sort["properties"]["args"]["properties"] == {
        "text": {"type": "string"},
        "labels": {"type": "array", "items": {"type": "string"}},
    }
    assert look["properties"]["task"]["enum"] == ["object-detection", "depth-estimation"]
    assert look["properties"]["args"]["properties"] == {"image": {"type": "string"}}
    assert read["properties"]["args"]["properties"]["text"] == {
        "anyOf": [{"type": "string"}, {"type": "null"}]
    }
    for part in (schema, *(p for task in (sort, look, read) for p in (task, task["properties"]["args"]))):
        assert part["additionalProperties"] is False
        assert part["required"] == list(part["properties"])


def test_every_built_in_task_has_its_own_arguments_in_a_closed_schema():
    schema = plan_schema(TASKS)
    forms = schema["properties"]["tasks"]["items"]["anyOf"]
    args = {name: form["properties"]["args"] for form in forms for name in form["properties"]["task"]["enum"]}
    assert args.keys() == TASKS.keys()
    assert all(list(args[spec.name]["required"]) == [a.name for a in spec.inputs] for spec in TASKS.values())
    assert args["unconditional-image-generation"]["properties"] == {}
    assert args["visual-document-retrieval"]["properties"]["image"]["type"] == "array"
    assert {"type": "number"} in args["resize-image"]["properties"]["width"]["anyOf"]
    assert schema["additionalProperties"] is False


def test_the_schema_lets_no_list_of_dependencies_go_on_for_ever():
    forms = plan_schema(TASKS)["properties"]["tasks"]["items"]["anyOf"]
    assert all(form["properties"]["dep"]["maxItems"] == 8 for form in forms)


@pytest.mark.parametrize("inputs", [(), (Arg("city", "any"),)])
def test_a_tool_with_arguments_of_any_kind_opens_the_schema(inputs):
    schema = plan_schema(
        {"image-to-text": TASKS["image-to-text"], "t": TaskSpec("t", "tool", "", inputs, ())}
    )
    assert "additionalProperties" not in json.dumps(schema)
    forms = schema["properties"]["tasks"]["items"]["anyOf"]
    assert all(form["properties"]["args"]["required"] == [] for form in forms)


def test_without_tasks_there_is_no_schema():
    assert plan_schema({}) is None


async def test_a_reply_in_the_form_of_the_schema_is_a_plan():
    args = {"text": None, "image": "a.jpg", "labels": None, "sentences": None}
    reply = {"tasks": [{"task": "image-to-text", "id": 0, "dep": [], "args": args}]}
    plan = await Planning({"plan": json.dumps(reply)}).plan()
    assert [task.args for task in plan.tasks] == [{"image": "a.jpg"}]
    assert plan.notes == []
