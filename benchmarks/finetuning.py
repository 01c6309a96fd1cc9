"""Compares the speed of fine-tuning and prediction with Hugging Face on a GLUE task.

The model is ALBERT-base with random weights. Both programs get the same token ids. This
package makes batches of examples of similar length. Hugging Face makes random batches
and pads them to their longest example (dynamic padding, the default of its Trainer).

    python benchmarks/finetuning.py --data_dir=glue --task_name=mrpc \
        --spm_model_file=30k-clean.model
    python benchmarks/finetuning.py ... --work=predict --rounds=5
"""

import tempfile
import time
from pathlib import Path

import common


def prepare(args, folder):
    """Writes the model's config and the token ids of random examples."""
    import numpy as np

    from albert_tf.tasks import catalogue
    from albert_tf.text import inputs, tokenization

    common.write_config(folder, args.model)
    tokenizer = tokenization.SentencePieceTokenizer(args.spm_model_file)
    task = catalogue.get_task(args.task_name)
    rows = task.read("train", args.data_dir).rows
    chosen = np.random.default_rng(0).choice(len(rows), args.examples, replace=False)
    rows = [rows[i] for i in chosen]
    texts_a = [row.text_a for row in rows]
    texts_b = [row.text_b for row in rows if row.text_b is not None] or None
    encoded = inputs.encode(tokenizer, texts_a, texts_b, args.max_seq_length)
    indices, length = range(len(encoded)), int(encoded.lengths.max())
    arrays: dict = inputs.pad(encoded, indices, length, tokenizer.pad_id)
    np.savez(folder / "examples.npz", lengths=encoded.lengths, **arrays)


def load(folder):
    """Returns the arrays and the lengths that `prepare` wrote."""
    import numpy as np

    arrays = dict(np.load(folder / "examples.npz"))
    return arrays, arrays.pop("lengths")


def time_epoch(args, lengths, call, *, sort_by_length):
    """Returns the seconds per example in the third of three epochs.

    `call` computes a batch from the numbers of its rows and its padded length.
    """
    import numpy as np

    rng = np.random.default_rng(1)
    for _ in range(3):
        start_time = time.perf_counter()
        order = rng.permutation(len(lengths))
        if sort_by_length:
            order = order[np.argsort(lengths[order], kind="stable")]
        for begin in range(0, len(order), args.batch_size):
            rows = order[begin : begin + args.batch_size]
            call(rows, int(lengths[rows].max()))
    return (time.perf_counter() - start_time) / len(lengths)


def albert_tf(args):
    """Times this package's classifier, in batches of similar length."""
    import keras
    import tensorflow as tf

    from albert_tf import AlbertConfig, optimizers
    from albert_tf.model import heads, models

    arrays, lengths = load(args.folder)
    config = AlbertConfig.find(str(args.folder / "config.json"))
    keras.config.set_dtype_policy(common.POLICIES[args.precision])
    model = models.AlbertClassifier(config, 2)
    optimizer = optimizers.AdamW(5e-5)
    optimizer.build(model.trainable_variables)
    is_training = args.work == "train"

    @tf.function(reduce_retracing=True)
    def step(batch, labels):
        with tf.GradientTape() as tape:
            logits = model(batch, training=is_training)["logits"]
            loss = tf.reduce_mean(heads.classification_loss(logits, labels))
        if is_training:
            variables = model.trainable_variables
            gradients = tape.gradient(loss, [v.value for v in variables])
            optimizer.apply(gradients, variables)
        return loss

    def call(rows, length):
        batch = {key: tf.constant(x[rows, :length]) for key, x in arrays.items()}
        float(step(batch, tf.zeros(len(rows), tf.int32)))

    return time_epoch(args, lengths, call, sort_by_length=True)


def huggingface(args):
    """Times Hugging Face's classifier, in a plain loop."""
    import torch

    arrays, lengths = load(args.folder)
    is_training = args.work == "train"
    model = common.huggingface_model(args.folder, "AlbertForSequenceClassification")
    model.train(is_training)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.01)

    def call(rows, length):
        batch = {
            name: torch.tensor(arrays[key][rows, :length]).long()
            for name, key in common.INPUTS.items()
        }
        labels = torch.zeros(len(rows), dtype=torch.long)
        with torch.autocast("cpu", torch.bfloat16, args.precision == "bfloat16"):
            loss = model(**batch, labels=labels).loss
        if is_training:
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    with torch.set_grad_enabled(is_training):
        return time_epoch(args, lengths, call, sort_by_length=False)


def main():
    """Runs the programs alternately and prints their speeds."""
    parser = common.make_parser(__doc__)
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--task_name", default="mrpc")
    parser.add_argument("--spm_model_file", required=True)
    parser.add_argument("--model", default="albert_base_v2")
    parser.add_argument("--work", default="train", choices=["train", "predict"])
    parser.add_argument("--precision", default="float32", choices=common.POLICIES)
    parser.add_argument("--examples", type=int, default=256, help="in each epoch")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--max_seq_length", type=int, default=128)
    args = parser.parse_args()
    if args.program:  # the function with this name returns the seconds per example
        print(globals()[args.program](args))
        return
    with tempfile.TemporaryDirectory() as name:
        prepare(args, Path(name))
        programs = "albert_tf", "huggingface"
        results = common.run_in_turns(args, programs, Path(name))
    print(f"{args.task_name}, {args.work}, {args.precision}")
    for program, (seconds,) in results.items():
        print(
            f"  {program:12}{1 / seconds:7.1f} examples/s   albert_tf is "
            f"{seconds / results['albert_tf'][0]:5.2f} times as fast"
        )


if __name__ == "__main__":
    main()
