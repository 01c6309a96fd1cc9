"""Which checkpoint of a run: the setting of every script that reads weights."""

CHECKPOINT_HELP = (
    "Checkpoint to read where the weights are the folder of a run: best (the newest "
    "where there is no best), or newest; the path of a checkpoint names any other."
)
