"""From bytes to batches, and what reading and writing files needs.

In reading order:

    tables       TSV, CSV and JSON lines to rows, refusals by file and line
    json_values  JSON of users to values of one type
    records      TFRecord files by one feature spec, written and read
    batches      records or examples to batches: order, lengths, shares of replicas
    cache        arrays made once, and kept with what they were made from
    datasets     GLUE, SQuAD and RACE by name, downloaded
    download     archives from the network into folders, resumed, one download for all
    files        files that are whole or not there; locks of folders
    cores        cores and memory that this process may use
    stopping     signals that stop a run between two steps
    quiet        TensorFlow's log lines, silenced
    imports      what TensorFlow's import leaves out when a command runs
"""
