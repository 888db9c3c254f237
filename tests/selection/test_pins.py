"""Models that the user fixed."""

from pathlib import Path

import pytest

from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate
from jarvis_agent.selection.pins import Pin, read_pins

DETECTION = TASKS["object-detection"]


def test_a_pin_is_an_id_with_or_without_a_revision() -> None:
    pins = read_pins({"object-detection": "facebook/detr@v1.0", "Image Cls": "google/vit"})
    assert pins == {
        "object-detection": Pin("facebook/detr", "v1.0"),
        "image-classification": Pin("google/vit"),
    }
    assert pins["object-detection"].candidate(DETECTION) == Candidate(
        id="facebook/detr", task="object-detection", source="pinned", revision="v1.0"
    )


def test_a_pin_may_be_a_directory(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    pin = read_pins({"object-detection": str(tmp_path)})["object-detection"]
    candidate = pin.candidate(DETECTION)
    assert (candidate.path, candidate.local, candidate.library) == (tmp_path, True, "transformers")


@pytest.mark.parametrize("text", ["/no/such/model", "./nothing", "~/nothing-at-all", "", " "])
def test_a_directory_that_is_not_there_is_told_at_once(text: str) -> None:
    with pytest.raises(ConfigError, match="neither an id of the Hub nor an existing path"):
        read_pins({"object-detection": text})


def test_a_pin_for_an_unknown_task_names_those_close_to_it() -> None:
    with pytest.raises(ConfigError, match="close to it: object-detection"):
        read_pins({"object-detektion": "a/b"})


def test_a_downloaded_model_is_taken_at_the_pinned_revision() -> None:
    cached = Candidate(
        id="a/b",
        task="object-detection",
        local=True,
        path=Path("/cache/new"),
        revision="new",
        metadata={"revisions": {"new": "/cache/new", "old": "/cache/old"}},
    )
    assert Pin("a/b").at_revision(cached) is cached
    assert Pin("a/b", "new").at_revision(cached) is cached
    old = Pin("a/b", "old").at_revision(cached)
    assert (old.revision, old.local, old.path) == ("old", True, Path("/cache/old"))
    other = Pin("a/b", "v9").at_revision(cached)
    assert (other.revision, other.local, other.path) == ("v9", False, None)


@pytest.mark.parametrize(("space", "here"), [("org/space", False), ("http://127.0.0.1:7860", True)])
def test_a_pin_may_be_a_space(space: str, here: bool) -> None:
    candidate = read_pins({"object-detection": f"space:{space}"})["object-detection"].candidate(DETECTION)
    assert (candidate.id, candidate.backend, candidate.local) == (space, "spaces", here)
    assert candidate.metadata == {"space": space}
