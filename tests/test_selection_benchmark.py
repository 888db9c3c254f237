"""A folder of APIBench is read as it is, and orders of models get the figures that are computed by hand."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import selection
from selection import Ranked, SelectionRequest, rank, read_folder, selection_report

from jarvis_agent.core.errors import InputError
from jarvis_agent.core.settings import Settings
from jarvis_agent.evaluation.predict import Prediction
from jarvis_agent.testing import ScriptedLLM

VISION, GAMES = "Computer Vision Object Detection", "Reinforcement Learning"


def described(name: str, domain: str, **fields: Any) -> dict[str, Any]:
    return {"api_name": name, "domain": domain, "description": f"About {name}.", **fields}


MODELS = [
    described("one", VISION, performance={"dataset": [{"name": "COCO"}], "accuracy": "N/A"}),
    described("two", VISION, functionality="Detection", performance={"dataset": "N/A"}),
    described("two", VISION, description="The same again."),
    described("poca", GAMES, example_code="env = 'SoccerTwos'", performance=None),
]


def write(folder: Path, *asked: tuple[str, dict[str, Any]]) -> Path:
    (folder / "huggingface_api.jsonl").write_text("\n".join(map(json.dumps, MODELS)))
    lines = [json.dumps({"code": code, "api_data": gold}) for code, gold in asked]
    (folder / "huggingface_eval.json").write_text("\n".join(lines))
    return folder


def ranked(right: str, *order: str, domain: str = VISION) -> Ranked:
    asked = SelectionRequest(1, "?", domain, right)
    return Ranked(asked, order, Prediction(id="1", seconds=0.1))


def test_a_folder_gives_requests_and_each_model_once(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        ("###Instruction: Find cats.\n###Output: <<<domain>>>", MODELS[0]),
        ("Instruction: Play soccer.\nOutput: <<<domain>>>", MODELS[3]),
        ("nothing of the kind", MODELS[0]),
    )
    requests, models = read_folder(folder)
    assert [(one.line, one.request, one.model) for one in requests] == [
        (1, "Find cats.", "one"),
        (2, "Play soccer.", "poca"),
    ]
    one, two = models[VISION].values()
    assert (one.tags, two.tags, two.description) == (("dataset:COCO",), ("Detection",), "About two.")
    assert (one.task, models[GAMES]["poca"].task) == ("object-detection", GAMES)
    assert [each.line for each in read_folder(folder, "dev")[0]] == [1]
    assert [each.line for each in read_folder(folder, "test")[0]] == [2]


async def test_a_domain_that_is_no_task_type_is_ranked_too(tmp_path: Path) -> None:
    bench = read_folder(write(tmp_path, ("Instruction: Play soccer.\nOutput:", MODELS[3])))
    (found,) = await rank(*bench, Settings())
    assert found.order == ("poca",)


def test_a_model_chooses_in_place_of_the_ranking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path, ("Instruction: Find dogs.\nOutput:", MODELS[1]))
    for chosen, share in (("two", "100.0%"), ("one", "0.0%")):
        model = ScriptedLLM({"select": json.dumps({"id": chosen, "reason": "it fits"})})
        monkeypatch.setattr(selection, "resolve_model", lambda name, settings, model=model: model)
        selection.main(folder, model="scripted")
        assert re.search(rf"first +{share}", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("record", "said"),
    [({"code": "x", "api_data": {"domain": VISION, "api_name": "three"}}, "line 1"), ({"text": "x"}, "code")],
)
def test_files_of_another_kind_are_refused(record: dict[str, Any], said: str, tmp_path: Path) -> None:
    (write(tmp_path) / "huggingface_eval.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match=said):
        read_folder(tmp_path)


def test_figures_agree_with_hand_computed_ones() -> None:
    items = [ranked("a", "a", "b"), *(ranked(right, *"abcdefgh") for right in "ch")]
    items.append(ranked("z", *"abcdefgh", domain=GAMES))
    report = selection_report("ours", items)
    assert {one.name: one.value for one in report.figures} == {"first": 0.25, "among 5": 0.5, "among 8": 0.75}
    assert report.seconds == (0.1, 0.1)
