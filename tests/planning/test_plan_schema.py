"""The schema holds a plan to what can be meant: tasks, arguments, files, earlier tasks."""

import json

import pytest

from jarvis_agent.core.context import ChatTurn, RunContext
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import Arg, TaskSpec
from jarvis_agent.core.types import Resource
from jarvis_agent.planning.schema import files_by_kind, plan_schema


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


def forms_of(schema):
    forms = schema["properties"]["tasks"]["items"]["anyOf"]
    return {name: form["properties"] for form in forms for name in form["properties"]["task"]["enum"]}


def test_with_files_an_argument_is_one_of_its_kind_or_what_an_earlier_task_made():
    schema = plan_schema(TASKS, {"image": ["a.jpg"], "audio": ["b.wav"]})
    image = schema["$defs"]["image"]["enum"]
    assert image[:3] == ["a.jpg", "<resource>-0", "<resource>-1"]
    assert "b.wav" not in image
    look = forms_of(schema)["object-detection"]["args"]["properties"]
    assert look == {"image": {"$ref": "#/$defs/image"}}
    assert forms_of(schema)["image-to-image"]["args"]["properties"]["mask"]["anyOf"][1] == {"type": "null"}


def test_without_files_only_what_tasks_make_can_stand_for_one():
    schema = plan_schema(TASKS, {})
    assert all(value.startswith("<resource>-") for value in schema["$defs"]["video"]["enum"])


def test_texts_stay_free():
    schema = plan_schema(TASKS, {"image": ["a.jpg"]})
    assert forms_of(schema)["text-to-speech"]["args"]["properties"] == {"text": {"type": "string"}}


def test_ids_are_as_many_as_the_files_may_need():
    few, many = plan_schema(TASKS, {}), plan_schema(TASKS, {"image": [f"{n}.jpg" for n in range(10)]})
    assert few["$defs"]["id"]["enum"] == list(range(16))
    assert many["$defs"]["dep"]["enum"] == list(range(-1, 40))


def test_the_files_are_those_of_the_request_and_of_the_chat_as_plans_name_them():
    made = Resource(kind="image", path="/out/zoo.png", name="text-to-image")
    said = Resource(kind="text", text="a zoo")
    given = Resource(kind="image", path="/home/a.jpg", name="a.jpg")
    files = files_by_kind(RunContext("x", (given,), (ChatTurn("Draw a zoo", "Here", (made, said)),)))
    assert files["image"] == ["a.jpg", "/out/zoo.png"]
    assert not any(names for kind, names in files.items() if kind != "image")


def test_the_schema_is_within_the_limits_of_strict_structured_output():
    schema = plan_schema(TASKS, {"image": [f"picture-{n}.jpg" for n in range(12)]})
    text = json.dumps(schema)
    values = [value for value in enums(schema) if isinstance(value, str)]
    assert len(list(enums(schema))) <= 1000
    assert sum(map(len, values)) <= 120_000
    assert not {"pattern", "minItems", "oneOf", "allOf", "format", "default"} & set(text.split('"'))


def enums(part):
    if isinstance(part, dict):
        yield from part.get("enum", ())
    for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from enums(each)
