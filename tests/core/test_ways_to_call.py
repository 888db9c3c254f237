"""Any loop, any thread, any fork: no way to call hangs, and each call gives its answer.

A test is a process of its own, forked from one that has imported the package and has a single thread. It
calls in one way, or in several, one after the other. It is killed when a way takes longer than `LIMIT_S`, and
then shows where each of its threads and children is.
"""

import asyncio
import faulthandler
import gc
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest
from small_llm import INSTALL, WEIGHTS

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

LIMIT_S = 100
HAS_GGUF = WEIGHTS is not None and find_spec("xllamacpp") is not None
IMPORTED = [
    "jarvis_agent.agent.agent",
    "jarvis_agent.interfaces.server.app",
    "jarvis_agent.testing",
    "huggingface_hub",
    "langchain_openai",
    "onnxruntime",
    "openai.resources",
    "PIL.Image",
    "tokenizers",
]


@dataclass
class Subject:
    """What is called: sync, async, and as an iterator if it has one."""

    call: Callable[[], str]
    acall: Callable[[], Awaitable[str]]
    iterate: Callable[[], Iterator[Any]] | None = None
    aiterate: Callable[[], AsyncIterator[Any]] | None = None


def runnable(part: Any, given: Callable[[], tuple[Any, ...]], answer: Callable[[Any], str] = str) -> Subject:
    """A Runnable, with the arguments of a call, and the text of what it returns."""

    async def acall() -> str:
        return answer(await part.ainvoke(*given()))

    return Subject(
        lambda: answer(part.invoke(*given())),
        acall,
        lambda: part.stream(*given()),
        lambda: part.astream(*given()),
    )


Way = Callable[[Subject], list[str]]

# What is called


def agent() -> Subject:
    """The planner without a language model, and the starter model for sentences."""
    from jarvis_agent import JarvisAgent

    asked = "What is 'cancel my order' closest to in meaning: 'refund' or 'weather'?"
    return runnable(JarvisAgent(model="none"), lambda: (asked,))


def agent_with_a_served_model() -> Subject:
    """Its language model is a server of the OpenAI protocol."""
    from doubles.openai_server import OpenAIDouble
    from small_agents import CAPTION, DESCRIBE, picture

    from jarvis_agent import JarvisAgent, Settings
    from jarvis_agent.testing import FakeBackend, FakeSource, fake_candidate

    picture(Path("a.jpg"))
    server = OpenAIDouble({"plan": DESCRIBE, "respond": "A cat."}).__enter__()
    agent = JarvisAgent(
        sources=[FakeSource([fake_candidate("image-to-text")])],
        backends=[FakeBackend({"image-to-text": CAPTION})],
        settings=Settings(base_url=server.base_url, model="double"),
    )
    return runnable(agent, lambda: ("Describe a.jpg",))


def graph() -> Subject:
    """The LangGraph graph of an agent with a checkpointer; each call has its own thread."""
    from langgraph.checkpoint.memory import InMemorySaver
    from small_agents import picture, small_agent

    picture(Path("a.jpg"))
    agent, _, _ = small_agent(checkpointer=InMemorySaver())
    return runnable(
        agent.graph,
        lambda: ({"messages": [("user", "Describe a.jpg")]}, {"configurable": {"thread_id": str(uuid4())}}),
        lambda state: str(state["messages"][-1].text),
    )


def parts() -> Subject:
    """Tools, and the planner without a language model, one after the other in each call."""
    from jarvis_agent import JarvisToolkit, OfflinePlanner, hf_tools

    [similar, _] = hf_tools(tasks=["sentence-similarity", "media-info"])
    [info] = JarvisToolkit(tasks=["media-info"]).get_tools()
    Path("a.txt").write_text("hello")
    plans, asked = OfflinePlanner(), {"input": "Describe cat.jpg and say it"}
    called = [
        runnable(plans, lambda: (asked,), lambda plan: str(plan.to_json())),
        runnable(similar, lambda: ({"text": "cancel my order", "sentences": ["refund", "weather"]},)),
        runnable(info, lambda: ({"file": "a.txt"},)),
    ]

    async def acall() -> str:
        return str([await part.acall() for part in called])

    async def aiterate() -> AsyncIterator[Any]:
        yield [await anext(part.aiterate()) for part in called]  # type: ignore[misc]

    def iterate() -> Iterator[Any]:
        return zip(*(part.iterate() for part in called), strict=False)  # type: ignore[misc]

    return Subject(lambda: str([part.call() for part in called]), acall, iterate, aiterate)


def pool() -> Subject:
    """A starter model in the pool of local models."""
    from small_agents import picture

    from jarvis_agent import hf_tools

    picture(Path("a.jpg"))
    [tool] = hf_tools(tasks=["image-classification"])
    return runnable(tool, lambda: ({"image": "a.jpg"},))


