"""Adapters: whatever an expert returns becomes plain JSON and resources, or an error that names it."""

from __future__ import annotations

import re
import wave
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from result_bench import Adapting, a_call, a_photo, a_table, adapting_in, kinds

from jarvis_agent.backends.outputs.adapters import ADAPTERS, adapt
from jarvis_agent.backends.outputs.validators import plural, quantity
from jarvis_agent.core.errors import InputError, UnsupportedError
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import Arg, TaskSpec
from jarvis_agent.core.types import Resource

np = pytest.importorskip("numpy")


@pytest.fixture
def photo(tmp_path: Path) -> Resource:
    return a_photo(tmp_path)


@pytest.fixture
def table(tmp_path: Path) -> Resource:
    return a_table(tmp_path)


@pytest.fixture
def adapting(tmp_path: Path) -> Adapting:
    return adapting_in(tmp_path)


def test_every_adapter_belongs_to_a_known_task() -> None:
    assert ADAPTERS.keys() <= TASKS.keys()


def test_classes_come_best_first_with_rounded_scores(adapting: Adapting) -> None:
    raw = [
        {"label": "tabby cat", "score": np.float32(0.1137)},
        {"label": "Egyptian cat", "score": np.float32(0.72439)},
    ]
    output, resources = adapting("image-classification", raw)
    assert output == [{"label": "Egyptian cat", "score": 0.7244}, {"label": "tabby cat", "score": 0.1137}]
    assert kinds(resources) == ["data", "text"]
    assert resources[0].data == output
    assert resources[1].text == "Egyptian cat (0.72), tabby cat (0.11)"


def test_zero_shot_classes_become_pairs_of_label_and_score(adapting: Adapting) -> None:
    output, _ = adapting(
        "zero-shot-classification", {"sequence": "x", "labels": ["a", "b"], "scores": [0.9, 0.1]}
    )
    assert output == [{"label": "a", "score": 0.9}, {"label": "b", "score": 0.1}]


def test_objects_are_drawn_counted_and_listed(adapting: Adapting, photo: Resource) -> None:
    box = {"xmin": 10.4, "ymin": 20.6, "xmax": 60, "ymax": 80}
    raw = [
        {"label": "cat", "score": np.float32(0.9), "box": box},
        {"label": "remote", "score": 0.5, "box": box},
        {"label": "cat", "score": 0.95, "box": {**box, "xmax": np.int64(400)}},
    ]
    output, resources = adapting("object-detection", raw, image=photo)
    assert output[1] == {
        "label": "cat",
        "score": 0.9,
        "box": {"xmin": 10, "ymin": 21, "xmax": 60, "ymax": 80},
    }
    assert kinds(resources) == ["image", "data", "text"]
    assert resources[2].text == "3 objects: 2 cats, 1 remote"
    drawn, plain = resources[0].to_pil(), photo.to_pil()
    assert drawn.size == plain.size
    assert drawn.getpixel((10, 50)) != plain.getpixel((10, 50))
    assert drawn.getpixel((35, 50)) == plain.getpixel((35, 50))


def test_an_image_without_objects_is_no_error(adapting: Adapting, photo: Resource) -> None:
    output, resources = adapting("object-detection", [], image=photo)
    assert output == []
    assert resources[0].to_pil().tobytes() == photo.to_pil().tobytes()
    assert resources[2].text == "no objects"


def test_boxes_outside_the_picture_or_turned_round_are_still_drawn(
    adapting: Adapting, photo: Resource
) -> None:
    raw = [{"label": "x" * 90, "score": 1.0, "box": {"xmin": 900, "ymin": 50, "xmax": -20, "ymax": -3}}]
    output, resources = adapting("object-detection", raw, image=photo)
    assert output[0]["box"]["xmin"] == 900
    assert resources[0].to_pil().size == (200, 100)


