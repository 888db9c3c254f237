"""The commands below `jarvis eval`: they parse, show progress on stderr, and print reports.

jarvis eval taskbench data_huggingface --model none --limit 100 --predictions plans.jsonl
jarvis eval compare data_huggingface one.jsonl other.jsonl --chart both.svg
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from jarvis_agent.eval.graphs import PlanGraph
    from jarvis_agent.eval.metrics import Mode
    from jarvis_agent.eval.predict import Prediction
    from jarvis_agent.eval.report import Figure, Report
    from jarvis_agent.eval.taskbench import Bench
    from jarvis_agent.planner import Planner
    from jarvis_agent.request import Brief
    from jarvis_agent.tools.spec import TaskSpec

NO_MODEL = "none"

eval_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Score planning against gold plans.")

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="A TaskBench folder: tool_desc.json, data.json, …")
]
Modes = Annotated[
    Literal["strict", "compat", "both"],
    typer.Option(
        "--mode", help="strict: inventions and missing answers are errors; compat: as TaskBench counts."
    ),
]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="M", help='Language model that plans; "none": plan without one.'),
]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Only the first N requests.")]
Demos = Annotated[
    Literal["paper", "default", "knn"] | None,
    typer.Option("--demos", help="Demonstrations that the language model is shown."),
]
Predictions = Annotated[
    Path | None,
    typer.Option("--predictions", metavar="OUT", help="Write the plans there, as JSON lines; go on from it."),
]
Concurrency = Annotated[
    int, typer.Option("--concurrency", metavar="N", min=1, help="Requests that are planned at once.")
]
Chart = Annotated[
    Path | None, typer.Option("--chart", metavar="FILE", help="Draw the figures too, as .png or .svg.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else.")]


@eval_app.command()
def taskbench(
    folder: Folder,
    model: Model = None,
    limit: Limit = None,
    demos: Demos = None,
    predictions: Predictions = None,
    concurrency: Concurrency = 4,
    mode: Modes = "both",
    chart: Chart = None,
    as_json: AsJson = False,
) -> None:
    """Plan the requests of a TaskBench folder with its own tools, and score the plans."""
    from jarvis_agent.eval.taskbench import read_folder

    bench = read_folder(folder)
    requests = dict(list(bench.requests.items())[:limit])
    planner, name = planner_of(model, demos)
    made = asyncio.run(plan_all(requests, bench.specs, planner, predictions, concurrency))
    graphs = {one.graph.id: one.graph for one in made} | (_written(predictions) if predictions else {})
    gold = [graph for graph in bench.gold if graph.id in requests]
    if not gold:
        typer.echo(
            f"{folder} has no gold plans, so nothing is scored; {len(graphs)} plans were made", err=True
        )
        raise typer.Exit
    _print([_report(name, bench, gold, graphs, each, made) for each in _modes(mode)], chart, as_json)


@eval_app.command()
def compare(
    folder: Folder,
    one: Annotated[Path, typer.Argument(metavar="ONE", help="Predictions, one JSON line each.")],
    other: Annotated[Path, typer.Argument(metavar="OTHER", help="Those of another planner.")],
    mode: Modes = "strict",
    chart: Chart = None,
    as_json: AsJson = False,
) -> None:
    """Put the predictions of two planners side by side, with the interval of each difference."""
    from jarvis_agent.eval.metrics import score
    from jarvis_agent.eval.report import differences
    from jarvis_agent.eval.taskbench import read_folder

    bench = read_folder(folder)
    runs = [_written(path) for path in (one, other)]
    common = runs[0].keys() & runs[1].keys()
    gold = [graph for graph in bench.gold if graph.id in common]
    reports: list[Report] = []
    gains: dict[str, list[Figure]] = {}
    for each in _modes(mode):
        reports += [
            _report(path.name, bench, gold, graphs, each, [])
            for path, graphs in zip((one, other), runs, strict=True)
        ]
        gains[each] = differences(*(score(gold, graphs, bench.makes, each) for graphs in runs))
    _print(reports, chart, as_json, gains)


def planner_of(model: str | None, demos: str | None) -> tuple[Planner, str]:
    """The planner that the options ask for, and what it is called in reports."""
    from jarvis_agent.llm import Controller, describe_model, resolve_model
    from jarvis_agent.offline import OfflinePlanner
    from jarvis_agent.planner import LLMPlanner
    from jarvis_agent.prompting import load_prompts
    from jarvis_agent.settings import load_settings

    settings = load_settings(prompts="paper" if demos == "paper" else None, demos=demos)
    chat = None if model == NO_MODEL else resolve_model(model, settings)
    if chat is None:
        return OfflinePlanner(settings), "no model"
    prompts = load_prompts(settings.prompts)
    return LLMPlanner(Controller(chat, settings), settings, prompts), describe_model(chat)


async def plan_all(
    requests: Mapping[str, str],
    specs: Mapping[str, TaskSpec],
    planner: Planner,
    out: Path | None,
    concurrency: int,
    briefs: Mapping[str, Brief] | None = None,
) -> list[Prediction]:
    """What `predict` makes, with a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from jarvis_agent.eval.predict import planned, predict

    columns = (TextColumn("planning"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    made = []
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(
            "planning", total=len(requests), completed=len(planned(out) & requests.keys())
        )
        made_now = predict(requests, specs, planner, out=out, concurrency=concurrency, briefs=briefs)
        async for prediction in made_now:
            made.append(prediction)
            progress.advance(bar)
    return made


def _written(path: Path) -> dict[str, PlanGraph]:
    from jarvis_agent.eval.taskbench import read_predictions

    return read_predictions(path)


def _modes(mode: str) -> tuple[Mode, ...]:
    both: dict[str, tuple[Mode, ...]] = {"strict": ("strict",), "compat": ("compat",)}
    return both.get(mode, ("strict", "compat"))


def _report(
    name: str,
    bench: Bench,
    gold: Sequence[Any],
    graphs: dict[str, Any],
    mode: Mode,
    made: Sequence[Prediction],
) -> Report:
    from jarvis_agent.eval.metrics import score
    from jarvis_agent.eval.report import report_on

    return report_on(name, score(gold, graphs, bench.makes, mode), made)


def _print(
    reports: Sequence[Report],
    chart: Path | None,
    as_json: bool,
    gains: dict[str, list[Figure]] | None = None,
) -> None:
    import json

    from jarvis_agent.console.scores import scores_table
    from jarvis_agent.console.show import clean_json, make_console

    if chart is not None:
        from jarvis_agent.eval.chart import draw

        draw(reports, chart)
    if as_json:
        found: dict[str, Any] = {"reports": [report.model_dump(mode="json") for report in reports]}
        if gains is not None:
            found["differences"] = {mode: [f.model_dump() for f in each] for mode, each in gains.items()}
        typer.echo(clean_json(json.dumps(found, indent=2)))
        return
    make_console().print(scores_table(reports, gains))
