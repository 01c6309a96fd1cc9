"""Training: one loop for all tasks, which pretraining and fine-tuning call.

In reading order:

    settings     the flags that choose the devices
    devices      the `tf.distribute.Strategy` of a run; sums over its workers
    step         training, evaluation and prediction on the devices, batch by batch
    loop         the training loop: start, resume, log, save, evaluate, stop
    checkpoints  TF1 checkpoints of a run, with the number of examples seen
    report       lines of progress, metrics.jsonl, eval_results.txt, TensorBoard
    trackers     logging to Weights & Biases and MLflow
    run_file     run.json: the flags of a run; logs the flags that a resumed run changes
    curves       reads metrics.jsonl, and draws its metrics as a picture
    pretrain     prepares and runs pretraining
    finetune     prepares and runs fine-tuning: data, seeds, predictions, export
    ensembles    evaluation and prediction with the mean of several models' outputs
"""
