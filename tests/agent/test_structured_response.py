"""`JarvisAgent(response_format=…)`: the answer as a value of the user's type."""

import json
from pathlib import Path
from typing import Any

import pytest
from durable_agents import THREAD
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel
from small_agents import DESCRIBE, plan, small_agent

from jarvis_agent import JarvisAgent, Run
from jarvis_agent.core.errors import ConfigError, LLMError
from jarvis_agent.planning.plan import Plan
from jarvis_agent.testing import FakeBackend, FakeSource, fake_candidate

REQUEST = "What is in a.jpg?"


class Seen(BaseModel):
    """What a picture shows."""

    animal: str
    place: str | None = None


CAT = Seen(animal="cat", place="a mat")


REPLY = CAT.model_dump_json()


def agent_with(structure: Any = REPLY, **options: Any) -> JarvisAgent:
    return small_agent(structure=structure, response_format=Seen, **options)[0]


@pytest.mark.usefixtures("home")
class TestStructuredResponse:
    def test_a_run_has_the_answer_in_words_and_as_the_type(self) -> None:
        run = agent_with().invoke(REQUEST)
        assert (run.answer, run.structured_response) == ("A cat on a mat.", CAT)
        assert run.usage["structure"].calls == 1
        assert json.loads(run.model_dump_json())["structured_response"] == CAT.model_dump()

    def test_the_last_chunk_of_a_stream_has_it(self) -> None:
        agent = agent_with()
        chunks = list(agent.stream(REQUEST))
        assert [chunk.structured_response for chunk in chunks if chunk.structured_response] == [CAT]
        assert chunks[-1].structured_response == CAT
        whole = sum(chunks, Run())
        assert (whole.answer, whole.structured_response) == ("A cat on a mat.", CAT)

    def test_the_graph_has_it_in_its_state(self) -> None:
        state = agent_with().graph.invoke({"input": REQUEST})
        assert state["structured_response"] == CAT
        assert state["run"]["structured_response"] == CAT.model_dump()

    async def test_it_is_a_stored_step(self) -> None:
        agent = agent_with(checkpointer=InMemorySaver())
        async with agent:
            first = await agent.ainvoke(REQUEST, THREAD)
            again = await agent.ainvoke(None, THREAD)  # the run has ended: it is read from the thread
        assert first.structured_response == again.structured_response == CAT

    @pytest.mark.parametrize("structure", ['{"place": "a mat"}', "no JSON", LLMError("the server is down")])
    def test_a_failure_is_a_note_beside_the_answer(self, structure: Any) -> None:
        run = agent_with([structure, structure]).invoke(REQUEST)
        assert (run.answer, run.structured_response) == ("A cat on a mat.", None)
        (note,) = [note for note in run.plan.notes if "structured answer" in note]
        assert "animal" in note or "no JSON" in note or "server is down" in note
        chunks = sum(agent_with([structure, structure]).stream(REQUEST), Run())
        assert note in chunks.plan.notes

    def test_a_new_run_of_a_thread_does_not_keep_the_earlier_one(self) -> None:
        agent = agent_with([CAT.model_dump_json(), "no", "no"], checkpointer=InMemorySaver())
        assert agent.graph.invoke({"input": REQUEST}, THREAD)["structured_response"] == CAT
        assert agent.graph.invoke({"input": REQUEST}, THREAD)["structured_response"] is None

    def test_without_a_language_model_it_is_the_last_output_of_the_type(self) -> None:
        rows = plan(("image-to-text", [], {"image": "a.jpg"}), ("object-detection", [], {"image": "a.jpg"}))
        written = Plan.parse(rows)
        backend = FakeBackend({"image-to-text": "a cat", "object-detection": []})
        source = FakeSource(fake_candidate(task) for task in ("image-to-text", "object-detection"))
        for form, expected in ((list[dict[str, Any]], []), (dict[str, str], {"generated_text": "a cat"})):
            parts: dict[str, Any] = {"sources": [source], "backends": [backend], "response_format": form}
            run = JarvisAgent("none", **parts).invoke(written)
            assert (run.structured_response or []) == (expected or []), form
        run = JarvisAgent("none", **parts | {"response_format": Seen}).invoke(written)
        assert run.structured_response is None
        assert any("no result has the form" in note for note in run.plan.notes)

    def test_a_model_writes_nothing_without_a_format(self) -> None:
        agent, llm, _ = small_agent(DESCRIBE)
        run = agent.invoke(REQUEST)
        assert run.structured_response is None
        assert "structured_response" not in run.model_dump_json()
        assert len(llm.calls) == 2

    def test_another_format_is_refused_when_the_agent_is_made(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="response_format"):
            small_agent(response_format=tmp_path)