def test_segments_give_an_overlay_and_a_mask_file_each(adapting: Adapting, photo: Resource) -> None:
    mask = Image.new("L", (200, 100))
    mask.paste(255, (0, 0, 100, 100))
    raw = [
        {"label": "cat", "score": None, "mask": mask},
        {"label": "sky", "score": 0.5, "mask": np.ones((50, 100), bool)},
    ]
    output, resources = adapting("image-segmentation", raw, image=photo)
    assert [row["score"] for row in output] == [None, 0.5]
    assert kinds(resources) == ["image", "image", "image", "data", "text"]
    assert [row["mask"] for row in output] == [str(resource.path) for resource in resources[1:3]]
    with Image.open(output[0]["mask"]) as saved:
        assert (saved.mode, saved.size, saved.getpixel((99, 0)), saved.getpixel((100, 0))) == (
            "L",
            (200, 100),
            255,
            0,
        )
    assert resources[0].to_pil().getpixel((10, 10)) != photo.to_pil().getpixel((10, 10))
    assert resources[-1].text == "2 segments: cat (50 %), sky (100 %)"


def test_entities_keep_their_places(adapting: Adapting) -> None:
    raw = [{"entity_group": "PER", "score": np.float32(0.99), "word": "Ada", "start": np.int64(0), "end": 3}]
    output, resources = adapting("token-classification", raw)
    assert output == [{"entity_group": "PER", "score": 0.99, "word": "Ada", "start": 0, "end": 3}]
    assert resources[1].text == "Ada (PER)"
    assert adapting("token-classification", [])[1][1].text == "no names"


@pytest.mark.parametrize(
    "task", ["question-answering", "document-question-answering", "visual-question-answering"]
)
def test_the_best_answer_is_the_text(adapting: Adapting, task: str) -> None:
    raw = [
        {"answer": " no ", "score": 0.2},
        {"answer": "yes", "score": np.float32(0.8), "start": 0, "end": 3},
    ]
    output, resources = adapting(task, raw)
    assert output[0] == {"answer": "yes", "score": 0.8, "start": 0, "end": 3}
    assert kinds(resources) == ["text", "data"]
    assert resources[0].text == "yes"
    assert adapting(task, [{"answer": "blue"}])[0] == [{"answer": "blue", "score": None}]


@pytest.mark.parametrize(
    ("task", "key"),
    [
        ("translation", "translation_text"),
        ("summarization", "summary_text"),
        ("text-generation", "generated_text"),
        ("image-to-text", "generated_text"),
        ("automatic-speech-recognition", "text"),
    ],
)
def test_written_text_may_come_bare_in_a_dict_or_in_a_list(adapting: Adapting, task: str, key: str) -> None:
    for raw in ("hello ", {key: "hello"}, [{key: "hello"}]):
        output, resources = adapting(task, raw)
        assert output == {key: "hello"}
        assert resources[0].kind == "text"
        assert resources[0].text == "hello"


def test_the_lines_of_a_read_page_are_kept(adapting: Adapting) -> None:
    lines = [{"text": "hi", "score": 0.9, "box": {"xmin": 1, "ymin": 2, "xmax": 3, "ymax": 4}}]
    output, _ = adapting("image-to-text", {"generated_text": "hi", "lines": lines})
    assert output == {"generated_text": "hi", "lines": lines}


def test_a_transcript_keeps_its_times(adapting: Adapting) -> None:
    raw = {"text": " hi there", "chunks": [{"text": " hi there", "timestamp": (0.0, np.float64(1.5))}]}
    output, resources = adapting("automatic-speech-recognition", raw)
    assert output == {"text": "hi there", "chunks": [{"text": "hi there", "timestamp": [0.0, 1.5]}]}
    assert kinds(resources) == ["text", "data"]


