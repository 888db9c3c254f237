"""The API of microsoft/JARVIS: the calls of its web page and of its README."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import ANSWER, BASE, Served, agent_of, plan_for, serving

IMAGES = re.compile(r"(?:https?:|/)[/|.\S:-]*?\.(?:jpg|jpeg|tiff|gif|png)")
"""What the page shows as images, after its own pattern."""


def shown(message: str) -> list[str]:
    return [url for url in IMAGES.findall(message) if url.startswith("/outputs/")]


def post(served: Served, route: str, content: str, **more: Any) -> httpx.Response:
    body = {"model": "gpt-3.5-turbo", "messages": [{"role": "user", "content": content}], **more}
    return served.client.post(route, json=body)


def test_the_page_gets_an_answer_and_shows_its_image(served: Served) -> None:
    name = served.uploaded_cat()
    reply = post(served, "/hugginggpt", f"What animal is in {name}?").json()
    assert reply.keys() == {"message"}
    assert reply["message"].startswith(ANSWER)
    (url,) = shown(reply["message"])
    assert served.get(url).content.startswith(b"\x89PNG")


def test_the_page_also_shows_files_that_the_answer_does_not_name(served: Served) -> None:
    caption, outline = json.loads(plan_for(name := served.uploaded_cat()))
    caption["args"]["image"] = "<resource>-0"
    served.script["plan"] = json.dumps([outline | {"id": 0}, caption | {"id": 1, "dep": [0]}])
    reply = post(served, "/hugginggpt", f"What animal is in the outline of {name}?").json()
    (url,) = shown(reply["message"])
    assert served.get(url).content.startswith(b"\x89PNG")


def test_an_earlier_image_is_named_by_its_url(served: Served) -> None:
    message = post(served, "/hugginggpt", f"Describe {served.uploaded_cat()}").json()["message"]
    (url,) = shown(message)
    (made,) = served.runs.rglob(Path(url).name)
    served.script["plan"] = plan_for(str(made))
    for place in (url, BASE + url):
        messages = [
            {"role": "assistant", "content": "Hello!"},
            {"role": "user", "content": "Describe it"},
            {"role": "assistant", "content": message},
            {"role": "user", "content": f"What is in {place}?"},
        ]
        served.client.post("/hugginggpt", json={"messages": messages})
        assert served.backend.calls[-1].inputs["image"].path == made
    assert "Describe it" in served.llm.calls[-1].prompt


def test_tasks_are_planned_in_the_papers_format_and_not_run(served: Served) -> None:
    name = served.uploaded_cat()
    planned = post(served, "/tasks", f"What animal is in {name}?").json()
    assert planned == json.loads(plan_for(name))
    assert not served.backend.calls


def test_results_name_the_model_and_what_was_made(tmp_path: Path) -> None:
    script = {"plan": "[]"}
    boxes = [{"label": "cat", "score": 0.9, "box": {"xmin": 1, "ymin": 1, "xmax": 9, "ymax": 9}}]
    results = {"image-to-text": OSError("disk"), "object-detection": boxes}
    with serving(agent_of(tmp_path, script, results), script) as served:
        name = served.upload().json()["name"]
        tasks = [
            {"task": task, "id": number, "dep": [-1], "args": {"image": name}}
            for number, task in enumerate(results)
        ]
        script["plan"] = json.dumps(tasks)
        reply = post(served, "/results", f"What is in {name}?").json()
    assert {key: value["task"] for key, value in reply.items()} == {"0": tasks[0], "1": tasks[1]}
    assert "message" in reply["0"]["inference result"]["error"]
    found = reply["1"]["inference result"]
    assert found["generated image"].startswith("/outputs/")
    assert found["predicted"][0]["label"] == "cat"
    assert reply["1"]["choose model result"]["id"] == "fake/object-detection"
    assert reply["1"]["choose model result"]["reason"]


@pytest.mark.parametrize("route", ["/hugginggpt", "/tasks", "/results"])
def test_a_request_without_tasks_is_answered(served: Served, route: str) -> None:
    assert post(served, route, "Good morning!").json() == {"message": "Good morning."}


def test_keys_in_the_body_are_neither_used_nor_shown(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    keys = {"api_key": "sk-theirs", "api_type": "openai", "api_endpoint": "http://evil.example"}
    reply = post(served, "/hugginggpt", "Good morning!", **keys)
    assert reply.json() == {"message": "Good morning."}
    assert "sk-theirs" not in caplog.text + reply.text
    assert "evil.example" not in caplog.text


@pytest.mark.parametrize(
    "body",
    [{}, {"messages": []}, {"messages": [{"role": "user", "content": " "}]}, {"messages": [{"role": "x"}]}],
)
def test_a_malformed_request_is_refused(served: Served, body: Any) -> None:
    answer = served.client.post("/hugginggpt", json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"]
