"""`jarvis setup`: what is proposed, downloaded, checked and configured."""

import shutil
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from threading import Barrier
from typing import NamedTuple

import pytest
from command_line import jarvis
from small_llm import INSTALL, WEIGHTS

from jarvis_agent import JarvisAgent
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.settings import Settings
from jarvis_agent.interfaces.cli.doctor import check_model
from jarvis_agent.interfaces.cli.setup import MODELS, LocalModel, Machine, set_up
from jarvis_agent.llm.chat_model import config_file, describe_model, installed_model, resolve_model
from jarvis_agent.llm.llama_cpp import ChatGGUF
from jarvis_agent.testing import HubDouble, ScriptedLLM

pytestmark = pytest.mark.skipif(find_spec("xllamacpp") is None, reason=INSTALL)
real = pytest.mark.skipif(WEIGHTS is None, reason=INSTALL)

REPO, FILE = "org/small-GGUF", "small-q4.gguf"
NAME = f"{REPO}:{FILE}"
DATA = b"GGUF" + bytes(range(256)) * 400
ONLINE = Settings(offline=False)


def model(name: str, size: int = 1000) -> LocalModel:
    return LocalModel(name=name, parameters="0.1 billion", size=size, state=1000, cores=1)


class Shown(NamedTuple):
    """What the user was told and asked."""

    said: list[str]
    asked: list[str]


class Installer:
    """`set_up` on a machine with 8 GB, for a user who agrees or not."""

    def __init__(self) -> None:
        self.shown = Shown([], [])

    def __call__(
        self,
        name: str | None = NAME,
        *,
        agrees: bool = True,
        settings: Settings = ONLINE,
        models: object = (),
    ) -> bool:
        machine = Machine(memory=8_000_000_000, gpu_memory=0, cores=2)

        def ask(question: str) -> bool:
            self.shown.asked.append(question)
            return agrees

        return set_up(settings, name, ask=ask, say=self.shown.said.append, models=models, machine=machine)


@pytest.fixture
def install() -> Installer:
    return Installer()


