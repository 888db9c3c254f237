"""The cases of test_every_task.py: each task type on each kind of model that does it."""

from __future__ import annotations

from typing import Any

import pytest
from task_case import (
    THREE,
    Artifact,
    Case,
    Check,
    boxes,
    files,
    image_of,
    images_of,
    ranked,
    says,
    sound,
    vector,
    video_of,
)

from jarvis_agent.core.types import Resource
from jarvis_agent.media.tables import Columns, read_table

SAID = "Ada wrote the first program. The cat is in Paris."
OTHERS = ["The dog is good.", "Who wrote the first program?", "Paris is the capital of France."]
PROMPT = "a red fox in the snow"

TEXT, PHOTO, PAGE = {"text": SAID}, {"image": "@photo"}, {"image": "@page"}
TONE, SPEECH, CLIP, TABLE = {"audio": "@tone"}, {"audio": "@speech"}, {"video": "@clip"}, {"table": "@table"}
FRENCH = TEXT | {"src_lang": "en", "tgt_lang": "fr"}
COMPARED = TEXT | {"sentences": OTHERS}
SORTED = TEXT | {"labels": ["cat", "dog"]}
NAMED = PHOTO | {"labels": ["cat", "good dog"]}
ASKED = {"text": "What is the total?"}
ASKED_OF_TABLE = TABLE | {"text": "what was the rain in the first month?"}
BOX = {"label": "cat", "score": 0.9, "box": {"xmin": 8, "ymin": 4, "xmax": 40, "ymax": 36}}
SHORT = {"metadata": {"options": {"max_new_tokens": 12}}}
COARSE = {"library": "diffusers", "metadata": {"options": {"num_inference_steps": 2}, "grid_size": 16}}
WRITES = says("generated_text")


def _steps(count: int = 1, **options: Any) -> dict[str, Any]:
    return {"library": "diffusers", "metadata": {"options": {"num_inference_steps": count, **options}}}


def _small(count: int = 1, **options: Any) -> dict[str, Any]:
    return _steps(count, height=32, width=32, **options)


def _quotes(artifact: Artifact) -> None:
    best = artifact["output"][0]
    assert best["answer"] == SAID[best["start"] : best["end"]]
    ranked("answer")(artifact)


def _marks_names(artifact: Artifact) -> None:
    assert artifact["output"]
    for row in artifact["output"]:
        assert row["word"] == SAID[row["start"] : row["end"]]
        assert 0 <= row["score"] <= 1


def _is_from_the_page(artifact: Artifact) -> None:
    answer = artifact["output"][0]["answer"]
    assert answer
    assert answer in "Invoice total 42"


def _points_at_cells(artifact: Artifact) -> None:
    answer = artifact["output"]
    assert answer["aggregator"] in ("NONE", "SUM", "AVERAGE", "COUNT")
    cells = [str((row, row * 2, row % 3)[column]) for row, column in answer["coordinates"]]
    assert answer["cells"] == cells


def _fills_the_gap(artifact: Artifact) -> None:
    ranked("token_str")(artifact)
    assert len(artifact["output"]) == 5
    assert all(isinstance(row["token"], int) for row in artifact["output"])
    assert all("___" not in row["sequence"] for row in artifact["output"])


def _scores_each(artifact: Artifact) -> None:
    assert len(artifact["output"]) == 3
    assert all(-1.001 <= score <= 1.001 for score in artifact["output"])


def _finds_the_nearest(artifact: Artifact) -> None:
    _scores_each(artifact)
    assert artifact["output"][1] == max(artifact["output"])


def _orders(first: str = "") -> Check:
    def check(artifact: Artifact) -> None:
        rows = artifact["output"]
        assert sorted(row["index"] for row in rows) == [0, 1, 2]
        assert all(row["text"] == OTHERS[row["index"]] for row in rows)
        assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)
        assert rows[0]["text"].startswith(first)

    return check


def _scores_each_page(artifact: Artifact) -> None:
    first, second = artifact["output"]
    assert first != second


def _has_joints(artifact: Artifact) -> None:
    (person,) = artifact["output"]
    labels = [joint["label"] for joint in person["keypoints"]]
    assert (len(labels), labels[0], labels[-1]) == (17, "Nose", "R_Ankle")
    assert all(0 <= joint["x"] < 64 and 0 <= joint["y"] < 48 for joint in person["keypoints"])
    image_of(64, 48)(artifact)


