"""Adapters: whatever an expert returns becomes plain JSON and resources, or an error that names the model."""

import re
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from libraries import needs
from PIL import Image
from result_bench import ARM, Adapting, a_call, a_table, joint, kinds, texts

from jarvis_agent.backends.outputs.adapters import ADAPTERS, adapt
from jarvis_agent.backends.outputs.validators import quantity
from jarvis_agent.core.errors import BadInputError, InputError, UnsupportedError
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import Arg, TaskSpec
from jarvis_agent.core.types import Resource, Task, TaskResult
from jarvis_agent.media.tables import read_table

np = pytest.importorskip("numpy")
needs("cv2")
torch = needs("torch")

_LIKE = dict.fromkeys(
    ("text-classification", "zero-shot-image-classification", "video-classification", "audio-classification"),
    "image-classification",
) | {"zero-shot-object-detection": "object-detection"}
"""Tasks with the same adapter as another."""

NAN = float("nan")
F32, I64 = np.float32, np.int64
BOX = {"xmin": 1, "ymin": 2, "xmax": 3, "ymax": 4}


@pytest.fixture
def table(tmp_path: Path) -> Resource:
    return a_table(tmp_path)


@pytest.fixture
def inputs(photo: Resource, table: Resource) -> dict[str, Any]:
    """Inputs for any task: an image, a table and two sentences."""
    return {"image": photo, "table": table, "sentences": ["far", "near"], "text": "t"}


TEXT_KEYS = {
    "translation": "translation_text",
    "summarization": "summary_text",
    "text-generation": "generated_text",
    "image-to-text": "generated_text",
    "automatic-speech-recognition": "text",
    "image-text-to-text": "generated_text",
    "video-text-to-text": "generated_text",
    "audio-text-to-text": "generated_text",
    "any-to-any": "generated_text",
}
LABELLED = ("zero-shot-classification", "zero-shot-image-classification")
CLASSES = [{"label": "tabby cat", "score": F32(0.1137)}, {"label": "Egyptian cat", "score": F32(0.72439)}]
SORTED_CLASSES = [{"label": "Egyptian cat", "score": 0.7244}, {"label": "tabby cat", "score": 0.1137}]
SURE = [{"label": "cat", "score": 0.997}, {"label": "dog", "score": 0.003}]
ANSWERS = [{"answer": " no ", "score": 0.2}, {"answer": "yes", "score": F32(0.8), "start": 0, "end": 3}]
SORTED_ANSWERS = [{**ANSWERS[1], "score": 0.8}, {"answer": "no", "score": 0.2}]
ENTITY = {"entity_group": "PER", "score": 0.99, "word": "Ada", "start": 0, "end": 3}
READ = {"generated_text": "hi", "lines": [{"text": "hi", "score": 0.9, "box": BOX}]}
HEARD = {"text": " hi there", "chunks": [{"text": " hi there", "timestamp": (0.0, np.float64(1.5))}]}
PLAIN_HEARD = {"text": "hi there", "chunks": [{"text": "hi there", "timestamp": [0.0, 1.5]}]}
WORDS = [
    {"score": F32(0.1), "token": I64(7), "token_str": " Rome", "sequence": "It is Rome."},
    {"score": 0.8, "token": 5, "token_str": "Paris", "sequence": "It is Paris."},
]
CELLS = {
    "answer": " SUM > 10, 20",
    "coordinates": np.array([[0, 1], [1, 1]]),
    "cells": ["10", "20"],
    "aggregator": "SUM",
}
FORECAST = [
    {"series": "sales", "values": np.array([40.0, 50.0]), "low": [35, 42], "high": (45, 58)},
    {"series": "rain", "values": [F32(0.5), 1]},
]

FITTING = [{"answer": "a total", "similarity": 0.6}, {"answer": "b", "similarity": 0.55}]
SIMILAR = [{"label": "a", "similarity": 0.12}, {"label": "b", "similarity": 0.41}]

