"""The parts of the answer: the report, short forms of results, fixed phrases, and the guard of paths."""