def _has_points(artifact: Artifact) -> None:
    (found,) = artifact["output"]
    assert found["keypoints"]
    assert all(0 <= point["x"] <= 64 and 0 <= point["y"] <= 48 for point in found["keypoints"])


def _is_a_shape(artifact: Artifact) -> None:
    import trimesh

    (path,) = files(artifact, "3d")
    shape = trimesh.load(path, force="mesh")
    assert min(len(shape.vertices), len(shape.faces)) > 0


def _has_times(artifact: Artifact) -> None:
    assert all(row["start"] < row["end"] for row in artifact["output"])
    assert sum(row["end"] - row["start"] for row in artifact["output"]) > 2


def _table(artifact: Artifact) -> Columns:
    (path,) = files(artifact, "table")
    return read_table(Resource(kind="table", path=path))


def _predicts(*labels: str) -> Check:
    """A label for each row by its sales, in the output and in the file."""

    def check(artifact: Artifact) -> None:
        expected, predicted = [labels[month * 2 > 12] for month in range(24)], artifact["output"]
        assert sum(a == b for a, b in zip(predicted, expected, strict=True)) >= 22
        table = _table(artifact)
        assert table["month"] == list(range(24))
        assert table["prediction"] == predicted
        assert all(isinstance(chance, float) and 0.5 <= chance <= 1 for chance in table["probability"])

    return check


def _adds_up(artifact: Artifact) -> None:
    expected = [2 * month + month % 3 for month in range(24)]
    assert artifact["output"] == pytest.approx(expected, abs=0.01)
    assert _table(artifact)["prediction"] == pytest.approx(expected, abs=0.01)


def _forecasts(horizon: int) -> Check:
    """Forecasts with bounds of the two columns that do not hold times."""

    def check(artifact: Artifact) -> None:
        names = {f"{series}{side}" for series in ("sales", "rain") for side in ("", "_low", "_high")}
        assert [row["step"] for row in artifact["output"]] == list(range(1, horizon + 1))
        assert all(row.keys() == {"step", *names} for row in artifact["output"])
        assert _table(artifact)["sales"] == pytest.approx([row["sales"] for row in artifact["output"]])

    return check


TEXT_CASES = [
    Case("token-classification", TEXT, _marks_names, "bert_tagger"),
    Case("text-classification", TEXT, ranked("label", *THREE), "bert_classifier"),
    Case("question-answering", {"text": "Who?", "context": SAID}, _quotes, "bert_reader"),
    Case("table-question-answering", ASKED_OF_TABLE, _points_at_cells, "tapas"),
    Case("table-question-answering", ASKED_OF_TABLE, says("answer"), "tapex"),
    Case("zero-shot-classification", SORTED, ranked("label", "cat", "dog"), "bert_nli"),
    Case("zero-shot-classification", SORTED, ranked("label", "cat", "dog")),
    *(
        Case("translation", FRENCH, says("translation_text"), model)
        for model in ("marian", "t5", "m2m100", "nllb", "mbart")
    ),
    *(Case("summarization", TEXT, says("summary_text"), model) for model in ("bart", "t5")),
    *(Case("text-generation", TEXT, WRITES, model, SHORT) for model in ("llama", "llama_chat", "t5")),
    Case("feature-extraction", TEXT, vector(16), "bert_base"),
    Case("feature-extraction", TEXT, vector(8), "dense_embedder"),
    Case("feature-extraction", TEXT, vector(384)),
    Case("fill-mask", {"text": "the [MASK] is good"}, _fills_the_gap, "bert_masked"),
    Case("fill-mask", {"text": "the ___ is good"}, _fills_the_gap, "roberta_masked"),
    *(
        Case("sentence-similarity", COMPARED, _scores_each, model)
        for model in ("embedder", "bert_base", "cross_encoder")
    ),
    *(
        Case("text-ranking", COMPARED, _orders(), model)
        for model in ("cross_encoder", "reranker", "asymmetric_embedder")
    ),
    Case("sentence-similarity", COMPARED, _finds_the_nearest),
    Case("text-ranking", COMPARED | {"text": "What is the capital of France?"}, _orders("Paris")),
]

