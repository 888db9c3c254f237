"""Runs that resume in another process: their files, time limit and usage."""

import asyncio
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("langgraph")

from durable_agents import ONE_BY_ONE, THREAD, counting_agent, stop_when
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from small_agents import Row, block, picture, plan, small_agent

from jarvis_agent import JarvisAgent, Run, Settings
from jarvis_agent.core.types import Usage

URL = "https://example.com/a.png"
DESCRIBE_IN_FRENCH: list[Row] = [
    ("image-to-text", [], {"image": "a.png"}),
    ("translation", [0], {"text": "<resource>-0", "tgt_lang": "fr"}),
]


class TwoProcesses:
    """A run whose translation hangs in the first process and ends in the second."""

    def __init__(self, folder: Path, rows: Any = DESCRIBE_IN_FRENCH, **options: Any) -> None:
        self._settings = Settings(output_dir=folder / "out")
        self._rows, self._options = rows, options
        self._saver = InMemorySaver()
        self._stuck = asyncio.Event()

    def _agent(self) -> JarvisAgent:
        async def translate(call: Any) -> str:
            if not self._stuck.is_set():
                self._stuck.set()
                await asyncio.Event().wait()
            return "une phrase"

        planned = self._rows if callable(self._rows) else plan(*self._rows)
        agent, self.llm, _ = small_agent(
            planned, {"translation": translate}, settings=self._settings, **self._options
        )
        return agent.copy(checkpointer=self._saver)

    async def first(self, request: Any) -> None:
        await stop_when(self._stuck, self._agent(), request)

    async def second(self) -> Run:
        return await self._agent().ainvoke(None, THREAD)


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return picture(tmp_path / "a.png")


async def test_an_attachment_is_stored_once(tmp_path: Path, image: Path) -> None:
    content = [{"type": "text", "text": "Describe it, twice"}, block(image, mime="image/png")]

    def describe_last(messages: Any) -> str:
        name = next(word for word in messages[-1].text.replace('"', " ").split() if word.startswith("input-"))
        return plan(
            ("translation", [], {"text": "hi", "tgt_lang": "fr"}), ("image-to-text", [0], {"image": name})
        )

    processes = TwoProcesses(tmp_path, describe_last)
    await processes.first([HumanMessage(content)])
    run = await processes.second()
    assert [result.error for result in run.results] == [None, None]
    assert len(list((tmp_path / "out").rglob("input*"))) == 1


async def test_a_deleted_file_fails_only_the_tasks_that_still_need_it(tmp_path: Path, image: Path) -> None:
    describe: Row = ("image-to-text", [], {"image": "a.png"})
    hang: Row = ("translation", [0], {"text": "hi", "tgt_lang": "fr"})
    processes = TwoProcesses(tmp_path, [describe, hang, ("object-detection", [1], {"image": "a.png"})])
    await processes.first({"input": "Describe it, translate, describe again", "files": ["a.png"]})
    await asyncio.to_thread(image.unlink)
    run = await processes.second()
    assert [result.status for result in run.results] == ["ok", "ok", "failed"]
    assert "a.png" in (run.results[2].error or "")


@pytest.fixture
def fetched(image: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URLs that were fetched; each is an image."""
    urls: list[str] = []

    async def fetch(url: str, path: Path, settings: Settings) -> Path:
        urls.append(url)
        return await asyncio.to_thread(shutil.copyfile, image, path)

    monkeypatch.setattr("jarvis_agent.media.store.fetch", fetch)
    return urls


async def test_a_url_is_not_fetched_again(tmp_path: Path, fetched: list[str]) -> None:
    processes = TwoProcesses(tmp_path, [("image-to-text", [], {"image": URL}), DESCRIBE_IN_FRENCH[1]])
    await processes.first({"input": "Describe it in French", "files": [URL]})
    assert (await processes.second()).ok
    assert fetched == [URL]


async def test_a_url_in_the_text_is_fetched_after_the_run_resumed(tmp_path: Path, fetched: list[str]) -> None:
    hang: Row = ("translation", [], {"text": "hi", "tgt_lang": "fr"})
    processes = TwoProcesses(tmp_path, [hang, ("image-to-text", [0], {"image": URL})])
    await processes.first(f"Say hi in French, then describe {URL}")
    assert not fetched
    assert [result.error for result in (await processes.second()).results] == [None, None]
    assert fetched == [URL]


@pytest.mark.usefixtures("image")
async def test_the_usage_includes_the_first_process(tmp_path: Path) -> None:
    processes = TwoProcesses(tmp_path, models=["a", "b"], select='{"id": "a", "reason": "r"}')
    await processes.first({"input": "Describe it in French", "files": ["a.png"]})
    run = await processes.second()
    assert processes.llm.stages() == ["select", "respond"]  # of the second process
    calls = {stage: usage.calls for stage, usage in run.usage.items()}
    assert calls == {"plan": 1, "select": 2, "respond": 1}
    assert run.usage["plan"] != Usage()


async def test_a_resumed_run_has_all_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = iter([time.time() - 3600])
    clock = SimpleNamespace(time=lambda: next(began, time.time()))
    monkeypatch.setattr("jarvis_agent.agent.pipeline.time", clock)
    agent = counting_agent(tmp_path, [], *ONE_BY_ONE)
    assert agent.settings.budget.run_seconds < 3600
    run = await agent.copy(checkpointer=InMemorySaver()).ainvoke("count", THREAD)
    assert [result.status for result in run.results] == ["ok", "ok"]
    assert run.results[0].started >= 3600


@pytest.mark.usefixtures("image")
async def test_a_file_of_an_earlier_turn_is_found_from_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver, settings = InMemorySaver(), Settings(output_dir=tmp_path / "out")
    agent, _, _ = small_agent(plan(("image-to-text", [], {"image": "a.png"})), settings=settings)
    for request in ({"input": "Describe a.png", "files": ["a.png"]}, "And once more, please."):
        run = await agent.copy(checkpointer=saver).ainvoke(request, THREAD)
        assert [result.error for result in run.results] == [None]
        (tmp_path / "elsewhere").mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / "elsewhere")
