"""Archives, and their parts within limits.

with Archive(path) as file, zipfile.ZipFile(file) as archive:
    content = dict(unpacked(path, archive, ["word/document.xml"]))

A part is unpacked up to `MAX_MARKUP` bytes, and all to `MAX_UNPACKED`, whatever sizes the archive states.
"""

import io
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from jarvis_agent.core.errors import InputError

MAX_MARKUP = 20_000_000
"""Maximum size of HTML or XML in bytes; parsed, it takes about ten times as much memory."""

MAX_UNPACKED = 100_000_000
"""Maximum size of the parts of an archive together in bytes; a long presentation has 40 million."""

_MAX_READ = 10_000_000  # bytes that are read at once from an archive; its list of members is


class Archive(io.FileIO):
    """A file that refuses an archive with a huge list of members, which takes much memory."""

    def read(self, size: int | None = -1) -> bytes | Any:
        if size is not None and size > _MAX_READ:
            raise zipfile.BadZipFile(f"it has a part of more than {_MAX_READ:,} bytes")
        return super().read(size)


def unpacked(
    path: Path, archive: zipfile.ZipFile, names: Iterable[str], needed: Callable[[str], Any] = bool
) -> Iterator[tuple[str, bytes]]:
    """Members of an archive by name, each once. One that is damaged is empty if it is not needed.

    Raises InputError: they are too large, or packed in an unusual way.
    """
    left = MAX_UNPACKED
    for name in dict.fromkeys(names):
        try:
            # Only these methods stop at the number of bytes that is asked for.
            if archive.getinfo(name).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise InputError(f"{path.name} is compressed in an unusual way; open and save it again")
            with archive.open(name) as member:
                content = member.read(min(left, MAX_MARKUP) + 1)
        except (InputError, zipfile.BadZipFile, zlib.error, EOFError):
            if needed(name):
                raise
            content = b""
        left -= len(content)
        if left < 0 or len(content) > MAX_MARKUP:
            most = MAX_UNPACKED if left < 0 else MAX_MARKUP
            raise InputError(f"{path.name} unpacks to more than {most:,} bytes; give a part of it")
        yield name, content
