"""The purpose of a request, and the order of realistic lists of models with and without one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jarvis_agent.core.context import RunContext
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource, Selection, Task
from jarvis_agent.planning.retrieval import bm25
from jarvis_agent.selection.purpose import Purpose, purpose_of
from jarvis_agent.selection.ranking import CardVectors, card_text, score_candidates
from jarvis_agent.selection.selector import MAX_REMOTE_CANDIDATES, ModelSelector
from jarvis_agent.selection.sources.hub import HubSource
from jarvis_agent.selection.store import SelectionStore
from jarvis_agent.testing import FakeBackend, FakeSource, HubDouble

IMAGE, TEXT, NER, SOUND, DETECT = (
    "image-classification",
    "text-classification",
    "token-classification",
    "automatic-speech-recognition",
    "object-detection",
)
SUMMARY, TRANSLATE = "summarization", "translation"


def model(id: str, task: str, downloads: int, *tags: str, **fields: Any) -> Candidate:  # noqa: A002
    return Candidate(id=id, task=task, source="hub", downloads=downloads, tags=tags, **fields)


MODELS = [
    model("google/vit-base-patch16-224", IMAGE, 3_400_000, "vit", "vision", "dataset:imagenet-1k"),
    model("timm/resnet50.a1_in1k", IMAGE, 18_000_000, "timm", "image-classification"),
    model("Falconsai/nsfw_image_detection", IMAGE, 60_000_000, "vit"),
    model("dima806/animal_151_types_image_classification", IMAGE, 900, "vit"),
    model("lxyuan/vit-xray-pneumonia-classification", IMAGE, 2_000, "vit", "dataset:chest-xray"),
    model("distilbert-base-uncased-finetuned-sst-2-english", TEXT, 6_000_000, languages=("en",)),
    model("cardiffnlp/twitter-roberta-base-sentiment-latest", TEXT, 4_000_000, "dataset:tweet_eval"),
    model("ProsusAI/finbert", TEXT, 1_500_000, "financial-sentiment-analysis", "sentiment-analysis"),
    model("unitary/toxic-bert", TEXT, 900_000, "dataset:jigsaw_toxicity_pred"),
    model("dslim/bert-base-NER", NER, 2_000_000, "dataset:conll2003", languages=("en",)),
    model("d4data/biomedical-ner-all", NER, 90_000, "Token Classification", languages=("en",)),
    model("pucpr/clinicalnerpt-disease", NER, 700, languages=("pt",), description="NER for clinical texts."),
    model("openai/whisper-small", SOUND, 1_800_000, languages=("en", "de", "pt", "ru", "sw", "fr", "hu")),
    model("jonatasgrosman/wav2vec2-large-xlsr-53-hungarian", SOUND, 30_000, languages=("hu",)),
    model("facebook/detr-resnet-50", DETECT, 900_000, "dataset:coco", "vision"),
    model("nickmuchi/yolos-small-finetuned-license-plate-detection", DETECT, 5_000, "license-plates"),
    model("microsoft/table-transformer-detection", DETECT, 2_500_000, description="Detects tables."),
    model("hustvl/yolos-tiny", DETECT, 300_000, "yolos", "vision", "dataset:coco"),
    model("facebook/bart-large-cnn", SUMMARY, 3_000_000, "dataset:cnn_dailymail", languages=("en",)),
    model("Falconsai/text_summarization", SUMMARY, 200_000, languages=("en",)),
    model("google-t5/t5-small", TRANSLATE, 4_000_000, "summarization", languages=("en", "fr", "de")),
    model("Helsinki-NLP/opus-mt-zh-en", TRANSLATE, 500_000, languages=("zh", "en")),
]  # fmt: skip


async def select(task: str, request: str, *more: Candidate, purpose: str = "") -> Selection:
    by = ModelSelector(
        [FakeSource([*MODELS, *more])], [FakeBackend(dict.fromkeys(TASKS, "x"))], Settings(offline=False)
    )
    return await by.select(Task(task=task, id=0, purpose=purpose), TASKS[task], RunContext(request))


@pytest.mark.parametrize(
    ("task", "request_text", "chosen"),
    [
        (IMAGE, "Does this chest X-ray show pneumonia?", "lxyuan/vit-xray-pneumonia-classification"),
        (TEXT, "What is the sentiment of this financial news?", "ProsusAI/finbert"),
        (NER, "Which diseases does this biomedical abstract name?", "d4data/biomedical-ner-all"),
        (SOUND, "Transcribe the Hungarian interview", "jonatasgrosman/wav2vec2-large-xlsr-53-hungarian"),
        (DETECT, "Where is the licence plate?", "nickmuchi/yolos-small-finetuned-license-plate-detection"),
    ],
)
async def test_a_request_that_names_a_niche_gets_its_model(task: str, request_text: str, chosen: str) -> None:
    found = await select(task, request_text)
    assert (found.model, found.chosen_by) == (chosen, "rank")
    assert "fits the request best" in found.reason
    assert found.factors[chosen]["purpose"] == max(one["purpose"] for one in found.factors.values())


@pytest.mark.parametrize("request_text", ["这张片子正常吗？", "Is scan.png all right?"])
async def test_a_purpose_that_the_planner_wrote_counts_in_any_language(request_text: str) -> None:
    plain = await select(IMAGE, request_text)
    found = await select(IMAGE, request_text, purpose="chest X-rays with pneumonia")
    assert found.model == "lxyuan/vit-xray-pneumonia-classification" != plain.model


NICHES = [
    (IMAGE, "Does this chest X-ray show pneumonia?", "org/xray-pneumonia-vit"),
    (TEXT, "Is there irony in this tweet?", "org/tweet-irony-roberta"),
    (NER, "Which diseases does this biomedical abstract name?", "org/biomedical-ner"),
    (SOUND, "Transcribe the Hungarian interview", "org/wav2vec2-hu"),
    (DETECT, "Where are the helmets of the workers?", "org/yolos-helmets"),
]


@pytest.mark.parametrize(("task", "request_text", "chosen"), NICHES)
async def test_a_specialist_beyond_the_most_used_models_of_the_hub_is_found(
    task: str, request_text: str, chosen: str
) -> None:
    with HubDouble() as hub, hub.redirected():
        usual = {"pipeline_tag": task, "providers": {"hf-inference": {}}}
        for number in range(2 * MAX_REMOTE_CANDIDATES):
            hub.add_model(f"org/general-{number}", downloads=1_000_000 + number, **usual)
        tags = ["hu"] if chosen.endswith("hu") else []
        hub.add_model(chosen, downloads=300, tags=tags, card={"language": tags}, **usual)
        settings = Settings(offline=False)
        by = ModelSelector([HubSource(settings)], [FakeBackend(dict.fromkeys(TASKS, "x"))], settings)
        selected = await by.select(Task(task=task, id=0), TASKS[task], RunContext(request_text))
        assert selected.model == chosen
        assert selected.candidates[1].id.startswith("org/general-")
        plain = await by.select(Task(task=task, id=0), TASKS[task], RunContext(""))
        assert plain.model == f"org/general-{2 * MAX_REMOTE_CANDIDATES - 1}"


DETECTORS = ("facebook/detr-resnet-50", "hustvl/yolos-tiny")
"""Those of the list that were trained on general-purpose photos."""


@pytest.mark.parametrize(
    ("task", "request_text", "usual"),
    [
        (IMAGE, "What animal is in cat.jpg?", "google/vit-base-patch16-224"),
        (IMAGE, "What is in the picture?", "google/vit-base-patch16-224"),
        (IMAGE, "What breed is the dog in dog.jpg?", "google/vit-base-patch16-224"),
        (NER, "Find the names in this text", "dslim/bert-base-NER"),
        (SOUND, "Transcribe talk.wav", "openai/whisper-small"),
        (DETECT, "How many objects are in street.jpg?", DETECTORS),
        (DETECT, "How many zebras are in zebras.jpg?", DETECTORS),
        (DETECT, "Find the traffic lights in street.jpg", DETECTORS),
        (DETECT, "Where is the chair?", DETECTORS),
        (DETECT, "How many zebras are in zebra.png?", DETECTORS),
        (DETECT, "Count the sheep in meadow.jpg", DETECTORS),
        (DETECT, "Detect the boats in harbour.jpg", DETECTORS),
        (DETECT, "桌子上有几个杯子？", DETECTORS),
        (IMAGE, "Which bird is this?", "google/vit-base-patch16-224"),
        (IMAGE, "Is there a chest of drawers in room.jpg?", "google/vit-base-patch16-224"),
        (IMAGE, "Is this a horse or a cow in animal.jpg?", "google/vit-base-patch16-224"),
        (IMAGE, "What vehicle is shown in the photo?", "google/vit-base-patch16-224"),
        (IMAGE, "Which insect is in bug.jpg?", "google/vit-base-patch16-224"),
        (IMAGE, "这是什么鸟？", "google/vit-base-patch16-224"),
        (SUMMARY, "Summarize the article", "facebook/bart-large-cnn"),
        (SUMMARY, "Give me a short summary of report.txt", "facebook/bart-large-cnn"),
        (SUMMARY, "Summarize the story in one sentence", "facebook/bart-large-cnn"),
        (SUMMARY, "总结这篇文章", "facebook/bart-large-cnn"),
        (TRANSLATE, "Translate this letter", "google-t5/t5-small"),
        (TRANSLATE, "翻译这段话", "Helsinki-NLP/opus-mt-zh-en"),
        (SOUND, "Transcribe the meeting", "openai/whisper-small"),
    ],
)
async def test_a_plain_request_gets_a_general_model_of_the_most_used_ones(
    task: str, request_text: str, usual: str | tuple[str, ...]
) -> None:
    found = await select(task, request_text)
    assert found.model in ((usual,) if isinstance(usual, str) else usual)
    most = max(one.downloads for one in found.candidates)
    assert ("most downloads" in found.reason) == (found.candidates[0].downloads == most)
    rare = model("org/rare", task, 100, "dataset:ILSVRC/imagenet-1k")
    assert (await select(task, request_text, rare)).model == found.model


async def test_a_language_that_is_named_in_chinese_counts_more_than_that_of_the_request() -> None:
    chinese = model("org/wav2vec2-chinese", SOUND, 900_000, "dataset:common_voice", languages=("zh",))
    found = await select(SOUND, "识别 a.wav 里的匈牙利语", chinese)
    assert found.model == "jonatasgrosman/wav2vec2-large-xlsr-53-hungarian"


async def test_an_installed_model_is_preferred_unless_the_request_names_another_purpose() -> None:
    installed = Candidate(id="timm/tf_efficientnet_lite0", task=IMAGE, source="starter", local=True)
    assert (await select(IMAGE, "What animal is in cat.jpg?", installed)).model == installed.id
    niche = await select(IMAGE, "Does this chest X-ray show pneumonia?", installed)
    assert niche.model == "lxyuan/vit-xray-pneumonia-classification"


async def test_the_shown_models_are_those_that_fit_and_the_most_used() -> None:
    crowd = [model(f"org/xray-{number}", IMAGE, 10 + number) for number in range(20)]
    found = await select(IMAGE, "Does this X-ray show pneumonia?", *crowd)
    shown = {one.id for one in found.candidates}
    assert len(shown) == 8
    assert {"Falconsai/nsfw_image_detection", "timm/resnet50.a1_in1k"} < shown
    assert "lxyuan/vit-xray-pneumonia-classification" in shown
    assert sum(name.startswith("org/xray") for name in shown) >= 4


def purpose(task: str, request_text: str, files: Sequence[str] = (), **args: Any) -> Purpose:
    context = RunContext(request_text, tuple(Resource(kind="image", name=name) for name in files))
    return purpose_of(Task(task=task, id=0, args=args), TASKS[task], context)


def test_a_purpose_has_the_words_beyond_the_task() -> None:
    cases: list[tuple[Purpose, set[str], set[str]]] = [
        (purpose(IMAGE, "What animal is in cat.jpg?", image="cat.jpg"), set(), set()),
        (purpose(IMAGE, "Classify the chest X-ray scan.png", image="scan.png"), {"chest", "ray"}, set()),
        (purpose(SOUND, "Transcribe talk.wav, in Brazilian Portuguese"), {"brazilian", "portuguese"}, {"pt"}),
    ]  # fmt: skip
    for found, words, languages in cases:
        assert words <= set(found.words) <= words | {"sort"}
        assert found.languages == languages
        assert bool(found.text) == bool(words)
    labelled = purpose("zero-shot-classification", "Sort it", labels=["refund", "invoice"])
    assert {"refund", "invoice"} <= set(labelled.private)
    both = purpose(IMAGE, "Classify the mushroom in a.jpg and find bicycles in b.jpg", image="a.jpg")
    assert "mushroom" in both.words
    assert "bicycles" not in both.words
    spoken = purpose(SOUND, "葡萄牙语的语音识别")
    assert spoken == Purpose("Portuguese", ("portuguese",), frozenset({"pt"}))
    assert purpose(IMAGE, "请告诉我 cat.jpg 里是什么动物", image="cat.jpg") == Purpose()
    data = "The committee adopted the budget for hospitals after a long debate on Monday evening in town"
    assert not {"hospitals", "budget"} & set(purpose("summarization", f"Summarize: {data}", text=data).words)


@pytest.mark.parametrize(
    ("task", "request_text", "args", "words"),
    [
        (TEXT, "How does Acme fell through sound, as finance news?", {"text": "Acme fell through"},
         {"finance"}),
        (TEXT, "Is this finance headline good: Acme fell through", {"text": "Acme's fall"},
         {"finance", "headline"}),
        (TRANSLATE, 'Translate "Acme fell through" to German', {"text": "<resource>-0"}, {"german"}),
        ("text-to-image", "Draw an anime girl", {"text": "an anime girl"}, set()),
        ("zero-shot-classification", "Is it from Acme or Initech?", {"labels": ["Acme", "Initech"]}, set()),
        ("visual-question-answering", "Zebras in b.jpg?", {"image": "b.jpg", "text": "zebras in b?"}, set()),
        (TEXT, "Is order 4111111111111111 finance?", {"text": "x"}, {"order", "finance"}),
    ],
)  # fmt: skip
def test_words_that_the_user_gives_as_data_are_not_sent(
    task: str, request_text: str, args: dict[str, str], words: set[str]
) -> None:
    found = purpose(task, request_text, ["b.jpg"], **args)
    assert words <= set(found.words) <= words | {"draw", "summary", "news"}
    if task == "text-to-image":
        assert "anime" in found.private


def test_factors_add_up_and_say_what_is_known() -> None:
    plain, proven = model("a/b", IMAGE, 999), model("a/c", IMAGE, 999, metadata={"results": ["top-1"]})
    here = model("a/d", IMAGE, 0, size=2_000_000_000, local=True)
    one, two, three = score_candidates([plain, proven, here], [True] * 3, Purpose())
    assert (one.purpose, one.popularity, one.evidence, one.machine) == (0, 1.8, 0, 0)
    assert two.total > one.total
    assert (three.machine, three.popularity) == (1.0, 3.6)
    (hosted,) = score_candidates([here], [False], Purpose())
    assert hosted.machine == 0


def test_a_card_for_other_languages_loses_points() -> None:
    russian, plain = model("a/ru", TEXT, 9, languages=("ru",)), model("a/any", TEXT, 9)
    asked, other = (
        Purpose("Irony in tweets", ("irony",)),
        Purpose("Irony in Russian", ("irony",), frozenset({"ru"})),
    )
    for purpose, first, second in ((asked, plain, russian), (other, russian, plain)):
        better, worse = score_candidates([first, second], [True] * 2, purpose)
        assert better.purpose > worse.purpose


def test_a_card_says_its_subject_and_not_its_files() -> None:
    candidate = model(
        "Helsinki-NLP/opus-mt-fr-en", "translation", 1, "pytorch", "region:us", "dataset:opus", "marine",
        languages=("fr", "en"), description="Translates reports.", traits=("from:fr", "to:en"),
    )  # fmt: skip
    assert card_text(candidate) == (
        "Helsinki NLP opus mt fr en French English. marine. French. English. Translates reports. opus"
    )


def test_rare_words_count_more_and_long_texts_less() -> None:
    rare, common, long = bm25(["x", "y"], [{"x": 1, "z": 1}, {"y": 1, "z": 1}, {"y": 1, "z": 9}])
    assert rare > common > long > 0
    assert bm25(["q"], [{"x": 1}]) == [0.0]


class Counting:
    """Embeddings that count the texts they compute."""

    def __init__(self) -> None:
        self.computed: list[str] = []

    def encode(self, texts: list[str]) -> Any:
        self.computed += texts
        vectors = np.array([[1.0, len(text)] for text in texts], np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_cards_are_embedded_once_also_for_another_process(tmp_path: Path) -> None:
    def fresh() -> tuple[CardVectors, Counting]:
        vectors, counting = CardVectors(Settings(), SelectionStore(tmp_path / "new" / "s.sqlite")), Counting()
        vectors.__dict__["_embeddings"] = counting
        return vectors, counting

    vectors, counting = fresh()
    first = vectors.similarities("q", ["a", "bbbb"])
    assert counting.computed == ["q", "a", "bbbb"]
    assert first[0] == pytest.approx(1.0, abs=1e-3)
    assert first[1] < 0.9
    other, counting = fresh()
    assert other.similarities("q", ["bbbb", "a", "cc"]) == pytest.approx([*first[::-1], 0.9487], abs=1e-3)
    assert counting.computed == ["q", "cc"]
    assert other.similarities("肺炎", ["a"]) == [0.0]


def test_a_file_that_cannot_be_used_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tmp_path / "s.sqlite"
    broken.write_text("no database")
    for path in (broken, tmp_path / "s.sqlite" / "below"):
        store = SelectionStore(path)
        store.add_vectors([(b"a", b"b")])
        assert store.vectors([b"a"]) == {}
    assert len(caplog.messages) == 2
