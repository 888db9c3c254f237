"""A request as a row of tokens, and its plan as a row of actions that point into it.

    image-to-text image →cat.jpg  translation text #0 tgt_lang →French →French  END

An action is a symbol (a task type, an argument, a result, a number, a word) or a pointer to a token: to a
file or an earlier answer, or to the first and then the last token of words that are copied. `#0` is the
result of the task just before, `#1` of the one before that. `?` stands for a picture, recording, video or
table that a request without files needs. A preference ("fastest") may follow the tasks. What uses a result
follows its maker as soon as it can, so that a plan has one order.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.languages import LANGUAGES, find_language
from jarvis_agent.core.references import ref, refs_in, split_refs
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import MEDIA, Arg, TaskSpec, split_kind
from jarvis_agent.core.types import PREFERENCES, Preference, Task
from jarvis_agent.planning.inputs import PlanRequest, name_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

MOST_FILES, MOST_TURNS, MOST_RESULTS = 16, 3, 16
MOST_NAME, LAST_TURN, OLDER_TURN, MOST_BEGIN, MOST_END = 8, 40, 28, 160, 60
"""Tokens of a file's name, of the request or answer of a turn, and of the start and end of the request."""
MANY_FILES, SHORT_NAME = 8, 3
"""With more files than the first, each has as many tokens as the second, so that 512 tokens are enough."""

NUMBERS = (
    *range(32),
    40, 45, 50, 60, 64, 70, 80, 90, 100, 110, 120, 128, 130, 140, 150, 180, 200, 256, 270, 300, 360, 365,
    400, 500, 512, 600, 640, 720, 768, 800, 1000, 1024, 1080, 1200, 1280, 1920, 2048,
)  # fmt: skip
WORDS = {
    "image-to-text": ("read",),
    "edit-image": ("horizontal", "vertical", "png", "jpeg", "webp", "gif", "bmp", "tiff"),
    "extract-audio": ("mp3", "wav", "flac", "ogg", "m4a"),
    **dict.fromkeys(
        ("image-text-to-text", "video-text-to-text", "audio-text-to-text", "any-to-any"), ("describe",)
    ),
}
"""Values that are no words of the request, by task type."""

_ARGS = list(dict.fromkeys(arg.name for spec in TASKS.values() for arg in spec.inputs))
SYMBOLS = [
    *("START", "END", "LEFT", "/", "?"),
    *TASKS,
    *(f"{name}=" for name in _ARGS),
    *(f"#{number}" for number in range(MOST_RESULTS)),
    *(f"{number}" for number in NUMBERS),
    *dict.fromkeys(word for words in WORDS.values() for word in words),
    *(language.name for language in LANGUAGES),
    *PREFERENCES,
]
"""The symbols that training teaches; weights know those of their time."""
START, END, LEFT, SLASH = range(4)
NOT_GIVEN = "?"
"""Stands for a file that a request needs and does not have."""

KINDS = ("text", "image", "audio", "video", "table", "3d", "data", "file")
MARKERS = [
    "",
    *(f"file:{kind}" for kind in KINDS),
    *(f"mention:{kind}" for kind in KINDS),
    *("request", "turn", "answer"),
    *(f"number {number}" for number in range(MOST_FILES)),
    *(f"ago {number}" for number in range(MOST_TURNS + 1)),
]
MARK = {marker: row for row, marker in enumerate(MARKERS)}
CLS, SEP, NO_WORD, MASK = 101, 102, 1, 103
_SURROGATE = re.compile("[\ud800-\udfff]")
_HAN = re.compile("[\u3400-\u9fff]")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_MINUS = re.compile(r"(?<!\S)-(?=\d)")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")


