"""Training: one loop for all tasks, and the driver of fine-tuning.

In reading order:

    settings     the flags of the devices
    devices      the `tf.distribute.Strategy` of a run, and communication of workers
    step         the steps on the devices: training, evaluation, prediction
    loop         the training loop: start, resume, log, save, evaluate, stop
    checkpoints  TF1 checkpoints of a run, with the number of examples seen
    report       lines of progress, metrics.jsonl, eval_results.txt, TensorBoard
    trackers     logging to Weights & Biases and MLflow
    run_file     run.json: the flags of a run; a resumed run reports changed flags
    curves       metrics.jsonl as numbers and as a picture
    finetune     the driver of all task families: data, seeds, predictions, export
    ensembles    evaluation and prediction with the mean of several models
"""
