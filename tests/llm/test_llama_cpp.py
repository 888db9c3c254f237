"""Models in GGUF files: replies, their limits, and what ends them."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
from small_llm import INSTALL, WEIGHTS

from jarvis_agent.core.errors import ExpertError, MissingExtraError, UnsupportedError
from jarvis_agent.llm.llama_cpp import LlamaCpp

real = pytest.mark.skipif(WEIGHTS is None or find_spec("xllamacpp") is None, reason=INSTALL)
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def model() -> LlamaCpp:
    assert WEIGHTS is not None
    return LlamaCpp(WEIGHTS, context=256)


@real
@pytest.mark.starter
def test_a_reply_arrives_in_pieces_and_is_counted(model: LlamaCpp) -> None:
    pieces: list[str] = []
    reply = model.chat(QUESTION, 60, pieces.append, temperature=0.0, repeat_penalty=1.1)
    assert "Paris" in reply.text
    assert "".join(pieces) == reply.text
    assert len(pieces) > 3
    assert reply.finish_reason == "stop"
    assert 3 < reply.usage["completion_tokens"] <= 60
    assert model.chat(QUESTION, 2).finish_reason == "length"
    form = {"type": "json_schema", "json_schema": {"schema": {"type": "boolean"}}}
    assert model.chat(QUESTION, 20, response_format=form).text.strip() in ("true", "false")


@real
@pytest.mark.starter
def test_a_reply_ends_when_it_is_cancelled_or_its_reader_fails(model: LlamaCpp) -> None:
    pieces: list[str] = []
    reply = model.chat(QUESTION, 200, pieces.append, lambda: len(pieces) == 3)
    assert (len(pieces), reply.finish_reason) == (3, None)
    with pytest.raises(ZeroDivisionError):
        model.chat(QUESTION, 200, lambda text: pieces.append(text) or 1 / 0)  # type: ignore[func-returns-value]
    assert len(pieces) == 4


@real
@pytest.mark.starter
def test_what_cannot_be_answered_is_refused(model: LlamaCpp, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"at most 256 tokens, and this text has 1,\d{3}"):
        model.chat([{"role": "user", "content": "word " * 1000}], 5)
    with pytest.raises(ExpertError, match="refuses the request"):
        model.chat([{"role": "user"}], 5)
    assert model.chat([{"role": "user", "content": "Hi \ud83d"}], 2).text
    (tmp_path / "broken.gguf").write_bytes(b"no model")
    with pytest.raises(ExpertError, match=r"cannot load .*broken\.gguf"):
        LlamaCpp(tmp_path / "broken.gguf").load()


@real
@pytest.mark.starter
def test_no_other_process_can_use_the_model(model: LlamaCpp) -> None:
    model.load()
    address = model._server.listening_address
    assert address.startswith("http://127.0.0.1:")
    assert httpx.post(f"{address}/v1/chat/completions", json={"messages": QUESTION}).status_code == 401


def test_without_its_package_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingExtraError, match=r"small\.gguf .*\[llm\]"):
        LlamaCpp(Path("small.gguf")).chat(QUESTION, 5)
