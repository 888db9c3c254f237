"""Spaces that the Hub finds: a double of the Hub, and Gradio applications on this machine."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from doubles.gradio_space import SpaceDouble
from fastapi import FastAPI
from libraries import needs
from PIL import Image
from served import listening

from jarvis_agent import JarvisAgent, Plan, Settings, Task
from jarvis_agent.backends.hosted.gradio_spaces import SpacesBackend
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.selection.sources import default_sources
from jarvis_agent.selection.sources.spaces import SpacesSource, fit
from jarvis_agent.testing import FakeBackend, FakeSource, HubDouble, ScriptedLLM, fake_candidate

needs("gradio_client")

SETTINGS = Settings(offline=False, spaces="search")


@contextmanager
def hub_of(**urls: str) -> Iterator[HubDouble]:
    """A Hub that finds these Spaces, in this order, and two that are private or asleep."""
    with HubDouble() as hub, hub.redirected():
        rows: list[dict[str, Any]] = [
            {"id": "org/secret", "private": True, "runtime": {"stage": "RUNNING"}},
            {"id": "org/asleep", "private": False, "runtime": {"stage": "SLEEPING"}},
        ]
        for name, url in urls.items():
            about = {"id": f"org/{name}", "private": False, "sdk": "gradio", "runtime": {"stage": "RUNNING"}}
            more = {"title": f"Title of {name}", "likes": 40, "ai_short_description": "It is fast."}
            rows.append(about | more)
            hub.answer(f"/api/spaces/org/{name}", body=about | {"host": url})
        hub.answer("/api/spaces/semantic-search", body=rows)
        yield hub


def searches(hub: HubDouble) -> list[str]:
    return [one.query["q"][0] for one in hub.requests if one.path.endswith("/semantic-search")]


def test_a_gradio_space_that_a_search_finds_does_a_task(tmp_path: Path) -> None:
    gradio = pytest.importorskip("gradio")
    seen: list[Any] = []

    def stylize(picture: Any, wish: str, strength: float) -> Any:
        seen.append((picture.size, wish, strength))
        return picture.rotate(90, expand=True)

    with gradio.Blocks(analytics_enabled=False) as blocks:
        inputs = [gradio.Image(type="pil"), gradio.Textbox(), gradio.Slider(0, 1, value=0.5)]
        gradio.Button().click(lambda text: text, [inputs[1]], [gradio.Textbox()], api_name="echo")
        gradio.Button().click(stylize, inputs, [gradio.Image(type="pil")], api_name="stylize")
    Image.new("RGB", (8, 6), "red").save(tmp_path / "cat.png")
    args = {"image": str(tmp_path / "cat.png"), "text": "in ukiyo-e style"}
    app = gradio.mount_gradio_app(FastAPI(), blocks, path="")
    with ExitStack() as stack:
        hub = stack.enter_context(hub_of(ukiyo=stack.enter_context(listening(app))))
        settings = SETTINGS.model_copy(update={"output_dir": tmp_path / "out", "allowed_dirs": (tmp_path,)})
        agent = stack.enter_context(
            JarvisAgent(
                None, sources=[SpacesSource(settings)], backends=[SpacesBackend(settings)], settings=settings
            )
        )
        run = agent.invoke(Plan(tasks=[Task(task="image-text-to-image", id=0, args=args)]))
    (result,) = run.results
    assert result.model == "space:org/ukiyo", result.error
    assert result.resources[0].to_pil().size == (6, 8)
    assert seen == [((8, 6), "in ukiyo-e style", 0.5)]
    assert "image text to image" in searches(hub)


def test_the_language_model_fills_what_cannot_be_mapped_by_kind(tmp_path: Path) -> None:
    """A real Gradio application with choices, numbers and an optional picture, without defaults."""
    gradio = pytest.importorskip("gradio")
    seen: list[Any] = []

    def draw(wish: str, picture: Any, style: str, steps: float, tags: list[str], seed: float) -> Any:
        seen.append((wish, picture, style, steps, tags, seed))
        return 7, [Image.new("RGB", (8, 6)), Image.new("RGB", (4, 4))]

    with gradio.Blocks(analytics_enabled=False) as blocks:
        inputs = [
            gradio.Textbox(label="Prompt"),
            gradio.Image(type="pil", label="Reference"),
            gradio.Dropdown(["photo", "ink"], value=None, label="Style"),
            gradio.Number(label="Steps"),
            gradio.CheckboxGroup(["big", "small"], label="Tags"),
            gradio.Number(value=3, label="Seed"),
        ]
        gradio.Button().click(draw, inputs, [gradio.Number(label="Seed"), gradio.Gallery()], api_name="draw")
    app = gradio.mount_gradio_app(FastAPI(), blocks, path="")
    filled = {"wish": "<text>", "picture": None, "style": "ink", "steps": 4, "tags": ["big"]}
    replies = [json.dumps(filled | {"style": "oil"}), json.dumps(filled)]
    llm = ScriptedLLM({"expert": replies, "respond": "Done."})
    plan = Plan(tasks=[Task(task="text-to-image", id=0, args={"text": "a cat"})])
    settings = SETTINGS.model_copy(update={"output_dir": tmp_path / "out"})
    with listening(app) as url, hub_of(drawer=url):
        for model in (None, llm):
            sources, backends = [SpacesSource(settings)], [SpacesBackend(settings)]
            with JarvisAgent(model, sources=sources, backends=backends, settings=settings) as agent:
                (result,) = agent.invoke(plan).results
            if model is None:
                assert "none of its endpoints takes text" in str(result.error)
                assert seen == []
    assert seen == [("a cat", None, "ink", 4, ["big"], 0)]  # the seed of the task
    assert [one.to_pil().size for one in result.resources] == [(8, 6), (4, 4)]
    assert "the Space returned besides: Seed: 7" in result.notes
    assert llm.stages()[:2] == ["expert", "expert"]
    assert "'oil'" in llm.calls[1].prompt


@pytest.mark.parametrize("has_system_prompt", [False, True])
def test_the_message_of_a_chat_takes_the_text_and_the_files(tmp_path: Path, has_system_prompt: bool) -> None:
    """A real ChatInterface of Gradio; where it demands more, the language model fills the parameters."""
    gradio = pytest.importorskip("gradio")
    seen: list[Any] = []

    def chat(message: Any, history: Any, *more: str) -> str:
        sizes = [Image.open(file).size for file in message["files"]]
        seen.append((message["text"], sizes, *more))
        return "a red picture"

    more = [gradio.Textbox(label="System prompt")] if has_system_prompt else []
    with gradio.Blocks(analytics_enabled=False) as blocks:
        gradio.ChatInterface(chat, multimodal=True, additional_inputs=more, api_name="chat")
    filled = {"message": {"text": "<text>", "files": ["<image>"]}, "param_2": "Be brief."}
    wrong = filled | {"message": {"text": "<text>", "files": ["/etc/passwd"]}}
    llm = ScriptedLLM({"expert": [json.dumps(wrong), json.dumps(filled)], "respond": "Done."})
    Image.new("RGB", (8, 6), "red").save(tmp_path / "red.png")
    args = {"image": str(tmp_path / "red.png"), "text": "What is it?"}
    plan = Plan(tasks=[Task(task="visual-question-answering", id=0, args=args)])
    settings = SETTINGS.model_copy(update={"output_dir": tmp_path / "out", "allowed_dirs": (tmp_path,)})
    app = gradio.mount_gradio_app(FastAPI(), blocks, path="")
    with listening(app, grace=1) as url, hub_of(talker=url):  # the client's heartbeat stays open
        sources, backends = [SpacesSource(settings)], [SpacesBackend(settings)]
        with JarvisAgent(llm, sources=sources, backends=backends, settings=settings) as agent:
            (result,) = agent.invoke(plan).results
    assert result.error is None
    assert result.output[0]["answer"] == "a red picture"
    assert seen == [("What is it?", [(8, 6)], *(["Be brief."] if has_system_prompt else []))]
    asked = [call.prompt for call in llm.calls if call.stage == "expert"]
    assert ["'/etc/passwd'" in prompt for prompt in asked] == ([False, True] if has_system_prompt else [])


def endpoint(*takes: tuple[str, bool], gives: str = "Image") -> dict[str, Any]:
    parameters = [
        {"parameter_name": f"p{number}", "component": component, "parameter_has_default": has_default}
        for number, (component, has_default) in enumerate(takes)
    ]
    return {"parameters": parameters, "returns": [{"component": gives}, {"component": "Number"}]}


TEXT, PICTURE, STEPS, NOTE = ("Textbox", False), ("Image", False), ("Slider", True), ("Textbox", True)
CHAT = ("Multimodaltextbox", True)


@pytest.mark.parametrize(
    ("task", "described", "inputs"),
    [
        ("text-to-image", endpoint(TEXT, STEPS, NOTE), {"p0": "text"}),
        ("text-to-image", endpoint(TEXT, gives="Gallery"), {"p0": "text"}),
        ("object-detection", endpoint(PICTURE, gives="JSON"), {"p0": "image"}),
        ("visual-question-answering", endpoint(PICTURE, TEXT, gives="Markdown"),
         {"p0": "image", "p1": "text"}),
        ("zero-shot-image-classification", endpoint(PICTURE, TEXT, gives="Label"),
         {"p0": "image", "p1": "labels"}),
        ("image-to-text", endpoint(PICTURE, NOTE, gives="Textbox"), {"p0": "image", "p1": "text"}),
        ("image-to-text", endpoint(CHAT, gives="JSON"), {"p0": ["text", "image"]}),
        ("visual-question-answering", endpoint(PICTURE, CHAT, gives="Textbox"),
         {"p0": "image", "p1": ["text"]}),
        ("zero-shot-image-classification", endpoint(CHAT, gives="JSON"), None),
        ("image-to-text", endpoint(PICTURE, gives="JSON"), None),
        ("text-to-image", endpoint(TEXT, ("Slider", False)), None),
        ("text-to-image", endpoint(TEXT, gives="Textbox"), None),
        ("text-to-image", endpoint(TEXT, TEXT), None),
        ("image-to-text", endpoint(TEXT, gives="Textbox"), None),
        ("object-detection", endpoint(PICTURE), None),
        ("canny-text-to-image", endpoint(TEXT, PICTURE), None),
        ("text-to-image", {"parameters": ["x"], "returns": "no"}, None),
    ],
)  # fmt: skip
def test_inputs_are_read_by_kind(task: str, described: dict[str, Any], inputs: dict[str, Any] | None) -> None:
    found = fit(TASKS[task], {"/first": endpoint(gives="HTML"), "/f": described})
    if inputs is None:
        assert "none of its endpoints takes" in found["unfit"]
    else:
        assert found == {"api_name": "/f", "inputs": inputs, "strict": True}


async def test_spaces_that_cannot_be_called_are_rejected_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SpaceDouble() as draws, SpaceDouble() as counts, HubDouble() as gone:
        draws.add("/draw", {"prompt": "Textbox"}, ["Image"], lambda prompt: tmp_path)
        counts.add("/count", {"n": "Number"}, ["Number"], lambda n: n)
        with hub_of(draws=draws.url, counts=counts.url, gone=gone.url) as hub:
            clock = [0.0]
            time = SimpleNamespace(monotonic=lambda: clock[0])
            monkeypatch.setattr("jarvis_agent.selection.sources.spaces.time", time)
            source, backend = SpacesSource(SETTINGS), SpacesBackend(SETTINGS)
            spec = TASKS["text-to-image"]
            found = await source.candidates(spec, 30)
            why = {one.id: backend.unsupported_reason(spec, one) for one in found}
            assert list(why) == ["space:org/draws", "space:org/counts", "space:org/gone"]
            assert why["space:org/draws"] is None
            assert why["space:org/counts"] == "none of its endpoints takes text and gives image"
            assert "its endpoints are unknown" in str(why["space:org/gone"])
            assert (found[0].likes, found[0].description) == (40, "Title of draws. It is fast.")
            asked = len(draws.headers)
            await source.candidates(spec, 30)
            assert (len(draws.headers), len(searches(hub))) == (asked, 1), "they are known for an hour"
            clock[0] = 3601
            await source.candidates(spec, 30)
            assert len(draws.headers) > asked


async def test_an_argument_that_a_found_space_does_not_take_leads_to_the_next_model(tmp_path: Path) -> None:
    with SpaceDouble() as space:
        space.add("/t", {"text": "Textbox"}, ["Textbox"], lambda text: "hola")
        with hub_of(translator=space.url):
            other = fake_candidate("translation", "org/other", source="fake")
            settings = SETTINGS.model_copy(update={"output_dir": tmp_path, "policy": "hosted-first"})
            agent = JarvisAgent(
                None,
                sources=[SpacesSource(settings), FakeSource([other])],
                backends=[SpacesBackend(settings), FakeBackend({"translation": "bonjour"})],
                settings=settings,
            )

            async def models(**args: str) -> list[str]:
                tasks = [Task(task="translation", id=0, args={"text": "hello", **args})]
                run = await agent.ainvoke(Plan(tasks=tasks))
                return [attempt.model for attempt in run.results[0].attempts]

            async with agent:
                assert await models() == ["space:org/translator"]
                assert await models(tgt_lang="fr") == ["space:org/translator", "org/other"]
                assert len(space.calls) == 1


@pytest.mark.parametrize("changes", [{"policy": "local-only"}, {"offline": True}])
async def test_nothing_is_searched_where_nothing_may_leave(changes: dict[str, Any]) -> None:
    with hub_of() as hub:
        source = SpacesSource(SETTINGS.model_copy(update=changes))
        assert await source.candidates(TASKS["text-to-image"], 30) == []
        assert source.estimate(TASKS["text-to-image"]) == []
        assert hub.requests == []


def test_spaces_are_searched_only_if_asked_for() -> None:
    assert [one.name for one in default_sources(SETTINGS)][-1] == "spaces"
    assert "spaces" not in [one.name for one in default_sources(Settings(offline=False))]
