"""Control maps drawn from known depths, joints and regions."""

from __future__ import annotations

from typing import Any

import pytest

np = pytest.importorskip("numpy")

from PIL import Image  # noqa: E402

from jarvis_agent.backends.algorithms.control_maps import (  # noqa: E402
    ade20k_colours,
    class_colour,
    depth_map,
    nearness,
    normal_map,
    openpose_joints,
    pose_map,
    segment_map,
)
from jarvis_agent.backends.transformers.vision import non_max_suppression  # noqa: E402
from jarvis_agent.core.errors import UnsupportedError  # noqa: E402

BLACK = (0, 0, 0)
RAMP = np.tile(np.linspace(0, 1, 64, dtype=np.float32), (64, 1))
"""Nearer and nearer to the right."""


def joints(**places: tuple[float, float]) -> list[dict[str, Any]]:
    """COCO's 17 joints, of which those named n0 … n16 are seen."""
    return [
        {
            "x": places.get(f"n{n}", (0, 0))[0],
            "y": places.get(f"n{n}", (0, 0))[1],
            "score": 0.9 if f"n{n}" in places else 0.1,
        }
        for n in range(17)
    ]


def test_what_is_near_is_white() -> None:
    drawn = np.asarray(depth_map(RAMP))
    assert drawn.dtype == np.uint8
    assert drawn[0, 0] == 0
    assert drawn[0, -1] == 255
    assert (np.diff(drawn.astype(int), axis=1) >= 0).all()


def test_a_distance_is_turned_into_nearness() -> None:
    metres = np.array([[1.0, 2.0], [4.0, 8.0]])
    near = nearness(metres, distance=True)
    assert near[0, 0] > near[0, 1] > near[1, 0] > near[1, 1]
    assert near[1, 0] == pytest.approx(2 * near[1, 1])
    assert (nearness(metres, distance=False) == metres).all()


def test_one_point_at_no_distance_does_not_make_the_rest_black() -> None:
    metres = np.tile(np.linspace(1, 2, 100), (100, 1))
    metres[0, 0] = 0
    drawn = np.asarray(depth_map(nearness(metres, distance=True)))
    assert drawn[50, 5] > 200


def test_an_even_depth_faces_the_viewer() -> None:
    flat = np.ones((8, 12))
    assert (np.asarray(normal_map(flat)) == (128, 128, 255)).all()
    assert np.asarray(depth_map(flat)).max() == 0


@pytest.mark.parametrize(
    ("near", "channel", "brighter"),
    [(RAMP, 0, True), (RAMP[:, ::-1], 0, False), (RAMP.T, 1, True), (RAMP.T[::-1], 1, False)],
    ids=["faces left", "faces right", "faces up", "faces down"],
)
def test_a_slope_faces_its_lower_side(near: Any, channel: int, brighter: bool) -> None:
    drawn = np.asarray(normal_map(near)).astype(int)
    assert ((drawn[..., channel] > 200) if brighter else (drawn[..., channel] < 55)).all()
    assert (abs(drawn[..., 1 - channel] - 128) <= 1).all()
    lengths = np.linalg.norm(drawn / 127.5 - 1, axis=-1)
    assert lengths == pytest.approx(1, abs=0.02)


def test_depth_that_is_not_a_number_does_no_harm() -> None:
    broken = RAMP.copy()
    broken[3, 3] = np.nan
    assert np.asarray(depth_map(nearness(broken, distance=True))).max() == 255


def test_the_neck_is_between_the_shoulders() -> None:
    found = openpose_joints(joints(n5=(30, 20), n6=(10, 24)))
    assert found[1] == (20, 22)
    assert found[2] == (10, 24)  # OpenPose's right shoulder
    assert found[5] == (30, 20)
    assert [place for place, joint in enumerate(found) if joint] == [1, 2, 5]


def test_a_limb_is_drawn_between_its_joints_in_openposes_colour() -> None:
    drawn = pose_map([{"keypoints": joints(n6=(100, 100), n8=(100, 300))}], (512, 512))
    assert drawn.size == (512, 512)
    assert drawn.getpixel((100, 200)) == (153, 102, 0)  # the right upper arm, dimmed to 60 %
    assert drawn.getpixel((100, 100)) == (255, 170, 0)  # the right shoulder
    assert drawn.getpixel((100, 300)) == (255, 255, 0)  # the right elbow
    assert drawn.getpixel((120, 200)) == BLACK


def test_a_joint_that_is_not_seen_is_not_drawn() -> None:
    drawn = pose_map([{"keypoints": joints(n6=(100, 100))}], (200, 200))
    assert drawn.getpixel((0, 0)) == BLACK
    assert drawn.getpixel((100, 100)) != BLACK
    assert pose_map([], (20, 10)).getbbox() is None


def test_points_that_are_no_body_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="17 joints"):
        pose_map([{"keypoints": joints()[:5]}], (20, 20))


def test_the_classes_of_ade20k_have_their_colours() -> None:
    assert len(set(ade20k_colours().values())) == 149  # roads and skyscrapers share one
    assert class_colour("wall") == (120, 120, 120)
    assert class_colour("person") == (150, 5, 61)
    assert class_colour("window ") == (230, 230, 230)
    assert class_colour("person, individual, someone") == (150, 5, 61)
    assert class_colour("flag") == (92, 0, 255)
    assert class_colour("screen, silver screen, projection screen") != class_colour("blind, screen")


def test_classes_of_coco_have_the_colours_of_what_they_are() -> None:
    assert class_colour("dog") == class_colour("animal")
    assert class_colour("couch") == class_colour("sofa")
    assert class_colour("wall-brick") == class_colour("wall")
    assert class_colour("sky-other-merged") == class_colour("sky")


def test_other_classes_have_a_colour_that_stays() -> None:
    assert class_colour("unicorn") == class_colour(" Unicorn")
    assert class_colour("unicorn") != class_colour("dragon")
    assert class_colour("unicorn") != BLACK


def test_small_regions_lie_over_large_ones() -> None:
    whole, spot = Image.new("L", (8, 6), 255), Image.new("L", (8, 6))
    spot.putpixel((2, 3), 255)
    for regions in ([("wall", whole), ("person", spot)], [("person", spot), ("wall", whole)]):
        drawn = segment_map(regions, (8, 6))
        assert drawn.getpixel((2, 3)) == class_colour("person")
        assert drawn.getpixel((3, 3)) == class_colour("wall")
    assert segment_map([("person", spot)], (8, 6)).getpixel((0, 0)) == BLACK


def test_of_boxes_that_overlap_the_best_is_kept() -> None:
    boxes = [[0, 0, 10, 10], [1, 0, 11, 10], [20, 20, 30, 30], [0, 0, 4, 10]]
    assert non_max_suppression(boxes, [0.5, 0.9, 0.2, 0.7], 0.5) == [1, 3, 2]
    assert non_max_suppression(boxes, [0.5, 0.9, 0.2, 0.7], 0.9) == [1, 3, 0, 2]
    assert non_max_suppression([], [], 0.5) == []
