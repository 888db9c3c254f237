"""Paths in an answer: known ones pass, wrong ones are corrected or marked, however the text is split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cost import cost_of
from hypothesis import given
from hypothesis import strategies as st

from jarvis_agent.core.types import Resource
from jarvis_agent.response.path_checker import PathChecker

SPEECH = Resource(kind="audio", path=Path("/outputs/7/speech.wav"))
EDGES = Resource(kind="image", path=Path("/outputs/7/canny-control.png"))
BOXES = Resource(kind="image", path=Path("/outputs/7/objects.png"))
PAGE = Resource(kind="image", path=Path("/home/me/page.png"), name="scans/page.png")
SPACED = Resource(kind="image", path=Path("/home/me/My Files/猫 (1).png"), name="猫 (1).png")
MISSING = "(no such file)"


def checked(text: str, size: int | None = None, **options: Any) -> str:
    """The answer, fed in pieces of `size` characters."""
    checker = PathChecker(**options)
    size = size or len(text) or 1
    shown = [checker.feed(text[start : start + size]) for start in range(0, len(text), size)]
    return "".join(shown) + checker.finish()


def test_known_paths_and_other_words_pass() -> None:
    texts = [
        "The speech is in /outputs/7/speech.wav.",
        "[speech](/outputs/7/speech.wav), **/outputs/7/speech.wav** and `/outputs/7/speech.wav`",
        "声音在/outputs/7/speech.wav中。",
        "Everything lies in /outputs/7/ now",
        "I read /home/me/page.png, your scans/page.png",
        "See /home/me/My Files/猫 (1).png, or 猫 (1).png.",
        "he/she, and/or, 1/2, 24/7, 5 km/h, input/output",
        "facebook/detr-resnet-50 and openai/whisper-tiny.en",
        "Node.js 3.14, e.g. this... and i.e. that: fine",
        "a .wav file; PNG/JPG; 12:30; C: is a drive; x = [1, 2] <b>bold</b> {a}",
        "https://huggingface.co/facebook/detr-resnet-50 and http://localhost:8000/v1?a=b",
        "as on https://example.org/img/a.mp4, or HTTP://x.org/b.zip?c=d.",
        "",
        "/",
        "ratio 3:4:5 :: //",
    ]
    for text in texts:
        assert checked(text, made=[SPEECH], known=[PAGE, SPACED]) == text


def test_existing_files_and_quoted_words_pass(tmp_path: Path) -> None:
    (tmp_path / "real.png").touch()
    text = f"see {tmp_path / 'real.png'} in {tmp_path}"
    assert checked(text, made=[EDGES]) == text
    quoted = [
        "put it into out.mp3, as https://x.org/talk.wav",
        {"text": ["see report.pdf and a.csv:3 on https://x.org/a.zip."]},
    ]
    text = "No out.mp3 or https://x.org/talk.wav; report.pdf, a.csv:3 and https://x.org/a.zip, as asked."
    assert checked(text, made=[SPEECH], quoted=quoted) == text


def test_an_untrusted_request_cannot_learn_which_files_exist(tmp_path: Path) -> None:
    there = tmp_path / "there.txt"
    there.touch()
    assert checked(f"{there} ", looks=True) == f"{there} "
    assert checked(f"{there} ", looks=False) == f"{there} {MISSING} "


def test_a_wrong_path_is_replaced_by_the_file_that_it_means() -> None:
    same_name = ["/tmp/speech.wav", "speech.wav", "outputs/speech.wav", "file:///mnt/speech.wav"]
    same_name += ["sandbox:/mnt/speech.wav", r"C:\Users\me\speech.wav", "https://files.example/speech.wav"]
    for wrong in [*same_name, "/tmp/output.wav", "audio.WAV", "path/to/audio.mp3"]:
        assert checked(f"It is in {wrong}!", made=[SPEECH, EDGES]) == f"It is in {SPEECH.path}!"
    talk = Resource(kind="audio", path=Path("/home/me/talk.mp3"))  # its name counts more than its kind
    assert checked("see /tmp/talk.mp3", made=[SPEECH], known=[talk]) == "see /home/me/talk.mp3"
    one, two = (Resource(kind="image", path=Path(f"/outputs/{n}/a.png")) for n in (1, 2))
    assert checked("see 2/a.png", made=[one, two]) == "see /outputs/2/a.png"


def test_a_path_without_a_clear_replacement_is_marked() -> None:
    wrongs = ("/tmp/out.png", "out.png", "/no/such/thing", "/outputs/7/canny", "sandbox:/mnt/out.mp4")
    for wrong in (*wrongs, "a.mp4"):
        shown = wrong.removeprefix("sandbox:")
        assert checked(f"see {wrong}.", made=[EDGES, BOXES]) == f"see {shown} {MISSING}."
    assert checked("made new.png", known=[PAGE]) == f"made new.png {MISSING}", "given files replace nothing"


def test_placeholders_are_filled_in_or_marked() -> None:
    cases = {"[path]": None, "[file path]": None, "[audio path]": SPEECH.path}
    cases |= dict.fromkeys(["<image_path>", "{path to the image file}"], EDGES.path)
    for placeholder, path in cases.items():
        shown = path or f"{placeholder} {MISSING}"
        assert checked(f"at {placeholder} there", made=[SPEECH, EDGES]) == f"at {shown} there"
    assert checked("at [path] there", made=[EDGES]) == f"at {EDGES.path} there"


def test_a_path_is_held_back_until_it_is_complete() -> None:
    checker = PathChecker(made=[SPEECH])
    assert checker.feed("The speech is in /tmp/spe") == "The speech is in "
    assert checker.feed("ech.wav, enjoy") == "/outputs/7/speech.wav, "
    assert checker.finish() == "enjoy"


PIECES = [
    "/outputs/7/speech.wav", "/tmp/speech.wav", "out.png", "/home/me/My Files/猫 (1).png", "[image path]",
    "[path](x)", "https://x.org/out.png?a=b.", "sandbox:/mnt/speech.wav", "a/b.png:c", " ", "\n", "。", "://",
    "...", "<", "[",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=6), max_size=12), st.integers(1, 9))
def test_how_the_text_is_split_makes_no_difference(pieces: list[str], size: int) -> None:
    options: dict[str, Any] = {
        "made": [SPEECH, EDGES], "known": [PAGE, SPACED], "quoted": ["https://x.org/a.zip"]
    }  # fmt: skip
    text = "".join(pieces)
    assert checked(text, size, **options) == checked(text, **options)


def test_a_word_longer_than_any_path_passes_as_it_comes() -> None:
    for word in ("a" * 5000, "a/" * 3000 + "b.png", "https://x.org/" + "a" * 5000 + ".png"):
        text = f"see {word} and /outputs/7/none.wav"
        for size in (1, 100, 10_000):
            assert checked(text, size, made=[EDGES]) == f"{text} {MISSING}"
    checker = PathChecker()
    assert len("".join(checker.feed("a" * 100) for _ in range(100))) == 10_000


def test_the_cost_grows_linearly_with_the_answer() -> None:
    known = [Resource(kind="image", path=Path(f"/home/me/my photo {n}.png")) for n in range(20)]
    for unit in ("，", "(", "<", "a", "a ", "x.png ", "my "):

        def cost(count: int, unit: str = unit) -> int:
            checker = PathChecker(known=known)
            return cost_of(lambda: [*map(checker.feed, [unit] * count), checker.finish()])

        assert cost(1_600) <= 5 * cost(400), unit
