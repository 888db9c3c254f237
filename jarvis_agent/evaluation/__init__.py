"""Evaluation of planning and model selection; the command line runs it as `jarvis eval`.

taskbench   TaskBench folders: tools, requests, gold plans
requests    our own requests with their plans
plan_match  when two plans are equal
selection   our own cases of model selection
metrics     plans as graphs: F1 of tools, links and arguments, edit distance
predict     a planner run over many requests
report      the rows of a table: figures with 95 % intervals
"""
