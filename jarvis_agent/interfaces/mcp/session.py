"""What one MCP client may read, and the files that its calls have made.

    session = Session(agent.restricted(own, output_dir=own), own)
    session.to_paths({"image": "jarvis:///outputs/20250101-120000-9f0c…/0-canny.png"})
    session.blocks(resources)       # ImageContent, AudioContent, ResourceLink

A file has the URI "jarvis:///outputs/<run>/<name>". It stands for the file in the arguments of later calls.
"""

from __future__ import annotations

import base64
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp import types
from pydantic import AnyUrl

from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.core.types import Resource

URI = re.compile(r"\s*(?:jarvis://)?/outputs/([^/\s]+/[^/\s]+)\s*")
"""The URI of a file, or the path that results show."""

MAX_INLINE_BYTES = 10_000_000
"""Larger images and recordings are resource links."""
_MAX_LISTED = 1000


@dataclass(frozen=True, slots=True)
class Session:
    """One client.

    Attributes:
        agent: reads the directories of the session alone, and writes to `output_dir`.
        output_dir: the directory of its runs.
        links: the files that its calls have made, the latest ones.
    """

    agent: JarvisAgent
    output_dir: Path
    links: deque[types.ResourceLink] = field(default_factory=lambda: deque(maxlen=_MAX_LISTED))

    def to_paths(self, value: Any) -> Any:
        """The arguments of a call with a path for each URI of a file."""
        if isinstance(value, dict):
            return {name: self.to_paths(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self.to_paths(one) for one in value]
        named = URI.fullmatch(value) if isinstance(value, str) else None
        return str(self.output_dir / named[1]) if named else value

    def blocks(self, resources: Iterable[Resource]) -> list[types.ContentBlock]:
        """The files that a call has made as content. Inputs are left out, and files that are gone. Blocks."""
        paths = {resource.path: resource for resource in resources if resource.path is not None}
        own = self.output_dir.resolve()
        return [
            self._block(path, resource)
            for path, resource in paths.items()
            if path.is_file() and path.resolve().is_relative_to(own)
        ]

    def _block(self, path: Path, resource: Resource) -> types.ContentBlock:
        mime = resource.mime or "application/octet-stream"
        link = types.ResourceLink(
            type="resource_link",
            uri=AnyUrl(f"jarvis:///outputs/{path.parent.name}/{path.name}"),
            name=path.name,
            mimeType=mime,
            size=path.stat().st_size,
        )
        self.links.append(link)
        if resource.kind not in ("image", "audio") or (link.size or 0) > MAX_INLINE_BYTES:
            return link
        data = base64.b64encode(path.read_bytes()).decode()
        if resource.kind == "image":
            return types.ImageContent(type="image", data=data, mimeType=mime)
        return types.AudioContent(type="audio", data=data, mimeType=mime)
