"""The files of a request and of earlier turns, which a run may read.

files = await grant_files(request, store, settings)
turn = await recall(turn, store)
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from jarvis_agent.core.concurrency import gather_limited
from jarvis_agent.core.context import ChatTurn
from jarvis_agent.core.errors import InputError
from jarvis_agent.core.file_mentions import mentions
from jarvis_agent.core.request import Request
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Resource
from jarvis_agent.media.store import ResourceStore


async def grant_files(request: Request, store: ResourceStore, settings: Settings) -> list[Resource]:
    """Open the files that a request has and names.

    Raises:
        InputError: there are too many, or one cannot be read.
    """
    count, limit = len(request.files) + len(request.blocks), settings.max_files
    if count > limit:
        raise InputError(f"the request has {count} files, more than {limit} (JARVIS_MAX_FILES)")
    files = await gather_limited(store.grant, request.files, settings.max_parallel)
    files += await gather_limited(store.keep, request.blocks, settings.max_parallel)
    known = {file.name for file in files}
    for name in await asyncio.to_thread(mentions, request.text, store.access.is_known):
        if name not in known and (file := await store.grant_mention(name)) not in files:
            files.append(file)
    return files


async def readmit_files(files: Sequence[Resource], store: ResourceStore) -> None:
    """Let a resumed run read the files that it had opened."""
    store.admit(files)
    for file in files:
        if file.path is None:
            await store.grant_mention(file.name)


async def recall(turn: ChatTurn, store: ResourceStore) -> ChatTurn:
    """An earlier turn with its files, which this run may read again."""
    for name in await asyncio.to_thread(mentions, turn.request, store.access.is_known):
        await store.grant_mention(name)
    store.admit(turn.resources)
    if turn.resources:
        return turn
    recalled = [await store.recall(block) for block in turn.blocks]
    given = [resource for resource in recalled if resource is not None]
    made = await store.grant_outputs(turn.answer)
    return replace(turn, resources=(*given, *made), blocks=())
