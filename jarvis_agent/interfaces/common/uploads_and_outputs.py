"""Files of clients: uploads, outputs of runs and their URLs, and how long all are kept.

An upload is "9f0c…/cat.jpg". `/outputs/8f0c…/0-canny.png` is the URL of a file of a run.
"""

import asyncio
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import Any, BinaryIO
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse

from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.core.concurrency import repeating
from jarvis_agent.core.errors import InputError
from jarvis_agent.core.notes import limit_of
from jarvis_agent.core.tasks.spec import Modality
from jarvis_agent.core.text import map_texts
from jarvis_agent.core.types import Frozen
from jarvis_agent.execution.run import Run
from jarvis_agent.interfaces.common.access import ApiKey
from jarvis_agent.media.detect import detect_content, detect_media_type

SWEEP_S = 60.0
"""Seconds between two deletions of expired files."""

_INLINE, _DOWNLOAD = frozenset({"image", "audio", "video"}), frozenset({"table", "3d"})
"""Kinds that a browser may display, and kinds that it may only save, sent with their media type."""
_FILE = r"[\w-]+[\\/][\w.-]*\w"
"""The directory and name of a file of a run, as in `media.run_directory`. Windows has backslashes."""


class Upload(Frozen):
    """A stored upload of `size` bytes. A request names it in `files` by `name`, which cannot be guessed."""

    name: str
    kind: Modality
    mime: str
    size: int


def save_upload(
    directory: Path, client_name: str, file: BinaryIO, size: int, max_bytes: int, max_stored: int
) -> Upload:
    """Store a file of `size` bytes in a new subdirectory with a random name.

    Raises:
        InputError: it is empty, larger than `max_bytes`, or of an unknown kind.
        OSError: it cannot be written, or all uploads would have more than `max_stored` bytes.
    """
    # The last part of the name, without characters that file systems or URLs reject.
    last = re.split(r"[\\/]", client_name)[-1]
    name = re.sub(r"[^\w.-]+", "-", last)[-60:].strip("-.") or "file"
    name = f"file-{name}" if PureWindowsPath(name).is_reserved() else name  # "con.txt" is a device
    if size > max_bytes:
        helps = limit_of("JARVIS_MAX_FILE_BYTES")
        raise InputError(f"{name} has {size:,} bytes, more than {max_bytes:,}", advice=helps)
    kind, mime = detect_content(file, Path(name))
    file.seek(0)
    folder = directory / secrets.token_hex(16)
    try:
        folder.mkdir(parents=True)
        with (folder / name).open("xb") as stored:
            stored.truncate(size)  # Uploads at the same time count these bytes.
            if stored_bytes(directory) > max_stored:
                raise OSError(f"your uploads have all of your {max_stored:,} bytes; the oldest expire first")
            shutil.copyfileobj(file, stored)
    except BaseException:  # The bytes would count until they expire.
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Upload(name=f"{folder.name}/{name}", kind=kind, mime=mime, size=size)


def stored_bytes(directory: Path) -> int:
    """The size of the uploads in a directory."""
    size = 0
    for folder in directory.glob("*/"):
        with suppress(FileNotFoundError):  # It has just expired.
            size += sum(path.lstat().st_size for path in folder.iterdir())
    return size


def delete_expired(directory: Path, seconds: float) -> None:
    """Delete the subdirectories of `directory` to which nothing was written for `seconds`."""
    oldest = time.time() - seconds
    for folder in directory.iterdir() if directory.is_dir() else ():
        if folder.is_symlink() or not folder.is_dir():
            continue
        try:
            if max(path.lstat().st_mtime for path in (folder, *folder.iterdir())) <= oldest:
                shutil.rmtree(folder, ignore_errors=True)
        except FileNotFoundError:
            continue  # It changed meanwhile, so it is in use.


def deleting_expired(kept: Mapping[Path, float]) -> AbstractAsyncContextManager[None]:
    """Within the block, delete what owners have in directories, each of which keeps it so many seconds."""

    def delete() -> None:
        for directory, seconds in kept.items():
            for folder in directory.glob("*/"):
                delete_expired(folder, seconds)
                with suppress(OSError):  # It holds something newer.
                    folder.rmdir()

    return repeating(partial(asyncio.to_thread, delete), SWEEP_S, "the deletion of files")


