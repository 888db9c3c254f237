"""Tools of any names are recognised by types and descriptions; their arguments are never guessed."""

from typing import Any

import pytest
from langchain_core.tools import tool

from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import Arg, Modality, TaskSpec
from jarvis_agent.planning.offline import OfflinePlanner
from jarvis_agent.planning.plan import Plan

PLANNER = OfflinePlanner(settings=Settings(offline=True))

pytestmark = pytest.mark.starter


def described(name: str, about: str, takes: str, makes: Modality) -> TaskSpec:
    kinds: list[Any] = takes.split()
    names = [kind if place == kinds.index(kind) else f"{kind}{place}" for place, kind in enumerate(kinds)]
    return TaskSpec(name, "tool", about, tuple(map(Arg, names, kinds)), (makes,))


KIT = {
    spec.name: spec
    for spec in (
        described("t1", "Turns the speech in a recording into written words.", "audio", "text"),
        described("t2", "Shortens a long document to what matters.", "text", "text"),
        described("t3", "Puts a text into another language.", "text", "text"),
        described("t4", "Speaks a text with a natural voice.", "text", "audio"),
        described("t5", "Removes the noise from a recording.", "audio", "audio"),
        described("t6", "Finds the objects in a picture and labels them.", "image", "text"),
        described("t7", "Paints a picture from a prompt.", "text", "image"),
        described("t8", "Estimates the depth of a picture.", "image", "image"),
        described("t9", "Answers a question about a picture.", "image text", "text"),
        described("t10", "Compares two sentences: how similar are they?", "text text", "text"),
        described("t11", "Edits a picture as the instruction says.", "image text", "image"),
        described(
            "t12", "A language task in which a label is given to the tokens of a text.", "text", "text"
        ),
        described("t13", "Divides a picture into segments, one for each object.", "image", "image"),
    )
}


def plan(request: str, tools: Any = KIT) -> Plan:
    return PLANNER.invoke({"input": request, "tools": tools})


def test_tools_are_recognised_and_chained_whatever_their_names() -> None:
    rows = {
        "Clean up the noise in a.wav, transcribe it and summarize the transcript.": "t5 t1<0 t2<1",
        "Translate 'Good morning' into French, then read the translation aloud.": "t3 t4<0",
        "I have a picture a.jpg. Detect the objects in it, then estimate its depth.": "t6 t8",
        "How similar are 'The sky is blue' and 'The sky is azure'?": "t10",
        "Summarize a.wav": "t1 t2<0",
        "Which people and places are in 'Ada Byron lived in Turin.'?": "t12",
        "Segment a.jpg": "t13",
    }
    wrong = {}
    for request, wanted in rows.items():
        made = plan(request)
        got = " ".join("<".join((task.task, *map(str, task.deps))) for task in made.tasks)
        if got != wanted:
            wrong[request] = got, made.notes
    assert not wrong


@tool
def refund_order(order_id: str) -> str:
    """Give a customer the money for an order back."""
    return order_id


@tool
def send_email(to: str, subject: str, body: str) -> str:
    """Send an email to somebody."""
    return to


@tool
def search_handbook(query: str) -> str:
    """Search the handbook of the company for an answer."""
    return query


@tool
def web_search(query: str) -> str:
    """Find current information."""
    return query


@tool
def book_flight(city: str) -> str:
    """Book a flight to a city."""
    return city


@tool
def count_words(text: str) -> str:
    """Count the words of a text."""
    return text


@tool
def spell(item: str) -> str:
    """Spell out the letters of a text."""
    return item


@tool
def weather(city: str) -> str:
    """Tell the weather forecast for a city."""
    return city


@tool
def translate(text: str) -> str:
    """Translate a text into German."""
    return text


OWN = [refund_order, send_email, search_handbook, web_search, book_flight, weather, translate]


