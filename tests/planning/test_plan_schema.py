"""The JSON schema allows only available tasks, their arguments, given files and references."""

import json
from typing import Any

import pytest

from jarvis_agent.core.context import ChatTurn, RunContext
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import Arg, TaskSpec
from jarvis_agent.core.types import Resource
from jarvis_agent.planning.schema import files_by_kind, plan_schema


def test_the_schema_names_the_tasks_and_their_arguments_and_is_closed() -> None:
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


def test_every_built_in_task_has_its_own_arguments_in_a_closed_schema() -> None:
    schema = plan_schema(TASKS)
    forms = schema["properties"]["tasks"]["items"]["anyOf"]
    args = {name: form["properties"]["args"] for form in forms for name in form["properties"]["task"]["enum"]}
    assert args.keys() == TASKS.keys()
    assert all(list(args[spec.name]["required"]) == [a.name for a in spec.inputs] for spec in TASKS.values())
    assert args["unconditional-image-generation"]["properties"] == {}
    assert args["visual-document-retrieval"]["properties"]["image"]["type"] == "array"
    assert {"type": "number"} in args["resize-image"]["properties"]["width"]["anyOf"]
    assert schema["additionalProperties"] is False
    assert all(form["properties"]["dep"]["maxItems"] == 8 for form in forms)


@pytest.mark.parametrize("inputs", [(), (Arg("city", "any"),)])
def test_a_tool_with_arguments_of_any_kind_opens_the_schema(inputs: Any) -> None:
    schema = plan_schema(
        {"image-to-text": TASKS["image-to-text"], "t": TaskSpec("t", "tool", "", inputs, ())}
    )
    assert "additionalProperties" not in json.dumps(schema)
    forms = schema["properties"]["tasks"]["items"]["anyOf"]
    assert all(form["properties"]["args"]["required"] == [] for form in forms)


def test_a_task_may_have_a_purpose() -> None:
    schema = plan_schema(TASKS, has_purpose=True)
    for form in schema["properties"]["tasks"]["items"]["anyOf"]:
        assert {"type": "null"} in form["properties"]["purpose"]["anyOf"]
        assert form["required"] == ["task", "id", "dep", "args", "purpose"]


def forms_of(schema: Any) -> Any:
    forms = schema["properties"]["tasks"]["items"]["anyOf"]
    return {name: form["properties"] for form in forms for name in form["properties"]["task"]["enum"]}


def test_with_files_a_file_argument_is_a_file_of_its_kind_or_a_reference() -> None:
    schema = plan_schema(TASKS, {"image": ["a.jpg"], "audio": ["b.wav"]})
    image = schema["$defs"]["image"]["enum"]
    assert image[:3] == ["a.jpg", "<resource>-0", "<resource>-1"]
    assert "b.wav" not in image
    assert schema["$defs"]["file"]["enum"][:3] == ["a.jpg", "b.wav", "<resource>-0"]
    forms = forms_of(schema)
    assert forms["object-detection"]["args"]["properties"] == {"image": {"$ref": "#/$defs/image"}}
    assert forms["image-to-image"]["args"]["properties"]["mask"]["anyOf"][1] == {"type": "null"}
    assert forms["text-to-speech"]["args"]["properties"] == {"text": {"type": "string"}}


def test_without_files_a_file_argument_is_a_reference_and_the_number_of_ids_is_limited() -> None:
    few, many = plan_schema(TASKS, {}), plan_schema(TASKS, {"image": [f"{n}.jpg" for n in range(10)]})
    assert all(value.startswith("<resource>-") for value in few["$defs"]["video"]["enum"])
    assert few["$defs"]["id"]["enum"] == list(range(16))
    assert many["$defs"]["dep"]["enum"] == list(range(-1, 40))
    assert plan_schema({})["properties"]["tasks"]["maxItems"] == 0


def test_files_are_those_of_the_request_and_the_chat() -> None:
    made = Resource(kind="image", path="/out/zoo.png", name="text-to-image")
    said = Resource(kind="text", text="a zoo")
    read = Resource(kind="text", path="/home/b.pdf", name="b.pdf")
    given = Resource(kind="image", path="/home/a.jpg", name="a.jpg")
    files = files_by_kind(RunContext("x", (given, read), (ChatTurn("Draw a zoo", "Here", (made, said)),)))
    assert files["image"] == ["a.jpg", "/out/zoo.png"]
    assert files["text"] == ["b.pdf"]
    assert not any(names for kind, names in files.items() if kind not in ("image", "text"))


def test_the_schema_is_within_the_limits_of_strict_structured_output() -> None:
    schema = plan_schema(TASKS, {"image": [f"picture-{n}.jpg" for n in range(12)]}, has_purpose=True)
    values = [value for value in enums(schema) if isinstance(value, str)]
    assert len(list(enums(schema))) <= 1000
    assert sum(map(len, values)) <= 120_000
    assert not {"pattern", "minItems", "oneOf", "allOf", "format", "default"} & set(keywords(schema))


def keywords(part: Any) -> Any:
    for name, each in part.items() if isinstance(part, dict) else ():
        yield name
        named = isinstance(each, dict) and name in ("properties", "$defs")
        yield from (word for inner in (each.values() if named else [each]) for word in keywords(inner))
    for each in part if isinstance(part, list) else ():
        yield from keywords(each)


def enums(part: Any) -> Any:
    if isinstance(part, dict):
        yield from part.get("enum", ())
    for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from enums(each)
