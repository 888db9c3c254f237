"""The command `jarvis` in this process: what it prints, and its exit code.

result = jarvis("Describe it", "--file", "a.jpg", "--json")
assert result.exit_code == 0, result.stderr
"""

import io
import sys
from dataclasses import dataclass
from unittest.mock import patch

import pytest
import typer

from jarvis_agent.interfaces.cli.app import main


@dataclass(frozen=True)
class Printed:
    """What a command left."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """All that it printed."""
        return self.stdout + self.stderr


def jarvis(*words: str, stdin: str = "") -> Printed:
    """Run a command; `stdin` is what comes through a pipe."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with (
        patch.object(sys, "argv", ["jarvis", *words]),
        patch.object(sys, "stdin", io.StringIO(stdin)),
        patch.object(sys, "stdout", out),
        patch.object(sys, "stderr", err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    printed = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return Printed(int(code), *printed)


def type_in(patched: pytest.MonkeyPatch, *inputs: str | type[BaseException]) -> None:
    """Let a person type lines at prompts, or press Ctrl-C (KeyboardInterrupt), and at last Ctrl-D."""
    keys = iter([*inputs, EOFError])

    def read(prompt: str = "") -> str:
        key = next(keys)
        if isinstance(key, str):
            return key
        raise key

    stdin = io.StringIO()
    stdin.isatty = lambda: True  # type: ignore[method-assign]
    patched.setattr("sys.stdin", stdin)
    patched.setattr("builtins.input", read)
    patched.setattr(f"{typer.prompt.__module__}.visible_prompt_func", read)
