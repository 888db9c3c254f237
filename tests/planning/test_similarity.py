"""Texts are compared by what they ask for, not by what their files are called."""

from collections.abc import Sequence

import numpy as np
import pytest

from jarvis_agent.core.settings import Settings
from jarvis_agent.planning.retrieval import Similarity, kind_by_name, without_names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Describe cat.jpg", "Describe the image"),
        ("Dub a.mp4 with b.wav", "Dub the video with the audio"),
        ("Compare a.jpg with aa.jpg", "Compare the image with the image"),
        ("What does t.csv say?", "What does the table say?"),
        ("Hello", "Hello"),
    ],
)
def test_files_are_called_by_their_kinds(text: str, expected: str) -> None:
    assert without_names(text) == expected


def test_a_file_of_no_known_kind_is_a_file() -> None:
    assert (kind_by_name("a.xyz"), kind_by_name("A.TSV")) == ("file", "table")


def test_without_embeddings_shared_words_tell_and_scripts_are_kept_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Similarity, "_embedder", None)
    near, far, other = Similarity(Settings()).scores(
        "Count the sheep in a.jpg", ["Count the cows in b.jpg", "Read this out", "数一数图里的羊"]
    )
    assert 1 > near > far > other
    assert Similarity(Settings()).scores("数一数图里的羊", ["数一数图里的牛", "朗读这段文字"])[0] > 0.7


def test_what_requests_are_compared_with_is_kept_apart_from_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Embedder:
        def encode(self, texts: Sequence[str]) -> np.ndarray:
            asked.extend([list(texts)] if texts else [])
            return np.eye(len(texts), 384, dtype=np.float32)

    asked: list[list[str]] = []
    monkeypatch.setattr(Similarity, "_embedder", Embedder())
    similarity = Similarity(Settings())
    for request in ("Count the sheep", "Shear the sheep"):
        similarity.scores(request, ["Count what one cares for", "Sell wool"])
    assert asked == [["Count what one cares for", "Sell wool"], ["Count the sheep"], ["Shear the sheep"]]
