"""Planning without a language model, by rules and sentence embeddings.

    OfflinePlanner().invoke("Describe cat.jpg and read the caption aloud")      # a Plan
    split_request("Describe cat.jpg, then translate the caption")               # its steps
    OfflinePlanner().recognise(specs)["My Captioner"].aliases[-1]               # "image-to-text"

A request passes through five stages. "Describe cat.jpg and read the caption aloud", for example:

1. Masking (`masking`, `pasted_text`): files and quoted or pasted texts become single characters.
       "Describe ⓘ and read the caption aloud"
2. Clauses (`clauses`, `clause_cuts`): the request is split into steps that each ask for one thing.
       "Describe ⓘ" · "read the caption aloud"
3. Classification (`delexicalise`, `classifier`, `ranking`, `cues`, `tool_ranking`): each task gets a score.
       image-to-text 1.08, image-classification 0.73, … · text-to-speech 0.84, …
4. Arguments (`arguments`, `text_arguments`, `tool_arguments`): slot filling, with what the step says by
   itself (`extraction`) and what it refers to (`sources`, `coreference`).
       {"image": "cat.jpg"} · {"text": "<resource>-0"}, since "the caption" is the result of task 0
5. Linking (`linking`): tasks with their dependencies; a task that makes a missing input goes before.
       image-to-text (0) → text-to-speech (1)

`steps` runs stages 3 to 5 for each step in turn, and notes each step that becomes no task.
Chinese requests are put into the English steps of stage 2 by `chinese`, `chinese_rules` and `chinese_slots`.

Data: `patterns.toml` (patterns of English and Chinese), `chinese.json` (rules), `phrases.json` (examples of
steps for each task), `clauses.json` (templates of clauses), and two fitted models (`*.npz`).
"""

from jarvis_agent.planning.offline.planner import OfflinePlanner, split_request

__all__ = ["OfflinePlanner", "split_request"]