def test_speech_segments_are_summed_up(adapting: Adapting) -> None:
    raw = [{"start": 0.5, "end": 2.0}, {"start": np.float32(3), "end": 4}]
    output, resources = adapting("voice-activity-detection", raw)
    assert output == [{"start": 0.5, "end": 2.0}, {"start": 3.0, "end": 4.0}]
    assert resources[1].text == "2.5 s of speech in 2 stretches: 0.5–2.0 s, 3.0–4.0 s"
    assert adapting("voice-activity-detection", [])[1][1].text == "no speech"


def test_similar_sentences_are_named_best_first(adapting: Adapting) -> None:
    output, resources = adapting(
        "sentence-similarity", np.array([0.1, 0.87654]), text="t", sentences=["far", "near"]
    )
    assert output == [0.1, 0.8765]
    assert resources[1].text == "near (0.88); far (0.10)"


def test_ranked_texts_are_numbered(adapting: Adapting) -> None:
    raw = [{"index": 0, "text": "far", "score": -2.0}, {"index": np.int64(1), "text": "near", "score": 3.5}]
    output, resources = adapting("text-ranking", raw)
    assert output[0] == {"index": 1, "text": "near", "score": 3.5}
    assert resources[1].text == "1. near (3.50); 2. far (-2.00)"


@pytest.mark.parametrize(
    "raw", [[1.0, 2.0], [[[1.0, 2.0]]], np.array([[[0.0, 1.0], [2.0, 3.0]]], np.float32)]
)
def test_features_become_one_vector(adapting: Adapting, raw: Any) -> None:
    output, resources = adapting("feature-extraction", raw)
    assert output == [1.0, 2.0]
    assert kinds(resources) == ["data"]
    assert resources[0].text == "a vector of 2 numbers"


@pytest.mark.parametrize(
    "samples",
    [
        np.full(8000, 0.5, np.float32),
        np.full((1, 8000), 0.5, np.float64),
        np.full((8000, 2), 0.5),
        np.full((2, 8000), 16384, np.int16),
    ],
)
def test_sound_is_written_as_16_bit_mono_wav(adapting: Adapting, samples: Any) -> None:
    output, resources = adapting("text-to-speech", {"audio": samples, "sampling_rate": np.int64(16_000)})
    assert output == {"sampling_rate": 16_000, "duration": 0.5, "path": str(resources[0].path)}
    assert kinds(resources) == ["audio"]
    with wave.open(output["path"]) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate(), file.getnframes()) == (
            1,
            2,
            16_000,
            8000,
        )
        assert int.from_bytes(file.readframes(1), "little", signed=True) == pytest.approx(16384, abs=2)


def test_separated_voices_become_a_file_each(adapting: Adapting) -> None:
    raw = [{"audio": np.zeros(80), "sampling_rate": 8000, "label": name} for name in ("one", "two")]
    output, resources = adapting("audio-to-audio", raw)
    assert [row["label"] for row in output] == ["one", "two"]
    assert len({resource.path for resource in resources}) == 2


@pytest.mark.parametrize(
    "raw",
    [
        Image.new("RGB", (4, 2), "red"),
        Image.new("CMYK", (4, 2)),
        {"image": Image.new("L", (4, 2))},
        [Image.new("RGBA", (4, 2))],
        np.zeros((2, 4, 3), np.float32),
        np.zeros((2, 4, 1), np.uint8),
        np.zeros((2, 4), bool),
    ],
)
def test_images_are_written_as_png(adapting: Adapting, raw: Any) -> None:
    output, resources = adapting("text-to-image", raw)
    assert output == {"path": str(resources[0].path), "width": 4, "height": 2}
    assert (resources[0].kind, resources[0].mime) == ("image", "image/png")
    with Image.open(output["path"]) as saved:
        assert (saved.format, saved.size) == ("PNG", (4, 2))


