"""The number of parameters in the header of a GGUF file, whatever its name."""

import struct
from pathlib import Path

import pytest
from small_llm import INSTALL, WEIGHTS

from jarvis_agent.llm.chat_model import is_small, needs_examples, parameters_of


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(*shapes: tuple[int, ...]) -> bytes:
    """A file of version 3 with values of every kind, and tensors of these shapes without their weights."""
    values = {
        "general.architecture": struct.pack("<I", 8) + text("llama"),
        "llama.block_count": struct.pack("<II", 4, 32),
        "tokenizer.ggml.tokens": struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc"),
        "tokenizer.ggml.scores": struct.pack("<IIQ2f", 9, 6, 2, 0.5, 1.5),
        "nested": struct.pack("<IIQIQ2B", 9, 9, 1, 0, 2, 1, 2),
    }
    keys = b"".join(text(name) + value for name, value in values.items())
    tensors = b"".join(
        text(f"blk.{n}") + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 2, 0)
        for n, shape in enumerate(shapes)
    )
    return struct.pack("<4sIQQ", b"GGUF", 3, len(shapes), len(values)) + keys + tensors


@pytest.mark.parametrize(
    ("name", "shapes", "small", "examples"),
    [
        ("model-q4.gguf", [(4096, 100_000), (4096,)], True, True),
        ("model-0.5b.gguf", [(4096, 400_000), (4096, 400_000)], False, True),
        ("model-tiny.gguf", [(4096, 4_000_000)], False, False),
    ],
)
def test_the_size_of_a_model_is_that_of_its_file_and_not_of_its_name(
    tmp_path: Path, name: str, shapes: list[tuple[int, ...]], small: bool, examples: bool
) -> None:
    file = tmp_path / name
    file.write_bytes(gguf(*shapes))
    assert (is_small(file), needs_examples(file)) == (small, examples)


HEADER = b"GGUF" + struct.pack("<IQQ", 3, 1, 1)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GGUF",
        gguf((8, 8))[:-30],
        gguf((8, 8))[:60],
        gguf((8, 8)).replace(b"GGUF", b"GGML"),
        HEADER + struct.pack("<Q", 2**63),
        HEADER + struct.pack("<Q", 2**50),
        HEADER + text("list") + struct.pack("<IIQ", 9, 8, 2**63),
        HEADER + text("list") + struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ", 9, 1) * 5000,
        gguf((1,) * 9),
    ],
)
def test_a_broken_header_and_a_part_of_a_model_leave_the_name(tmp_path: Path, content: bytes) -> None:
    small, part = tmp_path / "model-0.5b.gguf", tmp_path / "model-3b-00001-of-00003.gguf"
    small.write_bytes(content)
    part.write_bytes(gguf((8, 8)))
    assert (parameters_of(small), parameters_of(part)) == (0, 0)
    assert (is_small(small), is_small(part)) == (True, False)


@pytest.mark.skipif(WEIGHTS is None, reason=INSTALL)
def test_a_real_file_is_read() -> None:
    assert WEIGHTS is not None
    assert 130e6 < parameters_of(WEIGHTS) < 170e6
