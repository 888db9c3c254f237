"""The numbers of a step are read as they are said."""

from __future__ import annotations

import pytest

from jarvis_agent.planning.offline.amounts import amount


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("horizon", "forecast the next 6 months of it", 6),
        ("horizon", "forecast it 24 rows ahead", 24),
        ("horizon", "continue it with a horizon of 3", 3),
        ("horizon", "forecast the sales of 2024", None),
        ("count", "extract 5 frames", 5),
        ("count", "take 3 sharp pictures out of it", 3),
        ("count", "extract frames", None),
        ("width", "resize it to 640x480", 640),
        ("height", "resize it to 640 x 480 pixels", 480),
        ("height", "resize it to 640 by 480", 480),
        ("width", "make it 200 pixels wide", 200),
        ("height", "make it 200 px high", 200),
        ("width", "make it 200 px high", None),
        ("width", "scale it to 100 pixels", 100),
        ("height", "scale it to 100 pixels", None),
        ("width", "scale it to 100 pixels high", None),
        ("box", "crop it to (10, 20, 200, 220)", [10, 20, 200, 220]),
        ("box", "crop it to the box 10 20 200 220", [10, 20, 200, 220]),
        ("box", "crop the 3 dogs", None),
        ("labels", "7 labels", None),
    ],
)
def test_a_number_is_read_where_it_is_said(name: str, text: str, value: int | list[int] | None) -> None:
    assert amount(name, text) == value
