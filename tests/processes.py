"""Programs in a new interpreter."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


def run_python(code: str, **options: Any) -> str:
    """What a program prints, which must end well; `options` are those of `subprocess.run`."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[Any]:
    """A program that is killed at the end of the block, also if a check in it fails; as `subprocess.Popen`.

    It is asked first, so that it ends its workers.
    """
    with subprocess.Popen(command, text=True, **options) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
