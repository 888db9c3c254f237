"""Adapters of depth, masks and joints: what stands in their files, pixel by pixel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from result_bench import Adapting, a_photo, adapting_in, kinds

from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.types import Resource

np = pytest.importorskip("numpy")
cv2 = pytest.importorskip("cv2")

NAN = float("nan")


@pytest.fixture
def photo(tmp_path: Path) -> Resource:
    return a_photo(tmp_path)


@pytest.fixture
def adapting(tmp_path: Path) -> Adapting:
    return adapting_in(tmp_path)


def ramp() -> Any:
    """Depth from 1 on the left to 5 on the right, shape (4, 9)."""
    return np.tile(np.linspace(1, 5, 9), (4, 1))


def pixels(path: str) -> Any:
    with Image.open(path) as image:
        return np.asarray(image)


def test_depth_comes_in_colour_and_with_16_bits(adapting: Adapting) -> None:
    output, resources = adapting("depth-estimation", {"predicted_depth": ramp(), "depth": None})
    assert kinds(resources)[:2] == ["image", "image"]
    assert output["path"] == output["image"] == str(resources[0].path)
    assert (output["width"], output["height"], output["min"], output["max"]) == (9, 4, 1.0, 5.0)
    exact = pixels(output["depth"])
    assert (exact.dtype, exact.shape) == (np.uint16, (4, 9))
    assert (exact[0, 0], exact[0, -1]) == (0, 65_535)
    told = output["min"] + exact / 65_535 * (output["max"] - output["min"])
    assert np.allclose(told, ramp(), atol=1e-4)


def test_what_is_near_is_bright(adapting: Adapting) -> None:
    nearness = adapting("depth-estimation", {"predicted_depth": ramp()})[0]
    distance = adapting("depth-estimation", {"predicted_depth": ramp(), "metric": True})[0]
    bright = {
        name: pixels(output["image"]).astype(int).sum(axis=2)[0]
        for name, output in (("nearness", nearness), ("distance", distance))
    }
    assert bright["nearness"][-1] > bright["nearness"][4] > bright["nearness"][0]
    assert list(bright["distance"]) == list(bright["nearness"][::-1])
    assert pixels(distance["depth"])[0, -1] == 65_535


def test_depth_may_be_of_torch_of_an_image_and_even(adapting: Adapting) -> None:
    torch = pytest.importorskip("torch")
    halves = torch.tensor(ramp(), dtype=torch.bfloat16)[None].requires_grad_()
    assert adapting("depth-estimation", {"predicted_depth": halves})[0]["max"] == 5.0
    image = Image.fromarray((ramp() * 50).astype(np.uint8))
    assert adapting("depth-estimation", {"depth": image})[0]["max"] == 250.0
    even = adapting("depth-estimation", np.full((2, 3), 7.0))[0]
    assert (even["min"], even["max"]) == (7.0, 7.0)
    assert not pixels(even["depth"]).any()


@pytest.mark.parametrize("raw", [np.zeros((0, 4)), np.zeros((2, 3, 4)), [[1, 2], [3]], {"depth": "deep"}])
def test_what_is_no_depth_map_is_refused(adapting: Adapting, raw: Any) -> None:
    with pytest.raises(UnsupportedError, match="expected was a depth map"):
        adapting("depth-estimation", raw)


def test_masks_come_best_first_and_tint_the_picture(adapting: Adapting, photo: Resource) -> None:
    left = np.zeros((100, 200), bool)
    left[:, :50] = True
    raw = [{"mask": ~left, "score": np.float32(0.25)}, {"mask": left, "score": 0.75}]
    output, resources = adapting("mask-generation", raw, image=photo)
    assert [row["score"] for row in output] == [0.75, 0.25]
    assert np.array_equal(pixels(output[0]["mask"]) == 255, left)
    drawn, plain = resources[0].to_pil(), photo.to_pil()
    assert drawn.getpixel((20, 50)) != plain.getpixel((20, 50))
    assert drawn.getpixel((20, 50)) != drawn.getpixel((150, 50))
    assert "2 masks" in [resource.text for resource in resources]


def test_an_image_without_masks_stays_as_it_is(adapting: Adapting, photo: Resource) -> None:
    output, resources = adapting("mask-generation", [], image=photo)
    assert output == []
    assert resources[0].to_pil().tobytes() == photo.to_pil().tobytes()


@pytest.mark.parametrize(
    "raw", [[{"mask": "here", "score": 1}], [{"mask": np.ones((2, 2)), "score": NAN}], [{"score": 1}]]
)
def test_what_is_no_mask_is_refused(adapting: Adapting, photo: Resource, raw: Any) -> None:
    with pytest.raises(UnsupportedError, match="expected was"):
        adapting("mask-generation", raw, image=photo)


def joint(label: Any, x: Any, y: Any, score: Any = 0.9) -> dict[str, Any]:
    return {"label": label, "x": x, "y": y, "score": score}


ARM = [joint("shoulder", 20.04, np.float32(50)), joint("elbow", 120, 50), joint("wrist", 180, 20, 0.1)]
BONES = [(0, 1), (1, 2)]


def test_joints_are_drawn_where_they_are(adapting: Adapting, photo: Resource) -> None:
    raw = [{"score": np.float32(0.8), "keypoints": ARM, "edges": np.array(BONES)}]
    output, resources = adapting("keypoint-detection", raw, image=photo)
    assert output == [
        {"score": 0.8, "keypoints": [joint("shoulder", 20.0, 50.0), joint("elbow", 120.0, 50.0), ARM[2]]}
    ]
    drawn = resources[0].to_pil()
    assert drawn.getpixel((20, 50)) == drawn.getpixel((120, 50)) == (255, 255, 255)
    bone, ground = drawn.getpixel((70, 50)), photo.to_pil().getpixel((0, 0))
    assert bone not in (ground, (0, 0, 0))
    assert drawn.getpixel((180, 20)) == drawn.getpixel((150, 35)) == ground
    assert "1 person: 2 joints seen" in [resource.text for resource in resources]


def test_people_come_best_first_each_with_a_box_if_it_is_known(adapting: Adapting, photo: Resource) -> None:
    box = {"xmin": 10.2, "ymin": 0, "xmax": np.int64(190), "ymax": 60}
    raw = [{"score": 0.2, "keypoints": ARM, "edges": None}, {"score": 0.9, "keypoints": ARM, "box": box}]
    output, _ = adapting("keypoint-detection", raw, image=photo)
    assert [row["score"] for row in output] == [0.9, 0.2]
    assert output[0]["box"] == {"xmin": 10, "ymin": 0, "xmax": 190, "ymax": 60}
    assert "box" not in output[1]


def test_an_image_without_people_is_no_error(adapting: Adapting, photo: Resource) -> None:
    output, resources = adapting("keypoint-detection", [], image=photo)
    assert output == []
    assert "no people" in [resource.text for resource in resources]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"score": 1, "keypoints": ARM, "edges": [(0, 3)]}, "edges between the 3 keypoints"),
        ({"score": 1, "keypoints": ARM, "edges": [(0, -1)]}, "edges between the 3 keypoints"),
        ({"score": 1, "keypoints": ARM, "edges": [(0, 1, 2)]}, "edges as pairs"),
        ({"score": 1, "keypoints": ARM, "edges": "01"}, "edges as pairs"),
        ({"score": 1, "keypoints": [joint("nose", NAN, 1)]}, "finite"),
        ({"score": 1, "keypoints": [{"x": 1, "y": 2}]}, "a list of {label, x, y, score}"),
        ({"score": 1, "keypoints": [joint(7, 1, 2)]}, "a text"),
        ({"score": NAN, "keypoints": ARM}, "finite"),
        ({"score": 1, "keypoints": ARM, "box": [1, 2, 3, 4]}, "a box"),
    ],
)
def test_what_is_no_skeleton_is_refused(
    adapting: Adapting, photo: Resource, row: dict[str, Any], expected: str
) -> None:
    with pytest.raises(UnsupportedError, match=expected):
        adapting("keypoint-detection", [row], image=photo)
