"""The language model's plan starts while it is being written, is mended once, and survives its failures."""

import asyncio
import json

import pytest

from jarvis_agent.core.errors import LLMError
from jarvis_agent.core.request import ChatTurn, RunContext
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Resource
from jarvis_agent.llm.client import LLMClient
from jarvis_agent.llm.prompts import load_prompts
from jarvis_agent.planning.chain import LLMPlanner
from jarvis_agent.planning.example_selector import load_bank
from jarvis_agent.planning.schema import files_by_kind, plan_schema
from jarvis_agent.testing import ScriptedLLM

LOOK = '{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "a.jpg"}}'
SPEAK = '{"task": "text-to-speech", "id": 1, "dep": [0], "args": {"text": "<resource>-0"}}'
NOISE = '{"task": "make-noise", "id": 0, "dep": [-1], "args": {"loud": true}}'
BRIEF = RunContext("Read a.jpg aloud", specs=TASKS)


class Planning:
    """A planner with a scripted model, and the tasks that it gave out."""

    def __init__(self, replies, **fields):
        settings = Settings(**fields)
        self.llm = ScriptedLLM(replies)
        self.planner = LLMPlanner(LLMClient(self.llm, settings), settings, load_prompts("default"))
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
    planning = Planning({"plan": "[]"}, context_window=128_000)
    turn = ChatTurn("Draw a zoo", "Here it is.", (Resource(kind="image", path="/out/zoo.png"),))
    await planning.plan(RunContext("What is in it?", (Resource(kind="image", name="b.jpg"),), (turn,), TASKS))
    prompt = planning.llm.calls[0].prompt
    for part in ("What is in it?", "b.jpg", "Draw a zoo", "/out/zoo.png", "openpose-text-to-image"):
        assert part in prompt


async def test_what_is_broken_goes_back_once_with_its_error_and_nothing_else():
    planning = Planning({"plan": f"[{NOISE}, {SPEAK}]", "repair": f"[{LOOK}]"})
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
    depth = '{"task": "depth-estimation", "id": 2, "dep": [-1], "args": {"image": "a.jpg"}}'
    planning = Planning({"plan": f"[{NOISE}, {SPEAK}, {depth}]", "repair": f"[{NOISE}]"})
    plan = await planning.plan()
    assert plan.tasks == planning.given_out
    assert [task.task for task in plan.tasks] == ["depth-estimation"]
    assert planning.llm.stages() == ["plan", "repair"]
    assert [note.split(":")[0] for note in plan.notes] == [
        "task 0",
        "task 0 was left out",
        "task 1 (text-to-speech) was left out",
    ]


@pytest.mark.parametrize("written", [f"[{NOISE}, {SPEAK}]", "Hello!", '{"tasks": [7]}'])
async def test_where_nothing_that_was_written_can_be_used_planning_has_failed(written):
    planning = Planning({"plan": written, "repair": written})
    with pytest.raises(LLMError, match=r"it wrote nothing that can be used: .*Use a larger model"):
        await planning.plan()
    assert planning.given_out == []
    assert planning.llm.stages() == ["plan", "repair"]


async def test_a_broken_plan_is_repaired_once():
    other = LOOK.replace("0", "1")
    planning = Planning({"plan": f"[{NOISE}, {other}]", "repair": f"[{NOISE}]"})
    await planning.plan()
    assert planning.llm.stages() == ["plan", "repair"]


async def test_an_empty_plan_is_not_mended():
    planning = Planning({"plan": "[]"})
    assert (await planning.plan()).tasks == []
    assert planning.llm.stages() == ["plan"]


async def test_words_instead_of_a_plan_go_back_once():
    planning = Planning({"plan": "I would look at a.jpg first.", "repair": f"[{LOOK}]"})
    plan = await planning.plan()
    assert [task.id for task in plan.tasks] == [0]
    assert "I would look at a.jpg first." in planning.llm.calls[1].prompt


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
    plan = await planning.plan(RunContext("Read it", specs={"image-to-text": TASKS["image-to-text"]}))
    assert [task.task for task in plan.tasks] == ["image-to-text"]


class RecordingController:
    """Writes an empty plan and remembers what form was asked for."""

    model = ScriptedLLM("")
    asks_schema = True

    async def stream(self, stage, messages, brief, *, schema=None, bias=()):
        self.asked, self.messages = (stage, schema, list(bias)), messages
        yield "[]"


