"""Every test runs without network, keys and settings of the machine, with an empty Hub cache.

The environment is prepared at import, since huggingface_hub reads it once.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import hypothesis
import pytest
from filelock import FileLock

if TYPE_CHECKING:
    from clock import LoopTime
    from postgres import Postgres
    from served import Served

    from jarvis_agent.backends.pool import ModelPool
    from jarvis_agent.testing import HubDouble

_HF_HOME = tempfile.TemporaryDirectory(prefix="jarvis-hf-home-")
_FOREIGN = ("JARVIS_", "OPENAI_", "HF_", "HUGGINGFACE_", "HUGGING_FACE_", "LANGSMITH_", "LANGCHAIN_")
_LOGGERS = ("", "jarvis_agent", "huggingface_hub", "transformers")

for _name in [name for name in os.environ if name.startswith(_FOREIGN)]:
    del os.environ[_name]
os.environ.update(
    HF_HOME=_HF_HOME.name,
    XDG_CACHE_HOME=_HF_HOME.name,
    HF_HUB_OFFLINE="1",
    XDG_CONFIG_HOME=os.devnull,  # the machine's user may have installed a model
    HF_HUB_DISABLE_TELEMETRY="1",
    HF_HUB_DISABLE_XET="1",
    TOKENIZERS_PARALLELISM="false",
    NO_COLOR="1",
    COLUMNS="120",
)
gc.set_threshold(50_000)  # with the usual 700, collections take a third of the time of imports
# The same examples in each run, whatever the order of the tests and the load of the machine.
hypothesis.settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("repeatable")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import modules whose tests `-m "not slow"` leaves out: many load torch."""
    if collection_path.suffix != ".py":
        return None
    marked = re.search(
        r"^pytestmark = pytest\.mark\.(\w+)$", collection_path.read_text("utf-8"), re.MULTILINE
    )
    return True if marked and f"not {marked[1]}" in config.option.markexpr else None


def pytest_collection_finish() -> None:
    """Exempt what the tests import from garbage collections."""
    gc.freeze()


def pytest_unconfigure() -> None:
    _HF_HOME.cleanup()


@pytest.fixture(autouse=True, scope="session")
def _short_graces() -> None:
    from jarvis_agent.core.concurrency import cancellation

    cancellation.GRACE_S = 1.0


@pytest.fixture(autouse=True, scope="session")
def _usual_ctrl_c() -> None:
    """A shell starts background jobs with SIGINT ignored, which processes that tests start would inherit."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _reused_results() -> Iterator[None]:
    """What many tests embed or plan offline is computed once, and every HTTP client has the same TLS context.

    They cost a large part of the CPU time of the fast tests: a plan 30 to 200 ms, in each run of an agent.
    """
    import ssl

    from jarvis_agent.backends.starter.embeddings import StarterEmbeddings
    from jarvis_agent.planning.inputs import name_of
    from jarvis_agent.planning.offline.network import PointerNetwork

    create, write = cache(ssl.create_default_context), PointerNetwork.write
    encode, vectors = StarterEmbeddings.encode, dict[bytes, Any]()
    plans: WeakKeyDictionary[Any, dict[bytes, bytes]] = WeakKeyDictionary()

    def write_once(network: Any, request: Any, offered: Collection[str]) -> Any:
        if sys.getprofile():  # its cost is measured
            return write(network, request, offered)
        files = [(file.kind, name_of(file)) for file in request.files]
        read = request.text, files, request.turns, sorted(offered)  # all that the network knows
        key, kept = sha256(repr(read).encode("utf-8", "replace")).digest(), plans.setdefault(network, {})
        if key not in kept:  # as bytes, in which a test of memory finds no request
            kept[key] = pickle.dumps(write(network, request, offered))
        return pickle.loads(kept[key])

    def encode_once(model: Any, texts: Any) -> Any:
        key = sha256(repr(list(texts)).encode()).digest()
        if key not in vectors:
            vectors[key] = encode(model, texts)
        return vectors[key].copy()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StarterEmbeddings, "encode", encode_once)
        patch.setattr(PointerNetwork, "write", write_once)
        patch.setattr(ssl, "create_default_context", create)
        yield


@pytest.fixture(autouse=True)
def _no_network() -> Iterator[None]:
    """Connections to other machines fail."""
    from jarvis_agent.testing import forbid_network

    with forbid_network():
        yield


@pytest.fixture(autouse=True)
def _restored_environment() -> Iterator[None]:
    """Restore environment variables."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        if name != "PYTEST_CURRENT_TEST":
            del os.environ[name]
    os.environ.update({name: value for name, value in before.items() if name != "PYTEST_CURRENT_TEST"})


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    """Restore levels and propagation of loggers."""
    before = {name: (log.level, log.propagate) for name in _LOGGERS if (log := logging.getLogger(name))}
    threshold = logging.root.manager.disable
    yield
    logging.disable(threshold)
    for name, (level, propagate) in before.items():
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.propagate = propagate


