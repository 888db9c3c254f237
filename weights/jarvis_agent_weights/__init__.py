"""Weights of starter models and of the planner of langchain-hugginggpt: data alone."""
