"""Bytes to batches: files, records, tables, and the order of examples."""
