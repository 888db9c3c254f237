"""What Prometheus reads from the server."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from processes import run_python
from prometheus_client.parser import text_string_to_metric_families
from served import Served, plan_for

from jarvis_agent import JarvisAgent
from jarvis_agent.interfaces import server

ROOT = Path(__file__).parents[2]
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(served: Served) -> Samples:
    text = served.get("/metrics").text
    families = text_string_to_metric_families(text)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def grown(before: Samples, after: Samples, name: str, **labels: str) -> float:
    key = name, frozenset(labels.items())
    return after.get(key, 0.0) - before.get(key, 0.0)


def test_a_run_its_tasks_and_its_tokens_are_counted(served: Served) -> None:
    name = served.uploaded_cat()
    before = read(served)
    run = served.client.post("/agent/invoke", json={"input": {"input": "What is it?", "files": [name]}})
    after = read(served)
    assert grown(before, after, "jarvis_runs_total", status="ok") == 1
    assert grown(before, after, "jarvis_run_seconds_count") == 1
    for task in ("image-to-text", "canny-control"):
        assert grown(before, after, "jarvis_tasks_total", task=task, status="ok") == 1
        assert grown(before, after, "jarvis_task_seconds_count", task=task) == 1
    usage = run.json()["output"]["usage"].values()
    for direction in ("input", "output"):
        tokens = sum(one[f"{direction}_tokens"] for one in usage)
        assert grown(before, after, "jarvis_llm_tokens_total", direction=direction) == tokens > 0
    labels = {"method": "POST", "route": "/agent/invoke", "status": "200"}
    assert grown(before, after, "jarvis_http_requests_total", **labels) == 1
    assert after["jarvis_runs_active", frozenset()] == 0
    assert grown(before, after, "jarvis_models_loaded") == 0


def test_every_way_to_run_is_counted(served: Served) -> None:
    name = served.uploaded_cat()
    told = {"messages": [{"role": "user", "content": f"What is in {name}?"}]}
    before = read(served)
    for stream in (False, True):
        served.client.post("/v1/chat/completions", json={"model": "jarvis", "stream": stream, **told})
    served.client.post("/tools/image-to-text/invoke", json={"input": {"image": name}})
    after = read(served)
    assert grown(before, after, "jarvis_runs_total", status="ok") == 2
    assert grown(before, after, "jarvis_tasks_total", task="image-to-text", status="ok") == 3


def test_failures_are_counted_by_their_kind(served: Served) -> None:
    before = read(served)
    served.client.post("/agent/invoke", json={"input": {"input": "x", "files": ["none.jpg"]}})
    served.script["plan"] = plan_for("none.jpg")
    served.client.post("/agent/invoke", json={"input": "What is in none.jpg?"})
    served.client.post("/tools/image-to-text/invoke", json={"input": {"image": "none.jpg"}})
    after = read(served)
    assert grown(before, after, "jarvis_runs_total", status="rejected") == 1
    assert grown(before, after, "jarvis_runs_total", status="failed") == 1
    assert grown(before, after, "jarvis_tasks_total", task="image-to-text", status="failed") == 2


def test_clients_cannot_add_labels(served: Served) -> None:
    for path in ("/secret-1", "/tools/secret-2/input_schema", "/outputs/secret-3/x", "/agent/secret-4"):
        served.get(path)
    served.client.request("SECRET5", "/healthz")
    served.client.post("/tools/secret-6/invoke", json={"input": {}})
    text = served.get("/metrics").text
    assert "secret" not in text.lower()
    assert 'method="other"' in text


def test_workers_get_a_directory_to_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR")
    shared: list[Path] = []

    def listen(*_: Any, **__: Any) -> None:
        shared.append(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]))
        assert shared[0].is_dir()

    monkeypatch.setattr(server, "listen", listen)
    server.run_server(JarvisAgent, workers=2)
    assert not shared[0].exists()


_WORKERS = """
import os, sys
from starlette.testclient import TestClient
sys.path.insert(0, {tests!r})
from pathlib import Path
from typing import Any
from served import agent_of
from jarvis_agent.interfaces.server import create_app
if first := os.fork():
    os.waitpid(first, 0)
with TestClient(create_app(agent_of(Path({out!r})))) as client:
    client.post("/agent/invoke", json={{"input": "Good morning!"}})
    print(client.get("/metrics").text, flush=True)
"""


@pytest.mark.slow
def test_processes_share_their_numbers(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    code = _WORKERS.format(tests=str(ROOT / "tests"), out=str(tmp_path / "out"))
    env = os.environ | {"PYTHONPATH": str(ROOT), "PROMETHEUS_MULTIPROC_DIR": str(shared)}
    shown = run_python(code, env=env)
    assert re.findall(r'^jarvis_runs_total{status="ok"} (.*)$', shown, re.MULTILINE) == ["1.0", "2.0"]
