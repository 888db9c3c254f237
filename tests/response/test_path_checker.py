"""Paths in an answer: what exists passes, what does not is put right or marked, however the text is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cost import cost_of
from hypothesis import given
from hypothesis import strategies as st

from jarvis_agent.response.path_checker import PathChecker
from jarvis_agent.core.types import Resource

SPEECH = Resource(kind="audio", path=Path("/outputs/7/speech.wav"))
EDGES = Resource(kind="image", path=Path("/outputs/7/canny-control.png"))
BOXES = Resource(kind="image", path=Path("/outputs/7/objects.png"))
PAGE = Resource(kind="image", path=Path("/home/me/page.png"), name="scans/page.png")
SPACED = Resource(kind="image", path=Path("/home/me/My Files/猫 (1).png"), name="猫 (1).png")


def guarded(text: str, **given_: Any) -> str:
    guard = PathChecker(**given_)
    return guard.feed(text) + guard.finish()


class TestWhatPasses:
    @pytest.mark.parametrize(
        "text",
        [
            "The speech is in /outputs/7/speech.wav.",
            "[speech](/outputs/7/speech.wav), **/outputs/7/speech.wav** and `/outputs/7/speech.wav`",
            "声音在/outputs/7/speech.wav中。",
            "Everything lies in /outputs/7/ now",
            "I read /home/me/page.png, your scans/page.png",
            "See /home/me/My Files/猫 (1).png, or 猫 (1).png.",
        ],
    )
    def test_known_paths_and_names(self, text: str) -> None:
        assert guarded(text, made=[SPEECH], known=[PAGE, SPACED]) == text

    def test_a_file_that_exists(self, tmp_path: Path) -> None:
        (tmp_path / "real.png").touch()
        text = f"see {tmp_path / 'real.png'} in {tmp_path}"
        assert guarded(text, made=[EDGES]) == text

    def test_words_that_the_user_or_a_result_wrote(self) -> None:
        quoted = ["put it into out.mp3", {"text": ["see report.pdf on https://x.org/a.zip."]}]
        text = "No out.mp3; the page says report.pdf and https://x.org/a.zip, as asked."
        assert guarded(text, made=[SPEECH], quoted=quoted) == text

    @pytest.mark.parametrize(
        "text",
        [
            "he/she, and/or, 1/2, 24/7, 5 km/h, input/output",
            "facebook/detr-resnet-50 and openai/whisper-tiny.en",
            "Node.js 3.14, e.g. this... and i.e. that: fine",
            "a .wav file; PNG/JPG; 12:30; C: is a drive; x = [1, 2] <b>bold</b> {a}",
            "https://huggingface.co/facebook/detr-resnet-50 and http://localhost:8000/v1?a=b",
            "as on https://example.org/img/a.mp4, or HTTP://x.org/b.zip?c=d.",
            "",
            "/",
            "ratio 3:4:5 :: //",
        ],
    )
    def test_words_that_are_no_paths(self, text: str) -> None:
        assert guarded(text, made=[SPEECH, EDGES]) == text


class TestWhatIsPutRight:
    @pytest.mark.parametrize(
        "wrong",
        [
            "/tmp/speech.wav",
            "speech.wav",
            "outputs/speech.wav",
            "sandbox:/mnt/data/speech.wav",
            "file:///mnt/speech.wav",
            r"C:\Users\me\speech.wav",
            "https://files.example/speech.wav",
        ],
    )
    def test_the_same_name_in_another_place(self, wrong: str) -> None:
        assert guarded(f"It is in {wrong}.", made=[SPEECH, EDGES]) == "It is in /outputs/7/speech.wav."

    def test_of_several_with_the_same_name_the_one_with_the_most_in_common(self) -> None:
        one, two = (Resource(kind="image", path=Path(f"/outputs/{n}/a.png")) for n in (1, 2))
        assert guarded("see 2/a.png", made=[one, two]) == "see /outputs/2/a.png"

    @pytest.mark.parametrize("wrong", ["/tmp/output.wav", "audio.WAV", "path/to/audio.mp3"])
    def test_another_name_where_only_one_such_file_was_made(self, wrong: str) -> None:
        assert guarded(f"in {wrong}!", made=[SPEECH, EDGES]) == "in /outputs/7/speech.wav!"

    @pytest.mark.parametrize(
        ("placeholder", "path"),
        [
            ("[path]", None),
            ("[audio path]", SPEECH.path),
            ("<image_path>", EDGES.path),
            ("{path to the image file}", EDGES.path),
            ("[file path]", None),
        ],
    )
    def test_placeholders(self, placeholder: str, path: Path | None) -> None:
        expected = f"at {path} there" if path else f"at {placeholder} (no such file) there"
        assert guarded(f"at {placeholder} there", made=[SPEECH, EDGES]) == expected
        assert guarded(f"at {placeholder} there", made=[EDGES]).startswith(
            "at /outputs/7/canny-control.png" if "audio" not in placeholder else f"at {placeholder} (no such"
        )


class TestWhatIsMarked:
    @pytest.mark.parametrize(
        "wrong", ["/tmp/out.png", "out.png", "/no/such/thing", "sandbox:/mnt/out.mp4", "a.mp4"]
    )
    def test_a_path_that_nothing_stands_for(self, wrong: str) -> None:
        shown = wrong.removeprefix("sandbox:")
        assert guarded(f"see {wrong}.", made=[EDGES, BOXES]) == f"see {shown} (no such file)."

    def test_files_that_were_only_given_do_not_stand_in(self) -> None:
        assert guarded("made new.png", known=[PAGE]) == "made new.png (no such file)"


class TestStreaming:
    def test_a_path_is_held_back_until_it_is_whole(self) -> None:
        guard = PathChecker(made=[SPEECH])
        assert guard.feed("The speech is in /tmp/spe") == "The speech is in "
        assert guard.feed("ech.wav, enjoy") == "/outputs/7/speech.wav, "
        assert guard.finish() == "enjoy"

    @given(
        pieces=st.lists(
            st.one_of(
                st.sampled_from(
                    [
                        "/outputs/7/speech.wav",
                        "/tmp/speech.wav",
                        "out.png",
                        "/home/me/My Files/猫 (1).png",
                        "/home/me/My Files/猫",
                        "[image path]",
                        "[path](x)",
                        "https://x.org/out.png?a=b.",
                        "sandbox:/mnt/speech.wav",
                        "a/b.png:c",
                        " ",
                        "\n",
                        "。",
                        "://",
                        "...",
                        "<",
                    ]
                ),
                st.text(max_size=6),
            ),
            max_size=12,
        ),
        cuts=st.lists(st.integers(1, 9), min_size=1, max_size=20),
    )
    def test_how_the_text_is_cut_makes_no_difference(self, pieces: list[str], cuts: list[int]) -> None:
        text = "".join(pieces)
        made, known = [SPEECH, EDGES], [PAGE, SPACED]
        guard = PathChecker(made, known, ["https://x.org/a.zip"])
        shown, place, turn = "", 0, 0
        while place < len(text):
            size = cuts[turn % len(cuts)]
            shown += guard.feed(text[place : place + size])
            place, turn = place + size, turn + 1
        assert shown + guard.finish() == guarded(text, made=made, known=known, quoted=["https://x.org/a.zip"])

    @given(st.text(alphabet=st.characters(blacklist_characters="./\\~[<{:", blacklist_categories=["Cs"])))
    def test_text_without_paths_is_never_changed(self, text: str) -> None:
        assert guarded(text, made=[SPEECH]) == text


def test_a_stranger_learns_nothing_of_what_is_on_this_machine(tmp_path: Path) -> None:
    there = tmp_path / "there.txt"
    there.touch()
    told = {looks: PathChecker(looks=looks).feed(f"{there} \n") for looks in (True, False)}
    assert told == {True: f"{there} \n", False: f"{there} (no such file) \n"}


class TestLongAnswers:
    @pytest.mark.parametrize(
        "word", ["a" * 5000, "a/" * 3000 + "b.png", "https://x.org/" + "a" * 5000 + ".png"]
    )
    @pytest.mark.parametrize("size", [1, 100, 10_000])
    def test_a_word_that_is_longer_than_any_path_passes_as_it_comes(self, word: str, size: int) -> None:
        text = f"see {word} and /outputs/7/none.wav"
        guard = PathChecker(made=[EDGES])
        shown = [guard.feed(text[start : start + size]) for start in range(0, len(text), size)]
        assert "".join(shown) + guard.finish() == f"{text} (no such file)"

    def test_an_endless_word_is_not_held_back(self) -> None:
        guard = PathChecker()
        shown = [guard.feed("a" * 100) for _ in range(100)]
        assert len("".join(shown)) == 10_000

    @pytest.mark.parametrize("unit", ["，", "(", "<", "a", "a ", "x.png ", "my "])
    def test_the_cost_of_a_long_answer_grows_as_its_length(self, unit: str) -> None:
        known = [Resource(kind="image", path=Path(f"/home/me/my photo {n}.png")) for n in range(20)]

        def cost(count: int) -> int:
            guard = PathChecker(known=known)
            return cost_of(lambda: [*map(guard.feed, [unit] * count), guard.finish()])

        assert cost(4_000) <= 5 * cost(1_000)
