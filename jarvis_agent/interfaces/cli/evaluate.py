"""`jarvis eval taskbench`, and what the commands below `jarvis eval` share: options, planning, printing.

jarvis eval taskbench data_huggingface --model none --limit 100 --predictions plans.jsonl

Progress is shown on stderr, reports on stdout. The exit code is 1 where the planner failed at every request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from jarvis_agent.core.request import RunContext
    from jarvis_agent.core.tasks.spec import TaskSpec
    from jarvis_agent.evaluation.graphs import PlanGraph
    from jarvis_agent.evaluation.metrics import Mode, Scores
    from jarvis_agent.evaluation.predictions import Prediction
    from jarvis_agent.evaluation.report import Figure, Report
    from jarvis_agent.evaluation.taskbench import Bench
    from jarvis_agent.planning.chain import Planner

NO_MODEL = "none"

TYPES = ("single", "chain", "dag")
"""TaskBench's types of plans, in the order in which they are shown."""

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
    typer.Option("--model", metavar="M", help='Language model to ask; "none": work without one.'),
]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Only the first N requests.")]
Predictions = Annotated[
    Path | None,
    typer.Option("--predictions", metavar="OUT", help="Write the plans there, as JSON lines; go on from it."),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        metavar="N",
        min=1,
        help="Requests that are planned at once: 4, without a language model 1, as they would compete.",
    ),
]
Chart = Annotated[
    Path | None, typer.Option("--chart", metavar="FILE", help="Draw the figures too, as .png or .svg.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else.")]

TELLING = ("structured_output",)
"""Further settings that make another planner of a language model."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A planner to be scored; its name tells it from the others, in reports and in files of predictions."""

    planner: Planner
    name: str
    has_model: bool


@eval_app.command()
def taskbench(
    folder: Folder,
    model: Model = None,
    limit: Limit = None,
    predictions: Predictions = None,
    concurrency: Concurrency = None,
    mode: Modes = "both",
    chart: Chart = None,
    as_json: AsJson = False,
) -> None:
    """Plan the requests of a TaskBench folder with its own tools, and score the plans."""
    from jarvis_agent.evaluation.taskbench import read_folder

    check_chart(chart)
    bench = read_folder(folder)
    requests = dict(list(bench.requests.items())[:limit])
    contender = contender_of(model)
    made = plan_all(contender, requests, bench.specs, predictions, concurrency)
    gold = [graph for graph in bench.gold if graph.id in requests]
    if gold:
        modes = modes_of(mode)
        reports = [report_on_bench(contender.name, bench, gold, made, each)[1] for each in modes]
        print_scores(reports, chart, as_json, by_type=_by_type(bench, gold, made, modes[0]))
    else:
        _print_unscored(folder, made, as_json)
    exit_if_all_failed(made)


def check_chart(chart: Path | None) -> None:
    """Refuse a chart that can not be drawn, before anything is planned."""
    from jarvis_agent.evaluation import chart as charts

    if chart is not None:
        charts.check_chart(chart)


def contender_of(model: str | None) -> Contender:
    """The planner that the options ask for."""
    from jarvis_agent.core.settings import Settings, load_settings
    from jarvis_agent.llm.client import LLMClient, describe_model, resolve_model
    from jarvis_agent.llm.prompts import load_prompts
    from jarvis_agent.llm.token_budget import window_of
    from jarvis_agent.planning.chain import LLMPlanner
    from jarvis_agent.planning.offline import OfflinePlanner

    settings = load_settings()
    chat = None if model == NO_MODEL else resolve_model(model, settings)
    if chat is None:
        return Contender(OfflinePlanner(settings=settings), "no model", has_model=False)
    prompts = load_prompts(settings.prompts, window=window_of(chat, settings))
    planner = LLMPlanner(LLMClient(chat, settings), settings, prompts)
    told = [describe_model(chat)]
    told += [f"{settings.prompts} prompts"] if settings.prompts != "default" else []
    told += [
        f"{name}={value}"
        for name in TELLING
        if (value := getattr(settings, name)) != Settings.model_fields[name].default
    ]
    return Contender(planner, ", ".join(told), has_model=True)


