"""Makes pretraining records from raw text."""
