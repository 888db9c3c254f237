"""What happened to models is kept for all processes, counts in the ranking, and says nothing of a request."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent import JarvisAgent, Plan, Run, Settings, Task
from jarvis_agent.core.errors import ExpertError, InputError
from jarvis_agent.interfaces.cli.listing import list_models
from jarvis_agent.selection.ranking import score_candidates
from jarvis_agent.selection.store import Experience, Outcome, SelectionStore
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate, first_candidate

TASK = "summarization"
SECRET = "the merger of Acme and Initech"
PLAN = Plan(tasks=[Task(task=TASK, id=0, args={"text": SECRET})])
OK = Outcome("org/a", TASK, None, 1.0)


def agent(**results: Any) -> JarvisAgent:
    """An agent as a new process makes it; org/first has more downloads than org/second."""
    models = [fake_candidate(TASK, f"org/{name}", downloads=n) for name, n in (("first", 90), ("second", 9))]
    by_id = {f"org/{name}": result for name, result in results.items()}
    settings = Settings()
    return JarvisAgent(
        model=None, sources=[FakeSource(models)], backends=[FakeBackend(by_id)], settings=settings
    )


def summarize(by: JarvisAgent) -> Run:
    return by.invoke(PLAN)


def test_three_failures_change_the_choice_also_after_a_restart(selection_file: Path) -> None:
    fails = {"first": ExpertError(f"no: {SECRET}"), "second": [{"summary_text": "short"}]}
    chosen = []
    for _ in range(5):
        with agent(**fails) as by:
            run = summarize(by)
        assert run.results[0].model == "org/second"
        chosen.append(run.results[0].selection.model if run.results[0].selection else "")
    assert (chosen[0], chosen[3:]) == ("org/first", ["org/second"] * 2)
    known = SelectionStore(selection_file).experience(TASK)
    assert (known["org/first"].ok, known["org/second"].ok, known["org/second"].calls) == (0, 5, 5)
    stored = "".join(sqlite3.connect(selection_file).iterdump())
    assert "ExpertError" in stored
    assert not [word for word in SECRET.split() if len(word) > 3 and word in stored]


def test_the_language_model_sees_experience_and_price(selection_file: Path) -> None:
    SelectionStore(selection_file).record([OK._replace(model="org/dear")] * 3)
    hosted = {"tags": ("dataset:xsum",), "local": False}
    models = [fake_candidate(TASK, f"org/{name}", **hosted) for name in ("dear", "cheap")]
    llm = ScriptedLLM({"select": first_candidate, "respond": "Done."})
    by = JarvisAgent(
        model=llm,
        planner=lambda _: PLAN,
        sources=[FakeSource(models)],
        backends=[FakeBackend(dict.fromkeys(["org/dear", "org/cheap"], "x"), local=False)],
        settings=Settings(policy="hosted-first"),
        price=lambda model, stage, usage: 0.5 if model == "org/dear" else 0.25,
    )
    with by:
        run = by.invoke("Summarize it")
    chosen = run.results[0].selection
    assert chosen is not None
    assert [one.id for one in chosen.candidates] == ["org/cheap", "org/dear"]
    assert chosen.factors["org/dear"]["machine"] == -5
    shown = next(call.prompt for call in llm.calls if call.stage == "select")
    for part in ('"experience": "3 calls, 100 % ok, 1.0 s"', '"price_per_call": 0.25'):
        assert part in shown
    assert "xsum" not in shown, "both have it"
    assert "price_per_call" not in str(chosen.candidates[0].metadata), "a model is not loaded again for it"


def test_a_result_is_rated_and_the_list_of_models_shows_it(selection_file: Path) -> None:
    with agent(first=[{"summary_text": "x"}], second=[{"summary_text": "y"}]) as by:
        run = summarize(by)
        store = SelectionStore(selection_file)
        for good in (True, False):  # the second one replaces the first one
            run.rate(0, good=good)
        assert store.experience(TASK)["org/first"][-2:] == (0, 1)
        run.rate(0, good=False, owner="someone else")
        assert store.experience(TASK)["org/first"].bad == 2
        assert summarize(by).results[0].model == "org/second"
        with pytest.raises(InputError, match="task 7"):
            run.rate(7)


def test_without_a_cache_no_rating_is_kept() -> None:
    with agent(first=[{"summary_text": "x"}]) as by, pytest.raises(InputError, match="are not kept"):
        summarize(by).rate(0)


async def test_models_are_listed_with_their_experience(selection_file: Path) -> None:
    SelectionStore(selection_file).record([OK._replace(model="org/first")] * 3)
    async with agent(first="x", second="y") as by:
        first, second = (await list_models(TASK, by.stages.registry)).models
    assert (first.experience, second.experience) == ("3 calls, 100 % ok, 1.0 s", "")
    assert first.factors["experience"] > 0


def test_few_calls_change_little_and_failing_or_badly_rated_models_lose() -> None:
    def points(**known: Any) -> float:
        experience = {"a": Experience(**known)}
        (factors,) = score_candidates([fake_candidate(TASK, "a")], [True], PLAN.tasks[0], None, experience)
        return factors["experience"]

    assert points() == 0
    assert -1 < points(calls=1) < 0
    assert points(calls=3) < -1.5
    assert points(calls=50) < points(calls=10) < points(calls=3)
    assert 0 < points(calls=100, ok=100, seconds=1) < 1
    assert points(bad=1) < 0 < points(good=1)
    assert points(bad=3) == points(calls=3), "a bad rating costs as much as a failure"
    assert str(Experience(12, 11, 1.26, 4, 1)) == "12 calls, 92 % ok, 1.3 s, +3"


def test_errors_that_are_not_the_models_fault_do_not_count_and_old_ones_are_dropped(
    selection_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SelectionStore(selection_file)
    store.record([OK._replace(error="BadInputError"), OK._replace(error="ExpertError"), OK])
    assert store.experience(TASK)["org/a"] == Experience(2, 1, 1.0)
    monkeypatch.setattr("jarvis_agent.selection.store._today", lambda: 10**6)
    store.record([OK._replace(model="org/b")])
    assert set(store.experience(TASK)) == {"org/b"}


def test_a_locked_file_is_used_again_and_a_wrong_one_is_reported_once(
    selection_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("jarvis_agent.selection.store._WAIT_S", 0.01)
    store = SelectionStore(selection_file)
    store.record([OK])
    with closing(sqlite3.connect(selection_file)) as other:
        other.execute("BEGIN EXCLUSIVE")
        store.record([OK])
    store.record([OK])
    assert store.experience(TASK)["org/a"].calls == 2
    (broken := tmp_path / "broken.sqlite").write_text("no database")
    for path in (selection_file / "no folder" / "selection.sqlite", broken):
        caplog.clear()
        wrong = SelectionStore(path)
        wrong.add_vectors([(b"a", b"b")])
        assert [wrong.record([OK]), wrong.vectors([b"a"]), wrong.experience(TASK)] == [None, {}, {}]
        assert [record.message.count("goes on without it") for record in caplog.records] == [1]


def test_processes_write_at_the_same_time(selection_file: Path) -> None:
    code = (
        "import sys, pathlib; from jarvis_agent.selection.store import *\n"
        "store = SelectionStore(pathlib.Path(sys.argv[1]))\n"
        "for _ in range(20): store.record([Outcome('org/a', 'summarization', None, 1.0)])"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(selection_file)]) for _ in range(3)]
    assert [one.wait() for one in running] == [0, 0, 0]
    assert SelectionStore(selection_file).experience(TASK)["org/a"].calls == 60
