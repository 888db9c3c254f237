"""Programs in a new interpreter."""

import subprocess
import sys
from typing import Any


def run_python(code: str, **options: Any) -> str:
    """What a program prints, which must end well; `options` are those of `subprocess.run`."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout
