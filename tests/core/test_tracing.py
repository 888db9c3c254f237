"""OpenTelemetry: which spans a run leaves, what stands in them, and what it costs without."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from opentelemetry.util._once import Once
from PIL import Image
from small_agents import CAPTION, DESCRIBE_ALOUD, small_agent

from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tracing import here, span

REQUEST = "Describe a.jpg aloud"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    trace.set_tracer_provider(provider)
    yield exporter
    provider.shutdown()


@pytest.fixture(autouse=True)
def _picture(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (8, 8)).save("a.jpg")


def _tree(found: tuple[ReadableSpan, ...]) -> set[tuple[str, str]]:
    """Each span's name with its parent's."""
    names = {one.context.span_id: one.name for one in found if one.context}
    return {(one.name, names[one.parent.span_id] if one.parent else "") for one in found}


def _named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [one for one in exporter.get_finished_spans() if one.name == name]


def test_a_run_is_a_tree_of_stages_tasks_and_attempts(spans: InMemorySpanExporter) -> None:
    agent, _, _ = small_agent(DESCRIBE_ALOUD)
    agent.invoke(REQUEST)
    assert _tree(spans.get_finished_spans()) == {
        ("jarvis.run", ""),
        ("jarvis.plan", "jarvis.run"),
        ("jarvis.execute", "jarvis.run"),
        ("jarvis.respond", "jarvis.run"),
        ("jarvis.task", "jarvis.execute"),
        ("jarvis.select", "jarvis.task"),
        ("jarvis.attempt", "jarvis.task"),
        ("jarvis.llm", "jarvis.plan"),
        ("jarvis.llm", "jarvis.respond"),
    }


def test_planning_again_stands_below_the_execution(spans: InMemorySpanExporter) -> None:
    agent, _, _ = small_agent(DESCRIBE_ALOUD, {"image-to-text": UnsupportedError("no")})
    assert agent.invoke(REQUEST).usage["replan"].calls == 1
    assert ("jarvis.llm", "jarvis.execute") in _tree(spans.get_finished_spans())


def test_spans_tell_models_bytes_tokens_and_seconds(spans: InMemorySpanExporter) -> None:
    agent, _, _ = small_agent(DESCRIBE_ALOUD)
    run = agent.invoke(REQUEST)
    speaking = next(s for s in _named(spans, "jarvis.task") if s.attributes["jarvis.task.id"] == 1)
    assert dict(speaking.attributes) == {
        "jarvis.task.name": "text-to-speech",
        "jarvis.task.id": 1,
        "jarvis.task.status": "ok",
        "jarvis.task.attempts": 1,
        "jarvis.model": "text-to-speech/only",
        "jarvis.backend": "fake",
        "jarvis.bytes.out": sum(path.stat().st_size for path in run.results[1].paths()),
        "jarvis.seconds": pytest.approx(run.results[1].ended - run.results[1].started, abs=1e-5),
    }
    whole = _named(spans, "jarvis.run")[0].attributes
    assert whole["jarvis.run.tasks"] == 2
    assert whole["jarvis.llm.calls"] == sum(used.calls for used in run.usage.values())
    assert whole["gen_ai.usage.output_tokens"] == sum(used.output_tokens for used in run.usage.values())
    looking = next(
        s for s in _named(spans, "jarvis.attempt") if s.attributes["jarvis.task.name"] == "image-to-text"
    )
    assert looking.attributes["jarvis.bytes.in"] > 0


def test_what_fails_is_an_error_by_its_kind_alone(spans: InMemorySpanExporter) -> None:
    agent, _, _ = small_agent(DESCRIBE_ALOUD, {"image-to-text": RuntimeError("the secret word is plum")})
    agent.invoke(REQUEST)
    failed, skipped = sorted(_named(spans, "jarvis.task"), key=lambda one: one.attributes["jarvis.task.id"])
    assert failed.status.status_code is skipped.status.status_code is StatusCode.ERROR
    assert failed.attributes["error.type"] == "ExhaustedError"
    assert skipped.attributes["error.type"] == "skipped"
    assert _named(spans, "jarvis.attempt")[0].attributes["error.type"] == "ExpertError"
    assert "plum" not in "".join(one.to_json() for one in spans.get_finished_spans())


@pytest.mark.parametrize("allowed", [False, True])
def test_contents_stand_in_spans_only_where_the_settings_allow_it(
    spans: InMemorySpanExporter, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "plum-pudding-77")
    agent, _, _ = small_agent(DESCRIBE_ALOUD, settings=Settings(trace_contents=allowed))
    agent.invoke(f"{REQUEST}, the key is plum-pudding-77")
    told = "".join(one.to_json() for one in spans.get_finished_spans())
    assert (REQUEST in told) is (CAPTION in told) is ("It is done." in told) is allowed
    assert "plum-pudding-77" not in told


def test_a_span_of_the_program_is_the_parent_of_the_run(spans: InMemorySpanExporter) -> None:
    agent, _, _ = small_agent(DESCRIBE_ALOUD)
    with trace.get_tracer("program").start_as_current_span("program"):
        agent.invoke(REQUEST)
    assert ("jarvis.run", "program") in _tree(spans.get_finished_spans())


def test_without_a_provider_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    with span("jarvis.run") as seen:
        assert not seen.wanted
        assert seen.span is None
        assert here() is None
        seen.tell({"a": 1})
        seen.fail("Error")


def test_opentelemetry_that_another_thread_is_importing_is_let_be(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = ModuleType("opentelemetry.trace")
    begun.__spec__ = ModuleSpec(begun.__name__, None)
    begun.__spec__._initializing = True  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, begun.__name__, begun)
    with span("jarvis.run") as seen:
        assert not seen.wanted


def test_opentelemetry_is_not_imported_for_a_run_that_nobody_traces() -> None:
    code = (
        "import sys, json; from jarvis_agent.core.tracing import span, here, tell\n"
        "with span('jarvis.run', contents=True) as seen: seen.show({'a': 1}); tell({'b': 2})\n"
        "print(json.dumps([here(), seen.wanted, [m for m in sys.modules if 'opentelemetry' in m]]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [None, False, []]
