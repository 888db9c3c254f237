"""Every weight of the offline planner that is set by hand, in one table.

Weights of ranking are added to a cosine similarity, which is 1 for identical texts.
"""

from __future__ import annotations

from typing import NamedTuple


class _Weights(NamedTuple):
    """Set on the development half of the project's own requests."""

    understood: float = 0.4
    """A step whose best task scores less is not understood."""
    clear: float = 0.6
    """A step that may only repeat the one before it must score this much to become a task."""
    margin: float = 0.15
    """How far behind the best a task may be and still replace it where the best lacks an input."""
    odds: float = 0.05
    """Cost per unit of log-odds that a task is behind the likeliest one."""
    most_odds: float = 6.0
    """The largest difference of log-odds that counts."""
    takes_file: float = 0.04
    """The task takes a file of the step."""
    needs_bridge: float = -0.16
    """The task takes a text into which the step's file can be converted."""
    lacks_file: float = -0.08
    """The task takes a file, and the request has none."""
    speaks_of_map: float = 0.12
    """The step mentions the control map that the task takes, and says what to draw."""
    map_at_hand: float = 0.15
    """In addition, "it" is that map."""
    map_said: float = 0.6
    """Least score of a task whose control map the sentence before mentions."""
    verb: float = 0.15
    """The step begins with a verb that only phrases of the task begin with."""
    choice: float = 0.15
    """The task takes labels, and the step offers a choice."""
    unnamed: float = -0.06
    """The step lacks the words that usually name the task."""
    quantity: float = 0.2
    """The step says a number that is an argument of the task."""
    several: float = 0.25
    """The step asks which of several files, and the task compares them."""
    thing: float = 0.12
    """A detector knows the thing that the step looks for; the other detector loses as much."""
    asks_of_text: float = 0.25
    """The step asks something about a text file, and the task answers questions about a text."""
    no_language: float = -0.4
    """The step asks something about a text file and names no language to translate into."""
    repeats: float = -0.15
    """The task made the last result, and the step names no other file."""
    sure: float = 1.0
    """The step is known to mean the task."""
    described: float = 0.12
    """For a tool that has only a description, where other tasks have many phrases."""
    tool_name: float = 0.4
    """The step names a tool that has only a description."""
    recognise: float = 0.35
    """Least similarity of a tool's description to the class of task it is recognised as."""
    certain: float = 0.6
    """Score of a recognised tool whose log-probability is 0."""
    log_prob: float = 0.125
    """Score per unit of log-probability of a recognised tool."""
    kind_absent: float = -3.0
    """In log-probability: the kind of file that a tool takes is neither present nor mentioned."""
    kind_mentioned: float = -1.2
    """The kind of file is only mentioned."""
    kind_differs: float = -1.5
    """The clause mentions another kind of file."""
    kind_latest: float = 1.5
    """"It" is of the kind that the tool takes."""
    cut: float = -0.2
    """Least log-probability at which a part of a step becomes a step of its own."""


WEIGHTS = _Weights()
