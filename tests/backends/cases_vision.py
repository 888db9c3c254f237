"""Cases for tests/test_every_task.py: vision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tiny_finders
import tiny_vision
from task_case import Artifact, Case, files

PHOTO = {"image": "@photo"}
SIZE = (64, 48)
NAMED = {**PHOTO, "labels": ["cat", "good dog"]}
CLIP = {"video": "@clip"}


def has_classes(artifact: Artifact) -> None:
    """Labels, the likeliest first, with probabilities."""
    scores = [row["score"] for row in artifact["output"]]
    assert all(isinstance(row["label"], str) for row in artifact["output"])
    assert scores == sorted(scores, reverse=True)
    assert 0 <= scores[-1] <= scores[0] <= 1


def has_own_classes(artifact: Artifact) -> None:
    """As `has_classes`, with the labels of the tiny models."""
    has_classes(artifact)
    assert {row["label"] for row in artifact["output"]} == {"first", "second", "third"}


def has_asked_classes(artifact: Artifact) -> None:
    """As `has_classes`, with the labels that were asked for."""
    has_classes(artifact)
    assert {row["label"] for row in artifact["output"]} == {"cat", "good dog"}


def has_boxes(*labels: str) -> Callable[[Artifact], None]:
    """A check of boxes within the image, which are drawn on it."""

    def check(artifact: Artifact) -> None:
        assert artifact["output"]
        for row in artifact["output"]:
            assert row["label"] in labels
            assert 0 <= row["box"]["xmin"] <= row["box"]["xmax"] <= SIZE[0]
            assert 0 <= row["box"]["ymin"] <= row["box"]["ymax"] <= SIZE[1]
        (drawn,) = files(artifact, "image")
        assert _size(drawn) == SIZE

    return check


def has_masks(artifact: Artifact) -> None:
    """A mask of the image's size for each row, in black and white, and the image with all of them."""
    drawn, *masks = files(artifact, "image")
    assert masks
    assert [row["mask"] for row in artifact["output"]] == [str(path) for path in masks]
    assert {_size(path) for path in (drawn, *masks)} == {SIZE}


def has_depth(artifact: Artifact) -> None:
    """The depth in colour, and with 16 bits."""
    shown, exact = files(artifact, "image")
    assert _size(shown) == _size(exact) == SIZE
    assert _mode(exact).startswith("I;16")
    assert artifact["output"]["min"] <= artifact["output"]["max"]


def has_joints(artifact: Artifact) -> None:
    """One person with the joints of COCO within the image."""
    (person,) = artifact["output"]
    assert [joint["label"] for joint in person["keypoints"]] == list(tiny_finders.COCO_JOINTS)
    assert all(0 <= joint["x"] < SIZE[0] and 0 <= joint["y"] < SIZE[1] for joint in person["keypoints"])
    (drawn,) = files(artifact, "image")
    assert _size(drawn) == SIZE


def has_points(artifact: Artifact) -> None:
    """Points without names within the image."""
    (found,) = artifact["output"]
    assert found["keypoints"]
    assert all(0 <= point["x"] <= SIZE[0] and 0 <= point["y"] <= SIZE[1] for point in found["keypoints"])


def has_vector(artifact: Artifact) -> None:
    """One vector of the tiny models' width."""
    assert len(artifact["output"]) == 16
    assert all(isinstance(number, float) for number in artifact["output"])


def has_text(artifact: Artifact) -> None:
    """A text; what a model without knowledge sees need not be a word."""
    assert isinstance(artifact["output"]["generated_text"], str)


def has_what_is_printed(artifact: Artifact) -> None:
    """The words on the page, from a model that can read."""
    assert "Invoice total 42" in artifact["output"]["generated_text"]


def is_twice_as_large(artifact: Artifact) -> None:
    """One image with twice as many pixels along each side."""
    (path,) = files(artifact, "image")
    assert _size(path) == (2 * SIZE[0], 2 * SIZE[1])


def _size(path: Any) -> tuple[int, int]:
    from PIL import Image

    with Image.open(path) as opened:
        return opened.size


def _mode(path: Any) -> str:
    from PIL import Image

    with Image.open(path) as opened:
        return opened.mode


CASES: list[Case] = [
    Case("image-classification", PHOTO, has_classes),
    Case("image-classification", PHOTO, has_own_classes, tiny_vision.vit),
    Case("zero-shot-image-classification", NAMED, has_asked_classes, tiny_vision.clip),
    Case("zero-shot-image-classification", NAMED, has_asked_classes, tiny_vision.siglip),
    Case("object-detection", PHOTO, has_boxes("first"), tiny_vision.detr),
    Case("zero-shot-object-detection", NAMED, has_boxes("cat", "good dog"), tiny_finders.owlvit),
    Case("zero-shot-object-detection", NAMED, has_boxes("cat", "good dog"), tiny_finders.owlv2),
    Case("zero-shot-object-detection", NAMED, has_boxes("cat", "good dog"), tiny_finders.grounding_dino),
    Case("keypoint-detection", PHOTO, has_joints, tiny_finders.vitpose),
    Case("keypoint-detection", PHOTO, has_points, tiny_finders.superpoint),
    Case("image-segmentation", PHOTO, has_masks, tiny_vision.detr_panoptic),
    Case("image-segmentation", PHOTO, has_masks, tiny_vision.segformer),
    Case("mask-generation", PHOTO, has_masks, tiny_finders.sam),
    Case("mask-generation", PHOTO, has_masks, tiny_finders.sam2, needs=("torchvision",)),
    Case("depth-estimation", PHOTO, has_depth, tiny_vision.glpn),
    Case("depth-estimation", PHOTO, has_depth, tiny_vision.dpt),
    Case("image-feature-extraction", PHOTO, has_vector, tiny_vision.vit_encoder),
    Case("image-feature-extraction", PHOTO, has_vector, tiny_vision.dinov2),
    Case("image-feature-extraction", PHOTO, has_vector, tiny_vision.clip),
    Case("image-to-text", {"image": "@page", "text": "read"}, has_what_is_printed),
    Case("image-to-text", PHOTO, has_text, tiny_vision.vit_gpt2),
    Case("image-to-text", PHOTO, has_text, tiny_vision.blip_caption),
    Case("image-to-image", PHOTO, is_twice_as_large, tiny_vision.swin2sr),
    Case("video-classification", CLIP, has_own_classes, tiny_vision.videomae),
    Case("video-classification", CLIP, has_own_classes, tiny_vision.timesformer),
    Case("video-classification", CLIP, has_own_classes, tiny_vision.vivit),
    Case("video-classification", CLIP, has_own_classes, tiny_vision.vjepa2, needs=("torchvision",)),
]
