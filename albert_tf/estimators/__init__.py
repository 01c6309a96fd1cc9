"""Models that fit, predict and save in a few lines of Python."""
