"""The language model: how it is found, called, prompted, and how its JSON is read."""
