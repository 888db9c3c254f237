"""Evaluation of planning: plans scored against gold ones, on TaskBench folders and on requests of our own.

graphs      plans as TaskBench writes them
metrics     F1 of tools, links and arguments, edit distance, exact graphs, confidence intervals
taskbench   TaskBench folders
predict     a planner over many requests, resumable
"""
