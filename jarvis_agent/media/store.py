"""The files that a run reads: attachments, URLs, files named in the request, and results."""

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, urlsplit

from jarvis_agent.core.concurrency import gather_limited, run_cpu_bound
from jarvis_agent.core.content import file_block, is_data_url, read_file_data
from jarvis_agent.core.context import ChatTurn, turns_of
from jarvis_agent.core.errors import InputError
from jarvis_agent.core.file_mentions import mentions, split_names, split_pages
from jarvis_agent.core.notes import Note
from jarvis_agent.core.request import Request
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import MEDIA, ArgKind, split_kind
from jarvis_agent.core.text import clean
from jarvis_agent.core.types import Resource
from jarvis_agent.media import limits
from jarvis_agent.media.access import QUOTES, AccessPolicy, describe_file, name_errors
from jarvis_agent.media.detect import PDF, kind_by_name
from jarvis_agent.media.documents import MAX_CHARS, extract_pages, load_text, render_pages
from jarvis_agent.media.download import fetch
from jarvis_agent.media.recordings import write_sound
from jarvis_agent.media.run_directory import RunDirectory

logger = logging.getLogger(__name__)

MAX_FILES = 100
"""Most files and attachments of one request."""

Notes = list[str] | None
_URL = re.compile(r"https?://", re.IGNORECASE)
_MOST_SCANS = 50  # scanned pages of a document that are read
_TEXTS = frozenset({"text", "table", "data", "file"})  # kinds whose text is used where a text is needed


