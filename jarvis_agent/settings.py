"""One frozen Settings object; every field can be set from the environment with the prefix JARVIS_.

Settings(policy="local-only", task_timeout=60)
JARVIS_POLICY=local-only jarvis "…"
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

Policy = Literal["local-first", "hosted-first", "local-only", "hosted-only"]


class Settings(BaseSettings):
    """What a user may decide. Times are seconds, sizes bytes."""

    model_config = SettingsConfigDict(
        env_prefix="JARVIS_", frozen=True, extra="ignore", populate_by_name=True
    )

    # The language model (see jarvis_agent.llm for the order in which one is looked for).
    model: str | None = Field(None, description="init_chat_model string, or a model name for base_url")
    base_url: str | None = Field(None, description="an OpenAI-compatible server")
    api_key: SecretStr | None = Field(None, description="key for base_url, if it wants one")
    llm_timeout: float = Field(60.0, gt=0, description="longest silence of the LLM, in seconds")
    structured: Literal["auto", "always", "never"] = Field(
        "auto", description="ask for a JSON schema: where the model says that it can, always, or never"
    )
    logit_bias: float | None = Field(
        None, description="the paper's bias toward task names (0.2), where the model takes one"
    )

    # Prompts and planning.
    prompts: Literal["default", "paper"] | Path = Field(
        "default", description="prompt set, or a directory of one"
    )
    repair_rounds: int = Field(1, ge=0, description="how often the LLM may mend a broken plan")
    history_turns: int = Field(10, ge=0, description="earlier turns of the chat that the prompts show")

    # Selection.
    policy: Policy = "local-first"
    top_k: int = Field(5, ge=1, description="candidates that the LLM chooses from")
    licenses: tuple[str, ...] = Field((), description="allowed licences, as the Hub spells them; empty: all")
    offline: bool = Field(
        False,
        validation_alias=AliasChoices("offline", "JARVIS_OFFLINE", "HF_HUB_OFFLINE"),
        description="never ask the Hub",
    )
    hf_token: SecretStr | None = Field(
        None, validation_alias=AliasChoices("hf_token", "JARVIS_HF_TOKEN", "HF_TOKEN")
    )
    max_download: int = Field(2_000_000_000, ge=0, description="largest model to download, in bytes; 0: none")
    allow_pickle: bool = Field(False, description="load weights that are not safetensors from the Hub")
    trust_remote_code: bool = False

    # Execution.
    max_parallel: int = Field(16, ge=1, description="tasks that run at once")
    run_timeout: float = Field(900.0, gt=0)
    task_timeout: float = Field(300.0, gt=0)
    attempt_timeout: float = Field(240.0, gt=0)
    retries: int = Field(2, ge=0, description="further tries of one candidate after a transient failure")
    max_wait: float = Field(30.0, ge=0, description="longest wait that a provider may ask for")
    memory_budget: int | None = Field(
        None, ge=0, description="bytes of weights kept loaded; None: half of RAM"
    )
    device: str = Field("auto", description='"auto", "cpu", "cuda", "cuda:1", "mps"')
    dtype: str = Field("auto", description='"auto", "float32", "bfloat16", "float16"')
    seed: int = 0

    # Files.
    output_dir: Path = Path("outputs")
    allowed_dirs: tuple[Path, ...] = Field((), description="directories that any request may read")
    request_paths: bool = Field(
        True, description="files that the request names may be read; a server sets this False"
    )
    allow_private_urls: bool = False
    max_file_bytes: int = Field(500_000_000, gt=0)
    max_pixels: int = Field(100_000_000, gt=0)
    url_timeout: float = Field(30.0, gt=0)

    @property
    def token(self) -> str | None:
        """The Hugging Face token: HF_TOKEN, or that of `hf auth login`; None without any."""
        if self.hf_token:
            return self.hf_token.get_secret_value()
        from huggingface_hub import get_token

        return get_token()

    @property
    def memory_limit(self) -> int:
        """Bytes of model weights that may stay loaded."""
        if self.memory_budget is not None:
            return self.memory_budget
        if hasattr(os, "sysconf"):
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        return 4_000_000_000