def find_output(directory: Path, run: str, name: str) -> FileResponse | None:
    """The response with a file of a run, which a browser displays or only saves; None if there is none."""
    if any(part in ("", ".", "..") or re.search(r"[\\/\0]", part) for part in (run, name)):
        return None
    path = directory.resolve() / run / name
    try:
        if not path.is_file() or path.resolve() != path:
            return None
    except OSError:  # The name is too long for the file system.
        return None
    kind, mime = "file", ""
    with suppress(InputError):
        kind, mime = detect_media_type(path)
    return FileResponse(
        path,
        media_type=mime if kind in _INLINE | _DOWNLOAD else "application/octet-stream",
        filename=name,
        content_disposition_type="inline" if kind in _INLINE else "attachment",
        headers={"X-Content-Type-Options": "nosniff"},
    )


async def output_response(directory: Path, run: str, name: str) -> FileResponse:
    """The response to `GET /outputs/{run}/{name}`. HTTPException 404: there is no such file."""
    if file := await asyncio.to_thread(find_output, directory, run, name):
        return file
    raise HTTPException(404, "no such file")


class PublicNames:
    """What clients see in place of paths: URLs of results, and names of uploads and of pinned models."""

    def __init__(self, directories: Mapping[Path, str], agents: Iterable[JarvisAgent] = ()) -> None:
        """`directories` have the beginnings of the names of their files; owners of agents pin models."""
        pins = (pin.path for agent in agents for pin in agent.stages.registry.selector.pins.values())
        pinned = dict.fromkeys((path.parent for path in pins if path), "")
        self._names = {
            str(form): name
            for path, name in {**directories, **pinned}.items()
            for form in (path.absolute(), path.resolve())
        }

    def of(self, value: Any) -> Any:
        """A text, or plain JSON, with these names."""
        return map_texts(value, self._of_text, keys=True)

    def _of_text(self, text: str) -> str:
        for directory, name in self._names.items():
            if directory in text:
                parts = re.split(rf"{re.escape(directory)}[\\/]((?:{_FILE})?)", text)
                parts[1::2] = [name + file.replace("\\", "/") for file in parts[1::2]]
                text = "".join(parts)
        return text


def to_paths(value: Any, runs: Path, origin: str = "") -> Any:
    """Plain JSON with paths instead of the URLs "/outputs/…", also those that begin with `origin`.

    A path is no permission: the agent checks it like any other path in a request.
    """
    # Each pattern begins with plain characters, which are found fast: the text may be a file in base64.
    starts = [r"/outputs/(?<![^\s(<\"'`]/outputs/)", *([re.escape(f"{origin}/outputs/")] if origin else [])]
    patterns = [re.compile(rf"{start}({_FILE})(?:\?signature=\w+)?") for start in starts]

    def replaced(text: str) -> str:
        for pattern in patterns:
            text = pattern.sub(lambda match: f"{runs.absolute()}/{match[1]}", text)
        return text

    return map_texts(value, replaced)


class FileUrls:
    """Absolute URLs of the files of runs, for the client that sent a request."""

    def __init__(self, runs: Path, request: Request) -> None:
        self._runs = runs
        self._key: ApiKey | None = request.state.api_key
        # `base_url` lacks the path below which another application mounts this one.
        self._origin = str(request.base_url.replace(path=request.scope["root_path"].rstrip("/")))
        roots = "|".join(re.escape(str(root)) for root in (runs.absolute(), runs.resolve()))
        self._paths = re.compile(rf"(?:{roots})[\\/]({_FILE})")

    def to_paths(self, value: Any) -> Any:
        """Replace URLs of this server by paths, in plain JSON."""
        return to_paths(value, self._runs, self._origin)

    def to_urls(self, text: str) -> str:
        """Replace paths by URLs, which are signed if the server has keys."""

        def url_of(match: re.Match[str]) -> str:
            path = f"/outputs/{match[1]}".replace("\\", "/")
            return self._origin + path + (f"?signature={self._key.sign(path)}" if self._key else "")

        return self._paths.sub(url_of, text)

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