def server() -> Subject:
    """The application of `jarvis serve`, started and stopped around each call."""
    import httpx
    from served import agent_of
    from starlette.testclient import TestClient

    from jarvis_agent.core.settings import ServerSettings
    from jarvis_agent.interfaces.server import create_app

    app = create_app(agent_of(Path("outputs")), ServerSettings(runs_per_minute=10_000))
    asked = {"input": {"input": "Good morning"}}

    def call() -> str:
        with TestClient(app) as client:
            return str(client.post("/agent/invoke", json=asked).json()["output"]["answer"])

    async def acall() -> str:
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://testserver") as client,
        ):
            return str((await client.post("/agent/invoke", json=asked)).json()["output"]["answer"])

    return Subject(call, acall)


def torch_model() -> Subject:
    from tiny_models import build

    from jarvis_agent import hf_tools

    folder = Path(f"model-{os.getpid()}").resolve()
    folder.mkdir()
    build("bert_classifier", folder)
    [tool] = hf_tools(tasks=["text-classification"], models={"text-classification": str(folder)})
    return runnable(tool, lambda: ({"text": "good"},))


def gguf() -> Subject:
    """A language model in llama.cpp."""
    from jarvis_agent.llm.llama_cpp import ChatGGUF

    model = ChatGGUF(path=WEIGHTS, temperature=0.0, max_tokens=2, n_ctx=256)
    return runnable(model, lambda: ("What is the capital of France?",), lambda reply: str(reply.text))


SUBJECTS = [
    agent,
    pytest.param(agent_with_a_served_model, marks=pytest.mark.slow),
    graph,
    parts,
    pool,
    server,
    pytest.param(torch_model, marks=pytest.mark.slow),
    pytest.param(gguf, marks=[pytest.mark.slow, pytest.mark.skipif(not HAS_GGUF, reason=INSTALL)]),
]


# How it is called


async def together(subject: Subject) -> list[str]:
    return await asyncio.gather(subject.acall(), subject.acall())


def in_threads(work: Callable[[], list[str]], threads: int) -> list[str]:
    with ThreadPoolExecutor(threads) as pool:
        started = [pool.submit(work) for _ in range(threads)]
    return [answer for done in started for answer in done.result()]


def in_fork(work: Callable[[], list[str]]) -> list[str]:
    """What work returns in a child of os.fork, which a worker of gunicorn is."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(write, "\0".join(work()).encode())
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as answer:
        answers = answer.read().split("\0")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return answers


def in_workers() -> list[str]:
    """Calls in the forked processes of multiprocessing, as Celery's."""
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as workers:
        return list(workers.map(_call, range(3)))


def _call(_: int) -> str:
    assert _subject
    return _subject.call()


def everything(subject: Subject) -> list[str]:
    return [subject.call(), *asyncio.run(together(subject)), *in_threads(lambda: [subject.call()], 2)]


def in_loops_of_threads_and_one_after_another(subject: Subject) -> list[str]:
    answers = in_threads(lambda: asyncio.run(together(subject)), 4)
    for _ in range(2):
        answers += asyncio.run(together(subject))
    return [*answers, anyio.run(subject.acall)]


def sync_in_threads(subject: Subject) -> list[str]:
    return in_threads(lambda: [subject.call()], 8)


def in_a_running_loop(subject: Subject) -> list[str]:
    """As in a notebook, and as in a server with async and sync routes."""

    async def serve() -> list[str]:
        cell = subject.call()
        routes = [asyncio.to_thread(subject.call) for _ in range(3)]
        return [cell, *await asyncio.gather(subject.acall(), *routes, subject.acall())]

    return asyncio.run(serve())


def in_children_after_use(subject: Subject) -> list[str]:
    before = everything(subject)
    forked = [*in_fork(partial(everything, subject)), *in_workers()]
    return [*before, *forked, *everything(subject)]


def in_children_before_use(subject: Subject) -> list[str]:
    """As with gunicorn's `--preload`."""
    return in_threads(lambda: in_fork(partial(everything, subject)), 2)


def in_children_during_use(subject: Subject) -> list[str]:
    """Other threads may hold any of our locks when the process forks."""
    answers, ended = everything(subject), threading.Event()  # what it imports is imported

    def use() -> None:
        while not ended.is_set():
            answers.append(subject.call())
            answers.extend(asyncio.run(together(subject)))

    users = [threading.Thread(target=use) for _ in range(2)]
    for user in users:
        user.start()
    try:
        forked = [answer for _ in range(4) for answer in in_fork(lambda: [subject.call()])]
    finally:
        ended.set()
        for user in users:
            user.join()
    return [*answers, *forked]


def in_a_child_of_a_running_loop(subject: Subject) -> list[str]:
    async def serve() -> list[str]:
        before = await together(subject)
        return [*before, *in_fork(partial(everything, subject)), *await together(subject)]

    return asyncio.run(serve())


