"""The order of realistic lists of models for a task with and without a purpose."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jarvis_agent.core.context import RunContext
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Selection, Task
from jarvis_agent.selection.ranking import CardVectors, bm25, card_passages, named_languages, score_candidates
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


async def select(task: str, purpose: str = "", *more: Candidate, **args: Any) -> Selection:
    by = ModelSelector(
        [FakeSource([*MODELS, *more])], [FakeBackend(dict.fromkeys(TASKS, "x"))], Settings(offline=False)
    )
    return await by.select(Task(task=task, id=0, args=args, purpose=purpose), TASKS[task], RunContext(""))


@pytest.mark.parametrize(
    ("task", "purpose", "chosen"),
    [
        (IMAGE, "chest X-rays", "lxyuan/vit-xray-pneumonia-classification"),
        (IMAGE, "Does this chest X-ray show pneumonia?", "lxyuan/vit-xray-pneumonia-classification"),
        (TEXT, "financial news", "ProsusAI/finbert"),
        (TEXT, "What is the sentiment of this financial news?", "ProsusAI/finbert"),
        (NER, "diseases in biomedical abstracts", "d4data/biomedical-ner-all"),
        (SOUND, "Hungarian", "jonatasgrosman/wav2vec2-large-xlsr-53-hungarian"),
        (DETECT, "licence plates", "nickmuchi/yolos-small-finetuned-license-plate-detection"),
    ],
)
async def test_a_purpose_gets_the_model_made_for_it(task: str, purpose: str, chosen: str) -> None:
    found = await select(task, purpose)
    assert (found.model, found.chosen_by) == (chosen, "rank")
    assert "largest lead: purpose" in found.reason
    assert found.factors[chosen]["purpose"] == max(one["purpose"] for one in found.factors.values())


NICHES = [
    (IMAGE, "chest X-rays with pneumonia", "org/xray-pneumonia-vit"),
    (TEXT, "irony in tweets", "org/tweet-irony-roberta"),
    (NER, "diseases in biomedical abstracts", "org/biomedical-ner"),
    (SOUND, "Hungarian", "org/wav2vec2-hu"),
    (DETECT, "helmets of workers", "org/yolos-helmets"),
    (DETECT, "licence plates", "org/yolos-plate-detection"),
]


@pytest.mark.parametrize(("task", "purpose", "chosen"), NICHES)
async def test_a_specialist_beyond_the_most_used_models_of_the_hub_is_found(
    task: str, purpose: str, chosen: str
) -> None:
    with HubDouble() as hub, hub.redirected():
        usual = {"pipeline_tag": task, "providers": {"hf-inference": {}}}
        for number in range(2 * MAX_REMOTE_CANDIDATES):
            hub.add_model(f"org/general-{number}", downloads=1_000_000 + number, **usual)
        tags = ["hu"] if chosen.endswith("hu") else []
        hub.add_model(chosen, downloads=300, tags=tags, card={"language": tags}, **usual)
        settings = Settings(offline=False)
        by = ModelSelector([HubSource(settings)], [FakeBackend(dict.fromkeys(TASKS, "x"))], settings)
        asked = Task(task=task, id=0, purpose=purpose)
        selected = await by.select(asked, TASKS[task], RunContext(""))
        assert selected.model == chosen
        assert selected.candidates[1].id.startswith("org/general-")
        plain = await by.select(Task(task=task, id=0), TASKS[task], RunContext(purpose))
        assert plain.model == f"org/general-{2 * MAX_REMOTE_CANDIDATES - 1}", "the request is not read"


@pytest.mark.parametrize(
    ("task", "args", "usual"),
    [
        (IMAGE, {"image": "cat.jpg"}, "google/vit-base-patch16-224"),
        (NER, {"text": "Ada lives in Bern."}, "dslim/bert-base-NER"),
        (SOUND, {"audio": "talk.wav"}, "openai/whisper-small"),
        (DETECT, {"image": "street.jpg"}, "facebook/detr-resnet-50"),
        (SUMMARY, {"text": "A long story."}, "facebook/bart-large-cnn"),
        (TRANSLATE, {"text": "Hello", "tgt_lang": "French"}, "google-t5/t5-small"),
        (TRANSLATE, {"text": "你好", "tgt_lang": "en"}, "Helsinki-NLP/opus-mt-zh-en"),
    ],
)
async def test_without_a_purpose_a_general_model_of_the_most_used_ones_is_chosen(
    task: str, args: dict[str, str], usual: str
) -> None:
    found = await select(task, **args)
    assert found.model == usual
    assert ("largest lead: " in found.reason) == (len(found.candidates) > 1)
    rare = model("org/rare", task, 100, "dataset:ILSVRC/imagenet-1k")
    assert (await select(task, "", rare, **args)).model == found.model


async def test_an_installed_model_is_preferred_unless_there_is_another_purpose() -> None:
    installed = Candidate(id="timm/tf_efficientnet_lite0", task=IMAGE, source="starter", local=True)
    assert (await select(IMAGE, "", installed)).model == installed.id
    niche = await select(IMAGE, "chest X-rays with pneumonia", installed)
    assert niche.model == "lxyuan/vit-xray-pneumonia-classification"


async def test_the_shown_models_are_those_that_fit_and_the_most_used() -> None:
    crowd = [model(f"org/xray-{number}", IMAGE, 10 + number) for number in range(20)]
    found = await select(IMAGE, "X-rays with pneumonia", *crowd)
    shown = {one.id for one in found.candidates}
    assert len(shown) == 8
    assert {"Falconsai/nsfw_image_detection", "timm/resnet50.a1_in1k"} < shown
    assert "lxyuan/vit-xray-pneumonia-classification" in shown
    assert sum(name.startswith("org/xray") for name in shown) >= 4


def test_factors_add_up_and_say_what_is_known() -> None:
    plain, proven = model("a/b", IMAGE, 999), model("a/c", IMAGE, 999, metadata={"results": ["top-1"]})
    here = model("a/d", IMAGE, 0, size=2_000_000_000, local=True)
    task = Task(task=IMAGE, id=0)
    one, two, three = score_candidates([plain, proven, here], [True] * 3, task)
    assert {name: points for name, points in one.items() if points} == {"popularity": 1.8}
    assert sum(two.values()) > sum(one.values())
    assert (three["machine"], three["popularity"]) == (1.0, 3.6)
    (generalist,) = score_candidates([here.model_copy(update={"traits": ("generalist",)})], [True], task)
    assert generalist["machine"] == -1.0, "being here brings it nothing, and its size costs"
    (hosted,) = score_candidates([here], [False], task)
    assert hosted["machine"] == 0


def test_a_card_for_other_languages_loses_points() -> None:
    russian, plain = model("a/ru", TEXT, 9, languages=("ru",)), model("a/any", TEXT, 9)
    tweets = Task(task=TEXT, id=0, purpose="Irony in tweets")
    for task, first, second in (
        (tweets, plain, russian),
        (tweets.model_copy(update={"purpose": "Irony in Russian"}), russian, plain),
    ):
        better, worse = score_candidates([first, second], [True] * 2, task)
        assert better["language"] > worse["language"]


def test_a_task_names_languages_in_its_purpose_its_arguments_and_its_letters() -> None:
    cases: list[tuple[str, dict[str, Any], set[str]]] = [
        ("a German voice", {"text": "<resource>-0"}, {"de"}),
        ("德语", {}, {"de"}),
        ("chest X-rays", {"image": "german.png"}, set()),
        ("", {"text": "你好", "tgt_lang": "French"}, {"zh", "fr"}),
        ("", {"text": "Hello", "src_lang": "en", "tgt_lang": "Klingon"}, {"en"}),
    ]
    for purpose, args, languages in cases:
        assert named_languages(Task(task=TRANSLATE, id=0, args=args, purpose=purpose)) == languages


def test_a_card_says_its_subject_and_not_its_files() -> None:
    candidate = model(
        "Helsinki-NLP/opus-mt-fr-en", "translation", 1, "pytorch", "region:us", "dataset:opus", "marine",
        description="Translates reports. It is fast at that.", traits=("from:fr", "to:en"),
    )  # fmt: skip
    assert card_passages(candidate) == [
        "Helsinki NLP opus mt fr en",
        "marine. French. English",
        "Translates reports. It is fast at that.",
        "Translates reports.",
        "It is fast at that.",
        "Helsinki NLP opus mt fr en. marine. French. English. Translates reports. It is fast at that. opus",
    ]


@pytest.mark.parametrize("description", ["Trained on maccrobat. Languages: en.", ""])
def test_a_data_set_counts_once(description: str) -> None:
    candidate = model("org/ner", NER, 1, "dataset:maccrobat", description=description)
    assert card_passages(candidate)[-1].count("maccrobat") == 1


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
    first = vectors.similarities("q", [["a"], ["bbbb"]])
    assert counting.computed == ["q", "a", "bbbb"]
    assert first[0] == pytest.approx(1.0, abs=1e-3)
    assert first[1] < 0.9
    other, counting = fresh()
    assert other.similarities("q", [["bbbb"], ["a"], ["cc"]]) == pytest.approx(
        [*first[::-1], 0.9487], abs=1e-3
    )
    assert counting.computed == ["q", "cc"]
    best, whole = other.similarities("q", [["a", "bbbb"], ["bbbb", "a"]])
    assert best == pytest.approx((first[0] + first[1]) / 2, abs=1e-3)
    assert whole == pytest.approx(first[0], abs=1e-3)
    assert other.similarities("肺炎", [["a"]]) == [0.0]
