"""How a clause begins that asks for something: with a verb of action, a question word, or a wish.

bool(START.match("could you please describe it"))      # True
bool(START.match("I have a picture"))                  # False
"""

from __future__ import annotations

from jarvis_agent.planning.offline.patterns import pattern, word

ACTIONS = word("words.ACTIONS")
QUESTIONS = word("intents.QUESTIONS")

BEFORE = word("intents.BEFORE")
OPENERS = word("intents.OPENERS")
VOICED = word("intents.VOICED")
"""How speech is asked for by who is to speak ("have a voice say \ue000")."""
START = pattern("intents.START")
REFUSES = pattern("intents.REFUSES")
"""A clause that says what is not to be done."""
