"""A saved plan runs on other files without a language model."""

import itertools
import json
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import jarvis
from small_agents import CAPTION, DESCRIBE, picture, plan, small_agent

from jarvis_agent import JarvisAgent, Plan, Run
from jarvis_agent.core.errors import InputError
from jarvis_agent.interfaces.cli import app as cli

pytestmark = pytest.mark.usefixtures("home")

READ_ALOUD = plan(
    ("image-to-text", [], {"image": "a.jpg"}),
    ("text-to-speech", [0], {"text": "<resource>-0 and b.jpg"}),
    ("object-detection", [], {"image": "a.jpg"}),
    ("translation", [], {"text": "notes.txt", "tgt_lang": "fr"}),
)


def test_a_plan_names_its_inputs_and_takes_others() -> None:
    saved = Plan.parse(READ_ALOUD)
    assert saved.inputs == ["a.jpg", "notes.txt"]
    other = saved.with_inputs(["b.png", "https://example.org/c.txt"])
    assert other.inputs == ["b.png", "https://example.org/c.txt"]
    assert [task.args for task in other.tasks] == [
        {"image": "b.png"},
        {"text": "<resource>-0 and b.jpg"},
        {"image": "b.png"},
        {"text": "https://example.org/c.txt", "tgt_lang": "fr"},
    ]
    assert saved.with_inputs({"notes.txt": "n.txt"}).inputs == ["a.jpg", "n.txt"]
    assert Plan.parse(DESCRIBE).with_inputs(Path("b.png")).inputs == ["b.png"]
    with pytest.raises(InputError, match=r"the inputs a\.jpg, notes\.txt: give one file for each, not 1"):
        saved.with_inputs(["b.png"])
    with pytest.raises(InputError, match=r"'x\.jpg' is no input of the plan; these are: a\.jpg, notes\.txt"):
        saved.with_inputs({"x.jpg": "b.png"})


def test_a_result_that_another_task_needs_is_no_input_of_a_plan() -> None:
    chained = Plan.parse(
        plan(("canny-control", [], {"image": "a.jpg"}), ("image-to-text", [0], {"image": "<resource>-0"}))
    )
    assert chained.inputs == ["a.jpg"]
    assert [task.args["image"] for task in chained.with_inputs("b.png").tasks] == ["b.png", "<resource>-0"]


@pytest.mark.parametrize(
    "form", [Plan.model_dump_json, Plan.to_json, lambda made: Run(plan=made).model_dump_json()]
)
def test_a_plan_is_read_from_what_was_printed(form: Callable[[Plan], str]) -> None:
    saved = Plan.parse(READ_ALOUD)
    assert Plan.load(form(saved)).tasks == saved.tasks
    twice = json.dumps([task.model_dump() for task in saved.tasks] * 2)
    broken = ("no plan", "{}", '[{"task": "translation"}]', "3", '{"plan": 3}', '{"plan": "tasks"}')
    for text in (*broken, "[" * 100_000, twice):
        with pytest.raises(InputError, match="this plan cannot be read"):
            Plan.load(text)


def test_a_saved_plan_runs_on_other_files_without_a_language_model() -> None:
    agent, llm, backend = small_agent(models=["a", "b"])
    Path("notes.txt").write_text("good day")
    picture(Path("other.jpg"))
    with agent:
        saved = Plan.parse(READ_ALOUD).with_inputs(["other.jpg", "notes.txt"])
        run = agent.invoke(saved)
        *_, streamed = itertools.accumulate(agent.stream(saved), operator.add)
    assert [result.error for result in run.results] == [None] * 4
    images = {call.inputs["image"].path.name for call in backend.calls if "image" in call.inputs}
    assert images == {"other.jpg"}
    assert (llm.calls, run.usage) == ([], {})
    assert (streamed.plan, len(streamed.results)) == (run.plan, 4)
    for made in (run, streamed):
        assert CAPTION in made.answer


@pytest.mark.parametrize("below", [[], "uploads", Path("uploads")])
def test_only_the_files_of_the_run_are_read(below: Any) -> None:
    agent, _, backend = small_agent()
    with (
        agent.copy(restricted_to=below) as safe,
        pytest.raises(InputError, match="files of this machine are not read"),
    ):
        safe.invoke(Plan.parse(READ_ALOUD))
    assert backend.calls == []


def test_the_command_runs_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, _, backend = small_agent(plan(("image-to-text", [], {"image": "a.jpg"})))
    made: list[Any] = []

    def make(model: str | None, *_: Any) -> JarvisAgent:
        made.append(model)
        return agent

    monkeypatch.setattr(cli, "_agent", make)
    picture(Path("other.jpg"))
    Path("plan.json").write_text(agent.plan("What is in a.jpg?").model_dump_json())
    Path("pictures").mkdir()
    picture(Path("pictures", "one.jpg"))
    for given, image in [("other.jpg",) * 2, ("pictures", "pictures/one.jpg"), ("o*.jpg", "other.jpg")]:
        result = jarvis("run", "plan.json", "--file", given, "--json")
        assert result.exit_code == 0
        assert json.loads(result.stdout)["plan"]["tasks"][0]["args"] == {"image": image}
    assert ({*made}, backend.calls[0].inputs["image"].path.name) == ({"none"}, "other.jpg")
    for args in (["no.json"], ["plan.json", "--file", "a", "--file", "b"], ["other.jpg"]):
        assert jarvis("run", *args).exit_code == 2
