"""Plans as a few words of text, which a small language model with an adapter writes.

text = PlanText(TokenizedRequest(vocabulary, request))
text.prompt                      # "@1 image street\\n> how many dogs are in @1? mail it\\n"
text.write(actions)              # "detect @1\\n- mail it"
text.read("detect @1\\n- mail it")             # the actions again
text.grammar(offered)            # GBNF: nothing else can be written

Files, earlier answers and results are markers. Long copied words are their beginning, … and their end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from jarvis_agent.core.errors import PlanError
from jarvis_agent.core.languages import LANGUAGES, find_language
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import MEDIA, Arg
from jarvis_agent.planning.offline.sequences import (
    END,
    LEFT,
    MOST_RESULTS,
    NUMBERS,
    SLASH,
    WORDS,
    Piece,
    TokenizedRequest,
)

SHORT_NAMES = {
    "text-classification": "classify-text",
    "token-classification": "entities",
    "question-answering": "answer",
    "table-question-answering": "ask-table",
    "zero-shot-classification": "label-text",
    "translation": "translate",
    "summarization": "summarize",
    "text-generation": "write",
    "feature-extraction": "embed-text",
    "sentence-similarity": "similarity",
    "text-ranking": "rank-text",
    "image-classification": "classify-image",
    "zero-shot-image-classification": "label-image",
    "object-detection": "detect",
    "zero-shot-object-detection": "find",
    "keypoint-detection": "keypoints",
    "image-segmentation": "segment",
    "mask-generation": "masks",
    "depth-estimation": "depth",
    "image-feature-extraction": "embed-image",
    "unconditional-image-generation": "random-image",
    "text-to-image": "draw",
    "image-to-text": "caption",
    "image-to-image": "enhance",
    "text-to-video": "make-video",
    "image-to-video": "animate",
    "video-to-video": "restyle-video",
    "video-classification": "classify-video",
    "text-to-3d": "make-3d",
    "image-to-3d": "image-3d",
    "text-to-speech": "speak",
    "text-to-audio": "make-sound",
    "automatic-speech-recognition": "transcribe",
    "audio-to-audio": "denoise",
    "audio-classification": "classify-sound",
    "voice-activity-detection": "speech-times",
    "visual-question-answering": "ask-image",
    "document-question-answering": "ask-document",
    "visual-document-retrieval": "rank-pages",
    "image-text-to-text": "explain-image",
    "video-text-to-text": "ask-video",
    "audio-text-to-text": "ask-audio",
    "any-to-any": "ask-any",
    "image-text-to-image": "edit",
    "image-text-to-video": "animate-text",
    "tabular-classification": "predict-class",
    "tabular-regression": "predict-number",
    "time-series-forecasting": "forecast",
    "combine-video-audio": "dub",
    "extract-frames": "frames",
    "resize-image": "resize",
    "crop-image": "crop",
    "edit-image": "convert",
    "media-info": "info",
}
"""What the adapter calls task types; others it calls as we do."""
_TASK_OF = {short: name for name, short in SHORT_NAMES.items()}

_NOTHING, _LEFT, _BETWEEN, _OR, _AND, _TO = "none", "- ", " | ", " / ", " + ", " … "
_LONG, _STEM = 10, 14
"""Words of which more are written as their beginning and end, and letters of a file's name."""


@dataclass(frozen=True, slots=True)
class _Word:
    """A word or Chinese letter of the request: its tokens and how it is written."""

    first: int
    last: int
    text: str
    run: int


