"""The code blocks of a Markdown file, and the commands and expected outputs in them.

    for block in blocks_of(README):
        block.lang, block.section, block.code      # "python", "Tools in an agent", "from jarvis_agent …"
    for command in commands_of(block):
        command.text, command.env, command.output

A `console` block has commands after `$ `, a `powershell` block after `> `; the lines after a command are its
output, where `…` matches any text and a number any number.
"""

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

_PART = re.compile(
    r"^#{2,4} (?P<title>[^\n]+)$|^```(?P<lang>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
_PROMPTS = {"console": "$ ", "powershell": "> "}
_EXPECTED = re.compile(r"# → (?P<text>.+)$", re.MULTILINE)
_SETTING = re.compile(r"(?P<name>[A-Z][A-Z0-9_]*)=(?P<value>\S*) ")
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is that of its first line of code, `section` the heading above it."""

    lang: str
    code: str
    line: int
    section: str


@dataclass
class Command:
    """A command; `env` holds the variables before it, `output` its expected output."""

    text: str
    env: dict[str, str] = field(default_factory=dict)
    output: list[str] = field(default_factory=list)

    @property
    def words(self) -> list[str]:
        """Program and arguments, without the directory of a virtual environment."""
        return shlex.split(re.sub(r"^\.venv(?:/bin/|\\Scripts\\)", "", self.text))


def blocks_of(file: Path) -> list[Block]:
    """Every fenced block of a file, in its order."""
    text = file.read_text(encoding="utf-8")
    found: list[Block] = []
    section = ""
    for part in _PART.finditer(text):
        if part["title"]:
            section = part["title"]
        else:
            line = text.count("\n", 0, part.start("code")) + 1
            found.append(Block(part["lang"], part["code"], line, section))
    return found


def commands_of(block: Block) -> list[Command]:
    """The commands of a block; a backslash at the end of a line continues it."""
    prompt = _PROMPTS[block.lang]
    found: list[Command] = []
    for line in block.code.replace("\\\n", "").splitlines():
        if not line.startswith(prompt):
            assert found, f"line {block.line}: {line!r} comes before any command"
            found[-1].output.append(line)
            continue
        text, env = line.removeprefix(prompt), {}
        while setting := _SETTING.match(text):
            env[setting["name"]] = setting["value"]
            text = text[setting.end() :]
        found.append(Command(text, env))
    return found


def expected_outputs(code: str) -> list[str]:
    """The expected output of a snippet: the comments after `# →`."""
    return [match["text"] for match in _EXPECTED.finditer(code)]


def is_printed(expected: str, printed: str) -> bool:
    """Whether the output contains an expected line."""
    wanted = ".*?".join(re.escape(part) for part in _plain(expected).split("…"))
    return any(re.fullmatch(wanted, _plain(line)) for line in printed.splitlines())


def _plain(line: str) -> str:
    return _NUMBER.sub("0", _ESCAPES.sub("", line).strip()).replace("\u00a0", " ")
