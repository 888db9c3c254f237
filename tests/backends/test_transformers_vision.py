"""Tasks on images and videos with transformers, on tiny models that the real code loads from a directory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.errors import BadInputError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import tiny_finders  # noqa: E402
import tiny_vision  # noqa: E402

from jarvis_agent.backends.transformers.backend import TransformersBackend  # noqa: E402
from jarvis_agent.backends.transformers.keypoints import load_detector  # noqa: E402
from jarvis_agent.backends.transformers.vision import predicts_distance  # noqa: E402
from jarvis_agent.backends.transformers.zero_shot import labels_of  # noqa: E402
from jarvis_agent.media.video import write_video  # noqa: E402

SETTINGS = Settings(device="cpu", offline=True)

Built = Callable[[Callable[[Path], None]], Path]
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def backend() -> Iterator[TransformersBackend]:
    pool = ModelPool(limit_bytes=10**9)
    yield TransformersBackend(pool, SETTINGS)
    asyncio.run(pool.close())


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Resource:
    """An image of noise, 64 × 48."""
    path = tmp_path_factory.mktemp("photo") / "noise.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (48, 64, 3), np.uint8)).save(path)
    return Resource(kind="image", path=path, mime="image/png")


@pytest.fixture
def run(backend: TransformersBackend, built: Built, tmp_path: Path) -> Run:
    """The raw output of a tiny model."""

    def run(
        task: str, build: Callable[[Path], None], metadata: dict[str, Any] | None = None, **inputs: Any
    ) -> Any:
        candidate = Candidate(
            id=f"tiny/{build.__name__}", task=task, path=built(build), local=True, metadata=metadata or {}
        )
        call = Call(
            spec=TASKS[task],
            candidate=candidate,
            inputs=inputs,
            new_path=lambda suffix: tmp_path / f"made{suffix}",
            settings=SETTINGS,
        )
        assert backend.unsupported_reason(call.spec, candidate) is None
        return asyncio.run(backend.run(call))

    return run


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> TransformersBackend:
    """A backend that has loaded nothing yet."""
    return TransformersBackend(ModelPool(limit_bytes=10**9), SETTINGS)


def labelled(labels: Any) -> Call:
    """A call with these labels."""
    spec = TASKS["zero-shot-image-classification"]
    return Call(spec, Candidate(id="m", task=spec.name), {"labels": labels}, Path, SETTINGS)


@pytest.mark.parametrize("given", ["cat, good dog", "cat\ngood dog;cat", ["cat", " good dog ", ""]])
def test_labels_are_a_list_or_a_text(given: Any) -> None:
    assert labels_of(labelled(given)) == ["cat", "good dog"]


def test_without_labels_there_is_nothing_to_choose_from() -> None:
    with pytest.raises(BadInputError, match="needs labels"):
        labels_of(labelled(" , "))


def test_each_label_gets_a_probability(run: Run, photo: Resource) -> None:
    found = run("zero-shot-image-classification", tiny_vision.clip, image=photo, labels=["cat", "dog", "is"])
    assert {row["label"] for row in found} == {"cat", "dog", "is"}
    assert sum(row["score"] for row in found) == pytest.approx(1)


@pytest.mark.parametrize("build", [tiny_finders.owlvit, tiny_finders.owlv2, tiny_finders.grounding_dino])
def test_finds_bear_the_labels_as_they_were_given(
    run: Run, photo: Resource, build: Callable[[Path], None]
) -> None:
    found = run("zero-shot-object-detection", build, image=photo, labels="The Cat., good dog")
    assert found
    assert {row["label"] for row in found} <= {"The Cat.", "good dog"}
    scores = [row["score"] for row in found]
    assert scores == sorted(scores, reverse=True)
    assert all(row["box"]["xmin"] <= row["box"]["xmax"] <= 64 for row in found)


def test_the_same_thing_is_found_once(run: Run, photo: Resource) -> None:
    """The tiny SAM sees the whole image at each of its 1024 points."""
    (found,) = run("mask-generation", tiny_finders.sam, image=photo)
    assert found["mask"].size == (64, 48)
    assert found["mask"].getextrema() == (255, 255)
    assert 0.88 < found["score"] <= 1


def test_without_a_detector_the_image_is_one_person(run: Run, photo: Resource) -> None:
    (person,) = run("keypoint-detection", tiny_finders.vitpose, image=photo)
    assert person["box"] == {"xmin": 0, "ymin": 0, "xmax": 64, "ymax": 48}
    assert person["edges"] == [[5, 6], [5, 7], [6, 8]]


def test_each_person_that_the_detector_finds_has_joints(run: Run, built: Built, photo: Resource) -> None:
    detected = run("object-detection", tiny_vision.detr_people, image=photo)
    named = {"detector": str(built(tiny_vision.detr_people))}
    found = run("keypoint-detection", _vitpose_with_detector, named, image=photo)
    assert [person["box"] for person in found] == [row["box"] for row in detected]
    assert all(len(person["keypoints"]) == 17 for person in found)


def _vitpose_with_detector(folder: Path) -> None:
    tiny_finders.vitpose(folder)


def test_a_detector_that_finds_no_people_leaves_none(run: Run, built: Built, photo: Resource) -> None:
    named = {"detector": str(built(tiny_vision.detr))}  # it knows first, second and third
    assert run("keypoint-detection", _vitpose_without_people, named, image=photo) == []
    drawn = run("openpose-control", _vitpose_without_people, named, image=photo)
    assert drawn.size == (64, 48)
    assert drawn.getbbox() is None


def _vitpose_without_people(folder: Path) -> None:
    tiny_finders.vitpose(folder)


def test_a_detector_that_is_named_must_be_there(built: Built) -> None:
    candidate = Candidate(
        id="m",
        task="keypoint-detection",
        path=built(tiny_finders.vitpose),
        metadata={"detector": "org/nowhere"},
    )
    with pytest.raises(UnsupportedError, match="org/nowhere"):
        load_detector(candidate, SETTINGS)


def test_the_log_tells_that_no_people_can_be_looked_for(caplog: pytest.LogCaptureFixture) -> None:
    candidate = Candidate(id="org/pose", task="keypoint-detection", local=True)
    with caplog.at_level(logging.WARNING, logger="jarvis_agent"):
        assert load_detector(candidate, SETTINGS) == {}
    assert "org/pose treats each image as one person" in caplog.text


def test_points_without_names_have_no_edges(run: Run, photo: Resource) -> None:
    (found,) = run("keypoint-detection", tiny_finders.superpoint, image=photo)
    scores = [point["score"] for point in found["keypoints"]]
    assert 0 < len(scores) <= 500
    assert scores == sorted(scores, reverse=True)
    assert found["edges"] == []


def test_a_pose_is_drawn_from_the_joints_of_people_only(run: Run, photo: Resource) -> None:
    with pytest.raises(UnsupportedError, match="does not find the joints of people"):
        run("openpose-control", tiny_finders.superpoint, image=photo)


def test_a_control_map_shares_the_model_of_its_task(
    fresh: TransformersBackend, built: Built, photo: Resource, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[str] = []
    load = TransformersBackend.load

    def counted(self: TransformersBackend, spec: Any, *rest: Any) -> Any:
        loads.append(spec.name)
        return load(self, spec, *rest)

    monkeypatch.setattr(TransformersBackend, "load", counted)
    candidate = Candidate(id="tiny/dpt", task="depth-estimation", path=built(tiny_vision.dpt), local=True)
    call = Call(TASKS["depth-control"], candidate, {"image": photo}, Path, SETTINGS)

    async def all_three() -> list[Any]:
        names = ("depth-control", "depth-estimation", "normal-control")
        return [await fresh.run(replace(call, spec=TASKS[name])) for name in names]

    depth, raw, normals = asyncio.run(all_three())
    assert loads == ["depth-control"]
    assert (depth.mode, normals.mode) == ("L", "RGB")
    assert raw["predicted_depth"].shape == (48, 64)
    assert raw["metric"] is False
    assert np.asarray(depth).argmax() == raw["predicted_depth"].argmax()


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        ("GLPN", {}, True),
        ("ZoeDepth", {}, True),
        ("DPT", {}, False),
        ("DPT", {"backbone_config": {"model_type": "dinov2", "out_indices": [1]}}, True),
        ("DepthAnything", {"depth_estimation_type": "relative"}, False),
        ("DepthAnything", {"depth_estimation_type": "metric", "max_depth": 20}, True),
    ],
)
def test_kinds_of_models_that_tell_distances_are_known(
    kind: str, options: dict[str, Any], expected: bool
) -> None:
    assert predicts_distance(getattr(transformers, f"{kind}Config")(**options)) is expected


def test_clips_vector_is_the_one_that_it_compares(run: Run, built: Built, photo: Resource) -> None:
    vector = run("image-feature-extraction", tiny_vision.clip, image=photo)
    model = transformers.CLIPModel.from_pretrained(built(tiny_vision.clip)).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(built(tiny_vision.clip))
    with torch.inference_mode():
        expected = model.get_image_features(**processor(photo.to_pil(), return_tensors="pt")).pooler_output
    assert vector.tolist() == pytest.approx(expected[0].tolist(), abs=1e-5)


def test_a_network_without_tokens_is_averaged_over_the_image(run: Run, photo: Resource) -> None:
    assert run("image-feature-extraction", _resnet, image=photo).shape == (16,)


def _resnet(folder: Path) -> None:
    processor = transformers.ConvNextImageProcessorPil(size={"shortest_edge": 384})
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
    for part in (transformers.ResNetModel(config), processor):
        part.save_pretrained(folder)


@pytest.mark.parametrize("build", [tiny_vision.videomae, tiny_vision.vivit])
def test_a_video_shorter_than_the_model_looks_repeats_frames(
    run: Run, build: Callable[[Path], None], tmp_path: Path
) -> None:
    write_video(tmp_path / "short.mp4", [Image.new("RGB", (64, 48), "red")] * 2, 8.0, {})
    clip = Resource(kind="video", path=tmp_path / "short.mp4", mime="video/mp4")
    found = run("video-classification", build, video=clip)
    assert sum(row["score"] for row in found) == pytest.approx(1)


def test_an_image_of_any_size_is_enlarged(run: Run, tmp_path: Path) -> None:
    Image.new("RGB", (13, 7), "red").save(tmp_path / "odd.png")
    odd = Resource(kind="image", path=tmp_path / "odd.png", mime="image/png")
    assert run("image-to-image", tiny_vision.swin2sr, image=odd).size == (26, 14)


def test_what_only_enlarges_follows_no_text(run: Run, photo: Resource) -> None:
    with pytest.raises(UnsupportedError, match="only makes images larger"):
        run("image-to-image", tiny_vision.swin2sr, image=photo, text="make it winter")


@pytest.mark.parametrize(
    ("task", "build", "lost"),
    [
        ("zero-shot-image-classification", tiny_vision.clip, "text_projection.weight"),
        ("mask-generation", tiny_finders.sam, "mask_decoder.iou_token.weight"),
        ("keypoint-detection", tiny_finders.vitpose, "head.conv.weight"),
    ],
)
def test_a_model_that_lacks_weights_is_refused(
    fresh: TransformersBackend, task: str, build: Callable[[Path], None], lost: str, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    build(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights[lost]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    candidate = Candidate(id="tiny/torn", task=task, path=tmp_path, local=True)
    with pytest.raises(UnsupportedError, match=f"lacks the weights {lost}"):
        fresh.load(TASKS[task], candidate, SETTINGS)


def test_what_needs_torchvision_says_how_to_get_it(fresh: TransformersBackend, built: Built) -> None:
    candidate = Candidate(id="tiny/sam2", task="mask-generation", path=built(tiny_finders.sam2), local=True)
    with pytest.raises(UnsupportedError, match=r"needs torchvision, .*: pip install torchvision"):
        fresh.load(TASKS["mask-generation"], candidate, SETTINGS)