class PlanText:
    """A request and its plans in text."""

    def __init__(self, request: TokenizedRequest) -> None:
        self._request = request
        self._code, self._size = request.vocabulary.code, len(request.vocabulary.symbols)
        self._files = {name: f"@{number}" for number, name in enumerate(request.files, 1)}
        self._words: list[_Word] = []
        self._runs: dict[int, str] = {}
        self._starts: dict[tuple[int, int], int] = {}
        """The number of the word that starts at a place of the text of a run."""
        self._ends: dict[tuple[int, int], int] = {}
        self._read_words()
        answers = [place for place, (kind, _) in request.targets.items() if kind == "answer"]
        self._answers = {place: f"a{ago}" for ago, place in enumerate(reversed(answers), 1)}
        self._marked = {f"{marker}": place for place, marker in self._answers.items()}
        for place, (kind, name) in request.targets.items():
            if kind != "answer":
                self._marked[self._files[name]] = place
        self.prompt = "".join(self._prompt())

    def _read_words(self) -> None:
        tokens = self._request.tokens
        for place, token in enumerate(tokens):
            if token.run < 0:
                continue
            text = self._request.texts[token.run]
            said = text[token.start : token.end].encode("utf-8", "replace").decode()
            is_file = said in self._files and said == token.key
            said = self._files[said] if is_file else said
            last = self._words[-1] if self._words and self._words[-1].run == token.run else None
            before = tokens[place - 1].end if last else 0
            if last and before == token.start and not is_file and _is_one_word(last.text[-1:] + said[:1]):
                self._words[-1] = _Word(last.first, place, last.text + said, token.run)
                continue
            space = " " if last and before < token.start else ""
            self._words.append(_Word(place, place, space + said, token.run))
        for number, word in enumerate(self._words):
            so_far = self._runs.get(word.run, "")
            start = len(so_far) + (word.text[:1] == " ")
            self._runs[word.run] = so_far + word.text
            self._starts[word.run, start] = number
            self._ends[word.run, len(so_far) + len(word.text)] = number

    def _prompt(self) -> Iterator[str]:
        request = self._request
        for name, (kind, age) in request.files.items():
            stem = name.replace("\\", "/").rsplit("/", 1)[-1]
            stem = stem.rpartition(".")[0] or stem
            yield f"{self._files[name]} {kind} {stem[:_STEM]}{f' -{age}' if age else ''}\n"
        answers = {place + 1: marker for place, marker in self._answers.items()}
        for run in sorted(self._runs):
            first = next(word.first for word in self._words if word.run == run)
            mark = answers.get(first, ">" if run == request.body else "<")
            yield f"{mark} {self._runs[run]}\n"

    # From actions to text

    def write(self, actions: Sequence[int]) -> str:
        """A plan, of which all actions are allowed, in text."""
        written = self._request.read([action for action in actions if action != END])
        lines = [
            " ".join(filter(None, (SHORT_NAMES.get(step.task, step.task), self._args(step.task, step.args))))
            for step in written.steps
        ]
        left = [_LEFT + self._write_span(piece) for piece in written.left]
        return "\n".join([*(lines or [_NOTHING]), *left])

    def _args(self, task: str, args: dict[str, list[list[Piece]]]) -> str:
        spec, values = TASKS[task], []
        for arg in spec.inputs:
            if arg.name in args:
                said = _OR.join(
                    _AND.join(self._write(arg, piece) for piece in pieces) for pieces in args[arg.name]
                )
                values.append(said if arg.required else f"{arg.name}={said}")
        return _BETWEEN.join(values)

    def _write(self, arg: Arg, piece: Piece) -> str:
        if piece.kind == "result":
            return f"#{piece.value}"
        if piece.kind == "file":
            return self._files[piece.value]
        if piece.kind == "answer":
            places = (p for p, target in self._request.targets.items() if target == ("answer", piece.value))
            return self._answers[next(places)]
        if piece.kind == "word":
            return str(piece.value)
        said = self._write_span(piece)
        if arg.name in ("src_lang", "tgt_lang") and (known := find_language(said)):
            return known.name
        return said

    def _write_span(self, piece: Piece) -> str:
        numbers = [
            n for n, word in enumerate(self._words) if piece.value <= word.last and word.first <= piece.last
        ]
        said = "".join(self._words[n].text for n in numbers).strip()
        for kept in range(3, len(numbers) // 2) if len(numbers) > _LONG else ():
            head, tail = (
                "".join(self._words[n].text for n in part).strip()
                for part in (numbers[:kept], numbers[-kept:])
            )
            short = f"{head}{_TO}{tail}"
            if self._find(short) == (numbers[0], numbers[-1]):
                return short
        return said

    # From text to actions

    def read(self, text: str, offered: Collection[str] | None = None) -> list[int]:
        """The actions of a plan in text.

        Args:
            text: what the model wrote.
            offered: the task types that it may use; None: all that the weights know.

        Raises:
            PlanError: it is no plan of this request.
        """
        actions: list[int] = []
        lines = text.strip("\n").split("\n")
        for number, line in enumerate(lines):
            if line.startswith(_LEFT):
                actions += [LEFT, *self._read_span(line.removeprefix(_LEFT), (self._request.body,))]
            elif number or line != _NOTHING:
                actions += self._read_task(line, number)
        actions.append(END)
        names = self._request.vocabulary.tasks if offered is None else offered
        for number, action in enumerate(actions):
            if not self._request.allowed(actions[:number], names)[action]:
                raise PlanError(f"{text!r} is no plan of the request")
        return actions

    def _read_task(self, line: str, step: int) -> list[int]:
        short, _, rest = line.partition(" ")
        name = _TASK_OF.get(short, short)
        if name not in self._request.vocabulary.tasks:
            raise PlanError(f"there is no task {short!r}")
        spec, given = TASKS[name], dict[str, str]()
        free = [arg.name for arg in spec.inputs if arg.required]
        for value in rest.split(_BETWEEN) if rest else ():
            key, equals, named = value.partition("=")
            arg = spec.arg(key) if equals else None
            if arg and not arg.required:
                given[arg.name] = named
            elif free:
                given[free.pop(0)] = value
            else:
                raise PlanError(f"{line!r} has too many values")
        actions = [self._code[name]]
        for arg in spec.inputs:
            if arg.name in given:
                actions.append(self._code[f"{arg.name}="])
                for number, one in enumerate(given[arg.name].split(_OR) if arg.many else [given[arg.name]]):
                    actions += [SLASH] * bool(number) + self._read_value(name, arg, one, step)
        return actions

    def _read_value(self, task: str, arg: Arg, said: str, step: int, is_part: bool = False) -> list[int]:
        if said in self._marked and not is_part:
            return [self._size + self._marked[said]]
        if said[:1] == "#" and said in self._code:
            back = step - 1 - int(said[1:])
            if back < 0:
                raise PlanError(f"{said} is no earlier result")
            return [self._code[f"#{back}"]]
        if said in WORDS.get(task, ()) or (arg.name in ("src_lang", "tgt_lang") and said in self._code):
            return [self._code[said]]
        if arg.kind in MEDIA:
            raise PlanError(f"{said!r} is no {arg.kind}")
        try:
            return self._read_span(said)
        except PlanError:
            if arg.kind == "data" and not arg.many and said in self._code:
                return [self._code[said]]
            if _AND not in said:
                raise
        return list(chain(*(self._read_value(task, arg, one, step, True) for one in said.split(_AND))))

    def _read_span(self, said: str, runs: Iterable[int] | None = None) -> list[int]:
        found = self._find(said, runs)
        if found is None:
            raise PlanError(f"{said!r} is not in the request")
        return [self._size + self._words[found[0]].first, self._size + self._words[found[1]].last]

    def _find(self, said: str, runs: Iterable[int] | None = None) -> tuple[int, int] | None:
        """The numbers of the first and last word of a text, which may be a beginning and an end."""
        body = self._request.body
        for run in runs or (body, *(run for run in reversed(self._runs) if run != body)):
            if found := self._find_in(run, said, 0):
                return found
            head, middle, tail = said.partition(_TO)
            first = self._find_in(run, head, 0) if middle else None
            after = next((at for (r, at), n in self._ends.items() if first and (r, n) == (run, first[1])), 0)
            if first and (last := self._find_in(run, tail, after)):
                return first[0], last[1]
        return None

    def _find_in(self, run: int, said: str, at: int) -> tuple[int, int] | None:
        text = self._runs.get(run, "")
        while said and (at := text.find(said, at)) >= 0:
            first, last = self._starts.get((run, at)), self._ends.get((run, at + len(said)))
            if first is not None and last is not None:
                return first, last
            at += 1
        return None

    # What can be written

    def grammar(self, offered: Collection[str]) -> str:
        """The GBNF of all plans with the offered task types: with files, answers and words that exist.

        Whether an earlier result fits an argument is left to `read`.
        """
        rules = {
            "language": _either(language.name for language in LANGUAGES),
            "number": _either(map(str, NUMBERS)),
            "left": '""',
        }
        for rule, run in (("span", None), ("part", self._request.body)):
            words = " | ".join(f"w{n}" for n, word in enumerate(self._words) if run in (None, word.run))
            if words:
                rules[f"{rule}-words"] = words
                rules[rule] = f'{rule}-words ("{_TO}" {rule}-words)?'
        if "part" in rules:
            rules["left"] = f'("\\n{_LEFT}" part)*'
        for number, word in enumerate(self._words):
            follows = self._words[number + 1 : number + 2]
            is_last = not follows or follows[0].run != word.run
            space = " " if follows and follows[0].text[:1] == " " else ""
            rest = "" if is_last else f" ({_quoted(space)} w{number + 1})?" if space else f" w{number + 1}?"
            rules[f"w{number}"] = _quoted(word.text.strip()) + rest
        names = sorted(self._request.vocabulary.tasks & {*offered})
        for line in range(MOST_RESULTS):
            tasks: dict[str, list[str]] = {}
            for name in names:
                if (args := self._args_rule(name, line, rules)) is not None:
                    tasks.setdefault(args, []).append(SHORT_NAMES.get(name, name))
            each = " | ".join(f"({_either(short)}){args}" for args, short in tasks.items())
            rules[f"r{line}"] = _either(f"#{number}" for number in range(line))
            more = f' ("\\n" l{line + 1})?' if line + 1 < MOST_RESULTS else ""
            rules[f"l{line}"] = each and f"({each}){more}"
        rules["root"] = f"({_quoted(_NOTHING)}{' | l0' * bool(rules['l0'])}) left"
        return "\n".join(
            f"{rule} ::= {name[1:]}" if name[0] == "=" else f"{name} ::= {rule}"
            for name, rule in rules.items()
            if rule
        )

    def _args_rule(self, name: str, line: int, rules: dict[str, str]) -> str | None:
        """What follows the name of a task in a line; None if it lacks a value. Rules of values are added."""
        rule, separator = "", " "
        for arg in sorted(TASKS[name].inputs, key=lambda arg: not arg.required):
            value = self._value_rule(name, arg, line)
            if arg.required and not value:
                return None
            if value:
                value = rules.setdefault(f"={value}", f"v{len(rules)}")
                name_of_value = "" if arg.required else f"{arg.name}="
                written = f"{_quoted(separator + name_of_value)} {value}"
                rule += f" {written}" if arg.required else f" ({written})?"
                separator = _BETWEEN
        return rule

    def _value_rule(self, task: str, arg: Arg, line: int) -> str:
        result = [f"r{line}"] if line else []
        files = [
            self._files[name] for name, (kind, _) in self._request.files.items() if arg.kind in (kind, "file")
        ]
        markers = [*map(_quoted, files), *result]
        if arg.kind in MEDIA or not self._words:
            value = " | ".join(markers)
        else:
            part = " | ".join(["span", *result])
            value = f"({part}) ({_quoted(_AND)} ({part}))*" if arg.kind == "text" else part
            if arg.name in ("src_lang", "tgt_lang"):
                value = "language | span"
            elif arg.kind == "text":
                known = (*files, *WORDS.get(task, ()), *self._answers.values())
                value = " | ".join([*map(_quoted, known), value])
            elif not arg.many:
                value = f"{value} | number"
        if arg.many and value:
            value = f"({value}) ({_quoted(_OR)} ({value}))*"
        return value and f"({value})"


def _either(texts: Iterable[str]) -> str:
    return " | ".join(map(_quoted, texts))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _is_one_word(letters: str) -> bool:
    """Whether two neighbouring letters are inside one word, or one number."""
    is_latin = letters.isalnum() and all(letter < "\u2e80" for letter in letters)
    return len(letters) == 2 and is_latin and letters[0].isdigit() == letters[1].isdigit()