# Each row: task, raw output, adapted output, text of one resource ("" for any).
ADAPTED: list[tuple[str, Any, Any, str]] = [
    ("image-classification", CLASSES, SORTED_CLASSES, "Egyptian cat (0.72), tabby cat (0.11)"),
    ("zero-shot-classification", {"labels": ["a"], "scores": [0.9]}, [{"label": "a", "score": 0.9}], ""),
    ("zero-shot-classification", SIMILAR, SIMILAR[::-1], "b (similarity 0.41), a (similarity 0.12)"),
    ("image-classification", SURE, SURE, "cat (1.00)"),
    ("image-classification", SURE[1:], SURE[1:], "dog (0.00)"),
    ("token-classification", [{**ENTITY, "score": F32(0.99), "start": I64(0)}], [ENTITY], "Ada (PER)"),
    ("token-classification", [{**ENTITY, "entity_group": None, "entity": "PER"}], [ENTITY], "Ada (PER)"),
    ("token-classification", [], [], "no names"),
    ("question-answering", ANSWERS, SORTED_ANSWERS, "yes"),
    ("document-question-answering", FITTING, [{**row, "score": None} for row in FITTING], "a total\nb"),
    ("visual-question-answering", [{"answer": "blue"}], [{"answer": "blue", "score": None}], "blue"),
    *(
        (task, raw, {key: "hello"}, "hello")
        for task, key in TEXT_KEYS.items()
        for raw in (" hello ", {key: "hello"}, [{key: "hello"}])
    ),
    ("image-to-text", READ, READ, "hi"),
    ("automatic-speech-recognition", HEARD, PLAIN_HEARD, "hi there"),
    (
        "voice-activity-detection",
        [{"start": 0.5, "end": 2.0}, {"start": F32(3), "end": 4}],
        [{"start": 0.5, "end": 2.0}, {"start": 3.0, "end": 4.0}],
        "2.5 s of speech in 2 stretches: 0.5–2.0 s, 3.0–4.0 s",
    ),
    ("voice-activity-detection", [], [], "no speech"),
    ("sentence-similarity", np.array([0.1, 0.87654]), [0.1, 0.8765], "near (0.88); far (0.10)"),
    (
        "text-ranking",
        [{"index": 0, "text": "far", "score": -2.0}, {"index": I64(1), "text": "near", "score": 3.5}],
        [{"index": 1, "text": "near", "score": 3.5}, {"index": 0, "text": "far", "score": -2.0}],
        "1. near (3.50); 2. far (-2.00)",
    ),
    *(
        ("feature-extraction", raw, [1.0, 2.0], "a vector of 2 numbers")
        for raw in ([1.0, 2.0], [[[1.0, 2.0]]], np.array([[[0.0, 1.0], [2.0, 3.0]]], F32))
    ),
    (
        "fill-mask",
        WORDS,
        [WORDS[1], {"score": 0.1, "token": 7, "token_str": "Rome", "sequence": "It is Rome."}],
        "Paris (0.80), Rome (0.10)",
    ),
    (
        "table-question-answering",
        CELLS,
        {**CELLS, "answer": "SUM > 10, 20", "coordinates": [[0, 1], [1, 1]]},
        "SUM > 10, 20",
    ),
    (
        "table-question-answering",
        [{"answer": "20"}],
        {"answer": "20", "coordinates": [], "cells": [], "aggregator": "NONE"},
        "20",
    ),
    *(
        ("tabular-classification", {"predictions": raw}, labels, "")
        for raw, labels in (
            ([0, 1, 1], ["0", "1", "1"]),
            (np.array([0.0, 1.0, 1.5]), ["0", "1", "1.5"]),
            (np.array([["a"], ["b"], ["c"]]), ["a", "b", "c"]),
        )
    ),
    ("object-detection", [], [], "no objects"),
    ("mask-generation", [], [], ""),
    ("keypoint-detection", [], [], "no people"),
]


LISTS = ("token-classification", "zero-shot-classification", "image-classification", *_LIKE)
LISTS += ("object-detection", "fill-mask")
TYPES = dict.fromkeys(LISTS, "OutputElement") | {"table-question-answering": "OutputElement"}
TYPES |= dict.fromkeys(
    ("translation", "summarization", "text-generation", "image-to-text", "automatic-speech-recognition"),
    "Output",
)


@pytest.mark.parametrize(("task", "form"), TYPES.items())
def test_outputs_are_of_the_types_of_huggingface_hub(task: str, form: str) -> None:
    type_ = getattr(huggingface_hub, task.title().replace("-", "") + form)
    whole = list[type_] if task in LISTS else type_  # type: ignore[valid-type]
    boxes = [("object-detection", None, [{"label": "cat", "score": 0.9, "box": BOX}], "")]
    examples = [
        output for other, _, output, _ in (*ADAPTED, *boxes) if other in (task, _LIKE.get(task)) and output
    ]
    result = TaskResult(task=Task(task=task, id=0), status="ok", output=examples[0])
    assert result.output_as(whole)


@pytest.mark.parametrize(("task", "raw", "expected", "text"), ADAPTED)
def test_outputs_of_models_become_plain_json_and_a_text(
    adapting: Adapting, inputs: dict[str, Any], task: str, raw: Any, expected: Any, text: Any
) -> None:
    assert ADAPTERS.keys() <= TASKS.keys()
    output, resources = adapting(task, raw, **inputs)
    assert output == expected
    assert not text or text in texts(resources)


def test_a_score_may_be_a_tensor(adapting: Adapting, inputs: dict[str, Any]) -> None:
    raw = [{"label": "cat", "score": torch.tensor(0.75)}]
    assert adapting("zero-shot-image-classification", raw, **inputs)[0] == [{"label": "cat", "score": 0.75}]


