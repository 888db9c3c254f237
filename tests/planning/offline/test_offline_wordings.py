"""The bank of wordings: whole, and stored with the vectors of exactly its phrases."""

import json
from pathlib import Path

import numpy as np
import pytest

from jarvis_agent.backends.starter.embeddings import load_embedder
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import Arg, TaskSpec
from jarvis_agent.planning.offline import wordings
from jarvis_agent.planning.offline.wordings import (
    OUT_OF_SCOPE,
    SMALL_TALK,
    VECTORS,
    Matcher,
    bank_name,
    digest,
    load_bank,
    store_vectors,
    wording,
)

OWN = TaskSpec(
    "sketch-cleanup", "vision", "Clean the lines of a sketch.", (Arg("image", "image"),), ("image",)
)


def test_every_task_has_phrases_and_every_entry_is_a_task() -> None:
    assert load_bank().keys() == {*TASKS, SMALL_TALK, OUT_OF_SCOPE}
    assert all(len(set(entry.phrases)) == len(entry.phrases) >= 3 for entry in load_bank().values())


def test_a_control_map_is_made_by_the_task_of_its_name() -> None:
    maps = {name: entry.map for name, entry in load_bank().items() if entry.map}
    assert maps == {
        name: name.replace("text-to-image", "control")
        for name, spec in TASKS.items()
        if spec.category == "control" and "-text-to-image" in name
    }


def test_the_stored_vectors_are_those_of_the_stored_phrases() -> None:
    with np.load(VECTORS, allow_pickle=False) as stored:
        assert str(stored["digest"]) == digest(), "run: python -m jarvis_agent.planning.offline"
        assert stored["vectors"].shape == (sum(len(entry.phrases) for entry in load_bank().values()), 384)


@pytest.mark.starter
@pytest.mark.timeout(300)
def test_storing_gives_the_vectors_that_are_stored(tmp_path: Path) -> None:
    store_vectors(load_embedder(Settings(offline=True)), tmp_path / "new.npz")
    with np.load(VECTORS) as stored, np.load(tmp_path / "new.npz") as new:
        assert np.allclose(stored["vectors"], new["vectors"], atol=2e-3)
        assert np.allclose(stored["weights"], new["weights"], atol=0.05)


@pytest.mark.starter
def test_other_phrases_than_the_stored_ones_are_computed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bank = {"object-detection": {"phrases": ["count the sheep"]}}
    (tmp_path / "wordings.json").write_text(json.dumps(bank), encoding="utf-8")
    monkeypatch.setattr(wordings, "WORDINGS", tmp_path / "wordings.json")
    load_bank.cache_clear()
    try:
        matcher = Matcher(load_embedder(Settings(offline=True)))
        (near,) = matcher.near(["count the sheep"], [])
    finally:
        monkeypatch.undo()
        load_bank.cache_clear()
    assert near.cosines == {"object-detection": pytest.approx(1.0, abs=1e-3)}


def test_a_task_is_found_by_the_aliases_of_the_paper() -> None:
    tool = TaskSpec("Image-Cls", "tool", "", (), ())
    assert bank_name(tool) == "image-classification"
    assert wording(tool) == load_bank()["image-classification"]


def test_a_task_outside_the_bank_is_worded_by_its_name_and_description() -> None:
    assert bank_name(OWN) is None
    assert wording(OWN).phrases == ("sketch cleanup", "Clean the lines of a sketch.")


@pytest.mark.starter
def test_a_task_outside_the_bank_is_scored_beside_it() -> None:
    matcher = Matcher(load_embedder(Settings(offline=True)))
    (near,) = matcher.near(["please clean the lines in this sketch"], [*TASKS.values(), OWN])
    assert max(near.cosines, key=lambda name: near.cosines[name]) == "sketch-cleanup"
    assert "sketch-cleanup" not in near.odds
