"""Fine-tunes ALBERT on SQuAD 1.1, SQuAD 2.0 or questions in the same format.

    python run_squad.py --train_file=train-v2.0.json --predict_file=dev-v2.0.json --init_checkpoint=albert_base --output_dir=runs/squad2 --do_train --do_predict --learning_rate=3e-5 --train_batch_size=48

docs/squad.md explains the flags, the threshold and what a run writes.
"""  # noqa: E501 (--help shows the example as it stands here)

if __name__ == "__main__":
    # Processes that convert questions import this file, too, and need nothing of it.
    from albert_tf import flags, question_answering
    from albert_tf.distribution import DistributionConfig
    from albert_tf.fine_tuning import ModelConfig
    from albert_tf.question_answering import SquadConfig

    for settings in (SquadConfig, ModelConfig, DistributionConfig):
        flags.define(settings)


def main() -> None:
    """Reads the flags, trains, evaluates and predicts."""
    question_answering.run(
        flags.read(SquadConfig),
        flags.read(ModelConfig),
        flags.read(DistributionConfig),
    )


if __name__ == "__main__":
    flags.run(main)