def skeleton(**fields: Any) -> list[dict[str, Any]]:
    return [{"score": 1, "keypoints": ARM, **fields}]


def objects(**box: Any) -> list[dict[str, Any]]:
    return [{"label": "cat", "score": 0.5, "box": {**BOX, **box}}]


# By task: pairs of a raw output and a part of the error.
REFUSED: dict[str, list[tuple[Any, str]]] = {
    "image-classification": [([{"label": "cat", "score": F32(NAN)}], "finite")],
    "object-detection": [(objects(xmax=NAN), "finite")],
    "sentence-similarity": [([0.5, NAN], "finite")],
    "feature-extraction": [([[0.5, NAN]], "finite")],
    "text-to-speech": [({"audio": np.array([0.0, NAN]), "sampling_rate": 8000}, "finite")],
    "depth-estimation": [
        (np.full((2, 2), NAN, F32), "finite"),
        *((raw, "a depth map") for raw in (np.zeros((0, 4)), np.zeros((2, 3, 4)), [[1, 2], [3]])),
        ({"depth": "deep"}, "a depth map"),
    ],
    "mask-generation": [([{"mask": "here", "score": 1}], "an image"), ([{"score": 1}], "{mask, score}")],
    "keypoint-detection": [
        (skeleton(edges=[(0, 3)]), "edges between the 3 keypoints"),
        (skeleton(edges=[(0, 1, 2)]), "0.edges.0: "),
        (skeleton(keypoints=[joint("nose", NAN, 1)]), "finite"),
        (skeleton(keypoints=[{"x": 1, "y": 2}]), "0.keypoints.0.label: "),
        (skeleton(box=[1, 2, 3, 4]), "0.box: "),
    ],
    "tabular-classification": [
        ({"predictions": [1, 2, 3], "probabilities": [[0.5]]}, ""),
        ({"predictions": [1, 2, 3], "probabilities": [[]] * 3}, ""),
        ({"predictions": [1, None, 2]}, "one prediction for each of 3 rows (1"),
    ],
    "tabular-regression": [
        ({"predictions": [1, None, 2]}, "(1: Input should be a valid number)"),
        ({"predictions": [1, 2]}, "one prediction for each of 3 rows"),
        ({"predictions": [1.0, NAN, 2.0]}, "finite"),
    ],
    "time-series-forecasting": [
        ([{"series": "a", "values": [1]}, {"series": "b", "values": [1, 2]}], "series of one length"),
        ([{"series": "a", "values": []}], "0.values: "),
        ([], "series of one length"),
    ],
    "table-question-answering": [({"answer": None}, "a list of {answer}")],
    "visual-document-retrieval": [(raw, "") for raw in ([0.1, 0.2], [NAN])],
    **{task: [([], "at least one label")] for task in LABELLED},
    "any-to-any": [(raw, "a text") for raw in ({"generated_text": None}, [{"generated_text": ["a"]}])],
}

GARBAGE = [None, 42, "garbage", [], {}, [None], [{"label": 1}], {"a": object()}, object(), [[["x"]]]]
MAY_BE_EMPTY = {
    *("object-detection", "zero-shot-object-detection", "keypoint-detection", "mask-generation"),
    *("image-segmentation", "token-classification", "voice-activity-detection", "text-ranking"),
}


def is_valid(task: str, raw: Any) -> bool:
    """Whether garbage happens to be a result of the task: a text, also as an answer, or nothing found."""
    is_text = task in TEXT_KEYS or task.endswith("question-answering")
    return (raw == "garbage" and is_text) or (raw == [] and task in MAY_BE_EMPTY)


@pytest.mark.slow
def test_other_outputs_are_refused_with_the_model_named(adapting: Adapting, inputs: dict[str, Any]) -> None:
    """Garbage for each task, and outputs of which a part is wrong. Failures are collected."""
    rows = [(task, raw, "") for task in TASKS for raw in GARBAGE if not is_valid(task, raw)]
    rows += [(task, np.zeros((2, 2, 2, 2)), "") for task in TASKS]
    rows += [(task, raw, part) for task, listed in REFUSED.items() for raw, part in listed]
    wrong = []
    for task, raw, part in rows:
        try:
            wrong.append((task, str(raw), str(adapting(task, raw, **inputs))))
        except UnsupportedError as error:
            refused = f"org/model did not return what {task} makes: "
            if not re.match(rf"(?s){refused}.*; expected was .*{re.escape(part)}", str(error)):
                wrong.append((task, str(raw), str(error)))
    assert not wrong


def written(resources: list[Resource]) -> dict[str, list[Any]]:
    """The one table among the resources, read back."""
    (file,) = (resource for resource in resources if resource.kind == "table")
    assert file.mime == "text/csv"
    return read_table(file.path).columns


