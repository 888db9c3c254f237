"""Networks in ONNX files, run by onnxruntime on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]


def load_network(file: Path) -> Callable[[Floats], Floats]:
    """A network with one input and one output. It may be called in several threads at once.

    It runs on one thread: on a busy machine small products are many times slower on several. A process with
    such networks can be forked.
    """
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = InferenceSession(file, options, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()

    def network(values: Floats) -> Floats:
        result: Floats = session.run(None, {given.name: values})[0]
        return result

    return network
