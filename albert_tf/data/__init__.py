"""From bytes to batches, and help to read and write files.

In reading order:

    tables       TSV, CSV and JSON lines to rows, refusals by file and line
    json_values  JSON of users to values of one type
    records      TFRecord files by one feature spec, written and read
    batches      records or examples to batches: order, lengths, shards of replicas
    cache        arrays made once, and kept with the key they were made from
    datasets     GLUE, SQuAD and RACE by name, downloaded
    download     archives from the network into folders, one download for all
    files        files that are whole or not there; locks of folders
    cores        cores that this process may use
    stopping     signals that stop a run between two steps
"""
