"""What one MCP client may read, and the files that its calls have made.

    session = Session(agent, [Path.cwd()], output_dir)
    path = await session.open("jarvis:///outputs/20250101-120000-9f0c…/0-canny.png")
    blocks = await session.blocks(resources)       # ImageContent, AudioContent, ResourceLink

A file has the URI "jarvis:///outputs/<run>/<name>". It stands for the file in the arguments of later calls.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mcp import types
from pydantic import AnyUrl

from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.core.concurrency import run_in_daemon_thread
from jarvis_agent.core.types import Resource
from jarvis_agent.media.store import ResourceStore
from jarvis_agent.tools.hf_task_tool import MAX_PRODUCED

_NAME = re.compile(r"(?:jarvis://)?(/outputs/[^/\s]+/[^/\s]+)")
MAX_INLINE_BYTES = 10_000_000
"""Larger images and recordings are resource links."""


class Session:
    """One client.

    Attributes:
        agent: reads the directories of the session alone, and writes to its output directory.
        produced: the latest files that tools made, which the session's tools may read.
        files: the files of the session by URI, the latest MAX_PRODUCED.
    """

    def __init__(
        self,
        agent: JarvisAgent,
        roots: Sequence[Path],
        output_dir: Path,
        clean: Callable[[str], str] | None = None,
    ) -> None:
        """`roots` are the directories to read; `clean` removes from a text what the client must not see."""
        self._output_dir = output_dir.absolute()
        self.agent = agent.with_checkpointer(None).restricted(*roots, output_dir=self._output_dir)
        self._clean = clean
        self.produced: deque[Resource] = deque(maxlen=MAX_PRODUCED)
        self.files: dict[str, Resource] = {}

    def clean(self, text: str) -> str:
        """The text without what the client must not see."""
        return self._clean(text) if self._clean else text

    def clean_json(self, value: Any) -> Any:
        """As `clean`, for plain JSON."""
        return json.loads(self.clean(json.dumps(value, ensure_ascii=False)))

    async def open_all(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call with the paths of the files that they name by URI, or hold as data URI.

        Raises:
            InputError: a data URI cannot be used.
        """
        return {name: await self._open(value) for name, value in args.items()}

    async def _open(self, value: Any) -> Any:
        if isinstance(value, list):
            return [await self._open(item) for item in value]
        if not isinstance(value, str):
            return value
        if value.startswith("data:") and ";base64," in value[:200]:
            return await self._save(value)
        named = _NAME.fullmatch(value.strip())
        found = self.files.get(f"jarvis://{named[1]}") if named else None
        return str(found.path) if found else value

    async def _save(self, data: str) -> str:
        """Store a data URI as a file of this session and return its path."""
        store = ResourceStore(self.agent.settings)
        try:
            resource = await store.grant(data)
        finally:
            await run_in_daemon_thread(store.directory.close)
        self.produced.append(resource)
        return str(resource.path)

    async def blocks(self, resources: Iterable[Resource]) -> list[types.ContentBlock]:
        """The files among the resources as content; the client may read them from now on."""
        found = {resource.path: resource for resource in resources if resource.path is not None}
        return await asyncio.to_thread(lambda: [block for r in found.values() for block in self._block(r)])

    def _block(self, resource: Resource) -> list[types.ContentBlock]:
        path = resource.path
        if (
            path is None
            or not path.is_file()
            or not path.resolve().is_relative_to(self._output_dir.resolve())
        ):
            return []  # It was an input, or it is gone.
        uri = f"jarvis:///outputs/{path.parent.name}/{path.name}"
        self.files[uri] = resource
        while len(self.files) > MAX_PRODUCED:
            del self.files[next(iter(self.files))]
        mime, size = resource.mime or "application/octet-stream", path.stat().st_size
        if resource.kind in ("image", "audio") and size <= MAX_INLINE_BYTES:
            data = base64.b64encode(path.read_bytes()).decode()
            if resource.kind == "image":
                return [types.ImageContent(type="image", data=data, mimeType=mime)]
            return [types.AudioContent(type="audio", data=data, mimeType=mime)]
        return [
            types.ResourceLink(
                type="resource_link", uri=AnyUrl(uri), name=path.name, mimeType=mime, size=size
            )
        ]
