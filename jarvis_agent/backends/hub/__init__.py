"""Models as files: snapshots, layouts, model cards and models inside packages."""