class Vocabulary:
    """What requests and plans are written in.

    Attributes:
        tokenizer: MiniLM's, without padding and truncation.
        symbols: the actions that are no pointers; `code` has the number of each.
        chinese: the rows of Chinese letters and pairs of letters in our own table, after those of MARKERS.
        tasks: the task types that plans may use.
    """

    def __init__(
        self, tokenizer: Tokenizer, chinese: Iterable[str], symbols: Sequence[str] = SYMBOLS
    ) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self.tokenizer, self.symbols = tokenizer, symbols
        self.chinese = {text: len(MARKERS) + row for row, text in enumerate(chinese)}
        self.code = {symbol: code for code, symbol in enumerate(symbols)}
        needed = {name: {name, *(f"{arg}=" for arg in spec.required)} for name, spec in TASKS.items()}
        self.tasks = {name for name, symbols in needed.items() if self.code.keys() >= symbols}


@dataclass(frozen=True)
class Token:
    """A token: its word in MiniLM's vocabulary, four rows of our own table that are added, and its place.

    `run` counts stretches of text in which words can be copied; -1 is no text. `key` tells equal
    tokens: words that MiniLM does not know differ by their letters.
    """

    word: int
    rows: tuple[int, int, int, int] = (0, 0, 0, 0)
    run: int = -1
    start: int = 0
    end: int = 0
    key: str = ""


Piece = int | tuple[int, int] | str
"""A part of a value: a result, by its task; the first and last copied token; or a file, an answer, a word."""


@dataclass
class Step:
    """A task of a plan as it is written: for each argument a list of values, each of pieces."""

    task: str
    args: dict[str, list[list[Piece]]] = field(default_factory=dict)


@dataclass
class Written:
    """What a row of actions says so far; `open` is "value" after an argument, "span" within copied words."""

    steps: list[Step] = field(default_factory=list)
    preference: Preference | None = None
    left: list[Piece] = field(default_factory=list)
    open: str = ""
    in_left: bool = False


