"""Models of tables: scikit-learn's by skops, and time series by Chronos."""