def test_predictions_stand_beside_the_rows_that_they_belong_to(
    adapting: Adapting, table: Resource, tmp_path: Path
) -> None:
    raw = {"predictions": np.array(["yes", "no", "yes"]), "probabilities": np.array([[0.9, 0.1]] * 3)}
    output, resources = adapting("tabular-classification", raw, table=table)
    assert output == ["yes", "no", "yes"]
    rows = {"month": [1, 2, 3], "sales": [10, 20, 30]}
    assert written(resources) == {**rows, "prediction": output, "probability": [0.9, 0.9, 0.9]}
    assert resources[-1].text == "3 rows: 2 yes, 1 no"
    numbers = {"predictions": np.array([[1.0], [2.0], [4.5]], F32)}
    output, resources = adapting("tabular-regression", numbers, table=table)
    assert output == written(resources)["prediction"] == [1.0, 2.0, 4.5]
    assert resources[-1].text == "3 rows: from 1 to 4.5, 2.5 on average"
    old = tmp_path / "old.csv"
    old.write_text("prediction\nno\nyes\n")
    given = Resource(kind="table", path=old)
    resources = adapting("tabular-classification", {"predictions": ["a", "b"]}, table=given)[1]
    assert written(resources) == {"prediction": ["no", "yes"], "prediction_new": ["a", "b"]}
    old.write_text("zip;price\n01234;1.234,50\n00501;n/a\n")
    path = adapting("tabular-regression", {"predictions": [1, 2]}, table=given)[1][0].path
    assert Path(str(path)).read_text() == 'zip,price,prediction\n01234,"1.234,50",1.0\n00501,n/a,2.0\n'
    output, resources = adapting("time-series-forecasting", FORECAST, table=table)
    assert output == [
        {"step": 1, "sales": 40.0, "sales_low": 35.0, "sales_high": 45.0, "rain": 0.5},
        {"step": 2, "sales": 50.0, "sales_low": 42.0, "sales_high": 58.0, "rain": 1.0},
    ]
    assert written(resources)["sales_low"] == [35.0, 42.0]
    assert resources[-1].text == "2 steps ahead: sales from 40 to 50, rain from 0.5 to 1"


def test_a_table_argument_is_read_with_its_notes_once(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("Report\n\nmonth;sales\n2026-01;1.234\n2026-02;2.500\n")
    call = a_call(TASKS["tabular-regression"], tmp_path, table=Resource(kind="table", path=path))
    assert call.table() == call.table()
    assert call.table().columns["sales"] == [1234, 2500]
    assert call.notes == ["left out of the table: Report", "1.234 in the column sales was read as 1234"]
    call = a_call(TASKS["tabular-regression"], tmp_path, table=Resource(kind="table"))
    with pytest.raises(BadInputError, match="needs a file for table"):
        call.table()


def test_pages_keep_their_order_and_are_listed_best_first(adapting: Adapting, photo: Resource) -> None:
    pages = [photo, photo.model_copy(update={"path": Path("other.png")})]
    output, resources = adapting("visual-document-retrieval", np.array([0.1, 0.9]), image=pages)
    assert output == [0.1, 0.9]
    assert "other.png (0.90); photo.png (0.10)" in texts(resources)


def test_a_task_of_the_user_is_adapted_by_its_outputs(adapting: Adapting, inputs: dict[str, Any]) -> None:
    def spec(*outputs: Any) -> TaskSpec:
        return TaskSpec("sketch-cleanup", "vision", "Clean a sketch.", (Arg("image", "image"),), outputs)

    assert adapting(spec("text"), "done")[0] == {"generated_text": "done"}
    output, resources = adapting(spec("data", "text"), {"n": I64(2), "path": Path("a"), "nan": NAN})
    assert output == {"n": 2, "path": "a", "nan": None}
    assert kinds(resources) == ["data", "text"]
    assert adapting(spec("image"), inputs["image"].path)[0]["width"] == 200
    output, resources = adapting(spec("table"), inputs["table"].path)
    assert output == {"path": str(inputs["table"].path)}
    assert (resources[0].kind, resources[0].mime) == ("table", "text/csv")


def test_a_result_that_cannot_be_written_names_the_directory(tmp_path: Path) -> None:
    spec = TASKS["text-to-image"]
    with pytest.raises(InputError, match=r"text-to-image cannot be written: .*gone.*JARVIS_OUTPUT_DIR"):
        adapt(spec, Image.new("L", (2, 2)), a_call(spec, tmp_path / "gone"))


def test_nouns_are_counted_in_english() -> None:
    nouns = ["cat", "wine glass", "old person", "butterfly", "boy", "sheep"]
    several = ["cats", "wine glasses", "old people", "butterflies", "boys", "sheep"]
    assert [quantity(2, noun) for noun in nouns] == [f"2 {noun}" for noun in several]