@pytest.mark.parametrize(("bias", "words"), [(0.2, list(TASKS)), (None, [])])
async def test_the_model_is_given_the_schema_and_with_a_bias_the_names(bias, words):
    settings, controller = Settings(logit_bias=bias, context_window=128_000), RecordingController()
    await LLMPlanner(controller, settings, load_prompts("paper")).plan(BRIEF, lambda task: None)
    assert controller.asked == ("plan", plan_schema(TASKS, files_by_kind(BRIEF)), words)


async def test_a_reply_in_the_form_of_the_schema_is_a_plan():
    args = {"text": None, "image": "a.jpg", "labels": None, "sentences": None}
    reply = {"tasks": [{"task": "image-to-text", "id": 0, "dep": [], "args": args}]}
    plan = await Planning({"plan": json.dumps(reply)}).plan()
    assert [task.args for task in plan.tasks] == [{"image": "a.jpg"}]
    assert plan.notes == []


async def test_a_model_of_a_short_context_is_shown_the_likely_tasks_and_those_that_are_named():
    planning = Planning({"plan": "[]"})
    await planning.plan(RunContext("Read a.jpg aloud, then do a tabular regression", specs=TASKS))
    rules = str(planning.llm.calls[0].messages[0].text)
    assert "- text-to-speech(" in rules
    assert "- tabular-regression(" in rules
    assert "- openpose-text-to-image(" not in rules


async def test_a_model_of_a_long_context_is_shown_all_tasks():
    planning = Planning({"plan": "[]"}, context_window=128_000)
    await planning.plan()
    rules = str(planning.llm.calls[0].messages[0].text)
    assert all(f"- {name}(" in rules for name in TASKS)


async def test_a_task_that_was_not_shown_may_still_be_planned():
    depth = '{"task": "mlsd-control", "id": 0, "dep": [-1], "args": {"image": "a.jpg"}}'
    plan = await Planning({"plan": f"[{depth}]"}).plan()
    assert [task.task for task in plan.tasks] == ["mlsd-control"]


async def test_the_nearest_worked_examples_are_shown():
    planning = Planning({"plan": "[]"})
    await planning.plan(RunContext("Describe a.jpg and read that to me", specs=TASKS))
    assert "read the description to me" in planning.llm.calls[0].prompt


async def test_the_papers_prompts_keep_the_papers_examples():
    llm, settings = ScriptedLLM({"plan": "[]"}), Settings(prompts="paper")
    planner = LLMPlanner(LLMClient(llm, settings), settings, load_prompts("paper"))
    await planner.plan(BRIEF, lambda task: None)
    assert "pose-text-to-image" in llm.calls[0].prompt


async def small_plan(**fields):
    settings, controller = Settings(prompts="small", **fields), RecordingController()
    await LLMPlanner(controller, settings, load_prompts("small")).plan(BRIEF, lambda task: None)
    return controller


async def test_the_small_prompts_allow_the_tasks_of_the_examples_alone():
    controller = await small_plan()
    shown = [json.loads(message.text)["tasks"] for message in controller.messages if message.type == "ai"]
    forms = controller.asked[1]["properties"]["tasks"]["items"]["anyOf"]
    names = {name for form in forms for name in form["properties"]["task"]["enum"]}
    assert names <= {task["task"] for plan in shown for task in plan}
    assert "text-to-speech" in names
    assert not load_prompts("small").lists_tasks
    assert load_prompts("paper").lists_tasks


async def test_the_small_prompts_show_three_examples():
    controller = await small_plan()
    assert sum(message.type == "ai" for message in controller.messages) == 3


@pytest.mark.parametrize(("by_schema", "form"), [(True, dict), (False, list)])
async def test_examples_have_the_form_in_which_the_model_has_to_write(by_schema, form):
    messages = load_prompts("small").plan_messages(BRIEF, load_bank()[:2], by_schema)
    shown = [json.loads(message.text) for message in messages if message.type == "ai"]
    assert [type(each) for each in shown] == [form, form]


async def test_the_small_prompts_ask_for_mended_tasks_in_few_words():
    messages = load_prompts("small").repair_messages([({"task": "x"}, "there is no x")], TASKS)
    assert "there is no x" in messages[-1].text
    assert sum(len(message.text) for message in messages) < 400
