"""Metrics for Prometheus beside those of every server: runs, tasks, tokens of language models.

    agent.with_observer(observe_run)                 # counts the runs of this agent, and their tasks

Labels are statuses and names of tasks: nothing of a user.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from time import perf_counter

from langchain_core.messages import ToolMessage
from prometheus_client import Counter, Gauge, Histogram

from jarvis_agent.core.errors import InputError
from jarvis_agent.execution.run import Event, Run
from jarvis_agent.interfaces.common.metrics import MODELS, SECONDS
from jarvis_agent.selection.model_registry import loaded_models

_RUNNING = Gauge("jarvis_runs_active", "Runs that have not ended", multiprocess_mode="livesum")
_RUNS = Counter("jarvis_runs", "Ended runs: ok, failed, rejected, waiting or cancelled", ["status"])
_RUN_SECONDS = Histogram("jarvis_run_seconds", "Duration of runs", buckets=SECONDS)
_TASKS = Counter("jarvis_tasks", "Ended tasks: ok, failed, skipped or cancelled", ["task", "status"])
_TASK_SECONDS = Histogram("jarvis_task_seconds", "Duration of tasks", ["task"], buckets=SECONDS)
_TOKENS = Counter("jarvis_llm_tokens", "Tokens of language models: input or output", ["direction"])


async def observe_run(events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """Pass on the events of a run, and count it and its tasks."""
    status, began = "cancelled", perf_counter()
    try:
        with _RUNNING.track_inprogress():
            async with aclosing(events):
                async for event in events:
                    if event.kind == "finished" and (result := event.result):
                        _count_task(result.task.task, result.status, result.ended - result.started)
                    if event.run is not None:
                        _count_tokens(event.run)
                        status = "ok" if event.run.ok else "failed"
                    yield event
        status = "waiting" if status == "cancelled" else status
    except InputError:
        status = "rejected"
        raise
    except Exception:
        status = "failed"
        raise
    finally:
        _RUNS.labels(status).inc()
        _RUN_SECONDS.observe(perf_counter() - began)
        MODELS.set(len(loaded_models()))


async def observe_call(task: str, call: Awaitable[ToolMessage]) -> ToolMessage:
    """Await a call of a task outside a run, and count it."""
    status, began = "cancelled", perf_counter()
    try:
        message = await call
        status = "ok" if message.status == "success" else "failed"
        return message
    except Exception:
        status = "failed"
        raise
    finally:
        _count_task(task, status, perf_counter() - began)
        MODELS.set(len(loaded_models()))


def _count_task(task: str, status: str, seconds: float) -> None:
    _TASKS.labels(task, status).inc()
    _TASK_SECONDS.labels(task).observe(seconds)


def _count_tokens(run: Run) -> None:
    for usage in run.usage.values():
        _TOKENS.labels("input").inc(usage.input_tokens)
        _TOKENS.labels("output").inc(usage.output_tokens)
