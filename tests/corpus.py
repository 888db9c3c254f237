"""Reads every file of a folder as tasks do, and compares with what Pillow, PyAV, soundfile and PDFium read.

    python tests/corpus.py DIR

Each file is read in a process with limits on memory and time, which is started again if it dies. Printed are
the kinds, what is refused though a library reads it, raw exceptions, crashes, notes, and slow files.
"""

import contextlib
import json
import logging
import resource
import selectors
import subprocess
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MEMORY, SECONDS = 8 << 30, 60
"""Bytes of address space, and seconds for one file."""


def read_as_task(path: Path) -> dict[str, Any]:
    """The kind of a file, and the error or the notes with which it is read."""
    from jarvis_agent.core.errors import JarvisError
    from jarvis_agent.core.images import open_image
    from jarvis_agent.core.types import Resource
    from jarvis_agent.media.detect import detect_media_type
    from jarvis_agent.media.documents import load_text
    from jarvis_agent.media.limits import check_limits
    from jarvis_agent.media.recordings import read_audio, spread_frames
    from jarvis_agent.media.tables import read_table

    readers: dict[str, Callable[[Path], Any]] = {
        "image": open_image,
        "audio": lambda path: read_audio(path, 16_000),
        "video": lambda path: spread_frames(path, 3),
        "table": lambda path: (None, read_table(path).notes),
        "text": load_text,
    }
    found: dict[str, Any] = {"kind": "refused"}
    try:
        kind, found["mime"] = detect_media_type(path)
        found["kind"] = kind
        check_limits(Resource(kind=kind, path=path))
        if kind in readers:
            value, found["notes"] = readers[kind](path)
            found["size"] = getattr(value, "size", None) if kind == "image" else None
    except JarvisError as error:
        found["error"] = str(error)
    except Exception as error:  # what must not happen
        found["raw"] = f"{type(error).__name__}: {error}"
    return found


def read_by_libraries(path: Path) -> dict[str, float]:
    """The seconds that each library takes which reads the file."""
    import av
    import pypdfium2
    import soundfile
    from PIL import Image

    def by_av() -> None:
        with av.open(path) as container:
            if not container.streams.video:
                next(container.decode(audio=0))
                return
            for part in (1, 3, 5):  # as many frames as above, at the same places
                place = (container.start_time or 0) + part * (container.duration or 0) // 6
                container.seek(place)
                frames = container.decode(video=0)
                first = next(frames)
                next((frame for frame in frames if (frame.time or 0) >= place / 1e6), first)

    def by_pillow() -> None:
        with Image.open(path) as image:
            image.load()

    def by_pdfium() -> None:
        with contextlib.closing(pypdfium2.PdfDocument(path)) as document:
            for page in document:
                page.get_textpage().get_text_range()

    readers: dict[str, Callable[[], Any]] = {
        "Pillow": by_pillow,
        "PyAV": by_av,
        "soundfile": lambda: soundfile.read(path),
        "PDFium": by_pdfium,
    }
    seconds: dict[str, float] = {}
    for name, read in readers.items():
        began = time.perf_counter()
        with contextlib.suppress(Exception):
            read()
            seconds[name] = time.perf_counter() - began
    return seconds


def work() -> None:
    """Answer each path on standard input with a line of JSON."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    logging.disable()
    read_as_task(Path(__file__))  # imports are no part of the first file's time
    read_by_libraries(Path(__file__))
    for line in sys.stdin:
        path = Path(json.loads(line))
        began = time.perf_counter()
        found = read_as_task(path)
        found |= {"seconds": time.perf_counter() - began, "libraries": read_by_libraries(path)}
        print(json.dumps(found, default=str), flush=True)


def results(paths: list[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """What the process says of each file; of one with which it dies, how."""
    worker = None
    for path in paths:
        if worker is None:
            command = [sys.executable, __file__, "--worker"]
            worker = subprocess.Popen(
                command, stdin=-1, stdout=-1, stderr=subprocess.DEVNULL, text=True, bufsize=1
            )
            selector = selectors.DefaultSelector()
            selector.register(worker.stdout or sys.stdin, selectors.EVENT_READ)
        assert worker.stdin
        assert worker.stdout
        worker.stdin.write(json.dumps(str(path)) + "\n")
        line = worker.stdout.readline() if selector.select(SECONDS) else ""
        if line:
            yield path, json.loads(line)
            continue
        how = f"signal {-code}" if (code := worker.poll()) else f"more than {SECONDS} s"
        worker.kill()
        worker.wait()
        worker = None
        yield path, {"kind": "crash", "crash": how}


def main(folder: Path) -> None:
    """Print the report on a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    kinds, notes, listed = Counter[str](), Counter[str](), defaultdict[str, list[str]](list)
    for path, found in results(paths):
        kinds[found["kind"]] += 1
        notes.update(found.get("notes", []))
        known, name = found.get("libraries", {}), str(path.relative_to(folder))
        for problem in ("crash", "raw"):
            if problem in found:
                listed[problem].append(f"{name}: {found[problem]}")
        if "error" in found and known:
            listed["refused, though read by a library"].append(
                f"{name} ({', '.join(known)}): {found['error']}"
            )
        if found["kind"] in ("text", "table", "data") and known.keys() & {"Pillow", "soundfile"}:
            listed["text, though read by a library"].append(f"{name} ({', '.join(known)})")
        if known and found["seconds"] > max(0.5, 5 * max(known.values())):
            listed["slow"].append(
                f"{name}: {found['seconds']:.1f} s, {max(known.values()):.1f} s by a library"
            )
    print(f"{len(paths):,} files:", ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    for problem, lines in listed.items():
        print(f"\n{problem}: {len(lines)} ({100 * len(lines) / len(paths):.1f} %)", *lines, sep="\n  ")
    print("\nnotes:", *(f"{count} × {note}" for note, count in notes.most_common(40)), sep="\n  ")


if __name__ == "__main__":
    if sys.argv[1:] == ["--worker"]:
        work()
    else:
        main(Path(sys.argv[1]))
