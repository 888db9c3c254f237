"""The models that have been downloaded already: what the Hub's cache holds, found without a network.

    source = CacheSource(settings)
    await source.candidates(TASKS["object-detection"], limit=5)    # [Candidate("facebook/detr-resnet-50", …)]

A model is offered only with its weights complete, for the tasks that its card names or its config is for.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.settings import Settings
from jarvis_agent.backends.hub import model_card as cards
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate

if TYPE_CHECKING:
    from huggingface_hub import CachedRepoInfo, CachedRevisionInfo


class CacheSource:
    """What the Hub's cache holds already: no network is needed to use it.

    Args:
        cache_dir: the cache; None: huggingface_hub's own (HF_HUB_CACHE, HF_HOME).
        fresh: seconds for which a scan is good.
    """

    name: ClassVar[str] = "cache"

    def __init__(
        self,
        settings: Settings,
        *,
        cache_dir: Path | None = None,
        fresh: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cache_dir = cache_dir
        self._fresh = fresh
        self._clock = clock
        self._lock = threading.Lock()
        self._scanned: tuple[float, list[Candidate]] | None = None

    async def candidates(self, spec: TaskSpec, limit: int) -> list[Candidate]:
        """The downloaded models for the task that have their weights, the last used first.

        Raises:
            ConfigError: the cache can not be read.
        """
        found = await asyncio.to_thread(self._scan)
        return [candidate for candidate in found if candidate.task == spec.name][:limit]

    def _scan(self) -> list[Candidate]:
        with self._lock:
            if self._scanned is None or self._clock() - self._scanned[0] > self._fresh:
                self._scanned = (self._clock(), self._read())
            return self._scanned[1]

    def _read(self) -> list[Candidate]:
        from huggingface_hub import CacheNotFound, scan_cache_dir

        try:
            repos = scan_cache_dir(self._cache_dir).repos
        except CacheNotFound:
            return []
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the Hub's cache can not be read: {error}; check HF_HOME and HF_HUB_CACHE"
            ) from error
        models = [repo for repo in repos if repo.repo_type == "model"]
        newest = sorted(models, key=lambda repo: (-repo.last_accessed, repo.repo_id))
        return [candidate for repo in newest for candidate in _cached(repo)]


def _cached(repo: CachedRepoInfo) -> list[Candidate]:
    """The candidates that a downloaded repository is: one for each of its tasks."""
    usable = sorted(filter(_usable, repo.revisions), key=lambda one: ("main" in one.refs, one.last_modified))
    if not usable:
        return []
    revision = usable[-1]
    snapshot = revision.snapshot_path
    files = {str(file.file_path.relative_to(snapshot)): file.size_on_disk for file in revision.files}
    card, readme = cards.read_card(snapshot / "README.md")
    tags = cards.strings(card.get("tags"))
    common = {
        "id": repo.repo_id,
        "source": "cache",
        "library": card.get("library_name") or cards.library_at(snapshot, files),
        "description": cards.first_paragraph(readme) or cards.describe(card, tags),
        "local": True,
        "path": snapshot,
        "revision": revision.commit_hash,
        "size": cards.weight_bytes(files),
        "tags": tags,
        "metadata": {
            "revisions": {name: str(one.snapshot_path) for one in usable for name in _names(one)},
            **cards.base_of(card),
        },
        **cards.facts(card, tags),
    }
    return [
        Candidate(task=task, traits=cards.traits(task, repo.repo_id, tags), **common)
        for task in _tasks(repo.repo_id, card, tags, snapshot)
    ]


def _usable(revision: CachedRevisionInfo) -> bool:
    sizes = {file.file_name: file.size_on_disk for file in revision.files}
    return cards.weight_bytes(sizes) > 0 and cards.is_whole(revision.snapshot_path)


def _names(revision: CachedRevisionInfo) -> tuple[str, ...]:
    return (revision.commit_hash, *revision.refs)


def _tasks(model: str, card: Mapping[str, Any], tags: Sequence[str], snapshot: Path) -> list[str]:
    """The task types that a model's card names, else the one that its config is for.

    Cards of ControlNets name any task of images, so that of them the config counts.
    """
    config = cards.read_json(snapshot / "model_index.json") or cards.read_json(snapshot / "config.json")
    if control := cards.control_task(config, model, tags):
        return [control]
    named = [*cards.strings(card.get("pipeline_tag")), *tags]
    known = list(dict.fromkeys(name for name in named if name in TASKS))
    of_config = cards.task_of(config)
    return known or ([of_config] if of_config else [])