def plan_all(
    contender: Contender,
    requests: Mapping[str, str],
    specs: Mapping[str, TaskSpec],
    out: Path | None,
    concurrency: int | None,
    briefs: Mapping[str, RunContext] | None = None,
) -> dict[str, Prediction]:
    """What `predict` yields, by id, with a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from jarvis_agent.evaluation.predict import predict

    columns = (TextColumn("planning"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    made = predict(
        requests,
        specs,
        contender.planner,
        name=contender.name,
        out=out,
        concurrency=concurrency or (4 if contender.has_model else 1),
        briefs=briefs,
        warm=not contender.has_model,
    )

    async def collect() -> dict[str, Prediction]:
        found = {}
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            bar = progress.add_task("planning", total=len(requests))
            async for prediction in made:
                found[prediction.id] = prediction
                progress.advance(bar)
        return found

    return asyncio.run(collect())


def modes_of(mode: str) -> tuple[Mode, ...]:
    """The modes that the option --mode asks for."""
    both: dict[str, tuple[Mode, ...]] = {"strict": ("strict",), "compat": ("compat",)}
    return both.get(mode, ("strict", "compat"))


def report_on_bench(
    name: str, bench: Bench, gold: Sequence[PlanGraph], made: Mapping[str, Prediction], mode: Mode
) -> tuple[Scores, Report]:
    """Score predictions, by id, against some of a folder's gold plans; one with an error is no plan."""
    from jarvis_agent.evaluation.metrics import score
    from jarvis_agent.evaluation.report import report_on

    graphs = {record: one.graph for record, one in made.items() if one.error is None}
    scores = score(gold, graphs, bench.makes, mode)
    judged = [made[graph.id] for graph in gold if graph.id in made]
    return scores, report_on(name, scores, judged, left_out=len(gold) - len(scores.requests))


def _by_type(
    bench: Bench, gold: Sequence[PlanGraph], made: Mapping[str, Prediction], mode: Mode
) -> list[Report]:
    """A report for each of TaskBench's types of plans, such as "chain"; none where all are of one type."""
    types = sorted({graph.kind for graph in gold}, key=(*TYPES, *(graph.kind for graph in gold)).index)
    if len(types) < 2:
        return []
    return [
        report_on_bench(kind, bench, [graph for graph in gold if graph.kind == kind], made, mode)[1]
        for kind in types
    ]


def _print_unscored(folder: Path, made: Mapping[str, Prediction], as_json: bool) -> None:
    from jarvis_agent.evaluation.report import seconds_of
    from jarvis_agent.interfaces.cli.scores import times

    failed, reason = _failures(made)
    planned, seconds = len(made) - failed, seconds_of(list(made.values()))
    if as_json:
        found = {"planned": planned, "failed": failed, "reason": reason, "seconds": seconds}
        print_json({"reports": [], **found})
        return
    told = f"; {failed} failed, mostly so: {reason}" if failed else ""
    typer.echo(
        f"{folder} has no gold plans, so nothing is scored; {planned} plans were made, in {times(seconds)} "
        f"ms a request (median and 95th percentile){told}",
        err=True,
    )


def exit_if_all_failed(made: Mapping[str, Prediction]) -> None:
    """Exit with code 1 where there is no plan at all, and say why."""
    failed, reason = _failures(made)
    if failed and failed == len(made):
        typer.echo(f"the planner failed at every request, mostly so: {reason}", err=True)
        raise typer.Exit(1)


def _failures(made: Mapping[str, Prediction]) -> tuple[int, str | None]:
    """How many there are, and why most of them."""
    from jarvis_agent.core.text import clean
    from jarvis_agent.evaluation.report import commonest

    reasons = [clean(one.error) for one in made.values() if one.error is not None]
    return len(reasons), commonest(reasons)


def print_scores(
    reports: Sequence[Report],
    chart: Path | None,
    as_json: bool,
    gains: Mapping[str, Sequence[Figure]] | None = None,
    by_type: Sequence[Report] = (),
) -> None:
    """Print reports side by side, with what the second is better by; draw them if a chart is asked for."""
    from jarvis_agent.interfaces.cli.progress import make_console
    from jarvis_agent.interfaces.cli.scores import scores_table, types_table

    if chart is not None:
        from jarvis_agent.evaluation.chart import draw

        draw(reports, chart)
    if as_json:
        found: dict[str, Any] = {"reports": [report.model_dump(mode="json") for report in reports]}
        if gains is not None:
            found["differences"] = {mode: [f.model_dump() for f in each] for mode, each in gains.items()}
        if by_type:
            found["by_type"] = [report.model_dump(mode="json") for report in by_type]
        print_json(found)
        return
    make_console().print(scores_table(reports, gains), *([types_table(by_type)] if by_type else []))


def print_json(found: dict[str, Any]) -> None:
    """Print on stdout, without what a terminal would act on."""
    from jarvis_agent.core.text import clean_json

    typer.echo(clean_json(json.dumps(found, indent=2, ensure_ascii=False)))
