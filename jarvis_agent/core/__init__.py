"""Types, errors, settings and other code that every stage shares."""
