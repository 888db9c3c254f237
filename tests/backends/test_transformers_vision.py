"""Images and videos with transformers: labels, masks, keypoints, depth, and refused inputs."""

from pathlib import Path

import pytest
from libraries import needs
from model_bench import Bench
from PIL import Image

from jarvis_agent.backends.transformers.backend import TransformersBackend
from jarvis_agent.backends.transformers.vision import DETECTOR, load_detector, predicts_distance
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Candidate
from jarvis_agent.media.recordings import write_video

np = pytest.importorskip("numpy")
torch = needs("torch")
transformers = needs("transformers")

pytestmark = pytest.mark.slow

BACKEND = TransformersBackend
OFFLINE = Settings(device="cpu", offline=True)


def test_detections_have_the_labels_as_they_were_given(bench: Bench) -> None:
    for model in ("owlvit", "owlv2", "grounding_dino"):
        found = bench.ask("zero-shot-object-detection", model, image="photo", labels="The Cat., good dog")
        assert found
        assert {row["label"] for row in found} <= {"The Cat.", "good dog"}
        assert found == sorted(found, key=lambda row: -row["score"])


def test_equal_masks_are_returned_once(bench: Bench) -> None:
    """The tiny SAM sees the whole image at each of its 1024 points."""
    (found,) = bench.ask("mask-generation", "sam", image="photo")
    assert found["mask"].size == (64, 48)
    assert found["mask"].getextrema() == (255, 255)
    assert 0.88 < found["score"] <= 1


def test_each_detected_person_has_joints_and_without_a_detector_the_image_is_one(bench: Bench) -> None:
    (person,) = bench.ask("keypoint-detection", "vitpose", image="photo")
    assert person["box"] == {"xmin": 0, "ymin": 0, "xmax": 64, "ymax": 48}
    assert person["edges"] == [[5, 6], [5, 7], [6, 8]]
    detected = bench.ask("object-detection", "detr_people", image="photo")
    named = {"detector": str(bench.built("detr_people"))}
    found = bench.ask("keypoint-detection", "vitpose", named, image="photo")
    assert [person["box"] for person in found] == [row["box"] for row in detected]
    assert all(len(person["keypoints"]) == 17 for person in found)
    no_people = {"detector": str(bench.built("detr"))}  # it knows first, second and third
    assert bench.ask("keypoint-detection", "vitpose", no_people, image="photo") == []
    assert bench.ask("openpose-control", "vitpose", no_people, image="photo").getbbox() is None


def test_the_detector_must_be_there(bench: Bench) -> None:
    named = bench.call("keypoint-detection", "vitpose", {"detector": "org/nowhere"}).candidate
    on_hub = Candidate(id="org/pose", task="keypoint-detection", local=True)
    for candidate, detector in ((named, "org/nowhere"), (on_hub, DETECTOR)):
        with pytest.raises(UnsupportedError, match=detector):
            load_detector(candidate, OFFLINE)


def test_models_that_predict_distances_are_known() -> None:
    dinov2 = {"backbone_config": {"model_type": "dinov2", "out_indices": [1]}}
    for kind, options, expected in (
        ("GLPN", {}, True),
        ("ZoeDepth", {}, True),
        ("DPT", {}, False),
        ("DPT", dinov2, True),
        ("DepthAnything", {"depth_estimation_type": "relative"}, False),
        ("DepthAnything", {"depth_estimation_type": "metric", "max_depth": 20}, True),
    ):
        assert predicts_distance(getattr(transformers, f"{kind}Config")(**options)) is expected, kind


@pytest.mark.parametrize(
    ("task", "model", "size"),
    [
        ("object-detection", "detr", (12_000, 40)),
        ("mask-generation", "sam", (40, 12_000)),
        ("depth-estimation", "dpt", (1, 1)),
        ("keypoint-detection", "vitpose", (2, 2)),
    ],
)
def test_an_image_that_a_model_cannot_scale_is_refused(
    bench: Bench, tmp_path: Path, task: str, model: str, size: tuple[int, int]
) -> None:
    Image.new("RGB", size).save(tmp_path / "thin.png")
    refusal = f"cannot read an image of {size[0]} x {size[1]} pixels; sides of at least 32 pixels work"
    with pytest.raises(UnsupportedError, match=refusal):
        bench.ask(task, model, image=tmp_path / "thin.png")


def test_the_vector_of_clip_is_the_one_that_it_compares(bench: Bench) -> None:
    vector = bench.ask("image-feature-extraction", "clip", image="photo")
    loaded = bench.load(bench.call("zero-shot-image-classification", "clip")).loaded
    image = loaded.parts["image_processor"](Image.open(bench.media["photo"]), return_tensors="pt")
    expected = loaded.model.get_image_features(**image).pooler_output
    assert vector.tolist() == pytest.approx(expected[0].tolist(), abs=1e-5)


def test_a_video_with_fewer_frames_than_the_model_takes_repeats_frames(bench: Bench, tmp_path: Path) -> None:
    clip = tmp_path / "short.mp4"
    write_video(clip, [Image.new("RGB", (64, 48), "red")] * 2, 8.0)
    for model in ("videomae", "vivit"):
        found = bench.ask("video-classification", model, video=clip)
        assert sum(row["score"] for row in found) == pytest.approx(1)


def test_an_image_of_any_size_is_enlarged_and_follows_no_text(bench: Bench, tmp_path: Path) -> None:
    odd = tmp_path / "odd.png"
    Image.new("RGB", (13, 7), "red").save(odd)
    assert bench.ask("image-to-image", "swin2sr", image=odd).size == (26, 14)
    with pytest.raises(UnsupportedError, match="only makes images larger"):
        bench.ask("image-to-image", "swin2sr", image=odd, text="make it winter")
    Image.new("RGB", (1001, 1000), "red").save(odd)
    with pytest.raises(UnsupportedError, match=r"at most 1,000,000 pixels.* 1001 x 1000"):
        bench.ask("image-to-image", "swin2sr", image=odd)
