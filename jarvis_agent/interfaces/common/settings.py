"""Settings of `jarvis serve` from arguments and JARVIS_ environment variables.

ServerSettings(api_keys=["…"], runs_per_minute=30)
JARVIS_API_KEYS=…,… JARVIS_ALLOWED_ORIGINS=https://chat.example jarvis serve --host 0.0.0.0
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import NoDecode

from jarvis_agent.core.redaction import register_secret
from jarvis_agent.core.settings import EnvironmentSettings, Settings


class ServerSettings(EnvironmentSettings):
    """Settings of the server, besides those of its agent. Lists are separated by commas in a variable."""

    api_keys: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        (),
        description="keys of clients, each with its own files, threads and limits; empty: none is asked for",
    )
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="host names that clients may use; empty: any, or on loopback only this machine's"
    )
    allowed_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="origins of other web pages that may use the server (CORS), `https://chat.example`"
    )
    max_concurrent_runs: int = Field(16, ge=1, description="runs at once, for each key and server process")
    runs_per_minute: int = Field(
        120, ge=1, description="runs started within a minute, for each key and server process"
    )
    max_upload_bytes: int = Field(
        10_000_000_000, gt=0, description="bytes of uploads of each key that are kept at once"
    )
    max_mcp_sessions: int = Field(
        100,
        ge=1,
        description="sessions of MCP clients at once, for each key; idle ones end in half an hour",
    )
    checkpoints: str | None = Field(
        None, description="where threads are kept: a path, or a URL of PostgreSQL; None: in `output_dir`"
    )
    retention: float = Field(
        86_400.0, gt=0, description="how long uploads, outputs and threads are kept, in seconds"
    )

    @field_validator("api_keys", "allowed_hosts", "allowed_origins", mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        """Read "one,two"."""
        if not isinstance(value, str):
            return value
        return [part.strip() for part in value.split(",") if part.strip()]

    @field_validator("allowed_origins")
    @classmethod
    def _as_browsers_write_them(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(origin.lower().rstrip("/") for origin in origins)

    def run_retention(self, settings: Settings) -> float:
        """Seconds for which files of runs are kept: at least as long as a run of an agent may take."""
        return max(self.retention, settings.run_timeout)

    def model_post_init(self, context: Any) -> None:
        """Register the keys as secrets."""
        for key in self.api_keys:
            register_secret(key.get_secret_value())
