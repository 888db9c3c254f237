"""Models that are already downloaded: the Hub's cache, read without a network.

A model is listed if its weights are complete, for the tasks in its card or the task of its config.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from jarvis_agent.backends.hub import model_card
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.forks import fork_safe
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate

if TYPE_CHECKING:
    from huggingface_hub import CachedRepoInfo, CachedRevisionInfo


_TTL_S = 60.0
"""For this long a scan is reused."""


class CacheSource:
    """Lists the models in `cache_dir`; None: huggingface_hub's (HF_HUB_CACHE, HF_HOME)."""

    name: ClassVar[str] = "cache"

    def __init__(self, settings: Settings, *, cache_dir: Path | None = None) -> None:
        self._cache_dir = cache_dir
        self._lock = fork_safe(threading.Lock())
        self._scanned: tuple[float, list[Candidate]] | None = None

    async def candidates(self, spec: TaskSpec, limit: int) -> list[Candidate]:
        """Return the downloaded models for the task, the last used first. Raises ConfigError."""
        candidates = await asyncio.to_thread(self._scan)
        return [candidate for candidate in candidates if candidate.task == spec.name][:limit]

    def _scan(self) -> list[Candidate]:
        with self._lock:
            if self._scanned is None or time.monotonic() - self._scanned[0] > _TTL_S:
                self._scanned = (time.monotonic(), self._read())
            return self._scanned[1]

    def _read(self) -> list[Candidate]:
        from huggingface_hub import CacheNotFound, scan_cache_dir

        try:
            repos = scan_cache_dir(self._cache_dir).repos
        except CacheNotFound:
            return []
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the Hub's cache cannot be read: {error}; check HF_HOME and HF_HUB_CACHE"
            ) from error
        models = [repo for repo in repos if repo.repo_type == "model"]
        newest = sorted(models, key=lambda repo: (-repo.last_accessed, repo.repo_id))
        return [candidate for repo in newest for candidate in _candidates(repo)]


def _candidates(repo: CachedRepoInfo) -> list[Candidate]:
    """Return one candidate for each task of a downloaded repository."""

    def is_usable(revision: CachedRevisionInfo) -> bool:
        sizes = {file.file_name: file.size_on_disk for file in revision.files}
        return model_card.weight_bytes(sizes) > 0 and model_card.is_complete(revision.snapshot_path)

    revisions = sorted(repo.revisions, key=lambda row: ("main" in row.refs, row.last_modified))
    usable = list(filter(is_usable, revisions))
    if not usable:
        return []
    revision = usable[-1]
    snapshot = revision.snapshot_path
    files = {str(file.file_path.relative_to(snapshot)): file.size_on_disk for file in revision.files}
    card, readme = model_card.read_card(snapshot / "README.md")
    tags = model_card.strings(card.get("tags"))
    paths = {name: str(row.snapshot_path) for row in usable for name in (row.commit_hash, *row.refs)}
    common = {
        "id": repo.repo_id,
        "source": CacheSource.name,
        "library": card.get("library_name") or model_card.library_at(snapshot, files),
        "description": model_card.first_paragraph(readme) or model_card.describe(card, tags),
        "local": True,
        "path": snapshot,
        "revision": revision.commit_hash,
        "size": model_card.weight_bytes(files),
        "tags": tags,
        "metadata": {"revisions": paths, **model_card.base_models(card)},
        **model_card.metadata(card, tags),
    }
    return [
        Candidate(task=task, traits=model_card.capabilities(task, repo.repo_id, tags), **common)
        for task in _tasks(repo.repo_id, card, tags, snapshot)
    ]


def _tasks(model: str, card: Mapping[str, Any], tags: Sequence[str], snapshot: Path) -> list[str]:
    """Return the task types in a model's card, else the task of its config.

    For a ControlNet the config decides, because such cards name arbitrary image tasks.
    """
    config = model_card.read_json(snapshot / "model_index.json")
    config = config or model_card.read_json(snapshot / "config.json")
    if control := model_card.control_task(config, model, tags):
        return [control]
    named = [*model_card.strings(card.get("pipeline_tag")), *tags]
    tasks = list(dict.fromkeys(name for name in named if name in TASKS))
    of_config = model_card.task_of(config)
    return tasks or ([of_config] if of_config else [])