def after_unfinished_iterators_and_cancelled_calls(subject: Subject) -> list[str]:
    async def iterate() -> None:
        if subject.aiterate:
            await anext(aiter(subject.aiterate()))

    async def collect(iterators: list[Any]) -> None:
        iterators.clear()
        gc.collect()

    for _ in range(2):
        iterators = [subject.iterate()] if subject.iterate else []
        for iterator in iterators:
            next(iterator)
        asyncio.run(iterate())
        asyncio.run(collect(iterators))

    async def cancel(seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(together(subject), seconds)

    async def leave() -> None:
        """The end of the loop cancels the call."""
        _ = asyncio.create_task(subject.acall())  # noqa: RUF006
        await asyncio.sleep(0.01)

    for seconds in (0, 0.001, 0.01, 0.1):
        asyncio.run(cancel(seconds))
    asyncio.run(leave())
    return everything(subject)


def at_the_end_of_the_process(subject: Subject) -> list[str]:
    """An iterator is unfinished, and daemon threads are in calls, when the process ends."""
    global _kept
    answer = subject.call()
    if subject.iterate:
        next(_kept := subject.iterate())
    for work in (subject.call, lambda: asyncio.run(together(subject))):
        threading.Thread(target=work, daemon=True).start()
    return [answer]


FIRST = [in_loops_of_threads_and_one_after_another, sync_in_threads, in_a_running_loop]
"""Other ways in which a process may start to call."""

WAYS = [
    in_children_before_use,
    after_unfinished_iterators_and_cancelled_calls,
    in_a_child_of_a_running_loop,
    in_children_after_use,
    in_children_during_use,
    at_the_end_of_the_process,
]
"""How a process calls, one way after the other."""

_subject: Subject | None = None
_kept: Any = None


def _calls(make: Callable[[], Subject], ways: list[Way]) -> Iterator[list[str]]:
    """The answers of each way."""
    global _subject
    _subject = make()
    for way in ways:
        yield way(_subject)


def _calls_beside_a_new_interpreter(makes: list[Callable[[], Subject]]) -> Iterator[list[str]]:
    """The answers of each subject, here and in an interpreter that multiprocessing has started."""
    Path("there").mkdir()  # both write files of the same names
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=os.chdir, initargs=("there",)) as worker:
        for make in makes:
            subject = make()
            before, there = everything(subject), worker.submit(_call_of, make)
            yield [*before, *everything(subject), there.result()]


def _call_of(make: Callable[[], Subject]) -> str:
    return make().call()


def _run(calls: Callable[[], Iterator[list[str]]], answers: Any) -> None:
    """In the process of a test."""
    os.setsid()
    faulthandler.register(signal.SIGUSR1)  # forked children inherit it
    try:
        for found in calls():
            answers.send(found)
    except BaseException:
        answers.send(traceback.format_exc())


def check(calls: Callable[[], Iterator[list[str]]], names: list[str]) -> None:
    """Each list of answers comes in time and has one answer, and the process ends by itself."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(calls, sender))
    process.start()
    assert process.pid
    sender.close()
    try:
        for name in [*names, "its end"]:
            if not receiver.poll(LIMIT_S):
                os.killpg(process.pid, signal.SIGUSR1)
                time.sleep(1)
                pytest.fail(f"it hangs: {name}")
            with suppress(EOFError) if name == "its end" else nullcontext():
                answers = receiver.recv()
                assert isinstance(answers, list), f"{name}: {answers}"
                assert len(set(answers)) == 1, (name, set(answers))
        process.join()
        assert process.exitcode == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.join()


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.timeout(6 * LIMIT_S)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_no_call_hangs(subject: Callable[[], Subject]) -> None:
    # SQLite's own locks may be held for ever in a child that is forked while it is used:
    # see "Carrying an open database connection across a fork()" in https://www.sqlite.org/howtocorrupt.html
    ways = [way for way in WAYS if (subject, way) != (server, in_children_during_use)]
    check(partial(_calls, subject, ways), [way.__name__ for way in ways])


@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize("way", FIRST)
@pytest.mark.parametrize("subject", [agent, server])
def test_no_first_call_hangs(subject: Callable[[], Subject], way: Way) -> None:
    check(partial(_calls, subject, [way]), [way.__name__])


@pytest.mark.slow
@pytest.mark.timeout(9 * LIMIT_S)
def test_no_call_hangs_beside_a_new_interpreter() -> None:
    makes: list[Any] = [agent, agent_with_a_served_model, graph, parts, pool, server, torch_model]
    makes += [gguf] if HAS_GGUF else []
    check(partial(_calls_beside_a_new_interpreter, makes), [make.__name__ for make in makes])
