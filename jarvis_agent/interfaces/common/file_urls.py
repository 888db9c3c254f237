"""The URLs of files of runs, and their paths.

    to_paths({"image": "/outputs/8f0c…/0-canny.png"}, workspace.runs)     # {"image": "/srv/…/0-canny.png"}
    FileUrls(workspace.runs, request).to_urls(run.answer)

A path is no permission: the agent checks it like any other path in a request.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import Request

from jarvis_agent.execution.run import Run
from jarvis_agent.interfaces.common.access import sign

_FILE = r"[\w-]+/[\w.-]*\w"
"""The directory and name of a file of a run, as in `media.run_directory`."""


def to_paths(value: Any, runs: Path, origin: str = "") -> Any:
    """Plain JSON with paths instead of the URLs "/outputs/…", also those that begin with `origin`."""
    if isinstance(value, dict):
        return {name: to_paths(one, runs, origin) for name, one in value.items()}
    if isinstance(value, list):
        return [to_paths(one, runs, origin) for one in value]
    if not isinstance(value, str):
        return value
    # Each pattern begins with plain characters, which are found fast: the text may be a file in base64.
    starts = [r"/outputs/(?<![^\s(<\"'`]/outputs/)", *([re.escape(f"{origin}/outputs/")] if origin else [])]
    for start in starts:
        pattern = rf"{start}({_FILE})(?:\?signature=\w+)?"
        value = re.sub(pattern, lambda found: f"{runs.absolute()}/{found[1]}", value)
    return value


def origin_of(request: Request) -> str:
    """The URL of this application, without a slash at its end."""
    # `base_url` lacks the path below which another application mounts this one.
    return str(request.base_url.replace(path=request.scope["root_path"].rstrip("/")))


class FileUrls:
    """Absolute URLs of the files of runs, for the client that sent a request."""

    def __init__(self, runs: Path, request: Request) -> None:
        self._request = request
        self._origin = origin_of(request)
        roots = "|".join(re.escape(f"{root}/") for root in (runs.absolute(), runs.resolve()))
        self._paths = re.compile(rf"(?:{roots})({_FILE})")

    def to_urls(self, text: str) -> str:
        """Replace paths by URLs, which are signed if the server has keys."""
        return self._paths.sub(lambda path: self._origin + sign(f"/outputs/{path[1]}", self._request), text)

    def markdown(self, run: Run) -> str:
        """Links to the files of a run that its answer does not show; images are displayed."""
        answer, links = self.to_urls(run.answer), []
        for resource in run.resources:
            url = self.to_urls(str(resource.path or ""))
            if url.startswith(self._origin):
                link = f"[{Path(url.partition('?')[0]).name}]({quote(url, safe=':/[]%?=')})"
                is_shown = f"]({url}" in answer if resource.kind == "image" else url in answer
                links += [] if is_shown else [f"!{link}" if resource.kind == "image" else link]
        return "".join(f"\n\n{link}" for link in dict.fromkeys(links))