VISION_CASES = [
    Case("image-classification", PHOTO, ranked("label")),
    Case("image-classification", PHOTO, ranked("label", *THREE), "vit"),
    *(
        Case("zero-shot-image-classification", NAMED, ranked("label", "cat", "good dog"), model)
        for model in ("clip", "siglip")
    ),
    Case("object-detection", PHOTO, boxes("first"), "detr"),
    *(
        Case("zero-shot-object-detection", NAMED, boxes("cat", "good dog"), model)
        for model in ("owlvit", "owlv2", "grounding_dino")
    ),
    Case("keypoint-detection", PHOTO, _has_joints, "vitpose"),
    Case("keypoint-detection", PHOTO, _has_points, "superpoint"),
    Case("image-segmentation", PHOTO, images_of(64, 48), "detr_panoptic"),
    Case("image-segmentation", PHOTO, images_of(64, 48), "segformer"),
    Case("mask-generation", PHOTO, images_of(64, 48), "sam"),
    Case("mask-generation", PHOTO, images_of(64, 48), "sam2", needs=("torchvision",)),
    Case("depth-estimation", PHOTO, images_of(64, 48, exact="I;16"), "glpn"),
    Case("depth-estimation", PHOTO, images_of(64, 48, exact="I;16"), "dpt"),
    *(
        Case("image-feature-extraction", PHOTO, vector(16), model)
        for model in ("vit_encoder", "dinov2", "clip", "resnet")
    ),
    Case("image-to-text", PAGE | {"text": "read"}, says("generated_text", "Invoice total 42")),
    Case("image-to-text", PHOTO, WRITES, "vit_gpt2"),
    Case("image-to-text", PHOTO, WRITES, "blip_caption"),
    Case("image-to-image", PHOTO, image_of(128, 96), "swin2sr"),
    *(Case("video-classification", CLIP, ranked("label", *THREE), model) for model in ("videomae", "vivit")),
    Case("video-classification", CLIP, ranked("label"), "vjepa2", needs=("torchvision",)),
    *(Case(f"{name}-control", PHOTO, image_of(64, 48, "L")) for name in ("canny", "hed", "mlsd", "scribble")),
    Case("depth-control", PHOTO, image_of(64, 48, "L"), "dpt"),
    Case("depth-control", PHOTO, image_of(64, 48, "L"), "glpn"),
    Case("normal-control", PHOTO, image_of(64, 48, "RGB"), "dpt"),
    Case("openpose-control", PHOTO, image_of(64, 48, "RGB"), "vitpose"),
    Case("seg-control", PHOTO, image_of(64, 48, "RGB"), "segformer"),
    Case("resize-image", PHOTO | {"width": 32}, image_of(32, 24)),
    Case("crop-image", PHOTO | {"box": [BOX]}, image_of(32, 32)),
    Case("extract-frames", CLIP | {"count": 3}, images_of(64, 48)),
]

AUDIO_CASES = [
    Case("text-to-speech", TEXT, sound(seconds=(0.5, 20), peak=0.05)),
    Case("text-to-speech", TEXT, sound(rate=16_000), "vits"),
    Case("text-to-speech", TEXT, sound(rate=24_000), "bark"),
    Case("text-to-audio", TEXT, sound(), "musicgen", SHORT),
    Case("text-to-audio", TEXT, sound(), "bark"),
    Case(
        "text-to-audio",
        TEXT,
        sound(seconds=(1.9, 2.1), rate=400),
        "stable_audio",
        _steps(audio_end_in_s=2.0),
    ),
    Case("automatic-speech-recognition", SPEECH, says("text", "John")),
    Case("automatic-speech-recognition", TONE, says("text"), "whisper"),
    Case("automatic-speech-recognition", TONE, says("text"), "wav2vec2_ctc"),
    Case("audio-classification", TONE, ranked("label", *THREE), "wav2vec2_classifier"),
    Case("audio-to-audio", TONE, sound()),
    Case("voice-activity-detection", SPEECH, _has_times),
    Case("extract-audio", CLIP, sound(seconds=(1.7, 2.3), rate=8_000, peak=0.05)),
    Case("combine-video-audio", CLIP | TONE, video_of(16, 64, 48)),
]