@pytest.fixture
async def loop_time(monkeypatch: pytest.MonkeyPatch) -> LoopTime:
    """The time of the test's event loop, which jumps to the next timer."""
    from clock import LoopTime

    return LoopTime(monkeypatch)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the image a.jpg."""
    from small_agents import picture

    monkeypatch.chdir(tmp_path)
    picture(tmp_path / "a.jpg")
    return tmp_path


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the Hub."""
    from huggingface_hub import constants
    from huggingface_hub.utils import _cache_manager  # it copies the constant when it is imported

    for module in (constants, _cache_manager):
        monkeypatch.setattr(module, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def hub(hub_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubDouble]:
    """A Hub with no models, and empty caches."""
    from huggingface_hub.inference._providers import _common
    from huggingface_hub.utils import _cache_assets

    from jarvis_agent.testing import HubDouble

    _common._fetch_inference_provider_mapping.cache_clear()
    monkeypatch.setattr(_cache_assets, "HF_ASSETS_CACHE", str(tmp_path / "assets"))
    with HubDouble() as double, double.redirected():
        yield double


@pytest.fixture
def pool() -> Iterator[ModelPool]:
    """A pool for tiny models."""
    from jarvis_agent.backends.pool import ModelPool

    pool = ModelPool(limit_bytes=10**9)
    yield pool
    asyncio.run(pool.close())


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server for the tests of a module."""
    from served import agent_of, serving

    with serving(agent_of(tmp_path_factory.mktemp("served") / "outputs")) as running:
        yield running


@pytest.fixture
def served(running: Served) -> Served:
    """The module's server, reset."""
    return running.forget()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A PostgreSQL server of this test process."""
    from postgres import INSTALLED, Postgres

    if INSTALLED is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt install postgresql)")
    with Postgres() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: Postgres) -> str:
    """The URL of an empty database."""
    return postgres_server.new_database()


@pytest.fixture(scope="session")
def media(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of each kind by name."""
    from tiny_media import make_media

    return make_media(tmp_path_factory.mktemp("media"))


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny model, built at first use. Copy it before changing it."""

    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # the folder of each worker is in that of all
        shared = shared.parent

    @cache
    def built(name: str) -> Path:
        from tiny_models import build

        folder, done = shared / f"tiny-{name}", shared / f"tiny-{name}.done"
        with FileLock(f"{folder}.lock"):
            if not done.exists():
                folder.mkdir(exist_ok=True)
                build(name, folder)
                done.touch()
        return folder

    return built


@pytest.fixture(autouse=True)
def selection_is_forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Selection keeps nothing: tests would depend on each other."""

    def no_home() -> Path:
        raise RuntimeError("no home in tests")

    monkeypatch.setattr("jarvis_agent.selection.store.user_cache", no_home)


@pytest.fixture
def selection_file(selection_is_forgetful: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that selection keeps."""
    monkeypatch.setattr("jarvis_agent.selection.store.user_cache", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "selection.sqlite"