class ResourceStore:
    """Finds and opens the files that a run may read. `directory` is where downloads and results go.

    Its methods raise an InputError for what is missing, unreadable, too large or of another kind, and a
    ForbiddenError for what this run may not read.

    store = ResourceStore(settings)
    files, turns, notes = await store.open(Request(input="Describe cat.jpg"))
    image = await store.resolve("cat.jpg", "image")     # a Resource
    await store.resolve("/etc/passwd", "image")         # ForbiddenError, see media/access.py
    """

    def __init__(self, settings: Settings, *, directory: Path | None = None, for_tool: bool = False) -> None:
        """`directory` is the run's, by default a new one.

        With `for_tool` it serves a tool called outside a plan, which may fetch any public URL.
        """
        self.settings = settings
        self.directory = RunDirectory(settings, directory)
        self.access = AccessPolicy(settings, for_tool=for_tool)
        self.read_page: Callable[[Resource], Awaitable[str]] | None = None
        """Reads the picture of a page; "" if nothing here can."""
        self._mentioned: dict[str, asyncio.Lock] = {}
        self._decoding = asyncio.Lock()

    async def open(
        self, request: Request, turns: Sequence[ChatTurn] = ()
    ) -> tuple[list[Resource], list[ChatTurn], list[str]]:
        """Open the files that a request has and names, and allow those of its chat.

        A file has the name that the request's text has for it. The remembered `turns` follow those of the
        request's own history.

        Returns the files; the turns of the chat with their files, oldest first; and notes on files left out.
        Raises InputError: there are too many files, or an attached one cannot be used.
        """
        total = len(request.files) + len(request.blocks)
        if total > MAX_FILES:
            raise InputError(f"the request has {total} files, more than {MAX_FILES}; split it")
        kept = {(turn.request, turn.answer) for turn in turns}
        earlier = [turn for turn in turns_of(request.history) if (turn.request, turn.answer) not in kept]
        opened = [await self._open_turn(turn) for turn in (*earlier, *turns)]
        notes = list[str]()
        given_files = partial(self._grant_all, self.grant, notes)
        files = [*chain.from_iterable(await gather_limited(given_files, request.files))]
        files = [file for place, file in enumerate(files) if file not in files[:place]]
        attached = await gather_limited(self.grant_block, request.blocks)
        names = {file.name for file in (*files, *attached)}
        for file in attached:
            if file not in files and file.name in {other.name for other in files}:
                path = PurePosixPath(file.name)  # phones call every picture image.jpg
                numbered = (f"{path.stem}-{number}{path.suffix}" for number in count(2))
                file = file.model_copy(update={"name": next(name for name in numbered if name not in names)})
                names.add(file.name)
            self.access.allow(file.name, file)
            files.append(file)
        named = await self.grant_mentions(request.text, notes)
        called = {file.path: file for file in reversed(named)}
        files = [called.pop(file.path, file) for file in files]
        files += [file for file in named if file not in files]
        if len(files) > (most := max(total, MAX_FILES)):
            used = "the first {number} of {total} files are used"
            notes.append(Note(used, number=most, total=len(files)))
        return files[:most], opened, notes

    async def _open_turn(self, turn: ChatTurn) -> ChatTurn:
        """An earlier turn with its files: those that are known, else its attachments and what it made."""
        await self.grant_mentions(turn.request, [])
        self.grant_resources(turn.resources)
        if turn.resources:
            return turn
        files = list[Resource]()
        for block in turn.blocks:
            url = str(block.get("url") or "")
            try:  # a URL is fetched when it is used
                files += [await (self.grant_mention(url) if _URL.match(url) else self.grant_block(block))]
            except InputError as error:
                logger.warning("an attachment of an earlier turn is left out: %s", error)
        names = await asyncio.to_thread(self._results_in, turn.answer)
        files += [file for name in names if (file := await self.grant_mention(name)).path is not None]
        return replace(turn, resources=tuple(files), blocks=())

    def _results_in(self, answer: str) -> list[str]:
        """The results of earlier runs that an answer names; clients of a server have them by their thread."""
        folder = self.settings.output_dir.resolve()
        names = mentions(answer, self.access.known_names) if self.settings.allow_request_paths else []
        return [name for name in names if "://" not in name and Path(name).resolve().is_relative_to(folder)]

    async def reopen(self, files: Iterable[Resource], turns: Iterable[ChatTurn]) -> None:
        """Allow what `open` returned before its run was interrupted."""
        for turn in turns:
            await self._open_turn(turn)
        self.grant_resources(files)
        for file in files:
            if file.path is None:
                await self.grant_mention(file.name)

    async def grant(self, name: str) -> Resource:
        """Allow a file, URL or data URI that the user gives, and return it as a Resource."""
        if is_data_url(name):
            return await self._decode(name, "")
        with name_errors(self.access.shown(name)):
            if _URL.match(name):
                suffix = PurePosixPath(urlsplit(name).path).suffix[:8]
                path = await asyncio.to_thread(self.directory.new_path, suffix, "download")
                path = await fetch(name, path, self.settings)
                resource = await asyncio.to_thread(describe_file, path, name)
            else:
                resource = await asyncio.to_thread(self.access.open, name)
        self.access.allow(name, resource)
        return resource

    async def grant_mention(self, name: str) -> Resource:
        """Allow a name found in the text of a request.

        Of a URL, and of an unreadable or misnamed file, the Resource has no path, and a kind guessed from the
        name: when a task first uses it, it is fetched, or raises its error.
        """
        why, kind = "", kind_by_name(name)
        if not _URL.match(name):
            file = self.access.find_end(name, strict=True)
            try:
                file = file or await self.grant(name)
            except InputError as error:
                # A client of a server may write its own path of an upload.
                find = self.access.find_end if self.settings.allow_request_paths else self.access.find
                why, file = error.note, find(name)
            if file and (file.kind != "text" or kind not in ("image", "audio", "video")):
                file = file.model_copy(update={"name": name})
                self.access.allow(name, file)
                return file
        self._mentioned.setdefault(name, asyncio.Lock())
        return Resource(kind=kind, name=name, error=why)

    async def grant_mentions(self, text: str, notes: list[str]) -> list[Resource]:
        """Allow what a text names: files, URLs, and at most `MAX_FILES` of each folder and pattern.

        Notes say which others are not used.
        """
        names = await asyncio.to_thread(mentions, text, self.access.known_names)
        named = [await self._grant_all(self.grant_mention, notes, name) for name in names]
        return [*chain.from_iterable(named)]

    async def _grant_all(
        self, grant: Callable[[str], Awaitable[Resource]], notes: list[str], name: str
    ) -> list[Resource]:
        """Allow the files of a folder, or those that fit a pattern such as "scans/*.jpg"; else, `grant`."""
        if not (names := await asyncio.to_thread(self.access.files_in, name)):
            return [await grant(name)]
        files: list[Resource] = []
        for each in names:
            with suppress(InputError):
                files += [await self.grant(each)] if len(files) < MAX_FILES else []
        if len(files) < len(names):
            why = Note("the others cannot be read")
            if len(files) == MAX_FILES:
                why = Note("a request has at most {number}", number=MAX_FILES)
            used = "{count} of the {number} files of {folder} are used; {why}"
            notes += [Note(used, count=len(files), number=len(names), folder=f"“{name}”", why=why)]
        return files

    def grant_resources(self, resources: Iterable[Resource]) -> None:
        """Allow files that this chat has produced or received, by path and by name."""
        for resource in resources:
            if resource.path is not None:
                self.access.allow(str(resource.path), resource)
                if resource.name and self.access.find(resource.name) is None:
                    self.access.allow(resource.name, resource)

    async def grant_block(self, block: Mapping[str, Any]) -> Resource:
        """Store a content block of a message (image, audio, video, file) as a file of this run."""
        block = file_block(block)
        fields = ("url", "base64", "text", "mime_type")
        url, data, text, mime = (str(block.get(field) or "") for field in fields)
        if url and not is_data_url(url):
            return await self.grant(url)
        if not (data or url) and text and block.get("type") == "file":
            data = f"data:{mime},{quote(text, errors='replace')}"
        if data or url or block.get("base64") is not None:
            name = PurePosixPath(clean(str(block.get("filename") or "")).replace("\\", "/")).name[-255:]
            file = await self._decode(data or url, mime, name)
            if name:  # the text may have it
                self.access.allow(name, file)
            return file
        part = str(block.get("file_id") or block.get("type"))[:80]
        attach = "attach its bytes (base64) or its URL"
        raise InputError(f"the part {part!r} of the message holds no file; {attach}")

    async def resolve(self, value: Any, kind: ArgKind, notes: Notes = None) -> Resource:
        """The resource for an argument of the given kind.

        Of a video that is its sound, of a PDF file pictures of its pages. For "file" that is any file,
        or one with the text, without the limits on pixels and seconds, since it is not decoded.
        """
        resource = value if isinstance(value, Resource) else await self._lookup(str(value).strip())
        notes = [] if notes is None else notes
        if kind == "audio" and resource.kind == "video" and resource.path is not None:
            await asyncio.to_thread(limits.check_limits, resource)
            sound = await asyncio.to_thread(self.directory.new_path, ".flac", resource.path.stem)
            await run_cpu_bound(write_sound, resource.path, sound, notes)
            resource = Resource(kind="audio", path=sound, mime="audio/flac", name=resource.name)
        if kind == "image" and resource.mime == PDF and resource.path is not None:
            pages = await asyncio.to_thread(self.directory.new_path, ".tiff", resource.path.stem)
            notes += await run_cpu_bound(render_pages, resource.path, pages, limits.MAX_PIXELS)
            resource = Resource(kind="image", path=pages, mime="image/tiff", name=resource.name)
        if resource.kind not in split_kind(kind) and kind in MEDIA - {"file"}:
            kinds = (resource.kind, kind)
            own, needed = (f"{'an' if noun[0] in 'aeiou' else 'a'} {noun} file" for noun in kinds)
            raise InputError(f"{resource.file_name or value} is {own}, and {needed} is needed")
        if kind != "file":
            await asyncio.to_thread(limits.check_limits, resource)
        elif resource.path is None:
            content = resource.as_text().encode()
            path = await asyncio.to_thread(self.directory.save_input, content, "text/plain")
            resource = Resource(kind="text", path=path, mime="text/plain", name=resource.name)
        return resource

    async def text_of(self, value: str | Resource, given: Iterable[str] = (), notes: Notes = None) -> str:
        """The text of a resource, or a value in which names of text files are replaced by their contents.

        A value that is only a name may be that of any readable file. In a longer text, those of allowed files
        count that the task is not `given` in other arguments. What was assumed is added to `notes`.
        """
        file = value if isinstance(value, Resource) else await self._find(value.strip())
        if file is not None and file.path is not None and file.text is None and file.kind in _TEXTS:
            text, read = await self._load(file.path)
            if notes is not None:
                notes.extend(note for note in read if note not in notes)
            return text
        if isinstance(value, Resource):
            return value.as_text()
        return value if file is not None else await self.with_contents(value, given, notes)

    async def _load(self, path: Path) -> tuple[str, list[str]]:
        """As `load_text`, with the scanned pages of a PDF file if something here reads them."""
        scans: dict[int, str] = {}
        load = partial(load_text, path, scans=scans)
        with suppress(InputError):  # a file with nothing but scans has no text yet
            loaded = await run_cpu_bound(load)
            if not scans or self.read_page is None:
                return loaded
        if self.read_page is not None:
            for number in [*scans][:_MOST_SCANS]:
                page = await asyncio.to_thread(self.directory.new_path, ".tiff", f"page-{number}")
                await run_cpu_bound(render_pages, path, page, limits.MAX_PIXELS, number)
                scans[number] = await self.read_page(Resource(kind="image", path=page, mime="image/tiff"))
                await asyncio.to_thread(page.unlink, missing_ok=True)
        return await run_cpu_bound(load)

    async def with_contents(self, text: str, given: Iterable[str] = (), notes: Notes = None) -> str:
        """A text in which the names of allowed text files are replaced by their contents. As `text_of`."""
        others = [self.access.find(name.strip()) for name in given]
        paths = {file.path for file in others if file is not None} | {None}
        files = dict[str, Resource]()
        for name in {text[start:end] for start, end in self.access.allowed_in(text)}:
            file = self.access.find(name)
            if file and file.kind in _TEXTS - {"file"} and file.path not in paths:
                files[name] = file
        parts = split_names(text, files)
        contents = {name: await self.text_of(files[name], notes=notes) for name in {*parts[1::2]}}
        parts[1::2] = map(contents.__getitem__, parts[1::2])
        if len(parts) > 1 and sum(map(len, parts)) > MAX_CHARS:
            most = f"{MAX_CHARS:,} characters"
            raise InputError(f"a text with the files in it has more than {most}; name fewer")
        return "".join(parts)

    async def path_of(self, value: str, *, or_text: bool = False, notes: Notes = None) -> str:
        """The path of the allowed file that a value names, for tools that open files; else the value.

        The planner may have shortened the name, and an attachment has only a generated one. With `or_text`,
        a text file stands for its text.
        """
        file = self.access.find(value.strip())
        if file is not None and file.kind == "text" and or_text:
            return await self.text_of(file, notes=notes)
        if file is None or file.path is None or await asyncio.to_thread(os.path.exists, value):
            return value
        return str(file.path)

    async def _find(self, name: str) -> Resource | None:
        """The file that a name means, fetched if the request mentions it; None: this run may read no such."""
        if pages := await self._pages_of(name):
            return pages
        mention = name if name in self._mentioned else name.strip(QUOTES)
        if mention in self._mentioned:
            async with self._mentioned[mention]:
                return self.access.find(mention) or await self.grant(mention)
        return self.access.find(name) or await asyncio.to_thread(self.access.find_planned, name)

    async def _pages_of(self, name: str) -> Resource | None:
        """The pages that a name ends with ("report.pdf#page=2") as a file; None: it names none."""
        whole, pages = split_pages(name.strip(QUOTES))
        if pages is None or self.access.find(name):
            return None
        file = await self._find(whole)
        if file is None and name in self._mentioned:  # a URL
            file = await self.grant(whole)
        if file is None:
            return None
        if file.path is None or file.mime != PDF:
            raise InputError(f"{name}: only pages of a PDF file can be named; name the whole file")
        path = await asyncio.to_thread(self.directory.new_path, ".pdf", file.path.stem)
        await run_cpu_bound(extract_pages, file.path, path, *pages)
        part = file.model_copy(update={"path": path, "name": name})
        self.access.allow(name, part)
        return part

    async def _lookup(self, name: str) -> Resource:
        url = name.strip(QUOTES)
        if is_data_url(url):  # it is no permission to read anything
            return await self._decode(url, "")
        if self.access.for_tool and _URL.match(url):
            self._mentioned.setdefault(url, asyncio.Lock())
        if file := await self._find(name):
            return file
        with name_errors(self.access.shown(name)):
            return await asyncio.to_thread(partial(self.access.open, name, is_planned=True))

    async def _decode(self, data: str, mime: str, name: str = "") -> Resource:
        """Store base64 data or a data URL as a file; one at a time, since it may take much memory."""

        def save() -> Resource:
            own, content = read_file_data(data, mime, self.settings.max_file_bytes)
            path = self.directory.save_input(content, own, name)
            return describe_file(path, name or path.name)

        async with self._decoding:
            resource = await asyncio.to_thread(save)
        self.grant_resources([resource])
        return resource
