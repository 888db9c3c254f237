"""`jarvis setup`: install a language model that runs on this machine.

It proposes a model that fits, asks, downloads it from the Hub to its cache, checks size and SHA-256 against
the Hub's metadata, writes a first reply with it, and stores the choice in the user's configuration.
"""

import errno
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from jarvis_agent.core.digests import file_sha256
from jarvis_agent.core.errors import ConfigError, JarvisError, MissingExtraError, describe_error
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Frozen
from jarvis_agent.llm.chat_model import (
    GGUF,
    HUB_FILE,
    describe_model,
    local_model,
    resolve_model,
    store_installed_model,
)
from jarvis_agent.llm.tokens import LOCAL_WINDOW

Say = Callable[[str], object]
Ask = Callable[[str], bool]

_TIMEOUT_S = 10
"""Seconds to wait for an answer of the Hub."""


class LocalModel(Frozen):
    """A model that is proposed.

    `size`: bytes; `state`: bytes that its attention keeps of a token; `cores`: CPU cores without which it is
    too slow.
    """

    name: str
    parameters: str
    size: int
    state: int
    cores: int


MODELS = (
    LocalModel(
        name="Qwen/Qwen3-8B-GGUF:Qwen3-8B-Q4_K_M.gguf",
        parameters="8 billion",
        size=5_027_783_488,
        state=147_456,
        cores=16,
    ),
    LocalModel(
        name="bartowski/Qwen_Qwen3-4B-Instruct-2507-GGUF:Qwen_Qwen3-4B-Instruct-2507-Q4_K_M.gguf",
        parameters="4 billion",
        size=2_497_280_736,
        state=147_456,
        cores=8,
    ),
    LocalModel(
        name="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF:qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        parameters="1.5 billion",
        size=1_117_320_768,
        state=28_672,
        cores=2,
    ),
    LocalModel(
        name="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF:qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        parameters="0.5 billion",
        size=491_400_064,
        state=12_288,
        cores=1,
    ),
)
"""The models, the largest first. With a GPU that holds a model, the number of cores does not matter."""


class Machine(Frozen):
    """What models can use: bytes of RAM, of the largest GPU that llama.cpp sees (0: none), and CPU cores."""

    memory: int
    gpu_memory: int
    cores: int

    def holds(self, model: LocalModel) -> bool:
        """Whether the model fits into half of the RAM or four fifths of the GPU, and is not too slow."""
        # With a full context, the cache of earlier prompts, and room to compute.
        needed = model.size + LOCAL_WINDOW * model.state + 850_000_000
        return needed <= 0.8 * self.gpu_memory or (needed <= self.memory / 2 and model.cores <= self.cores)

    def __str__(self) -> str:
        gpu = f"a GPU with {self.gpu_memory / 1e9:.0f} GB" if self.gpu_memory else "no GPU for llama.cpp"
        return f"{self.memory / 1e9:.0f} GB of memory, {self.cores} CPU cores, {gpu}"


def this_machine() -> Machine:
    """The machine, as llama.cpp sees it. Raises MissingExtraError if it is not installed."""
    if find_spec("xllamacpp") is None:
        raise MissingExtraError("a language model on this machine", "llm")
    import xllamacpp

    from jarvis_agent.llm.llama_cpp import usable_cores

    memory = {"CPU": 0, "GPU": 0}
    for device in xllamacpp.get_device_info():
        kind = device["type"].name.rpartition("_")[2]
        memory[kind] = max(memory.get(kind, 0), device["memory_total"])
    return Machine(memory=memory["CPU"], gpu_memory=memory["GPU"], cores=usable_cores())


def set_up(
    settings: Settings,
    name: str | None,
    *,
    ask: Ask,
    say: Say,
    models: Sequence[LocalModel] = MODELS,
    machine: Machine | None = None,
) -> bool:
    """Install a model; returns whether the user agreed to one.

    `name` is a path, or "org/repo:file.gguf" of the Hub; None: the largest of `models` that the machine holds
    and the Hub still has. ConfigError: no model fits, the Hub cannot be reached or lacks it, the disk is
    full, or the file is damaged. Nothing is configured then.
    """
    machine, name = machine or this_machine(), name and name.removeprefix(GGUF)
    say(f"This machine has {machine}.")
    if name and (path := Path(name).expanduser()).is_file():
        return _use(path, settings, say)
    if name and not HUB_FILE.fullmatch(name):
        raise ConfigError(f'there is no file {name}, and it is no "org/repo:file.gguf" of the Hub')
    names = [name] if name else [model.name for model in models if machine.holds(model)]
    if not names:
        raise ConfigError("no model of the table fits this machine; name a smaller one with --model")
    if settings.offline:
        why = "JARVIS_OFFLINE or HF_HUB_OFFLINE forbids to download"
        raise ConfigError(f"{why} {', '.join(names)}; unset it, or name a file that you have with --model")
    about = {model.name: model.parameters for model in models}
    for model in names:
        file = _find(model, settings)
        if file is None:
            say(f"The Hub no longer has {model}.")
            continue
        parameters = f"{about[model]} parameters, " if model in about else ""
        if settings.licenses and file.license not in settings.licenses:
            raise ConfigError(f"{model} has the licence {file.license}, which JARVIS_LICENSES does not allow")
        where = "already downloaded" if file.path else f"{file.size / 1e9:.1f} GB to download"
        if not ask(f"Install {model} ({parameters}{file.license or 'licence unknown'}, {where})?"):
            return False
        return _use(file.download(settings), settings, say)
    advice = "name another with --model org/repo:file.gguf"
    raise ConfigError(f"the Hub has none of these: {', '.join(names)}; {advice}")


