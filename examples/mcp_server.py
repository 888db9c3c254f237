"""A small MCP server: python examples/mcp_server.py

docs/mcp.md and the tests use it over stdio. It needs the extra "mcp".
"""

import base64
from pathlib import Path

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import BlobResourceContents, EmbeddedResource

EXAMPLES = Path(__file__).parent
server = MCPServer("studio", log_level="WARNING")


@server.tool()
def photograph(animal: str) -> Image:
    """Take a photograph of an animal."""
    if animal != "cat":
        raise ToolError(f"there is no {animal} in the studio")
    return Image(path=EXAMPLES / "cat.jpg")


@server.tool()
def record() -> EmbeddedResource:
    """Record a speech as a sound file."""
    sound = base64.b64encode((EXAMPLES / "speech.wav").read_bytes()).decode()
    content = BlobResourceContents(uri="studio://speech.wav", mime_type="audio/wav", blob=sound)
    return EmbeddedResource(resource=content)


@server.tool()
def describe_file(path: str) -> dict[str, str | int]:
    """Tell the name and the size of a file."""
    return {"name": Path(path).name, "bytes": Path(path).stat().st_size}


@server.tool()
def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


if __name__ == "__main__":
    server.run()
