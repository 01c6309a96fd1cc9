"""The settings of the scripts that serve and convert models."""