def test_a_task_of_the_user_is_adapted_by_what_it_makes(
    adapting: Adapting, tmp_path: Path, photo: Resource
) -> None:
    def spec(*outputs: Any) -> TaskSpec:
        return TaskSpec("sketch-cleanup", "vision", "Clean a sketch.", (Arg("image", "image"),), outputs)

    assert adapting(spec("text"), "done")[0] == {"generated_text": "done"}
    output, resources = adapting(
        spec("data", "text"), {"n": np.int64(2), "path": Path("a"), "nan": float("nan")}
    )
    assert output == {"n": 2, "path": "a", "nan": None}
    assert kinds(resources) == ["data", "text"]
    assert adapting(spec("image"), photo.path)[0]["width"] == 200
    table = tmp_path / "table.csv"
    table.write_text("a,b\n1,2\n")
    output, resources = adapting(spec("table"), table)
    assert output == {"path": str(table)}
    assert (resources[0].kind, resources[0].mime) == ("table", "text/csv")


GARBAGE = [
    None,
    42,
    "garbage",
    [],
    {},
    [None],
    [{"label": 1}],
    {"a": object()},
    object(),
    [[["x"]]],
    np.zeros((2, 2, 2, 2)),
]
VALID = {
    "garbage": {
        "translation",
        "summarization",
        "text-generation",
        "image-to-text",
        "image-text-to-text",
        "video-text-to-text",
        "audio-text-to-text",
        "any-to-any",
        "automatic-speech-recognition",
    },
    "[]": {
        "object-detection",
        "zero-shot-object-detection",
        "keypoint-detection",
        "mask-generation",
        "image-segmentation",
        "token-classification",
        "voice-activity-detection",
        "text-ranking",
    },
}


def test_garbage_is_refused_with_the_model_named(
    adapting: Adapting, photo: Resource, table: Resource
) -> None:
    wrong = []
    for task in sorted(TASKS):
        for raw in GARBAGE:
            if task in VALID.get(str(raw), ()):
                continue
            try:
                adapting(task, raw, image=photo, table=table, sentences=["a", "b"])
                wrong.append((task, str(raw), "accepted"))
            except UnsupportedError as error:
                if not re.match(rf"(?s)^org/model returned .* for {task}; expected was .", str(error)):
                    wrong.append((task, str(raw), str(error)))
    assert not wrong


NAN = float("nan")
HALVES = {"xmin": 0, "ymin": 0, "xmax": NAN, "ymax": 1}


@pytest.mark.parametrize(
    ("task", "raw"),
    [
        ("image-classification", [{"label": "cat", "score": np.float32(NAN)}]),
        ("object-detection", [{"label": "cat", "score": 0.5, "box": HALVES}]),
        ("question-answering", [{"answer": "yes", "score": NAN}]),
        ("sentence-similarity", [0.5, NAN]),
        ("feature-extraction", [[0.5, NAN]]),
        ("text-to-speech", {"audio": np.array([0.0, NAN]), "sampling_rate": 8000}),
        ("depth-estimation", np.full((2, 2), NAN, np.float32)),
    ],
)
def test_not_a_number_is_the_failure_of_a_model(
    adapting: Adapting, photo: Resource, task: str, raw: Any
) -> None:
    with pytest.raises(UnsupportedError, match="finite"):
        adapting(task, raw, image=photo, sentences=["a", "b"])


def test_a_result_that_can_not_be_written_says_where(photo: Resource, tmp_path: Path) -> None:
    spec = TASKS["text-to-image"]
    call = a_call(spec, tmp_path / "gone", image=photo)
    with pytest.raises(InputError, match=r"text-to-image cannot be written: .*gone.*JARVIS_OUTPUT_DIR"):
        adapt(spec, Image.new("L", (2, 2)), call)


def test_things_are_counted_in_english() -> None:
    nouns = "cat cats, wine glass/wine glasses, person people, butterfly butterflies, bus buses, boy boys"
    pairs = [pair.split("/") if "/" in pair else pair.split() for pair in nouns.split(", ")]
    assert [plural(noun) for noun, _ in pairs] == [many for _, many in pairs]
    assert (quantity(1, "sheep"), quantity(2, "sheep")) == ("1 sheep", "2 sheep")
