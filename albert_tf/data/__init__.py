"""Reads, writes and downloads files of data, and makes batches of them.

In reading order:

    tables       reads TSV, CSV and JSON into rows
    json_values  parses the JSON of users' files, and checks the types of its values
    records      writes and reads TFRecord files with a list of features (a spec)
    batches      makes batches of records or examples: order, lengths, shards
    cache        stores encoded examples with a key of their settings
    datasets     downloads GLUE, SQuAD and RACE by name
    download     downloads archives into folders, once for all processes
    files        reads text, writes files atomically, locks folders
    cores        counts the cores that this process may use
    stopping     stops a run between two steps after a signal
"""
