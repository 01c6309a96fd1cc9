"""Training: one loop for every task, and the driver of fine-tuning.

In reading order:

    settings     the flags of the devices
    devices      settings in, `tf.distribute.Strategy` out; several workers
    step         computation on the devices: train, evaluate, predict
    loop         the one loop: start, resume, log, save, evaluate, stop
    checkpoints  released TF1 checkpoints that also hold the run's position
    report       lines of progress, metrics.jsonl, eval_results.txt, TensorBoard
    trackers     the same for Weights & Biases and MLflow
    run_file     run.json: the flags of a run, and which of them changed on resuming
    curves       metrics.jsonl as numbers and as a picture
    seeds        fine-tuning, once or with several seeds
    finetune     the driver of every family: data, training, predictions, export
    ensembles    the same with the mean of several models
"""
