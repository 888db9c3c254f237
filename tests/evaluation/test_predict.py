"""Requests are planned, written, and continued; failures are recorded and tried again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda

from jarvis_agent.core.errors import ConfigError, InputError, JarvisError, LLMError, MissingExtraError
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Task
from jarvis_agent.evaluation.predict import Prediction, named_files, predict, read_records
from jarvis_agent.planning.plan import Plan

REQUESTS = {
    str(n): {"input": f"Translate 'word {n}'", "files": (), "chat_history": (), "tools": TASKS}
    for n in range(3)
}


def predicted(
    out: Path | None, failing: str = "", error: JarvisError | None = None, name: str = "mine"
) -> tuple[dict[str, Prediction], list[str]]:
    """The predictions by id of a planner that fails at some requests, and the requests that it was asked."""
    asked: list[str] = []

    def plan(given: dict[str, Any]) -> Plan:
        asked.append(given["input"])
        if failing and failing in given["input"]:
            raise error or LLMError("it is down")
        return Plan(tasks=[Task(task="translation", id=0, args={"text": given["input"].split("'")[1]})])

    async def collect() -> dict[str, Prediction]:
        made = predict(REQUESTS, RunnableLambda(plan), name=name, out=out, concurrency=2)
        return {one.id: one async for one in made}

    return asyncio.run(collect()), asked


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


def test_predictions_are_written_in_our_form_and_taskbenchs(out: Path) -> None:
    found, asked = predicted(out)
    assert set(found) == set(REQUESTS)
    assert len(asked) == 3
    written = {record["id"]: record for record in read_records(out)}
    assert written["2"]["task_nodes"] == written["2"]["result"]["task_nodes"]
    assert written["2"]["task_nodes"] == [{"task": "translation", "arguments": ["word 2"]}]
    assert written["2"]["user_request"] == "Translate 'word 2'"
    assert written["2"]["plan"][0]["args"] == {"text": "word 2"}


@pytest.mark.parametrize(
    "cut", [lambda line: line[:20], lambda line: line[:20] + "译".encode()[:2]], ids=["text", "character"]
)
def test_a_second_run_plans_only_what_is_missing(out: Path, cut: Callable[[bytes], bytes]) -> None:
    before, _ = predicted(out)
    first, second, third = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(first + second + cut(third))
    found, asked = predicted(out)
    assert len(asked) == 1
    assert set(found) == set(REQUESTS)
    kept = [json.loads(line)["id"] for line in (first, second)]
    assert all(found[record] == before[record] for record in kept)
    assert predicted(out)[1] == []


def test_failures_are_recorded_and_planned_again(out: Path) -> None:
    found, _ = predicted(out, failing="word 1")
    assert found["1"].plan == ()
    assert "it is down" in str(found["1"].error)
    assert found["0"].error is None
    found, asked = predicted(out)
    assert asked == ["Translate 'word 1'"]
    assert (found["1"].error, len(found["1"].plan)) == (None, 1)


@pytest.mark.parametrize(
    "error", [ConfigError("no key"), MissingExtraError("it", "starter"), InputError("no such file")]
)
def test_errors_of_the_setup_stop_the_evaluation(out: Path, error: JarvisError) -> None:
    with pytest.raises(type(error)):
        predicted(out, failing="word", error=error)
    assert out.read_text() == ""


def test_files_of_others_are_refused(out: Path, tmp_path: Path) -> None:
    predicted(out)
    with pytest.raises(InputError, match='plans of "mine", and this planner is "theirs"'):
        predicted(out, name="theirs")
    out.write_text("Dear diary")
    with pytest.raises(InputError, match="something else"):
        predicted(out)
    assert out.read_text() == "Dear diary"
    for unwritable in (tmp_path / "missing" / "out.jsonl", tmp_path):
        with pytest.raises(InputError, match="cannot be written"):
            predicted(unwritable)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"id": "1"\n{"id": "2"}\n', "line 1, is not JSON"),
        (b'\n{"x": 1}\n', "line 2, is not an object with an `id`"),
        (b'{"id": "1"}\n{"id": "\xff"}', "line 2, is not JSON in UTF-8"),
    ],
)
def test_invalid_records_are_named(out: Path, content: bytes, said: str) -> None:
    out.write_bytes(content)
    with pytest.raises(InputError, match=said):
        read_records(out)


def test_files_in_a_request_are_recognised_by_their_extensions() -> None:
    files = named_files("Read 'example.txt', describe example.jpg and dub a.mp4 with b.wav, then c.csv.")
    kinds = {
        "example.txt": "text",
        "example.jpg": "image",
        "a.mp4": "video",
        "b.wav": "audio",
        "c.csv": "table",
    }
    assert {file.name: file.kind for file in files} == kinds