class _HubFile(Frozen):
    """A file of one commit of a repository. `path`: where it is, if it is in the Hub's cache."""

    repo: str
    file: str
    commit: str
    size: int
    sha256: str | None
    license: str | None
    path: Path | None

    def download(self, settings: Settings) -> Path:
        """The checked file in the Hub's cache. A download that was interrupted is continued."""
        from huggingface_hub import constants, get_hf_file_metadata, hf_hub_download, hf_hub_url
        from huggingface_hub.file_download import http_get, repo_folder_name
        from huggingface_hub.utils import WeakFileLock, build_hf_headers  # type: ignore[attr-defined]

        if self.path is not None:
            self._check(self.path)
            return self.path
        token, url = settings.token, hf_hub_url(self.repo, self.file, revision=self.commit)
        folder = repo_folder_name(repo_id=self.repo, repo_type="model")
        blobs = Path(constants.HF_HUB_CACHE) / folder / "blobs"
        try:
            blobs.mkdir(parents=True, exist_ok=True)
            etag = str(get_hf_file_metadata(url, token=token, timeout=_TIMEOUT_S).etag)
            if not re.fullmatch("[0-9a-f]{40,64}", etag):  # it becomes the name of a file
                raise ConfigError(f"the Hub's answer for {self.file} names no digest; nothing is downloaded")
            blob = blobs / etag
            # hf_hub_download alone does not continue what another process began. It only links this file.
            with WeakFileLock(blob.with_name(f"{blob.name}.lock")):
                partial = blob.with_name(f"{blob.name}.partial")
                if blob.exists():  # with an earlier commit, or by another process
                    self._check(blob)
                else:
                    with partial.open("ab") as target:
                        begun, headers = target.tell(), build_hf_headers(token=token)
                        if shutil.disk_usage(blobs).free < self.size - begun:
                            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                        if begun < self.size:
                            http_get(url, target, resume_size=begun, headers=headers, expected_size=self.size)
                    self._check(partial)
                    partial.replace(blob)
            return Path(hf_hub_download(self.repo, self.file, token=token))
        except JarvisError:
            raise
        except Exception as error:
            what = f"the download of {self.file} ({self.size / 1e9:.1f} GB) to {blobs}"
            advice = "`jarvis setup` continues it; HF_HOME names another directory"
            raise ConfigError(f"{what} failed: {describe_error(error)}. {advice}") from error

    def _check(self, path: Path) -> None:
        """Delete a file that is not the one of the Hub's metadata, and raise ConfigError."""
        if path.stat().st_size != self.size or (self.sha256 and file_sha256(path) != self.sha256):
            path.resolve().unlink()
            path.unlink(missing_ok=True)
            raise ConfigError(f"{self.file} was damaged and is deleted; run `jarvis setup` again")


def _find(name: str, settings: Settings) -> _HubFile | None:
    """A file as the Hub describes it, or None if it has none."""
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.errors import DisabledRepoError, HfHubHTTPError, RepositoryNotFoundError

    repo, _, file = name.partition(":")
    try:
        info = HfApi(token=settings.token).model_info(repo, files_metadata=True, timeout=_TIMEOUT_S)
    except (RepositoryNotFoundError, DisabledRepoError):
        return None
    except HfHubHTTPError as error:
        advice = "; check HF_TOKEN" if error.response.status_code in (401, 403) else ""
        raise ConfigError(f"the Hub cannot be used: {describe_error(error)}{advice}") from error
    except Exception as error:
        advice = "Check the network, or name a file that you have with --model"
        raise ConfigError(f"the Hub cannot be reached: {describe_error(error)}. {advice}") from error
    entry = next((sibling for sibling in info.siblings or () if sibling.rfilename == file), None)
    if entry is None or info.sha is None:
        return None
    cached = try_to_load_from_cache(repo, file, revision=info.sha)
    return _HubFile(
        repo=repo,
        file=file,
        commit=info.sha,
        size=entry.size or 0,
        sha256=entry.lfs.sha256 if entry.lfs else None,
        license=info.card_data.get("license") if info.card_data else None,
        path=Path(cached) if isinstance(cached, str) else None,
    )


def _use(path: Path, settings: Settings, say: Say) -> bool:
    """Have the model write a few words, and store it as the user's choice."""
    model = local_model(path, settings)
    reply = model.stream("Count from 1 to 30.", max_tokens=32)
    times = [time.perf_counter() for chunk in reply if chunk.text]
    speed = (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0
    say(f"{path.name} works; it wrote about {speed:.0f} tokens a second.")
    say(f"It is used from now on without a key; {store_installed_model(path)} says so.")
    chosen = resolve_model(None, settings)
    if getattr(chosen, "path", None) != path.absolute():
        other = describe_model(chosen) if chosen else "JARVIS_MODEL=none"
        say(f"{other} is configured too and comes first; --model gguf:{path} names this one.")
    return True
