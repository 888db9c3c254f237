"""The example of an Agent Protocol server: keys, and a graph and files for each owner."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_agents import EXPERTS, picture, plan, small_agent

pytest.importorskip("langgraph")

from fastapi import FastAPI
from langgraph_sdk import Auth
from starlette.testclient import TestClient

FOLDER = Path(__file__).parents[2] / "examples" / "agent_server"


@pytest.fixture
def server(home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of the example's module; its agent speaks a text aloud."""
    agent, _, _ = small_agent(
        plan(("text-to-speech", [], {"text": "hello"})), EXPERTS, respond="It is in 0-text-to-speech.wav."
    )
    monkeypatch.setenv("AGENT_KEYS", "ada=k-ada,bob=k-bob")
    monkeypatch.setenv("PUBLIC_URL", "https://agent.example")
    monkeypatch.setattr("jarvis_agent.JarvisAgent", lambda: agent)
    return runpy.run_path(str(FOLDER / "server.py"))


def config(owner: str) -> Any:
    return {"configurable": {"langgraph_auth_user": {"identity": owner}}}


async def test_a_key_has_its_owner_and_what_is_made_gets_it(server: dict[str, Any]) -> None:
    for headers in ({b"x-api-key": b"k-ada"}, {"x-api-key": "k-ada"}):
        assert await server["authenticate"](headers) == {"identity": "ada"}
    for headers in ({}, {b"x-api-key": b"k-eve"}):
        with pytest.raises(Auth.exceptions.HTTPException) as refused:
            await server["authenticate"](headers)
        assert refused.value.status_code == 401
    context = SimpleNamespace(user=SimpleNamespace(identity="ada"))
    metadata: dict[str, Any] = {}
    assert await server["only_own"](context, {"metadata": metadata}) == {"owner": "ada"} == metadata
    value: dict[str, Any] = {"metadata": None}
    await server["only_own"](context, value)
    assert value["metadata"] == {"owner": "ada"}


async def test_the_files_of_owners_have_urls_and_are_apart(server: dict[str, Any]) -> None:
    urls = {}
    for owner in ("ada", "bob"):
        graph = await server["graph"](config(owner))
        state = await graph.ainvoke({"messages": [("user", "Say hello")]})
        urls[owner] = state["run"]["results"][0]["resources"][0]["path"]
        assert urls[owner] in state["messages"][-1].text
        assert str(server["root"]) not in str(state)
    base = "https://agent.example/outputs/"
    ada, bob = (urls[owner].removeprefix(base).split("/") for owner in ("ada", "bob"))
    assert len(ada) == len(bob) == 3
    assert ada[0] != bob[0]
    with TestClient(server["app"]) as client:
        assert client.get(f"/outputs/{'/'.join(ada)}").content.startswith(b"RIFF")
        assert client.get(f"/outputs/{ada[0]}/").status_code == 404
        assert client.get("/outputs/").status_code == 404
        page = server["root"] / ada[0] / ada[1] / "page.html"
        page.write_text("<script>alert(1)</script>")
        shown = client.get(f"/outputs/{ada[0]}/{ada[1]}/page.html").headers
        assert shown["content-disposition"].startswith("attachment")
        assert shown["x-content-type-options"] == "nosniff"
        assert client.get(f"/outputs/%2e%2e/{ada[0]}/{ada[1]}").status_code == 404
    foreign = await server["graph"](config("bob"))
    secret = str(picture(Path("secret.png")).absolute())
    for name in (f"{server['root']}/{'/'.join(ada)}", secret):
        with pytest.raises(ValueError, match="not read here"):
            await foreign.ainvoke({"input": "Say it", "files": [name]})


def test_the_configuration_names_what_the_module_has(server: dict[str, Any]) -> None:
    written = json.loads((FOLDER / "langgraph.json").read_text())
    named = [*written["graphs"].values(), written["auth"]["path"], written["http"]["app"]]
    for place in named:
        path, _, variable = place.partition(":")
        assert (FOLDER / path).is_file()
        assert variable in server
    assert isinstance(server["app"], FastAPI), "aegra takes no other application"
