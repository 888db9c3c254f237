"""Evaluation of planning and model selection; the command line runs it as `jarvis eval`.

taskbench   TaskBench folders: tools, requests, gold plans
requests    our own requests with their plans, and when two plans are equal
selection   our own cases of model selection
metrics     plans as graphs: F1 of tools, links and arguments, edit distance
predict     a planner run over many requests
report      figures with their 95 % intervals
"""
