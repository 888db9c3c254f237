"""The group of commands: `jarvis "request"` is `jarvis ask "request"`, and an error is one line."""

from __future__ import annotations

from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from jarvis_agent.core.errors import ConfigError, InputError, JarvisError

FAILED, USAGE_ERROR, INTERRUPTED = 1, 2, 130


def fail(message: str, code: int) -> NoReturn:
    """Print a message on stderr as one line, and exit."""
    from jarvis_agent.core.text import clean

    typer.echo(f"jarvis: {' '.join(clean(message).split())}", err=True)
    raise typer.Exit(code)


class DefaultCommandGroup(TyperGroup):
    """A command group with a default command: `jarvis "request" --json`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default command before what is not a command, and --debug first, wherever it stands."""
        end = args.index("--") if "--" in args else len(args)
        shared = [arg for arg in args[:end] if arg == "--debug"]
        args = [arg for arg in args[:end] if arg != "--debug"] + args[end:]
        if args and args[0] not in {*self.commands, "--help", "-h", "--version"}:
            self._reject_command_name(args)
            args = ["ask", *args]
        return super().parse_args(ctx, [*shared, *args])

    def _reject_command_name(self, args: list[str]) -> None:
        """Fail at a misspelt command, or one that stands after its options."""
        from difflib import get_close_matches

        words = [arg for arg in args if not arg.startswith("-")]
        if args[0] != "--" and len(words) == 1:
            for close in get_close_matches(words[0], self.commands, n=1, cutoff=0.75):
                advice = f'did you mean "jarvis {close} …"? As a request: jarvis -- "{words[0]}"'
                fail(f'"{words[0]}" is not a request; {advice}', USAGE_ERROR)

    def invoke(self, ctx: Any) -> Any:
        """Run the command. A JarvisError becomes one line on stderr and an exit code."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except JarvisError as error:
            if ctx.params.get("debug"):
                raise
            fail(str(error), USAGE_ERROR if isinstance(error, ConfigError | InputError) else FAILED)
