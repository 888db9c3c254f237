"""`jarvis --resume` and `--approve`: runs that are kept under a name, and plans that wait for a word."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph.checkpoint.sqlite")

from langchain_core.tools import BaseTool, tool
from small_agents import plan
from typer.testing import CliRunner

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.cli import app
from jarvis_agent.console.kept import FILE, KeptAgent
from jarvis_agent.errors import ConfigError
from jarvis_agent.run import Run
from jarvis_agent.testing import ScriptedLLM


def counting(calls: list[str]) -> BaseTool:
    @tool
    def count(text: str) -> str:
        """Count."""
        calls.append(text)
        return f"{text}!"

    return count


def an_agent(folder: Path, calls: list[str]) -> JarvisAgent:
    llm = ScriptedLLM({"plan": plan(("count", [], {"text": "one"})), "respond": "Done."})
    return JarvisAgent(llm, tools=[counting(calls)], settings=Settings(output_dir=folder / "out"))


async def last(events: AsyncIterator[Any]) -> Run:
    run = Run()
    async for event in events:
        run = event.run or run
    return run


async def test_a_kept_run_is_there_in_the_next_process(tmp_path: Path) -> None:
    calls: list[str] = []
    first = await last(KeptAgent(an_agent(tmp_path, calls), "talk").events({"input": "count"}))
    assert (tmp_path / "out" / FILE).is_file()
    again = await last(KeptAgent(an_agent(tmp_path, calls), "talk").events({"input": ""}))
    assert again == first
    assert calls == ["one"]


@pytest.mark.parametrize(("decision", "done"), [(True, ["one"]), (False, [])])
async def test_a_plan_runs_only_if_somebody_lets_it(tmp_path: Path, decision: bool, done: list[str]) -> None:
    calls: list[str] = []
    shown: list[Any] = []

    def decide(plan: dict[str, Any]) -> bool:
        shown.append(plan)
        return decision

    run = await last(KeptAgent(an_agent(tmp_path, calls), "talk", decide).events({"input": "count"}))
    assert shown[0]["plan"][0]["task"] == "count"
    assert calls == done
    assert [result.status for result in run.results] == ["ok"] * len(done)


async def test_a_waiting_plan_does_not_run_without_being_approved(tmp_path: Path) -> None:
    calls: list[str] = []

    def walk_away(plan: dict[str, Any]) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await last(KeptAgent(an_agent(tmp_path, calls), "talk", walk_away).events({"input": "count"}))
    with pytest.raises(ConfigError, match="--approve"):
        await last(KeptAgent(an_agent(tmp_path, calls), "talk").events({"input": ""}))
    assert calls == []
    await last(KeptAgent(an_agent(tmp_path, calls), "talk", lambda plan: True).events({"input": ""}))
    assert calls == ["one"]


def test_the_command_keeps_runs_and_goes_on_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    Image.effect_noise((32, 32), 90).convert("RGB").save("cat.jpg")
    monkeypatch.setenv("JARVIS_OFFLINE", "1")
    begun = CliRunner().invoke(app, ["Make a canny edge image of cat.jpg.", "--resume", "one", "--json"])
    assert begun.exit_code == 0, begun.output
    again = CliRunner().invoke(app, ["--resume", "one", "--json"])
    assert Run.model_validate_json(again.stdout) == Run.model_validate_json(begun.stdout)
    other = CliRunner().invoke(app, ["--resume", "two"])
    assert other.exit_code == 2
    assert "no run to go on with" in other.output


def test_approval_needs_somebody_to_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (32, 32)).save("cat.jpg")
    monkeypatch.setenv("JARVIS_OFFLINE", "1")
    asked = CliRunner().invoke(app, ["Make a canny edge image of cat.jpg.", "--approve"])
    assert asked.exit_code == 2
    assert "asks in a terminal" in asked.output
