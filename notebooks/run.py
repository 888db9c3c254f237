"""Run notebooks of this folder from top to bottom, and store their outputs: `make notebooks`.

    python notebooks/run.py                 # all of them
    python notebooks/run.py chains.ipynb    # one of them

They run in a copy of the repository's inputs, offline and without keys. What would differ from run to run
without a meaning is replaced: the folder of the copy, and the names of runs and uploads.

Needs the extra "dev".
"""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
SHOWN_ROOT = "/home/ada/langchain-hugginggpt"
"""What outputs show as the folder of the repository."""

_CONFIGURED = ("JARVIS_", "OPENAI_", "HF_", "HUGGINGFACE_", "HUGGING_FACE_", "LANGSMITH_", "LANGCHAIN_")
_RUN_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]{16}")
_UPLOAD_NAME = re.compile(r"input-[0-9a-f]{12}")
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}


def run(path: Path, timeout: int = 240) -> Any:
    """Return a notebook with the outputs of a new run.

    Args:
        timeout: seconds for each cell.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    notebook = nbformat.read(path, as_version=4)
    settings = {name: value for name, value in os.environ.items() if not name.startswith(_CONFIGURED)}
    settings["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory(prefix="jarvis-notebook-") as folder:
        copy = Path(folder).resolve()
        settings |= {
            "HF_HOME": str(copy / "hub"),
            "HF_HUB_OFFLINE": "1",
            "JARVIS_MODEL": "none",  # the answers do not say how to configure a language model
            "XDG_CONFIG_HOME": os.devnull,
        }
        shutil.copytree(ROOT / "examples", copy / "examples", ignore=shutil.ignore_patterns("outputs"))
        (copy / "notebooks").mkdir()
        client = NotebookClient(
            notebook,
            timeout=timeout,
            kernel_name="python3",
            record_timing=False,
            extra_arguments=["--IPKernelApp.log_level=ERROR"],  # It warns of its sockets, which are local.
            coalesce_streams=True,
            resources={"metadata": {"path": str(copy / "notebooks")}},
        )
        client.execute(env=settings)
        for cell in notebook.cells:
            cell["metadata"] = {}
            if cell.cell_type == "code":
                cell["outputs"] = [_normalise(output, str(copy)) for output in cell.outputs]
    notebook["metadata"] = nbformat.from_dict(_METADATA)
    return notebook


def _normalise(value: Any, root: str) -> Any:
    """An output, or a part of it, without the names and the folder of this run.

    What has an HTML form loses its plain form, which for a Run is long and names files of this machine.
    """
    if isinstance(value, str):
        shown = _RUN_NAME.sub("20260101-120000-0123456789abcdef", value.replace(root, SHOWN_ROOT))
        return _UPLOAD_NAME.sub("input-0123456789ab", shown)
    if isinstance(value, dict):
        parts = {
            name: part for name, part in value.items() if name != "text/plain" or "text/html" not in value
        }
        return nbformat.from_dict({name: _normalise(part, root) for name, part in parts.items()})
    if isinstance(value, list):
        return [_normalise(part, root) for part in value]
    return value


if __name__ == "__main__":
    for path in [FOLDER / Path(name).name for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb")):
        nbformat.write(run(path), path)
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")
