"""`jarvis demo`: the README's request on its two example files, anywhere, without key and network."""

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from jarvis_agent.backends.starter.backend import STARTERS, is_installed
from jarvis_agent.core.errors import ConfigError, InputError, install_command

FILES = ("page.png", "cat.jpg")

REQUEST = (
    "Read the text in page.png aloud, then transcribe the recording. "
    "Also tell me what animal is in cat.jpg and make a canny edge image of it."
)

NEXT = """
Try next:
  jarvis "Transcribe meeting.m4a"    a request on files of yours
  jarvis chat                        requests that refer to earlier ones: "make it 300 pixels wide"
  jarvis setup                       a language model on this machine, for requests of any kind
"""


def check_starters() -> None:
    """Raise ConfigError if a starter model is missing; the message has the command that installs it."""
    if absent := [row.id for row in STARTERS.values() if not is_installed(row)]:
        advice = install_command("starter")
        raise ConfigError(f"the demo runs on starter models; missing: {', '.join(absent)}: {advice}")


def copy_files(folder: Path) -> Iterator[str]:
    """Copy the example files into a folder, and tell so line by line. Nothing is overwritten.

    InputError: the folder has another file of such a name, or cannot be written.
    """
    examples = {folder / name: files(__package__).joinpath("data", name).read_bytes() for name in FILES}
    for path, content in examples.items():
        if path.exists() and not (path.is_file() and path.read_bytes() == content):
            why = "is a file of yours, which is left as it is; run the demo in another folder"
            raise InputError(f"{path} {why}")
    for path, content in examples.items():
        try:
            with path.open("xb") as file:
                file.write(content)
        except FileExistsError:
            yield f"{path.name} is here already."
        except OSError as error:
            why = f"{path.name} cannot be copied into {folder}: {error}; choose another folder"
            raise InputError(why) from error
        else:
            yield f"Copied {path.name} into {folder}."