class TokenizedRequest:
    """A request in tokens, at most 512."""

    def __init__(self, vocabulary: Vocabulary, request: PlanRequest) -> None:
        self.vocabulary = vocabulary
        self._code, self._size = vocabulary.code, len(vocabulary.symbols)
        self.tokens = [Token(CLS)]
        self.texts: list[str] = []
        self.unread = ""
        self.targets: dict[int, tuple[str, str]] = {}
        """What a pointer to a token stands for: the kind and the name of a file, or "answer" and its text."""
        turns = request.turns[-MOST_TURNS:]
        ages: dict[str, tuple[str, int]] = {}
        written = {*_split_names(request.text, map(name_of, request.files))[1::2]}
        named = {file.kind for file in request.files if name_of(file) in written}
        for file in request.files:
            if file.kind not in named or name_of(file) in written:
                ages.setdefault(name_of(file), (file.kind, 0))
        for ago, turn in enumerate(reversed(request.turns), 1):
            for file in reversed(turn.resources):
                # A result has the name of its task, so its path stands for it.
                name = name_of(file) if "." in name_of(file) else str(file.path or name_of(file))
                if ago <= MOST_TURNS or name in request.text:
                    ages.setdefault(name, (file.kind, min(ago, MOST_TURNS)))
        self.files = dict(list(ages.items())[:MOST_FILES])
        self._cut, self._skipped = -1, 0
        name_length = MOST_NAME if len([*filter(None, self.files)]) <= MANY_FILES else SHORT_NAME
        for number, (name, (kind, ago)) in enumerate(self.files.items()):
            self._target(f"file:{kind}", ago, (kind, name), number)
            base = re.split(r"[/\\]", name)[-1].rpartition(".")
            for word in self._encode(base[0] or base[2])[:name_length]:
                self.tokens.append(Token(word.word, (*word.rows[:3], MARK[f"ago {ago}"])))
        for ago, turn in reversed(list(enumerate(reversed(turns), 1))):
            most = LAST_TURN if ago == 1 else OLDER_TURN
            self._target("turn", ago)
            self._add_text(turn.request, ago, most, 0)
            if turn.text:
                self._target("answer", ago, ("answer", turn.text))
                self._add_text(turn.text, ago, most, 0)
        self._target("request", 0)
        self.body = len(self.texts)
        self._add_text(request.text, 0, MOST_BEGIN, MOST_END)
        self.tokens.append(Token(SEP))

    def _target(self, marker: str, ago: int, target: tuple[str, str] | None = None, number: int = -1) -> None:
        if target:
            self.targets[len(self.tokens)] = target
        tag = MARK[f"number {number}"] if number >= 0 else 0
        self.tokens.append(Token(NO_WORD, (MARK[marker], tag, 0, MARK[f"ago {ago}"])))

    def _add_text(self, text: str, ago: int, begin: int, end: int) -> None:
        tokens = self._encode(text)
        self.texts.append(text)
        if len(tokens) > begin + end:
            if end:
                self.unread = text[tokens[begin].start : tokens[len(tokens) - end - 1].end]
                self._cut, self._skipped = len(self.tokens) + begin - 1, len(tokens) - begin - end
            tokens = [*tokens[:begin], *tokens[len(tokens) - end :]]
        for token in tokens:
            rows = (*token.rows[:3], MARK[f"ago {ago}"])
            self.tokens.append(replace(token, rows=rows, run=len(self.texts) - 1))

    def _encode(self, text: str) -> list[Token]:
        """Tokens of a text; a file's name in it is one token."""
        tokens, at, names = list[Token](), 0, list(self.files)
        for place, part in enumerate(_split_names(text, names)):
            start, at = at, at + len(part)
            if place % 2:
                rows = (MARK[f"mention:{self.files[part][0]}"], MARK[f"number {names.index(part)}"], 0, 0)
                tokens.append(Token(NO_WORD, rows, 0, start, at, part))
            else:
                tokens += self._encode_words(text, start, at)
        return tokens

    def _encode_words(self, text: str, start: int, end: int) -> list[Token]:
        chinese = self.vocabulary.chinese
        part = _SURROGATE.sub("?", text[start:end])  # as long, so that offsets stay right
        read = self.vocabulary.tokenizer.encode(part, add_special_tokens=False)
        tokens = []
        for word, (first, last) in zip(read.ids, read.offsets, strict=True):
            rows, at = (0, 0, 0, 0), start + first
            if last - first == 1 and _HAN.match(text[at]):
                before, after = (text[at - 1 : at + 1] if at else ""), text[at : at + 2]
                codes = (chinese.get(text[at], 0), chinese.get(before, 0), chinese.get(after, 0), 0)
                rows, word = codes, NO_WORD if codes[0] else word
            tokens.append(Token(word, rows, 0, at, start + last, text[at : start + last].casefold()))
        return tokens

    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The words (n,) and rows (n, 4)."""
        import numpy as np

        return np.array([t.word for t in self.tokens]), np.array([t.rows for t in self.tokens])

    # From a plan to actions

    def actions_of(
        self, tasks: Sequence[Task], left_out: Sequence[str] = (), preference: Preference | None = None
    ) -> list[int] | None:
        """The actions that write a plan, without START; None if one of its values cannot be written."""
        places: dict[int, int] = {}
        actions: list[int] = []
        for task in _in_order(tasks):
            places[task.id] = len(places)
            actions.append(self._code[task.task])
            for arg in TASKS[task.task].inputs:
                value = task.args.get(arg.name)
                if value is None:
                    continue
                actions.append(self._code[f"{arg.name}="])
                is_list = arg.many and isinstance(value, list | tuple)
                for number, item in enumerate(value if is_list else [value]):
                    written = self._value(task.task, arg, item, places)
                    if written is None:
                        return None
                    actions += [SLASH, *written] if number else written
        actions += [self._code[preference]] if preference else []
        for words in left_out:
            span = self._spans(words, self.body)
            if span is None or len(span) != 2:
                return None
            actions += [LEFT, *span]
        return [*actions, END]

    def _value(self, task: str, arg: Arg, value: Any, places: Mapping[int, int]) -> list[int] | None:
        if arg.kind == "data" and not refs_in(value) and (numbers := _numbers(value)) and not arg.many:
            return self._number(numbers)
        text = str(value)
        if arg.name in ("src_lang", "tgt_lang") and (language := find_language(text)):
            names = (self._spans(spelling, self.body) for spelling in language.spellings)
            return next((span for span in names if span and len(span) == 2), [self._code[language.name]])
        if text in WORDS.get(task, ()) or (arg.kind in MEDIA and text == NOT_GIVEN):
            return [self._code[text]]
        for place, (_, target) in self.targets.items():
            if target == text:
                return [self._size + place]
        if arg.kind in MEDIA and not refs_in(text):
            return None
        actions: list[int] = []
        for part in split_refs(text):
            if isinstance(part, tuple):
                actions.append(self._code[f"#{len(places) - 2 - places[part[0]]}"])
            elif part.strip():
                spans = self._spans(part.strip())
                if spans is None:
                    return None
                actions += spans
        return actions or None

    def _number(self, numbers: list[float]) -> list[int] | None:
        run = [(p, t) for p, t in enumerate(self.tokens) if t.run == self.body]
        text = self.texts[self.body]
        for first, (place, token) in enumerate(run):
            if not _NUMBER.match(text, token.start):
                continue
            for last, other in run[first : first + 16]:
                if _numbers(text[token.start : other.end]) == numbers:
                    return [self._size + place, self._size + last]
        if len(numbers) == 1 and f"{numbers[0]:g}" in self._code:
            return [self._code[f"{numbers[0]:g}"]]
        return None

    def _spans(self, text: str, run: int | None = None) -> list[int] | None:
        """The first and last tokens of the longest stretches that make up a text, in its order."""
        wanted = [token.key for token in self._encode(text)]
        actions: list[int] = []
        at, after = 0, 0
        while at < len(wanted):
            best = (0, False, False, 0, 0)
            for place, token in enumerate(self.tokens):
                if token.run >= 0 and run in (None, token.run):
                    length, last = self._shared(wanted, at, place)
                    best = max(best, (length, token.run == self.body, place >= after, -place, last))
            if not best[0] or len(actions) >= 12:
                return None
            first, last = -best[3], best[4]
            actions += [self._size + first, self._size + last]
            at, after = at + best[0], last
        return actions or None

    def _shared(self, wanted: Sequence[str], at: int, place: int) -> tuple[int, int]:
        """How many words from `at` on the tokens from `place` on stand for, and the last of these tokens."""
        start, run = at, self.tokens[place].run
        while at < len(wanted) and place < len(self.tokens):
            if self.tokens[place].run != run or self.tokens[place].key != wanted[at]:
                break
            at += 1 + (self._skipped if place == self._cut else 0)
            place += 1
        return min(at, len(wanted)) - start, place - 1

    # From actions to a plan

    def read(self, actions: Sequence[int]) -> Written:
        """What actions say; they need not be complete, but each must have been allowed."""
        written = Written()
        steps, pieces, first = written.steps, list[Piece](), 0
        for action in actions:
            symbol = self.vocabulary.symbols[action] if action < self._size else ""
            place = action - self._size
            if written.open == "span":
                pieces[-1], written.open = (first, place), ""
            elif action == LEFT:
                pieces, written.in_left, written.open = written.left, True, "value"
            elif symbol in self.vocabulary.tasks:
                steps.append(Step(symbol))
            elif symbol in PREFERENCES:
                written.preference = symbol
            elif symbol.endswith("="):
                pieces, written.open = [], "value"
                steps[-1].args[symbol[:-1]] = [pieces]
            elif action == SLASH:
                pieces, written.open = [], "value"
                list(steps[-1].args.values())[-1].append(pieces)
            elif place in self.targets and not written.in_left:
                pieces.append(self.targets[place][1])
                written.open = ""
            elif action >= self._size:
                first = place
                pieces.append((first, place))
                written.open = "span"
            elif action not in (START, END):
                is_result = symbol.startswith("#")
                pieces.append(len(steps) - 2 - int(symbol[1:]) if is_result else symbol)
                written.open = ""
        return written

    def allowed(self, actions: Sequence[int], offered: Collection[str]) -> NDArray[np.bool_]:
        """Which actions may follow some that were allowed: (symbols + tokens,)."""
        import numpy as np

        mask = np.zeros(self._size + len(self.tokens), bool)
        mask[list(self._following(actions, offered))] = True
        return mask

    def _following(self, actions: Sequence[int], offered: Collection[str]) -> Iterator[int]:
        written = self.read(actions)
        before, last = written.steps[:-1], written.steps[-1] if written.steps else None
        if written.open == "span":
            first = self.tokens[actions[-1] - self._size]
            later = range(actions[-1], self._size + len(self.tokens))
            yield from (action for action in later if self.tokens[action - self._size].run == first.run)
            return
        if written.in_left and written.open:
            yield from self._words(self.body)
            return
        if last and not (written.in_left or written.preference):
            spec, given = TASKS[last.task], list(last.args)
            if written.open == "value":
                yield from self._values(spec, spec.arg(given[-1]), before)
                return
            yield from self._arguments(spec, last, before)
            if set(spec.required) - set(given):
                return
        yield END
        if any(token.run == self.body for token in self.tokens):
            yield LEFT
        if written.in_left or written.preference:
            return
        yield from self._codes(PREFERENCES if last else ())
        if len(written.steps) < MOST_RESULTS:
            for name in self.vocabulary.tasks & {*offered}:
                if all(self._has_values(arg, written.steps) for arg in TASKS[name].inputs if arg.required):
                    yield self._code[name]

    def _arguments(self, spec: TaskSpec, step: Step, before: Sequence[Step]) -> Iterator[int]:
        """The further arguments of a task, and what continues the value of its last one."""
        given = list(step.args)
        place = [arg.name for arg in spec.inputs].index(given[-1]) + 1 if given else 0
        for left in spec.inputs[place:]:
            if self._has_values(left, before):
                yield from self._codes([f"{left.name}="])
            if left.required:
                break
        arg = spec.arg(given[-1]) if given else None
        if arg and arg.many:
            yield SLASH
        pieces = step.args[given[-1]][-1] if given else []
        if arg and arg.kind == "text" and len(pieces) < 6 and not isinstance(pieces[-1], str):
            yield from self._results(arg, before)
            yield from self._words()

    def _values(self, spec: TaskSpec, arg: Arg | None, before: Sequence[Step]) -> Iterator[int]:
        """What begins a value of an argument."""
        assert arg
        yield from self._results(arg, before)
        yield from self._files(arg)
        if arg.kind in MEDIA:
            return
        yield from self._words()
        if arg.name in ("src_lang", "tgt_lang"):
            yield from self._codes(language.name for language in LANGUAGES)
        elif arg.kind == "text":
            yield from self._codes(WORDS.get(spec.name, ()))
            yield from (self._size + p for p, (kind, _) in self.targets.items() if kind == "answer")
        elif not arg.many:
            yield from self._codes(map(str, NUMBERS))

    def _codes(self, symbols: Iterable[str]) -> list[int]:
        """The actions of symbols, as far as the weights know them."""
        return [self._code[symbol] for symbol in symbols if symbol in self._code]

    def _words(self, run: int | None = None) -> list[int]:
        """Where copied words may begin."""
        runs = enumerate(token.run for token in self.tokens)
        return [self._size + place for place, own in runs if own >= 0 and run in (None, own)]

    def _results(self, arg: Arg, steps: Sequence[Step]) -> list[int]:
        makers = enumerate(TASKS[step.task] for step in reversed(steps))
        return [self._code[f"#{number}"] for number, maker in makers if _fits(maker, arg)]

    def _files(self, arg: Arg) -> list[int]:
        """Files for an argument; without any, the symbol for one that is not given."""
        if arg.kind in MEDIA and not self.files:
            return self._codes([NOT_GIVEN])
        kinds = KINDS if arg.kind == "file" else split_kind(arg.kind)
        return [self._size + place for place, (kind, _) in self.targets.items() if kind in kinds]

    def _has_values(self, arg: Arg, steps: Sequence[Step]) -> bool:
        is_number = arg.kind == "data" and not arg.many
        if is_number or any(_fits(TASKS[step.task], arg) for step in steps):
            return True
        return bool(self._files(arg)) if arg.kind in MEDIA else any(token.run >= 0 for token in self.tokens)

    def plan_of(self, actions: Sequence[int]) -> tuple[list[Task], Preference | None, list[str]]:
        """The tasks that actions write, the preference, and the words that they leave out."""
        written = self.read([action for action in actions if action != END])
        tasks = []
        for number, step in enumerate(written.steps):
            spec = TASKS[step.task]
            args: dict[str, Any] = {}
            for name, values in step.args.items():
                arg = spec.arg(name)
                assert arg
                read = [self._text_of(pieces) for pieces in values]
                args[name] = read if arg.many else read[0]
                if name in ("src_lang", "tgt_lang") and (language := find_language(str(read[0]))):
                    args[name] = language.name
                elif arg.kind == "data" and not arg.many and not refs_in(read[0]):
                    numbers = _numbers(read[0] if name == "box" else _THOUSANDS.sub("", read[0]))
                    if len(numbers) == (4 if name == "box" else 1):
                        args[name] = numbers if name == "box" else numbers[0]
            pieces = [piece for values in step.args.values() for value in values for piece in value]
            deps = sorted({piece for piece in pieces if isinstance(piece, int)})
            tasks.append(Task(task=step.task, id=number, dep=deps or [-1], args=args))
        return tasks, written.preference, [self._text_of([piece]) for piece in written.left]

    def _text_of(self, pieces: Sequence[Piece]) -> str:
        texts = []
        for piece in pieces:
            if isinstance(piece, int):
                texts.append(ref(piece))
            elif isinstance(piece, tuple):
                first, last = (self.tokens[place] for place in piece)
                text = self.texts[first.run][: last.end]
                has_minus = first.start and _MINUS.match(text, first.start - 1)  # a token of its own
                start = first.start - bool(has_minus)
                texts.append(_literal(text[start:].strip()))
            else:
                texts.append(_literal(piece))
        return " ".join(texts)


def _split_names(text: str, names: Iterable[str]) -> list[str]:
    """A text split at names of files that are not within a word; every second part is one.

    Longer names come first. Unlike around paths, signs may stand beside them: "@a.png", "a.png-and".
    """
    longest_first = "|".join(re.escape(name) for name in sorted(filter(None, names), key=len, reverse=True))
    return re.split(rf"(?<![A-Za-z0-9_])({longest_first or '(?!)'})(?![A-Za-z0-9_])", text)


def _in_order(tasks: Sequence[Task]) -> list[Task]:
    """The tasks, each after what it uses; of those that could follow, the one that uses the latest result."""
    ordered: list[Task] = []
    left = list(tasks)
    while left:
        places = {task.id: place for place, task in enumerate(ordered)}
        needs = [{*refs_in(task.args), *task.deps} for task in left]
        ready = [place for place, ids in enumerate(needs) if ids <= places.keys()]
        ordered.append(left.pop(max(ready, key=lambda n: max((places[i] for i in needs[n]), default=-1))))
    return ordered


def _literal(text: str) -> str:
    """A text of the user, which is no reference to a result."""
    return text.replace("<resource>-", "<resource> -")


def lacks_file(task: Task) -> bool:
    """Whether the task needs a file that the request does not have."""
    values = [task.args.get(arg.name) for arg in TASKS[task.task].inputs if arg.kind in MEDIA]
    return any(NOT_GIVEN in (value if isinstance(value, list) else [value]) for value in values)


def _fits(maker: TaskSpec, arg: Arg) -> bool:
    if arg.kind == "file":
        return True
    return any(map(maker.makes, ("text", "data") if arg.kind == "data" else (arg.kind,)))


def _numbers(value: Any) -> list[float]:
    if isinstance(value, str):
        numbers = [float(number) for number in _NUMBER.findall(value)]
        return [int(number) if number.is_integer() else number for number in numbers]
    if isinstance(value, list | tuple):
        return [float(number) for number in value if isinstance(number, int | float)]
    return [float(value)] if isinstance(value, int | float) else []
