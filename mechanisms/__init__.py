"""The mathematics: oracles, keyed randomness, the transform and the estimators."""
