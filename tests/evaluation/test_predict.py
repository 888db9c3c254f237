"""Requests are planned; failures are recorded."""

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


async def predicted(error: JarvisError) -> dict[str, Prediction]:
    """The predictions by id of a planner that fails at request 1 with `error`."""

    def plan(given: dict[str, Any]) -> Plan:
        if "word 1" in given["input"]:
            raise error
        return Plan(tasks=[Task(task="translation", id=0, args={"text": given["input"].split("'")[1]})])

    made = predict(REQUESTS, RunnableLambda(plan), concurrency=2)
    return {one.id: one async for one in made}


async def test_a_failure_is_recorded_beside_the_other_plans() -> None:
    found = await predicted(LLMError("it is down"))
    assert set(found) == set(REQUESTS)
    assert (found["0"].error, found["1"].plan) == (None, ())
    assert "it is down" in str(found["1"].error)
    assert found["2"].plan[0].args == {"text": "word 2"}


async def test_setup_errors_stop_the_evaluation() -> None:
    for error in (ConfigError("no key"), MissingExtraError("it", "starter"), InputError("no such file")):
        with pytest.raises(type(error)):
            await predicted(error)


def test_invalid_records_are_reported(tmp_path: Path) -> None:
    rows = {
        b'{"id": "1"\n{"id": "2"}\n': "line 1, is not JSON",
        b'\n{"x": 1}\n': "line 2, is not an object with an `id`",
        b'{"id": "1"}\n{"id": "\xff"}': "in.jsonl cannot be read: 'utf-8' codec",
    }
    for content, message in rows.items():
        (tmp_path / "in.jsonl").write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_records(tmp_path / "in.jsonl")


def test_files_in_a_request_are_recognised_by_their_extensions() -> None:
    files = named_files("Read 'a.txt', describe b.jpg and dub c.mp4 with d.wav, then e.csv.")
    kinds = {"a.txt": "text", "b.jpg": "image", "c.mp4": "video", "d.wav": "audio", "e.csv": "table"}
    assert {file.name: file.kind for file in files} == kinds
