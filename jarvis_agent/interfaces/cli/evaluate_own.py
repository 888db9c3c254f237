"""The commands below `jarvis eval` that score our own requests: how they are planned, how models are chosen.

jarvis eval plans --model none --half dev --failures
jarvis eval plans --model none --requests mine.jsonl
jarvis eval selection --model none
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from jarvis_agent.interfaces.cli.evaluate import (
    NO_MODEL,
    AsJson,
    Chart,
    Concurrency,
    Limit,
    Model,
    Predictions,
    check_chart,
    contender_of,
    exit_if_all_failed,
    plan_all,
    print_json,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jarvis_agent.evaluation.paper import Judged
    from jarvis_agent.evaluation.report import Report
    from jarvis_agent.evaluation.selection import Case, Chosen
    from jarvis_agent.llm.client import LLMClient

_DRAWN = ("exact plan", "accuracy", "F1", "graph F1")

Half = Annotated[
    Literal["dev", "test", "all"],
    typer.Option("--half", help="dev: the half that a planner may be improved on; test: the other one."),
]
Requests = Annotated[
    Path | None,
    typer.Option("--requests", metavar="FILE", help="Other requests with their plans, as JSON lines."),
]
Failures = Annotated[bool, typer.Option("--failures", help="List what was not right, and what would be.")]


def plans(
    model: Model = None,
    half: Half = "all",
    requests: Requests = None,
    limit: Limit = None,
    predictions: Predictions = None,
    concurrency: Concurrency = None,
    failures: Failures = False,
    chart: Chart = None,
    as_json: AsJson = False,
) -> None:
    """Plan our own requests, and score the plans against hand-made ones, by kind and language."""
    from jarvis_agent.core.tasks.registry import TASKS
    from jarvis_agent.evaluation.paper import judge_all, reports_on
    from jarvis_agent.evaluation.requests import read_requests

    check_chart(chart)
    asked = read_requests(half, requests)[:limit]
    contender = contender_of(model)
    texts = {one.id: one.request for one in asked}
    briefs = {one.id: one.brief for one in asked}
    made = plan_all(contender, texts, TASKS, predictions, concurrency, briefs)
    judged = judge_all(asked, made)
    wrong = [one for one in judged if failures and not one.exact]
    name = contender.name if half == "all" else f"{contender.name}, {half} half"
    _print(name, reports_on(judged, made), wrong, chart, as_json)
    exit_if_all_failed(made)


def _print(
    name: str, reports: Sequence[Report], wrong: Sequence[Judged], chart: Path | None, as_json: bool
) -> None:
    from jarvis_agent.evaluation.paper import turned
    from jarvis_agent.interfaces.cli.scores import groups_table, wrong_plans

    if chart is not None:
        from jarvis_agent.evaluation.chart import draw

        draw(turned(reports, _DRAWN), chart)
    if as_json:
        print_json(
            {
                "name": name,
                "reports": [report.model_dump(mode="json") for report in reports],
                "failures": [
                    {
                        "id": one.asked.id,
                        "request": one.asked.request,
                        "expected": [[task.model_dump() for task in plan] for plan in one.asked.plans],
                        "got": [task.model_dump() for task in one.tasks],
                        "error": one.error,
                    }
                    for one in wrong
                ],
            }
        )
        return
    _show(groups_table(name, reports), wrong_plans(wrong))


def selection(
    model: Model = None,
    failures: Failures = False,
    chart: Chart = None,
    as_json: AsJson = False,
) -> None:
    """Choose models for our own cases, and score how often the choice runs and fits the request."""
    from jarvis_agent.evaluation.selection import read_cases, report_on_choices
    from jarvis_agent.interfaces.cli.scores import groups_table, wrong_choices

    check_chart(chart)
    controller, name = _controller(model)
    chosen = asyncio.run(_choose_all(read_cases(), controller))
    reports = report_on_choices(chosen, name)
    if chart is not None:
        from jarvis_agent.evaluation.chart import draw

        draw(reports, chart)
    wrong = [one for one in chosen if failures and not one.is_right]
    if as_json:
        _print_choices_as_json(name, reports, wrong)
    else:
        _show(groups_table("model selection", reports), wrong_choices(wrong))
    if controller is not None and not any(one.by == "llm" for one in chosen):
        typer.echo(
            f"{name} chose nothing: it failed, was late, or named no candidate; the rank chose", err=True
        )
        raise typer.Exit(1)


def _print_choices_as_json(name: str, reports: Sequence[Report], wrong: Sequence[Chosen]) -> None:
    told = [
        {
            "id": one.case.id,
            "request": one.case.request,
            "expected": one.case.right,
            "why": one.case.reason,
            "got": one.model,
            "faults": sorted(one.faults),
            "reason": one.reason,
        }
        for one in wrong
    ]
    print_json(
        {"name": name, "reports": [report.model_dump(mode="json") for report in reports], "failures": told}
    )


def _controller(model: str | None) -> tuple[LLMClient | None, str]:
    """The language model that chooses, and its name; None: the rank chooses."""
    from jarvis_agent.core.settings import load_settings
    from jarvis_agent.llm.client import LLMClient, describe_model, resolve_model

    settings = load_settings()
    chat = None if model == NO_MODEL else resolve_model(model, settings)
    return (None, "no model") if chat is None else (LLMClient(chat, settings), describe_model(chat))


async def _choose_all(cases: Sequence[Case], controller: LLMClient | None) -> list[Chosen]:
    from rich.progress import track

    from jarvis_agent.evaluation.selection import choose
    from jarvis_agent.interfaces.cli.progress import make_console

    console = make_console(stderr=True)
    shown = track(cases, "choosing", console=console, transient=True)
    return [await choose(case, controller) for case in shown]


def _show(*parts: RenderableType) -> None:
    from jarvis_agent.interfaces.cli.progress import make_console

    console = make_console()
    for part in parts:
        console.print(part)
