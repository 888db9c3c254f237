"""`jarvis eval compare`: the predictions of two planners side by side, with the interval of each difference.

jarvis eval compare data_huggingface one.jsonl other.jsonl --chart both.svg
jarvis eval compare one.jsonl other.jsonl --half dev         # plans of our own requests
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jarvis_agent.interfaces.cli.evaluate import (
    AsJson,
    Chart,
    Modes,
    check_chart,
    modes_of,
    print_scores,
    report_on_bench,
)
from jarvis_agent.interfaces.cli.evaluate_own import Half, Requests

if TYPE_CHECKING:
    from jarvis_agent.evaluation.predictions import Prediction
    from jarvis_agent.evaluation.report import Figure, Report
    from jarvis_agent.evaluation.requests import OwnRequest
    from jarvis_agent.evaluation.taskbench import Bench

    Runs = Sequence[Mapping[str, Prediction]]
    Compared = tuple[list[Report], dict[str, list[Figure]]]

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="[DIR] ONE OTHER",
        help="Predictions of two planners; first their TaskBench folder, if not of our own requests.",
    ),
]


def compare(
    files: Files,
    mode: Modes = "strict",
    half: Half = "all",
    requests: Requests = None,
    chart: Chart = None,
    as_json: AsJson = False,
) -> None:
    """Put the predictions of two planners side by side, with the interval of each difference.

    In strict mode all requests count that one of the two has planned, in compat mode those that both have.
    """
    from jarvis_agent.evaluation.predictions import read_predictions
    from jarvis_agent.evaluation.requests import read_requests
    from jarvis_agent.evaluation.taskbench import read_folder

    if len(files) not in (2, 3):
        raise typer.BadParameter(
            "two files of predictions are compared, with or without a folder before them"
        )
    folder, paths = files[:-2], files[-2:]
    if folder and (half != "all" or requests is not None):
        raise typer.BadParameter("--half and --requests are for our own requests, without a folder")
    if not folder and mode != "strict":
        raise typer.BadParameter("plans of our own requests are always scored strictly: leave out --mode")
    check_chart(chart)
    runs = [read_predictions(path) for path in paths]
    names = _names(*paths)
    if folder:
        reports, gains = _on_bench(read_folder(folder[0]), runs, names, mode)
    else:
        reports, gains = _on_own(read_requests(half, requests), runs, names)
    print_scores(reports, chart, as_json, gains)


def _names(one: Path, other: Path) -> Sequence[str]:
    """What the two are called: their files, with the folders where the names are the same."""
    if one.name != other.name:
        return one.name, other.name
    return f"{one} (1)", f"{other} (2)"


def _on_bench(bench: Bench, runs: Runs, names: Sequence[str], mode: str) -> Compared:
    from jarvis_agent.evaluation.report import differences

    reports: list[Report] = []
    gains: dict[str, list[Figure]] = {}
    planned = [{record for record, one in run.items() if one.error is None} for run in runs]
    for each in modes_of(mode):
        counted = runs[0].keys() | runs[1].keys() if each == "strict" else planned[0] & planned[1]
        gold = [graph for graph in bench.gold if graph.id in counted]
        left_out = len(bench.gold) - len(gold)
        scores, found = zip(
            *(report_on_bench(name, bench, gold, run, each) for name, run in zip(names, runs, strict=True)),
            strict=True,
        )
        reports += [report.model_copy(update={"left_out": left_out}) for report in found]
        gains[each] = differences(*scores)
    return reports, gains


def _on_own(asked: Sequence[OwnRequest], runs: Runs, names: Sequence[str]) -> Compared:
    from jarvis_agent.evaluation.paper import FIGURES, judge_all, report_of
    from jarvis_agent.evaluation.report import differences_of

    counted = [one for one in asked if one.id in runs[0] or one.id in runs[1]]
    left_out = len(asked) - len(counted)
    judged = [judge_all(counted, run) for run in runs]
    gains = differences_of(list(zip(*judged, strict=True)), FIGURES)
    reports = [report_of(*each, left_out) for each in zip(names, judged, runs, strict=True)]
    return reports, {"strict": gains}
