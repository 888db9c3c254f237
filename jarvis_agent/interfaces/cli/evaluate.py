"""`jarvis eval taskbench | plans`: score planning; each prints one table.

Progress goes to stderr, the table (or JSON) to stdout. The exit code is 1 if every request failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from jarvis_agent.evaluation.predict import Prediction
    from jarvis_agent.evaluation.report import EvaluationReport, Figure

NO_LLM = "no model"

eval_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Score planning.")

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="A TaskBench folder: tool_desc.json, data.json, …")
]
Model = Annotated[str | None, typer.Option(metavar="M", help='Chat model; "none": plan without one.')]
Limit = Annotated[int | None, typer.Option(metavar="N", min=1, help="Only the first N requests.")]
Half = Annotated[
    Literal["dev", "test", "all"],
    typer.Option(help="dev: the half used for development; test: the other one."),
]
Requests = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Other requests with their plans, as JSON lines.")
]
Failures = Annotated[bool, typer.Option("--failures", help="List the wrong results with the expected ones.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else.")]


@eval_app.command()
def taskbench(folder: Folder, model: Model = None, limit: Limit = None, as_json: AsJson = False) -> None:
    """Score plans for the requests and tools of a TaskBench folder."""
    from jarvis_agent.evaluation.taskbench import read_folder, score_folder

    bench = read_folder(folder)
    name, predictions = _plan_all(model, bench.inputs(limit))
    _print_table("TaskBench", score_folder(bench, predictions, name), [], as_json)
    _exit_if_all_failed(predictions)


@eval_app.command()
def plans(
    model: Model = None,
    half: Half = "all",
    requests: Requests = None,
    limit: Limit = None,
    failures: Failures = False,
    as_json: AsJson = False,
) -> None:
    """Score plans for our own requests, by kind and language."""
    from jarvis_agent.evaluation.requests import read_requests, score_requests

    chosen = read_requests(half, requests)[:limit]
    name, predictions = _plan_all(model, {request.id: request.inputs for request in chosen})
    reports, judged = score_requests(chosen, predictions)
    wrong = [verdict.as_failure() for verdict in judged if failures and not verdict.exact]
    if name == NO_LLM and requests is None and half != "test":
        typer.echo(
            "The offline planner has learned the half dev: `--half test` scores unseen requests.", err=True
        )
    _print_table(f"plans of {name}, half {half}", reports, wrong, as_json)
    _exit_if_all_failed(predictions)


def _plan_all(model: str | None, requests: Mapping[str, dict[str, Any]]) -> tuple[str, dict[str, Prediction]]:
    """Return the model's name and its predictions by id; a progress bar is shown on stderr."""
    from rich.progress import Progress

    from jarvis_agent.core.settings import read_settings
    from jarvis_agent.evaluation.predict import predict
    from jarvis_agent.interfaces.common.progress import make_console
    from jarvis_agent.llm.chat_model import describe_model, resolve_model
    from jarvis_agent.planning.chain import planning_chain
    from jarvis_agent.planning.offline import OfflinePlanner

    settings = read_settings()
    chat = resolve_model(model, settings)
    name = describe_model(chat) if chat is not None else NO_LLM
    # A chat model plans however small it is. Offline plans would only compete for the CPU.
    planner = OfflinePlanner(settings=settings) if chat is None else planning_chain(chat, settings=settings)
    concurrency = 1 if chat is None else 4

    async def collect() -> dict[str, Prediction]:
        predictions = {}
        with Progress(console=make_console(stderr=True), transient=True) as progress:
            bar = progress.add_task("planning", total=len(requests))
            async for prediction in predict(requests, planner, concurrency=concurrency):
                predictions[prediction.id] = prediction
                progress.advance(bar)
        return predictions

    return name, asyncio.run(collect())


def _print_table(
    title: str, reports: Sequence[EvaluationReport], wrong: Sequence[Mapping[str, Any]], as_json: bool
) -> None:
    """Print one row per report; below, time, tokens and failures of the first, and the wrong results."""
    from rich.table import Table
    from rich.text import Text

    from jarvis_agent.core.text import clean
    from jarvis_agent.interfaces.common.progress import echo_json, make_console

    first = reports[0]
    if as_json:
        dumped = [report.model_dump(mode="json") for report in reports]
        echo_json({"name": title, "reports": dumped, "failures": list(wrong)})
    else:
        table = Table(title=Text(clean(title), "bold"), title_justify="left", box=None, pad_edge=False)
        table.add_column("", header_style="dim")
        for column in ("requests", *(figure.name for figure in first.figures)):
            table.add_column(column, justify="right", header_style="bold")
        for report in reports:
            table.add_row(Text(clean(report.name)), str(report.requests), *map(_percent, report.figures))
        console = make_console()
        console.print(table)
        times = " / ".join(f"{1000 * seconds:.0f} ms" for seconds in first.seconds) or "–"
        console.print(
            f"percent (95 % interval); {first.unanswered} unanswered, {first.failed} failed; "
            f"time, median / 95th percentile: {times}; {first.usage.calls} LLM calls, "
            f"{first.usage.input_tokens} tokens in, {first.usage.output_tokens} out"
        )
        if first.reason:
            console.print(Text(f"most frequent error: {clean(first.reason)}"))
        for failure in wrong:
            console.print(Text(clean(f"\n{failure['id']}: {failure['request']}"), "bold"))
            for label in ("expected", "got", "reason"):
                values = failure.get(label) or []
                for value in [values] if isinstance(values, str) else values:
                    console.print(Text(f"  {label:<9} {clean(str(value))}"))


def _exit_if_all_failed(predictions: Mapping[str, Prediction]) -> None:
    errors = [prediction.error for prediction in predictions.values() if prediction.error is not None]
    if predictions and len(errors) == len(predictions):
        from jarvis_agent.core.text import clean

        typer.echo(f"the planner failed at every request: {clean(errors[0])}", err=True)
        raise typer.Exit(1)


def _percent(figure: Figure) -> str:
    if figure.value is None or figure.low is None or figure.high is None:
        return "–"
    return f"{100 * figure.value:.1f} ({100 * figure.low:.0f}…{100 * figure.high:.0f})"
