"""The distribution: its packages, extras, pins and contents, and imports that stay light."""

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, metadata, packages_distributions, requires
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from processes import run_python

import jarvis_agent
import jarvis_agent.tools
from jarvis_agent import Settings
from jarvis_agent.core.settings import ServerSettings

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WEIGHTS = tomllib.loads((ROOT / "weights" / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES: dict[str, str] = PROJECT["tool"]["setuptools"]["package-dir"]
OURS = {PROJECT["project"]["name"], WEIGHTS["project"]["name"]}
HEAVY = {"torch", "transformers", "diffusers", "langgraph", "fastapi", "gradio", "ray", "numpy", "cv2"}

needs_repository = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git lists the files")


def _files_of_the_packages() -> set[str]:
    """Every file that the wheel must hold, by its path in the wheel."""
    homes = {"jarvis_agent": "jarvis_agent", "tools": "jarvis_agent/tools", "prompts": "jarvis_agent/prompts"}
    return {
        f"{target}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, target in homes.items()
        for parent, _, names in os.walk(ROOT / folder)  # does not follow links
        for path in (Path(parent, name) for name in names)
        if "__pycache__" not in path.parts and path.suffix != ".pyc"
    }


def test_the_declared_packages_are_those_of_the_tree() -> None:
    packages = PROJECT["tool"]["setuptools"]["packages"]
    files = map(Path, _files_of_the_packages())
    assert sorted(packages) == sorted(".".join(f.parent.parts) for f in files if f.name == "__init__.py")
    for name in packages:
        if name.startswith(("jarvis_agent.tools", "jarvis_agent.prompts")):
            assert PACKAGES[name] == name.removeprefix("jarvis_agent.").replace(".", "/")
    for folder in ("tools", "prompts"):
        link = ROOT / "jarvis_agent" / folder
        # Without git's core.symlinks, a clone has files in place of links.
        assert not link.is_symlink() or link.readlink().as_posix() == f"../{folder}"


def test_the_version_stands_in_one_place_and_the_changelog_has_it() -> None:
    assert PROJECT["tool"]["setuptools"]["dynamic"] == {"version": {"attr": "jarvis_agent.__version__"}}
    assert f"[{jarvis_agent.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert WEIGHTS["project"]["version"] == jarvis_agent.__version__
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == jarvis_agent.__version__
    assert citation["authors"] == [{"name": "The jarvis_agent developers"}]
    weights = f"{WEIGHTS['project']['name']}=={jarvis_agent.__version__}"
    assert weights in PROJECT["project"]["optional-dependencies"]["starter"]


def test_the_starter_needs_neither_torch_nor_cuda_on_any_machine() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    texts = [*PROJECT["project"]["dependencies"], *extras["starter"], *extras["llm"]]
    waiting, needed = list(map(Requirement, texts)), set[tuple[str, str]]()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if name in OURS or (name, extra) in needed:
                continue
            needed.add((name, extra))
            with suppress(PackageNotFoundError):  # it is for another machine
                for other in map(Requirement, requires(name) or ()):
                    machines = [
                        {"sys_platform": system, "platform_machine": machine, "extra": extra}
                        for system in ("linux", "darwin", "win32")
                        for machine in ("x86_64", "aarch64", "arm64", "AMD64")
                    ]
                    if other.marker is None or any(other.marker.evaluate(one) for one in machines):
                        waiting.append(other)
    names = {name for name, _ in needed}
    assert {"onnxruntime", "faster-whisper", "ctranslate2"} <= names
    assert not {name for name in names if re.match("torch|transformers|sentence-|nvidia|.*cuda", name)}


@pytest.mark.skipif(not (ROOT / "weights" / "jarvis_agent_weights").exists(), reason="not in this source")
def test_the_weights_are_data_that_the_package_holds_within_65_megabytes() -> None:
    folder = ROOT / "weights" / "jarvis_agent_weights"
    files = {path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    globs = WEIGHTS["tool"]["setuptools"]["package-data"]["jarvis_agent_weights"]
    assert files == {folder / "__init__.py", *(path for glob in globs for path in folder.glob(glob))}
    assert (folder / "__init__.py").read_text("utf-8").count("\n") == 1
    assert sum(path.stat().st_size for path in files) <= 65_000_000


def test_every_requirement_is_pinned_in_the_constraints() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {canonicalize_name(pin.name): pin for pin in (Requirement(x) for x in lines if x and x[0] != "#")}
    groups = [PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()]
    for requirement in (Requirement(text) for group in groups for text in group):
        if requirement.name in OURS:
            continue
        (pin,) = pins[canonicalize_name(requirement.name)].specifier
        assert pin.operator == "=="
        assert requirement.specifier.contains(pin.version), f"{requirement} excludes the pin {pin.version}"
    for line in (ROOT / "weights.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            weights, _, digest = line.partition(" --hash=sha256:")
            required = Requirement(weights)
            assert required.specifier == pins[canonicalize_name(required.name)].specifier
            assert re.fullmatch("[0-9a-f]{64}", digest)


def test_every_imported_library_is_declared() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    used = [PROJECT["project"]["dependencies"], *(texts for name, texts in extras.items() if name != "dev")]
    declared = {canonicalize_name(Requirement(text).name) for texts in used for text in texts}
    imported = {
        (name or "").partition(".")[0]
        for path in (*(ROOT / "jarvis_agent").rglob("*.py"), *(ROOT / "tools").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module]
            if isinstance(node, ast.ImportFrom) and not node.level
            else []
        )
    }
    providers = packages_distributions()
    for name in imported - sys.stdlib_module_names - {"jarvis_agent", "jarvis_agent_weights"}:
        if name in providers:
            assert declared & set(map(canonicalize_name, providers[name])), f"{name} is not declared"


def test_the_extra_all_is_every_extra_without_gpl_programs() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    (everything,) = [Requirement(text) for text in extras["all"]]
    assert everything.extras == set(extras) - {"all", "dev", "ray"}


LIGHT = {
    "import jarvis_agent": HEAVY | {"langchain", "langchain_core", "pydantic", "huggingface_hub"},
    "import jarvis_agent.interfaces.cli.app": HEAVY
    | {"langchain", "langchain_core", "huggingface_hub", "PIL"},
    "from jarvis_agent import TaskSpec, register_task": HEAVY | {"langchain", "langchain_core"},
    "import jarvis_agent.backends.transformers.backend, jarvis_agent.backends.outputs.adapters": (
        HEAVY | {"PIL", "huggingface_hub"}
    ),
    "from jarvis_agent import JarvisAgent, Plan, Request, Run, Settings; JarvisAgent('none')": HEAVY,
}
"""What is not imported when these statements ran, one after the other."""


@pytest.mark.slow
def test_imports_stay_light() -> None:
    tell = "print(*{name.partition('.')[0] for name in sys.modules})\n"
    code = "import sys\n" + "".join(f"{statement}\n{tell}" for statement in LIGHT)
    shown = run_python(code, cwd=ROOT).splitlines()
    for (statement, unwanted), loaded in zip(LIGHT.items(), shown, strict=True):
        assert not unwanted & set(loaded.split()), statement


def test_the_public_names_are_fixed_and_importable() -> None:
    assert " ".join(jarvis_agent.__all__) == (
        "JarvisAgent JarvisToolkit OfflinePlanner Plan RegisteredSource Request Resource Run Settings Task "
        "TaskResult TaskSpec default_backends default_sources hf_tools planning_chain register_task "
        "response_chain selection_chain"
    )
    assert " ".join(jarvis_agent.tools.__all__) == (
        "Arg HFTaskTool JarvisToolkit Modality TASKS TaskSpec hf_tools hf_tools_middleware register_task"
    )
    for module in (jarvis_agent, jarvis_agent.tools):
        assert all(getattr(module, name) is not None for name in module.__all__)


def _build(clone: Path) -> dict[str, str]:
    """Build a copy of the source into its folder `dist`. Return the digests by the names of the files."""
    environment = {**os.environ, "PYTHON": sys.executable, "SOURCE_DATE_EPOCH": "1700000000"}
    command = [clone / ".ci" / "build"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (clone / "dist").iterdir()}


@pytest.mark.slow
def test_the_distributions_are_reproducible_and_complete_and_run_the_demo(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    everywhere = shutil.ignore_patterns(".[!c]*", ".c[!i]*", "*.egg-info", "__pycache__")
    at_the_top = shutil.ignore_patterns("outputs", "build", "dist")

    def ignored(folder: str, names: list[str]) -> set[str]:
        is_top = Path(folder) in (ROOT, ROOT / "weights")
        return everywhere(folder, names) | (at_the_top(folder, names) if is_top else set())

    shutil.copytree(ROOT, clone, symlinks=True, ignore=ignored)
    for path in (clone / "weights" / "jarvis_agent_weights").rglob("*"):
        if path.is_file():  # to compress the whole weights takes longer than all else here
            path.write_bytes(path.read_bytes()[:1000])
    built = _build(clone)
    for path in clone.rglob("*"):  # as in another clone
        if path.is_file() and not path.is_symlink() and "dist" not in path.parts:
            path.touch()
            path.chmod(path.stat().st_mode & 0o700)
    assert _build(clone) == built
    assert len(built) == 4
    (sdist,) = (clone / "dist").glob("langchain_hugginggpt-*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    folders = ["tests", "docs", "examples", "benchmarks", "training", "notebooks", *PACKAGES.values()]
    files = {path for folder in folders for path in (clone / folder).rglob("*") if path.is_file()}
    needed = {path.relative_to(clone).as_posix() for path in files if path.suffix != ".pyc"}
    needed |= {"LICENSE", "README.md", "pyproject.toml", "constraints.txt", "weights.txt", "Makefile"}
    assert needed <= names
    wheel, weights = sorted((clone / "dist").glob("*.whl"))
    assert wheel.name.split("-")[:2] == ["langchain_hugginggpt", jarvis_agent.__version__]
    assert wheel.stat().st_size < 1_000_000
    with zipfile.ZipFile(wheel) as zipped:
        assert {name for name in zipped.namelist() if ".dist-info/" not in name} == _files_of_the_packages()
    with zipfile.ZipFile(weights) as zipped:
        held = {name: zipped.read(name) for name in zipped.namelist() if ".dist-info/" not in name}
    folder = clone / "weights"
    files = {path for path in (folder / "jarvis_agent_weights").rglob("*") if path.is_file()}
    assert held == {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    _check_the_demo(tmp_path / "env", wheel)


def _check_the_demo(env: Path, wheel: Path) -> None:
    """Install the wheel beside the dependencies of this environment, and run the demo outside the clone."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True)
    (site,) = env.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT / 'weights'}\n", "utf-8")
    pip = [sys.executable, "-m", "pip", "--python", env / "bin" / "python", "install", "--quiet"]
    subprocess.run([*pip, "--no-index", "--no-deps", "--ignore-installed", wheel], check=True)
    home = env / "home"
    home.mkdir()
    variables = {"HOME": str(home), "PATH": os.environ["PATH"], "HF_HUB_OFFLINE": "1", "JARVIS_MODEL": "none"}
    done = subprocess.run(
        [env / "bin" / "jarvis", "demo"], cwd=home, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for part in ("It was the best of times", "tabby", "1-text-to-speech.wav", "4-canny-control.png"):
        assert part in done.stdout
    made = {path.name for path in home.glob(f"{Settings().output_dir.name}/*/*")}
    assert {"1-text-to-speech.wav", "4-canny-control.png"} <= made


def test_the_image_has_what_the_wheel_needs_and_its_extras_exist() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copies = [line for line in lines if line.startswith("COPY ") and "--from" not in line]
    sources = {name for line in copies for name in line.split()[1:-1]}
    context = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert sources == {line[1:] for line in context if line.startswith("!")}
    assert {"pyproject.toml", *PROJECT["project"]["license-files"], PROJECT["project"]["readme"]} <= sources
    assert {folder.partition("/")[0] for folder in PACKAGES.values()} <= sources
    (extras,) = [line.partition("EXTRAS=")[2] for line in lines if line.startswith("ARG EXTRAS=")]
    assert set(extras.split(",")) <= set(PROJECT["project"]["optional-dependencies"])


@needs_repository
def test_workflows_test_the_supported_versions_and_publish_only_by_hand() -> None:
    folder = ROOT / ".github" / "workflows"
    ci, release = (yaml.safe_load((folder / f"{name}.yml").read_text("utf-8")) for name in ("ci", "release"))
    rows = ci["jobs"]["test"]["strategy"]["matrix"]["include"]
    prefix = "Programming Language :: Python :: 3."
    classifiers = PROJECT["project"]["classifiers"]
    supported = {name.rpartition(" ")[2] for name in classifiers if name.startswith(prefix)}
    assert supported <= {row["python"] for row in rows}
    assert "Operating System :: POSIX :: Linux" in classifiers
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = {f"make {target}" for target in re.findall(r"^([\w-]+):", makefile, re.MULTILINE)} | {".ci/run"}
    assert {row["command"] for row in rows} <= known
    assert list(release[True]) == ["workflow_dispatch"]  # YAML reads the key `on` as true
    assert release["jobs"]["publish"]["if"].startswith("inputs.publish && ")


def test_compose_sets_settings_that_exist() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    known = {f"JARVIS_{name.upper()}" for name in (*Settings.model_fields, *ServerSettings.model_fields)}
    assert set(services["server"]["environment"]) <= known | {"HF_TOKEN", "OPENAI_API_KEY"}
    assert services["server"]["depends_on"]["database"] == {"condition": "service_healthy"}


@needs_repository
def test_files_that_runs_leave_are_ignored_by_git() -> None:
    left = ["runs.sqlite", "runs.sqlite-wal", "chat.db", "outputs/1/0-speech.wav", "notebooks/outputs/x.png"]
    done = subprocess.run(
        ["git", "check-ignore", *left], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == left


@needs_repository
def test_nothing_suggests_installing_another_project_of_a_similar_name() -> None:
    """The old name on PyPI is an unrelated project."""
    old = "jarvis" + "-agent"
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = [
        name
        for name in tracked.splitlines()
        if (ROOT / name).is_file()
        and not (ROOT / name).is_symlink()
        and old in (ROOT / name).read_text("utf-8", errors="ignore").replace(f"/tmp/{old}", "")
    ]
    assert found == []


def test_every_extra_that_a_text_names_exists() -> None:
    """Texts include error messages."""
    extras = set(PROJECT["project"]["optional-dependencies"])
    found = []
    for parent, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if not name.startswith((".", "__")) and "egg" not in name]
        for path in (Path(parent, name) for name in names if name.endswith((".py", ".md", ".ipynb"))):
            named = re.findall(r"langchain-hugginggpt\[([a-z,-]+)\]", path.read_text("utf-8"))
            found += [f"{path}: {extra}" for one in named for extra in one.split(",") if extra not in extras]
    assert found == []


def test_the_page_of_extras_names_the_licences_that_bind_users() -> None:
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (.*) \|$", page, re.MULTILINE))
    extras = PROJECT["project"]["optional-dependencies"]
    for extra in extras.keys() - {"all", "dev"}:
        for requirement in map(Requirement, extras[extra]):
            with suppress(PackageNotFoundError):
                about = metadata(requirement.name).json
                licence = f"{about.get('license_expression')} {str(about.get('license', ''))[:40]}"
                if re.search(r"\bA?GPL|LangServe|Proprietary", licence):
                    assert requirement.name in rows[extra].lower(), extra
