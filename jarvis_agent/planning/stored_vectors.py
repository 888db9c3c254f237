"""Vectors of the texts that every request is compared with: the bank's examples, and what the tasks do.

    stored()["Describe the image"]      # float32, 384 numbers; as StarterEmbeddings.encode gives it
    python -m jarvis_agent.planning.stored_vectors

The second line computes them anew, after prompts/demos/bank.json or a description of a task has changed. Each
vector is kept by its text, so that other texts (of a changed bank, of tools of one's own) are embedded when
they are needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jarvis_agent.backends.starter.models import MINILM

if TYPE_CHECKING:
    from jarvis_agent.backends.starter.embeddings import Floats, StarterEmbeddings

VECTORS = Path(__file__).parent / "data" / "examples.npz"


def stored(path: Path = VECTORS) -> Mapping[str, Floats]:
    """The vectors by their texts; none if there is no such file, or it is of another model's."""
    import numpy as np

    if not path.is_file():
        return {}
    with np.load(path, allow_pickle=False) as held:
        if str(held["model"]) != MINILM:
            return {}
        return dict(zip(map(str, held["texts"]), held["vectors"].astype(np.float32), strict=True))


def store(embedder: StarterEmbeddings, path: Path = VECTORS) -> None:
    """Write the vectors of all texts as float16."""
    import numpy as np

    found = texts()
    vectors = embedder.encode(found).astype(np.float16)
    np.savez_compressed(path, model=np.array(MINILM), texts=np.array(found), vectors=vectors)


def texts() -> list[str]:
    """The texts that requests are compared with, without the names of files."""
    from jarvis_agent.core.tasks.registry import TASKS
    from jarvis_agent.planning.example_selector import load_bank
    from jarvis_agent.planning.retrieval import without_names

    written = [spec.description for spec in TASKS.values()] + [demo.request for demo in load_bank()]
    return list(dict.fromkeys(map(without_names, written)))


if __name__ == "__main__":
    from jarvis_agent.backends.starter.embeddings import load_embedder
    from jarvis_agent.core.settings import Settings

    store(load_embedder(Settings()))