MULTIMODAL_CASES = [
    *(
        Case("image-text-to-text", ASKED | PHOTO, WRITES, model, SHORT)
        for model in (
            "llava_chat",
            "qwen2_vl",
            "smolvlm",
            "blip_caption",
        )
    ),
    Case("visual-question-answering", ASKED | PHOTO, ranked("answer", *THREE), "vilt"),
    Case("visual-question-answering", ASKED | PHOTO, ranked("answer"), "blip_vqa"),
    Case("visual-question-answering", ASKED | PHOTO, ranked("answer"), "qwen2_vl", SHORT),
    Case("document-question-answering", ASKED | PAGE, _is_from_the_page, "layoutlm"),
    Case("document-question-answering", ASKED | PAGE, _is_from_the_page, "layoutlmv3"),
    Case("document-question-answering", ASKED | PHOTO, ranked("answer"), "donut"),
    Case("document-question-answering", ASKED | PHOTO, ranked("answer"), "smolvlm", SHORT),
    *(
        Case("video-text-to-text", ASKED | CLIP, WRITES, model, SHORT)
        for model in ("llava_chat", "qwen2_vl", "smolvlm")
    ),
    Case("audio-text-to-text", ASKED | TONE, WRITES, "qwen2_audio", SHORT),
    Case("any-to-any", ASKED | PHOTO | CLIP, WRITES, "qwen2_vl", SHORT),
    Case("any-to-any", ASKED | TONE, WRITES, "qwen2_audio", SHORT),
    *(
        Case("visual-document-retrieval", ASKED | {"image": ["@photo", "@page"]}, _scores_each_page, model)
        for model in ("colpali", "clip")
    ),
]

TABLE_CASES = [
    Case("tabular-classification", TABLE, _predicts("low", "high"), "logistic"),
    Case("tabular-classification", TABLE, _predicts("False", "True"), "bare"),
    Case("tabular-regression", TABLE, _adds_up, "linear"),
    Case("time-series-forecasting", TABLE, _forecasts(12), "chronos_bolt"),
    Case("time-series-forecasting", TABLE | {"horizon": "5"}, _forecasts(5), "chronos_t5"),
    Case("time-series-forecasting", TABLE | {"horizon": 20}, _forecasts(20), "chronos_2"),
]

PAINT = PHOTO | {"text": PROMPT}
DRAWN = {"text": PROMPT}
MADE_CASES = [
    Case("text-to-image", DRAWN, image_of(64, 64), "stable_diffusion", _steps()),
    Case("image-to-image", PAINT, image_of(64, 48), "stable_diffusion", _steps(2)),
    Case("image-to-image", PAINT | {"mask": "@photo"}, image_of(64, 48), "inpainting", _steps(2)),
    Case("image-to-image", PHOTO, image_of(128, 96), "upscaler", _steps()),
    Case("image-text-to-image", PAINT, image_of(64, 48), "instruct_pix2pix", _steps()),
    Case("unconditional-image-generation", {}, image_of(16, 16), "ddpm", _steps()),
    *(
        Case(f"{control}-text-to-image", PAINT, image_of(64, 48), "controlnet", _steps())
        for control in ("canny", "hed", "mlsd", "scribble", "depth", "normal", "openpose", "seg")
    ),
    *(
        Case("text-to-video", DRAWN, video_of(frames, 32, 32), model, _small(num_frames=frames))
        for model, frames in (
            ("text_to_video", 4),
            ("animatediff", 4),
            ("wan", 9),
            ("ltx", 9),
        )
    ),
    Case("image-to-video", PHOTO, video_of(2, 32, 32), "stable_video", _small(num_frames=2)),
    Case("image-text-to-video", PAINT, video_of(9, 32, 32), "ltx", _small(num_frames=9)),
    Case("video-to-video", CLIP | DRAWN, video_of(9, 32, 32), "wan", _small(2), needs=("ftfy",)),
    Case("video-to-video", CLIP | DRAWN, video_of(9, 32, 32), "animatediff", _small(2)),
    Case("text-to-3d", {"text": "a chair"}, _is_a_shape, "shap_e", COARSE),
    Case("image-to-3d", PHOTO, _is_a_shape, "shap_e_from_image", COARSE),
]

CASES: list[Case] = [
    *TEXT_CASES,
    *VISION_CASES,
    *AUDIO_CASES,
    *MULTIMODAL_CASES,
    *TABLE_CASES,
    *MADE_CASES,
]
