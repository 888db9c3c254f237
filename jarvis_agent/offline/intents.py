"""How a clause begins that asks for something: with a verb of action, a question word, or a wish.

bool(START.match("could you please describe it"))      # True
bool(START.match("I have a picture"))                  # False
"""

from __future__ import annotations

import re

ACTIONS = (
    "add adjust analyse analyze animate annotate answer append apply arrange assess assign attach blend "
    "blur brainstorm brew brighten bring build calculate caption cartoonify categorise categorize "
    "change check choose clarify classify clean clone color colorize colour colourise colourize combine "
    "come compare complete compose compress compute concatenate condense construct continue convert "
    "copy count craft create crop cut decide deliver denoise depict derive describe design detect "
    "determine develop differentiate display do draft draw dream dub edit embed employ encode enhance "
    "erase estimate evaluate examine execute explain explore export extract fill film filter find "
    "finish fix flip forecast generate get give grab guess hear highlight identify illustrate imagine "
    "improve infer inspect interpret invent isolate join label lay let list listen locate look make "
    "mark match measure merge modify mute name narrate obtain order outline overlay paint paraphrase "
    "paste perform pick pinpoint place play point predict prepare process produce project pronounce "
    "proofread provide pull put rank read rebuild recap recite recognise recognize recolor recolour "
    "reconstruct record redraw reduce refine reimagine remove render repaint repeat rephrase replace "
    "reply report rerank rerender rescale resize respond restore restyle retrieve return reword rewrite "
    "rip rotate run save say scale scan score segment separate sharpen shorten show shrink simplify "
    "sing sketch smooth sort speak split spot stabilise stabilize state stitch strip suggest sum "
    "summarise summarize swap synthesise synthesize tag take tell think tidy title trace transcribe "
    "transform translate transliterate trim turn tweak type underlay upscale use vectorise vectorize "
    "verify visualise visualize vocalize voice write zoom"
).replace(" ", "|")
QUESTIONS = "what|what's|whats|how|which|who|who's|whose|whom|where|where's|when|why"
_AUXILIARIES = "is|are|was|were|does|do|did|can|could|has|have|will|would|should"

BEFORE = r"[\s\"'(*,.:;–-]*"
OPENERS = (
    r"(?:(?:please|pls|plz|kindly|now|first(?:ly)?|second(?:ly)?|third(?:ly)?|then|next|also|separately|maybe|"
    r"in addition|additionally|besides|furthermore|moreover|meanwhile|quickly|simply|"
    r"finally|lastly|afterwards|"
    r"after that|hi|hello|hey|ok(?:ay)?|so|just|and|but|jarvis|well|"
    r"(?:can|could|would|will) (?:you|u|someone|somebody|anyone|anybody)(?: please| kindly| maybe| just)?|"
    r"(?:is it possible|is there (?:a|any) way|any chance|try|how about you|would you mind)(?: to)?|"
    r"go ahead and|"
    r"help me(?: to)?|let us|let's|let me(?: know)?|i(?: am|'m|’m) (?:looking|trying) to|i want to|to|"
    r"(?:i|we)(?: would|'d|’d)?(?: really)? (?:like|love|want|need|wish|have)(?: you)? to"
    r"(?: know| see| hear(?= (?:what|how|who|if|whether)\b))?|"
    r"you (?:should|must|need to)|your task is to|"
    r"tell me(?= (?:what|how|which|who|whose|where|when|why|if|whether|the)\b))[,:!]?\s+){0,6}"
)
_WISH = r"i(?: would|'d|’d)? (?:need|want|like|love)\s+(?!to\b|you\b)"
_RESULT = (
    r"(?:it|the (?:result|outcome|picture|image|video|output)) (?:should|must|ought to) "
    r"(?:be|become|show|look)\b(?! (?:on|in|at|there|here|possible|easy|enough|about|called|said)\b)"
)
VOICED = r"(?:have|let) an? (?:\w+ )?(?:voice|narrator|speaker)\b"
"""How speech is asked for by who is to speak ("have a voice say \ue000")."""
START = re.compile(
    rf"^{BEFORE}(?:tell me\b|{OPENERS}(?!look at\b|here is\b)"
    r"(?:(?:on|in|at|for|from|to|with|by|of|since|until|under) wh(?:at|ich|om|ose)\b|"
    rf"(?:{ACTIONS}|{QUESTIONS}|{_AUXILIARIES})\b|{VOICED}|{_WISH}|{_RESULT}))",
    re.IGNORECASE,
)
REFUSES = re.compile(
    rf"^{BEFORE}{OPENERS}(?:(?:do not|don['’]?t|never)(?! (?:just|only|forget|hesitate|worry|know|you)\b)|"
    r"(?:there is )?no need to|you need not|without)\b|"
    rf"^{BEFORE}(?:no\s+[\w ]{{1,30}}|[\w ]{{1,40}}\b(?:is not|isn['’]?t|not)\s+)"
    r"(?:needed|necessary|required)\W*$",
    re.IGNORECASE,
)
"""A clause that says what is not to be done."""