@pytest.fixture
def hub(hub: HubDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HubDouble:
    """A Hub, and a user without configuration."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return hub


@pytest.fixture
def served(hub: HubDouble) -> HubDouble:
    """The Hub with the packaged model, as a file of a repository."""
    assert WEIGHTS is not None
    hub.add_model(REPO, files={FILE: WEIGHTS.read_bytes()}, card={"license": "apache-2.0"})
    return hub


def downloads(hub: HubDouble) -> int:
    return sum(request.method == "GET" and "/resolve/" in request.path for request in hub.requests)


@pytest.mark.parametrize("etag", ["../../../evil", "/tmp/evil", "a/b", ""])
def test_an_etag_that_is_no_digest_names_no_file(
    hub: HubDouble, install: Installer, hub_cache: Path, monkeypatch: pytest.MonkeyPatch, etag: str
) -> None:
    hub.add_model(REPO, files={FILE: DATA})
    monkeypatch.setattr("jarvis_agent.testing.hub.etag", lambda data: etag)
    with pytest.raises(ConfigError):
        install()
    assert not [
        path for path in hub_cache.parent.rglob("*") if "evil" in path.name or path.suffix == ".partial"
    ]


@pytest.mark.parametrize(
    ("memory", "gpu", "cores", "expected"),
    [
        (64, 0, 32, "8 billion"),
        (64, 0, 8, "4 billion"),
        (9, 0, 8, "1.5 billion"),  # the state of 8,192 tokens takes the larger one 1.2 GB
        (16, 0, 4, "1.5 billion"),
        (16, 0, 1, "0.5 billion"),
        (3, 0, 8, "0.5 billion"),
        (8, 12, 2, "8 billion"),
        (1, 0, 8, None),
    ],
)
def test_the_largest_model_that_the_machine_holds_is_proposed(
    memory: int, gpu: int, cores: int, expected: str | None
) -> None:
    machine = Machine(memory=memory * 10**9, gpu_memory=gpu * 10**9, cores=cores)
    assert next((one.parameters for one in MODELS if machine.holds(one)), None) == expected


@pytest.mark.starter
@real
def test_a_new_user_gets_a_model_for_everything(served: HubDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_up, "__kwdefaults__", {**set_up.__kwdefaults__, "models": (model(NAME),)})
    monkeypatch.setenv("JARVIS_OFFLINE", "0")
    result = jarvis("setup", "--yes")
    assert result.exit_code == 0, result.output
    assert "tokens a second" in result.output
    chosen = resolve_model(None, Settings())
    assert isinstance(chosen, ChatGGUF)
    assert describe_model(chosen) == FILE
    with JarvisAgent() as agent:
        assert agent.model_name == FILE
    row = check_model(Settings())
    assert (row.state, FILE in row.found, "jarvis setup" in row.found) == ("ok", True, True)
    # A key comes first.
    assert (
        describe_model(resolve_model(None, Settings(base_url="http://h:1/v1"))) == "default at http://h:1/v1"
    )
    config_file().write_text("model = ")
    with pytest.raises(ConfigError, match=r"damaged.*jarvis setup"):
        resolve_model(None, Settings())


def test_a_file_that_is_here_is_checked_and_not_downloaded_again(
    hub: HubDouble, install: Installer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Path] = []

    def load(path: Path, settings: Settings) -> ScriptedLLM:
        used.append(path)
        return ScriptedLLM(("1, ", "2"))

    monkeypatch.setattr("jarvis_agent.interfaces.cli.setup.local_model", load)
    hub.add_model(REPO, files={FILE: DATA}, card={"license": "apache-2.0"})
    assert install()
    assert downloads(hub) == 1
    assert install()
    assert downloads(hub) == 1
    assert "already downloaded" in install.shown.asked[1]
    (own := tmp_path / "own.gguf").write_bytes(b"GGUF")
    assert install(str(own), settings=Settings(offline=True))
    assert [path.name for path in used] == [FILE] * 2 + ["own.gguf"]
    assert installed_model() == f"gguf:{own}"
    assert "comes first" not in " ".join(install.shown.said)
    for first, name in (("none", "JARVIS_MODEL=none"), (f"gguf:{used[0]}", FILE)):
        assert install(str(own), settings=Settings(offline=True, model=first))
        assert install.shown.said[-1].startswith(f"{name} is configured too and comes first")
    used[0].write_bytes(b"other")
    with pytest.raises(ConfigError, match="damaged"):
        install()


def test_a_file_is_downloaded_once_for_several_commits_and_users(
    hub: HubDouble, install: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jarvis_agent.interfaces.cli.setup.local_model", lambda *_: ScriptedLLM(("1, ", "2")))
    hub.add_model(REPO, files={FILE: DATA})
    both = Barrier(2)
    machine = Machine(memory=8_000_000_000, gpu_memory=0, cores=2)

    def use(_: int) -> bool:
        return set_up(ONLINE, NAME, ask=lambda _: both.wait(60) >= 0, say=str, machine=machine)

    with ThreadPoolExecutor(2) as users:
        assert all(users.map(use, range(2)))
    hub.add_model(REPO, files={FILE: DATA, "README.md": "Corrected."})
    assert install()
    assert downloads(hub) == 1


def test_an_interrupted_download_is_continued(
    hub: HubDouble, install: Installer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add_model(REPO, files={FILE: DATA})
    chunk = 10_000
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", chunk)

    def stop_at_the_fifth(bar: object, count: float = 1, calls: list[float] = []) -> None:  # noqa: B006
        calls.append(count)
        if len(calls) == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("huggingface_hub.utils.tqdm.update", stop_at_the_fifth)
        with pytest.raises(KeyboardInterrupt):
            install()
    assert not list((tmp_path / "hub").rglob(FILE))
    rest = shutil.disk_usage("/")._replace(free=len(DATA) - 4 * chunk)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: rest)
    with pytest.raises(Exception, match="cannot load"):  # the whole file, which is no model
        install()
    ranges = [one.headers.get("range") for one in hub.requests if one.method == "GET"]
    assert f"bytes={4 * chunk}-" in ranges
    assert [path.read_bytes() for path in (tmp_path / "hub").rglob(FILE)] == [DATA]


def test_a_damaged_download_is_deleted(hub: HubDouble, install: Installer, tmp_path: Path) -> None:
    hub.add_model(REPO, files={FILE: DATA})
    hub.models[REPO].info["siblings"][0]["lfs"]["sha256"] = "0" * 64
    for _ in range(2):
        with pytest.raises(ConfigError, match="damaged"):
            install()
        assert not list((tmp_path / "hub").rglob(FILE))
    assert downloads(hub) == 2
    assert installed_model() is None


def test_a_file_that_is_no_model_is_not_configured(hub: HubDouble, install: Installer) -> None:
    hub.add_model(REPO, files={FILE: DATA})
    with pytest.raises(Exception, match="cannot load"):
        install()
    assert installed_model() is None


def _no_space(hub: HubDouble, patch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=10)
    patch.setattr(shutil, "disk_usage", lambda path: usage)


def _closed(hub: HubDouble, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")


def _broken(hub: HubDouble, patch: pytest.MonkeyPatch) -> None:
    hub.answer("/api/models/", status=503)


def _wrong_token(hub: HubDouble, patch: pytest.MonkeyPatch) -> None:
    message = "Invalid credentials in Authorization header"
    hub.answer("/api/models/", status=401, headers={"X-Error-Message": message})


@pytest.mark.parametrize(
    ("prepare", "settings", "message"),
    [
        (_no_space, {}, r"No space left.*HF_HOME"),
        (_closed, {}, "the Hub cannot be reached"),
        (_broken, {}, "the Hub cannot be used"),
        (_wrong_token, {}, "(?s)the Hub cannot be used.*401.*HF_TOKEN"),
        (None, {"offline": True}, "JARVIS_OFFLINE"),
        (None, {"licenses": ["mit"]}, "JARVIS_LICENSES"),
    ],
)
def test_what_prevents_a_download_is_said(
    hub: HubDouble,
    install: Installer,
    monkeypatch: pytest.MonkeyPatch,
    prepare: Callable[[HubDouble, pytest.MonkeyPatch], None] | None,
    settings: dict[str, object],
    message: str,
) -> None:
    hub.add_model(REPO, files={FILE: DATA}, card={"license": "apache-2.0"})
    if prepare:
        prepare(hub, monkeypatch)
    with pytest.raises(ConfigError, match=message):
        install(settings=Settings(**{"offline": False, **settings}))
    assert downloads(hub) == 0
    assert installed_model() is None


def test_nothing_is_downloaded_without_consent(hub: HubDouble, install: Installer) -> None:
    hub.add_model(REPO, files={FILE: DATA}, card={"license": "apache-2.0"})
    assert not install(agrees=False)
    assert NAME in install.shown.asked[0]
    assert "apache-2.0" in install.shown.asked[0]
    result = jarvis("setup", "--model", NAME)
    assert (result.exit_code, "--yes" in result.output) == (2, True)
    assert downloads(hub) == 0
    assert installed_model() is None


def test_what_the_hub_no_longer_has_is_said_and_the_next_proposed(hub: HubDouble, install: Installer) -> None:
    hub.add_model(REPO, files={FILE: DATA})
    gone = [model("org/gone:a.gguf"), model(f"{REPO}:old-name.gguf")]
    assert not install(None, agrees=False, models=[*gone, model(NAME)])
    assert [one.name in line for one, line in zip(gone, install.shown.said[1:], strict=True)] == [True, True]
    assert NAME in install.shown.asked[0]
    with pytest.raises(ConfigError, match="the Hub has none of these"):
        install(None, models=gone)
    with pytest.raises(ConfigError, match="no model of the table fits"):
        install(None, models=[model(NAME, size=10**11)])
    for path in ("models/missing.gguf", "C:\\missing.gguf", "org/repo"):
        with pytest.raises(ConfigError, match="there is no file"):
            install(path)


def test_the_configuration_is_toml(hub: HubDouble, tmp_path: Path) -> None:
    from jarvis_agent.llm.chat_model import store_installed_model

    path = tmp_path / 'a "quoted" \\ 模型.gguf'
    assert store_installed_model(path) == config_file()
    assert tomllib.loads(config_file().read_text("utf-8")) == {"model": f"gguf:{path}"}
    with pytest.raises(ConfigError, match=r"there is no file .*jarvis setup"):
        resolve_model(None, Settings())
