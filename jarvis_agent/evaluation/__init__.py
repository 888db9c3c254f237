"""Evaluation of planning: plans scored against gold ones, on TaskBench folders and on requests of our own.

graphs      plans as TaskBench writes them
metrics     F1 of tools, links and arguments, edit distance, exact graphs, confidence intervals
taskbench   TaskBench folders
predict     a planner over many requests, resumable
predictions what planners made, and the files that hold it
requests    our own requests with hand-made plans, in two halves
alike       whether two plans are the same: tasks, links, and the arguments that matter
paper       plans judged as in the paper, by kind and language
choices     cases of model selection, and how often the choice is right
report      figures with their intervals
chart       bars of them
lines       files of JSON lines
"""
