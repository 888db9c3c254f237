"""The command `jarvis`: which command is meant, exit codes, what goes where."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import jarvis
from fake_agent import CAPTION, SPEECH, FakeAgent, a_run
from processes import started

from jarvis_agent import __version__
from jarvis_agent.core.errors import ConfigError, InputError, LLMError
from jarvis_agent.core.settings import Settings
from jarvis_agent.execution.run import Run
from jarvis_agent.interfaces.cli import app as cli
from jarvis_agent.interfaces.cli.doctor import Report
from jarvis_agent.planning.plan import Plan

Use = Callable[..., FakeAgent]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Use:
    """Let the command have a FakeAgent; `agent.made_with` holds the model and the settings asked for."""
    monkeypatch.chdir(tmp_path)

    def install(*runs: Run | Exception, **options: Any) -> FakeAgent:
        agent = FakeAgent(*(runs or [a_run(tmp_path / "a.wav")]), **options)

        def make(model: str | None, settings: Settings, *_: Any) -> FakeAgent:
            agent.made_with = (model, settings)  # type: ignore[attr-defined]
            return agent

        monkeypatch.setattr(cli, "_agent", make)
        return agent

    return install


def test_words_that_are_no_command_are_a_request(use: Use) -> None:
    asked = "What is it?"
    for args in ([asked], ["ask", asked], asked.split(), ["--", asked]):
        agent = use()
        result = jarvis(*args)
        assert result.exit_code == 0, args
        assert agent.requests[0][0] == {"input": asked, "files": []}
        assert result.stdout.startswith("A cat. I spoke it.\n")


def test_options_may_stand_before_the_request(use: Use) -> None:
    agent = use()
    result = jarvis("--json", "--file", "a.jpg", "--file", "https://x.org/b.png", "What is it?")
    assert agent.requests[0][0] == {"input": "What is it?", "files": ["a.jpg", "https://x.org/b.png"]}
    assert json.loads(result.stdout)["answer"] == "A cat. I spoke it."


def test_a_dash_stands_for_standard_input(use: Use) -> None:
    agent = use()
    assert jarvis("-", stdin="What is it?\nAnd what is it called?\n").exit_code == 0
    assert agent.requests[0][0]["input"] == "What is it?\nAnd what is it called?"
    assert jarvis("-", stdin="\n").exit_code == 2


def test_a_commands_name_is_the_command_and_after_dashes_a_request(use: Use) -> None:
    agent = use()
    assert jarvis("chat", stdin="").exit_code == 0
    assert agent.requests == []
    jarvis("--", "chat")
    assert agent.requests[0][0]["input"] == "chat"


def test_the_environment_is_checked(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    use()
    monkeypatch.setenv("JARVIS_POLCY", "local-only")
    result = jarvis("x y")
    assert result.exit_code == 0
    assert "JARVIS_POLCY is not a setting and is ignored; did you mean JARVIS_POLICY?" in result.stderr
    monkeypatch.setenv("JARVIS_SEED", "many")
    result = jarvis("x y")
    assert result.exit_code == 2
    assert "JARVIS_SEED" in result.stderr


@pytest.mark.parametrize("ready", [True, False])
def test_the_doctor_reports_json_and_an_exit_code(monkeypatch: pytest.MonkeyPatch, ready: bool) -> None:
    async def examine(*_: Any) -> Report:
        return Report(ready=ready, checks=[])

    monkeypatch.setenv("JARVIS_OFFLINE", "1")
    monkeypatch.setattr("jarvis_agent.interfaces.cli.doctor.examine", examine)
    result = jarvis("doctor", "--json")
    assert json.loads(result.stdout) == {"ready": ready, "checks": []}
    assert result.exit_code == (0 if ready else 1)


def test_a_misspelt_command_is_not_run_as_a_request(use: Use) -> None:
    agent = use()
    for words, meant in ((["doctr"], "doctor"), (["model", "translation"], "models"), (["setp"], "setup")):
        result = jarvis(*words)
        assert result.exit_code == 2
        assert f"Did you mean '{meant}'?" in result.stderr
    assert agent.requests == []
    for words in (["ask", "doctr"], ["--", "doctr"], ["doctr my photo"]):
        use()
        assert jarvis(*words).exit_code == 0


def test_model_policy_and_directory_reach_the_agent(use: Use) -> None:
    agent = use()
    jarvis("x y", "--model", "openai:gpt-x", "--policy", "local-only", "--out", "made")
    model, settings = agent.made_with  # type: ignore[attr-defined]
    assert model == "openai:gpt-x"
    assert settings == Settings(policy="local-only", output_dir=Path("made"))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["x y", "--resume", " "], "--resume needs a name"),
        (["x y", "--approve"], "--approve needs a terminal"),
        ([""], "the request is empty"),
        (["ask", "  "], "the request is empty"),
        (["x y", "--policy", "fast"], "jarvis: policy: Input should be 'local-first'"),
        (["x y", "--nonsense"], "No such option"),
        (["-", "--nonsense"], "No such option"),
        (["models"], "Missing argument 'TASK'"),
        (["serve", "--port", "99999"], "65535"),
        (
            ["serve", "--host", "0.0.0.0"],
            "set JARVIS_API_KEYS, or let any client use this server with --insecure",
        ),
        (["chat", "surplus"], "unexpected extra argument"),
    ],
)
def test_bad_usage_is_one_line_and_exits_2(use: Use, args: list[str], said: str) -> None:
    agent = use()
    result = jarvis(*args)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert agent.requests == []


def test_a_server_that_cannot_start_exits_2(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = jarvis("serve", "--port", str(port))
    assert result.exit_code == 2
    assert f"cannot listen at 127.0.0.1:{port}" in result.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("address", ["file/server.sqlite", "postgresql://localhost:1/jarvis"])
def test_a_database_that_cannot_be_opened_is_one_line_and_exits_2(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str, workers: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JARVIS_CHECKPOINTS", address)
    result = jarvis("serve", "--port", "0", "--workers", workers)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"jarvis: the database {address} (JARVIS_CHECKPOINTS) cannot be opened: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError('the language model "x" cannot be made'), 2),
        (InputError("the output directory cannot be made"), 2),
        (LLMError("the key\n\nis \x1b[1mwrong"), 1),
    ],
)
def test_our_errors_are_one_line_without_a_traceback(use: Use, error: Exception, code: int) -> None:
    use(error)
    result = jarvis("x y")
    assert result.exit_code == code
    said = str(error).replace("\n\n", " ").replace("\x1b[1m", "")
    assert result.stderr == f"jarvis: {said}\n"
    assert result.stdout == ""


def test_an_interrupted_request_exits_130(use: Use, tmp_path: Path) -> None:
    agent = use(a_run(tmp_path / "a.wav"), interrupt_after=8)
    result = jarvis("x y")
    assert result.exit_code == 130
    assert result.stdout == "What can be seen in cat.jpg: a cat\n"
    assert agent.closed


@pytest.mark.slow
def test_an_interrupted_request_does_not_wait_for_what_cannot_be_stopped() -> None:
    code = """if True:
        import asyncio, time
        from fake_agent import FakeAgent, a_run
        from jarvis_agent.interfaces.cli.ask import one_shot

        class Stuck(FakeAgent):
            async def aclose(self):
                await asyncio.to_thread(time.sleep, 300)

        one_shot(Stuck(a_run("a.wav"), interrupt_after=8), {"input": "x y"}, as_json=False)
    """
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60
    )
    assert (done.returncode, done.stdout) == (130, "What can be seen in cat.jpg: a cat\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_command_runs_with_closed_streams(closed: str) -> None:
    command = f"exec {sys.executable} -m jarvis_agent --version {closed}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_plan_only_prints_the_plan_and_exits_1_if_it_is_empty(use: Use) -> None:
    use(Run(plan=Plan(tasks=[CAPTION])))
    result = jarvis("x y", "--plan-only", "--json")
    assert result.exit_code == 0
    assert Plan.model_validate_json(result.stdout).tasks == [CAPTION]
    use(Run(plan=Plan(tasks=[CAPTION, SPEECH])))
    assert "1 text-to-speech  after 0" in jarvis("x y", "--plan-only").stdout
    use(Run(plan=Plan(notes=["not understood"])))
    result = jarvis("x y", "--plan-only")
    assert result.exit_code == 1
    assert "The plan is empty." in result.stdout
    assert "not understood" in result.stdout


def test_help_lists_the_commands_and_how_to_ask() -> None:
    result = jarvis("--help")
    assert result.exit_code == 0
    for word in ("ask", "chat", "tasks", "models", "doctor", "Examples:"):
        assert word in result.stdout
    assert 'jarvis "Transcribe speech.wav"' in result.stdout
    described = (result.stdout + jarvis("eval", "--help").stdout).replace("[ARGS]...", "")
    assert "..." not in described, "a description is cut off"
    assert jarvis("-h").stdout == result.stdout
    assert "--plan-only" in jarvis("ask", "--help").stdout
    assert jarvis("--version").stdout == f"langchain-hugginggpt {__version__}\n"


def test_an_unexpected_error_is_one_line_unless_debugging(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    use(ZeroDivisionError("division by zero"))
    result = jarvis("x y")
    assert result.exit_code == 1
    said = "jarvis: unexpected ZeroDivisionError: division by zero; JARVIS_DEBUG=1 shows details\n"
    assert result.stderr == said
    monkeypatch.setenv("JARVIS_DEBUG", "1")
    use(ZeroDivisionError("division by zero"))
    with pytest.raises(ZeroDivisionError):
        jarvis("x y")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "ending", "code"),
    [
        (["serve"], signal.SIGINT, 130),
        (["serve"], signal.SIGTERM, 0),
        (["serve", "--workers", "2"], signal.SIGTERM, 0),
        (["experts"], signal.SIGTERM, 0),
    ],
)
def test_a_server_that_is_ended_leaves_no_folder_and_no_key(
    tmp_path: Path, command: list[str], ending: signal.Signals, code: int
) -> None:
    key, folders = "key-" + "k" * 28, {name: str(tmp_path / name) for name in ("TMPDIR", "XDG_CACHE_HOME")}
    for folder in folders.values():
        Path(folder).mkdir()
    environment = os.environ | folders | {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    environment |= {"JARVIS_OFFLINE": "1", "JARVIS_API_KEYS": key}
    words = [sys.executable, "-m", "jarvis_agent", *command, "--port", "0"]
    with started(words, cwd=tmp_path, env=environment, stderr=subprocess.PIPE) as process:
        lines = iter(process.stderr)
        assert any("Uvicorn running" in line for line in lines)
        process.send_signal(ending)
        assert not [line for line in lines if "Traceback" in line or "cannot listen" in line]
        assert process.wait(60) == code
    assert not list(Path(folders["TMPDIR"]).iterdir())
    left = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not [file for file in left if key.encode() in file.read_bytes()]
