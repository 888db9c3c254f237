"""Models of tables: scikit-learn (sklearn.py) and time series (time_series.py)."""
