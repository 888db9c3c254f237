"""Where candidates come from: packages, the Hub's cache, the Hub. Each source is a row of table.py."""
