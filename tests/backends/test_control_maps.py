"""Control maps drawn from known depths, joints and regions."""

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


def joints(places: dict[int, tuple[float, float]], first: str = "Nose") -> list[dict[str, Any]]:
    """COCO's 17 joints, of which those with a place are seen."""
    placed = [(n in places, *places.get(n, (0, 0))) for n in range(17)]
    names = {0: first, 5: "L_Shoulder"}
    return [
        {"label": names.get(n, str(n)), "x": x, "y": y, "score": 0.9 if seen else 0.1}
        for n, (seen, x, y) in enumerate(placed)
    ]


def test_depth_maps_are_brighter_where_it_is_nearer() -> None:
    drawn = np.asarray(depth_map(RAMP))
    assert (drawn.dtype, drawn[0, 0], drawn[0, -1]) == (np.uint8, 0, 255)
    assert (np.diff(drawn.astype(int), axis=1) >= 0).all()
    metres = np.array([[1.0, 2.0], [4.0, 8.0]])
    near = nearness(metres, distance=True)
    assert near[0, 0] > near[0, 1] > near[1, 0] > near[1, 1]
    assert near[1, 0] == pytest.approx(2 * near[1, 1])
    metres = np.tile(np.linspace(1, 2, 100), (100, 1))
    metres[0, 0] = 0  # one point at distance 0 does not make the others black
    assert np.asarray(depth_map(nearness(metres, distance=True)))[50, 5] > 200


@pytest.mark.parametrize(("near", "channel"), [(RAMP, 0), (RAMP.T, 1)], ids=["left", "up"])
def test_normals_point_away_from_the_surface(near: Any, channel: int) -> None:
    flat = np.ones((8, 12))
    assert (np.asarray(normal_map(flat)) == (128, 128, 255)).all()
    assert np.asarray(depth_map(flat)).max() == 0
    drawn = np.asarray(normal_map(near)).astype(int)
    assert (drawn[..., channel] > 200).all()
    assert (abs(drawn[..., 1 - channel] - 128) <= 1).all()
    assert np.linalg.norm(drawn / 127.5 - 1, axis=-1) == pytest.approx(1, abs=0.02)


def test_poses_are_drawn_as_openpose_draws_them() -> None:
    found = openpose_joints(joints({5: (30, 20), 6: (10, 24)}))
    assert [place for place, joint in enumerate(found) if joint] == [1, 2, 5]
    assert found[1] == (20, 22)  # the neck is between the shoulders
    assert found[2] == (10, 24)  # OpenPose's right shoulder
    drawn = pose_map([{"keypoints": joints({6: (100, 100), 8: (100, 300)})}], (512, 512))
    assert drawn.size == (512, 512)
    assert drawn.getpixel((100, 200)) == (153, 102, 0)  # the right upper arm, dimmed to 60 %
    assert drawn.getpixel((100, 100)) == (255, 170, 0)  # the right shoulder
    assert drawn.getpixel((100, 300)) == (255, 255, 0)  # the right elbow
    assert drawn.getpixel((120, 200)) == drawn.getpixel((0, 0)) == BLACK
    assert pose_map([], (20, 10)).getbbox() is None
    for others in (joints({})[:5], joints({}, first="Paw")):
        with pytest.raises(UnsupportedError, match="17 joints"):
            pose_map([{"keypoints": others}], (20, 20))


def test_classes_have_the_colours_of_ade20k_or_one_of_their_own() -> None:
    assert len(set(ade20k_colours().values())) == 149  # roads and skyscrapers share one
    for label, colour in (
        ("wall", (120, 120, 120)),
        ("person", (150, 5, 61)),
        ("person, individual, someone", (150, 5, 61)),
        ("dog", class_colour("animal")),
        ("couch", class_colour("sofa")),
        ("sky-other-merged", class_colour("sky")),
        (" Unicorn", class_colour("unicorn")),
    ):
        assert class_colour(label) == colour, label
    assert len({class_colour("unicorn"), class_colour("dragon"), BLACK}) == 3


def test_small_regions_lie_over_large_ones() -> None:
    whole, spot = Image.new("L", (8, 6), 255), Image.new("L", (8, 6))
    spot.putpixel((2, 3), 255)
    wall, person = {"label": "wall", "mask": whole}, {"label": "person", "mask": spot}
    for segments in ([wall, person], [person, wall]):
        drawn = segment_map(segments, (8, 6))
        assert drawn.getpixel((2, 3)) == class_colour("person")
        assert drawn.getpixel((3, 3)) == class_colour("wall")
    assert segment_map([person], (8, 6)).getpixel((0, 0)) == BLACK


def test_the_best_of_overlapping_boxes_is_kept() -> None:
    boxes = [[0, 0, 10, 10], [1, 0, 11, 10], [20, 20, 30, 30], [0, 0, 4, 10]]
    assert non_max_suppression(boxes, [0.5, 0.9, 0.2, 0.7], 0.5) == [1, 3, 2]
    assert non_max_suppression(boxes, [0.5, 0.9, 0.2, 0.7], 0.9) == [1, 3, 0, 2]
    assert non_max_suppression([], [], 0.5) == []