def test_arguments_of_a_users_tools_are_not_guessed() -> None:
    search = "Search the handbook of the company for our rules on holidays"
    rows: dict[str, tuple[list[tuple[str, dict[str, Any]]], str]] = {
        "Refund order 4711, please.": ([("refund_order", {"order_id": "4711"})], ""),
        "Give them the money for their order back because it is late.": ([], "refund_order needs order_id"),
        "Send an email that the parcel is late.": ([], "several arguments (to, subject, body)"),
        f"{search}.": ([("search_handbook", {"query": search})], ""),
        "What is the weather like in Paris?": ([("weather", {"city": "Paris"})], ""),
        "Search the web for cheap flights to Rome": (
            [("web_search", {"query": "Search the web for cheap flights to Rome"})], "",
        ),
    }  # fmt: skip
    wrong = {}
    for request, (wanted, note) in rows.items():
        made = plan(request, OWN)
        got = [(task.task, task.args) for task in made.tasks]
        if got != wanted or note not in " ".join(made.notes):
            wrong[request] = got, made.notes
    assert not wrong


def test_an_offered_tool_comes_before_out_of_scope_and_beside_the_hubs_tasks() -> None:
    request = "What's the weather like in Paris? Also describe cat.jpg"
    made = plan(request, [*TASKS.values(), weather])
    wanted = [("image-to-text", {"image": "cat.jpg"}), ("weather", {"city": "Paris"})]
    assert [(task.task, task.args) for task in made.tasks] == wanted


def test_only_tasks_on_offer_are_planned_and_missing_ones_are_named() -> None:
    rows: list[tuple[str, Any, list[str], str]] = [
        ("Is there a dog in cat.jpg?", ["visual-question-answering", "object-detection"],
         ["visual-question-answering"], ""),
        ("Summarize talk.wav", ["summarization"], [], "needs automatic-speech-recognition"),
        ("Generate a video titled 'A dog' and dub it.", ["text-to-video", "text-to-speech"],
         ["text-to-video", "text-to-speech"], "combine-video-audio"),
        ("Estimate the depth of a.jpg and read 'Hello there' aloud.", {n: KIT[n] for n in ("t2", "t4")},
         ["t4"], "Estimate the depth"),
        ("Count the words in a.wav", ["text-to-speech", count_words], [], "count_words needs text"),
        ("Translate hello to French", ["text-to-speech"], [], "needs translation"),
        ("Transcribe a.wav and count the words of the transcript.",
         ["automatic-speech-recognition", count_words], ["automatic-speech-recognition", "count_words"], ""),
    ]  # fmt: skip
    for request, offered, wanted, note in rows:
        made = plan(request, offered)
        assert [task.task for task in made.tasks] == wanted, request
        assert note in " ".join(made.notes), request
    assert made.tasks[1].args == {"text": "<resource>-0"}


def test_a_text_of_a_tool_is_a_file_or_a_result_and_never_the_words_that_ask_for_it() -> None:
    offered: list[Any] = [
        "automatic-speech-recognition",
        "image-to-text",
        "text-to-speech",
        count_words,
        spell,
    ]
    rows: list[tuple[str, list[Any], str]] = [
        ("Count the words of story.txt", [{"text": "story.txt"}], ""),
        ("transcribe speech.wav and count the words", ["speech.wav", {"text": "<resource>-0"}], ""),
        ("Transcribe a.wav, then count the words of b.txt", ["a.wav", {"text": "b.txt"}], ""),
        ("Count the words", [], "count_words needs text"),
        ("Count the words in a.wav", [], "count_words needs text"),
        ("Spell out the letters of b.txt", [{"item": "b.txt"}], ""),
    ]
    for request, wanted, note in rows:
        made = plan(request, offered)
        args = [task.args.get("audio") or task.args for task in made.tasks]
        assert args == wanted, request
        assert note in " ".join(made.notes), request
    offered.append("zero-shot-object-detection")
    both = plan("Find the cats and dogs in cat.jpg, and count the words of story.txt", offered)
    assert both.tasks[-1].args == {"text": "story.txt"}


def test_a_step_that_may_mean_the_result_of_a_tool_is_a_guess() -> None:
    @tool
    def plate(image: str) -> str:
        """Recognise the number plate of a car in an image."""
        return image

    for request, is_guess in (
        ("Recognise the number plate of the car in car.jpg and read it aloud.", True),
        ("Recognise the number plate of the car in car.jpg and describe b.jpg.", False),
    ):
        made = plan(request, [*TASKS.values(), plate])
        assert "plate" in [task.task for task in made.tasks]
        assert ("this plan is a guess" in " ".join(made.notes)) is is_guess, request
