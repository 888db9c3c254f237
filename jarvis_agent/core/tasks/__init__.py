"""Task types: what each task takes, what it makes, and the table of all of them."""
