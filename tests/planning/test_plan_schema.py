"""The JSON schema: one for all requests, with the names of tasks and the types of arguments."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import Arg, TaskSpec
from jarvis_agent.planning.messages import plan_schema


def accepts(schema: Any, *tasks: dict[str, Any]) -> bool:
    return Draft202012Validator(schema).is_valid({"tasks": list(tasks)})


def task(name: str, **args: Any) -> dict[str, Any]:
    return {"task": name, "id": 0, "dep": [-1], "args": args}


def test_it_has_the_names_of_tasks_and_the_types_of_arguments() -> None:
    schema = plan_schema(TASKS)
    Draft202012Validator.check_schema(schema)
    assert accepts(schema, task("image-to-text", image="any name.jpg"))
    assert accepts(schema, task("zero-shot-classification", text="x", labels=["a", "b"]))
    assert accepts(schema, *(task("resize-image", image="a.jpg", width=width) for width in (9, "9")))
    assert accepts(
        schema, *(task("crop-image", image="a.jpg", box=b) for b in ([1, 2, 3, 4], "<resource>-0"))
    )
    assert accepts(
        schema, *(task("visual-document-retrieval", text="x", image=i) for i in ("a.jpg", ["a.jpg"]))
    )
    assert not accepts(schema, task("fly"))
    assert not accepts(schema, task("image-to-text", image=7))
    assert not accepts(schema, task("zero-shot-classification", text="x", labels="a, b"))
    assert not accepts(schema, task("image-to-text", picture="a.jpg"))
    assert not accepts(schema, {"task": "image-to-text"})


def test_every_built_in_argument_has_a_type() -> None:
    properties = plan_schema(TASKS)["properties"]["tasks"]["items"]["properties"]["args"]["properties"]
    assert properties.keys() == {arg.name for spec in TASKS.values() for arg in spec.inputs}
    assert all(properties.values())


@pytest.mark.parametrize("inputs", [(), (Arg("city", "any"),)])
def test_a_tool_with_arguments_of_any_kind_opens_the_schema(inputs: Any) -> None:
    specs = {"image-to-text": TASKS["image-to-text"], "t": TaskSpec("t", "tool", "", inputs, ())}
    assert accepts(plan_schema(specs), task("t", city={"name": "Oslo"}))
    assert accepts(plan_schema(specs), task("t", country="Norway")) is not inputs


def test_a_task_may_have_a_purpose() -> None:
    with_purpose = {**task("image-to-text", image="a.jpg"), "purpose": "chest X-rays"}
    assert accepts(plan_schema(TASKS), with_purpose, task("image-to-text", image="a.jpg"))


def test_without_tasks_only_the_empty_plan_is_allowed() -> None:
    assert accepts(plan_schema({}))
    assert not accepts(plan_schema({}), task("image-to-text", image="a.jpg"))
