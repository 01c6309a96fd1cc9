"""Times fine-tuning and prediction on a GLUE task, side by side with Hugging Face.

ALBERT-base with random weights; every program gets the same ids of the same examples.
This package pads batches of like length; Hugging Face pads random batches to their
longest example (dynamic padding, its Trainer's default). More programs of this package
show where the gain comes from: batches as Hugging Face makes them, everything padded to
--max_seq_length, bfloat16, and predictions in ONNX Runtime (--runtime=onnx).

    python benchmarks/finetuning.py --data_dir=glue --task_name=mrpc \
        --spm_model_file=30k-clean.model
    python benchmarks/finetuning.py ... --work=predict --rounds=5
"""

import argparse
import importlib.util
import statistics
import sys

from pretraining_run import Turns
from pretraining_step import POLICIES
from turns import take_turns

PROGRAMS = {
    "ours": "albert_tf, float32",
    "ours_random": "albert_tf, float32, random batches",
    "ours_padded": "albert_tf, float32, all padded",
    "ours_bfloat16": "albert_tf, bfloat16",
    "ours_onnx": "albert_tf, ONNX Runtime",
    "huggingface": "Hugging Face, float32",
    "huggingface_bfloat16": "Hugging Face, bfloat16",
}


def main():
    """Lets the programs take turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--task_name", default="mrpc")
    parser.add_argument("--spm_model_file", required=True)
    parser.add_argument("--work", default="train", choices=["train", "predict"])
    parser.add_argument("--examples", type=int, default=256, help="in each turn")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=[*PROGRAMS])
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve = serve_huggingface if "huggingface" in args.serve else serve_ours
        serve(args, POLICIES["bfloat16" if "bfloat16" in args.serve else "float32"])
        return
    names = [
        name
        for name in args.programs
        if (args.work == "predict" or name != "ours_onnx")
        and ("ours" in name or importlib.util.find_spec("transformers"))
    ]
    command = [sys.executable, __file__, *sys.argv[1:]]
    seconds = take_turns(
        {name: [*command, "--serve", name] for name in names}, args.rounds
    )
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    first = names[0]
    print(f"{args.task_name}, {args.work}, {args.examples} examples a turn")
    for name, median in medians.items():
        speed, ratio = args.examples / median, median / medians[first]
        print(
            f"  {PROGRAMS[name]:36}{speed:7.1f} examples/s   {ratio:5.2f} times the "
            f"time of {PROGRAMS[first]}"
        )


def sample(args, multiple):
    """Returns the task, with the same examples in every program."""
    import numpy as np

    from albert_tf import AlbertConfig
    from albert_tf.tasks import catalogue
    from albert_tf.tasks.base import Split
    from albert_tf.tasks.classification import Classification, fields_of
    from albert_tf.tasks.settings.classification import ClassificationSettings
    from albert_tf.text import tokenization

    text_task = catalogue.find(args.task_name)
    tokenizer = tokenization.SentencePieceTokenizer(args.spm_model_file)
    table = text_task.read("train", args.data_dir)
    chosen = np.random.default_rng(0).choice(
        len(table.rows), args.examples, replace=False
    )
    settings = ClassificationSettings(
        max_seq_length=args.max_seq_length, **fields_of(text_task)
    )
    config = AlbertConfig.named("albert_base_v2")
    task = Classification(settings, config, tokenizer, multiple)
    task.use({"train": [task.encoded(Split("train", [table.rows[i] for i in chosen]))]})
    return task


def serve_ours(args, policy):
    """An epoch of training, or of prediction, in each turn."""
    import tensorflow as tf

    from albert_tf.data import batches
    from albert_tf.train import devices, finetune, loop
    from albert_tf.train.step import Trainer

    if args.serve == "ours_random":
        # Sorting the examples of one batch is sorting none.
        batches._BATCHES_TO_SORT, batches._EXAMPLES_TO_SORT = 1, args.batch_size
    config = finetune.FineTuningSettings(
        output_dir="unused",
        do_train=True,
        num_train_steps=10**6,
        num_warmup_steps=0,
        train_batch_size=args.batch_size,
        precision=policy.removeprefix("mixed_"),
        pad_to_multiple_of=0 if args.serve == "ours_padded" else None,
    )
    strategy = loop.prepare(config, devices.DistributionSettings())
    task = sample(args, finetune._pad_multiple(config, strategy))
    model = task.build_model()
    optimizer = loop.build_optimizer(config)
    optimizer.build(model.trainable_variables)
    trainer = Trainer(task, config, strategy, model, optimizer)
    if args.serve == "ours_onnx":
        trainer.predict_in("onnx")
    steps = args.examples // args.batch_size

    def epoch(steps=steps):
        if args.work == "train":
            trainer.train(tf.constant(steps))
            return
        for _ in trainer.predict(task.training, args.batch_size):
            pass

    epoch(min(2, steps))
    # Turns are whole epochs from here on, so that all have the same lengths.
    trainer._iterator, trainer.examples_seen = None, 0
    wait = Turns()
    while wait():
        epoch()


def serve_huggingface(args, policy):
    """The same with `AlbertForSequenceClassification`, in a plain loop."""
    # With triton, which crashes if TensorFlow was imported before: `sample` does that.
    import torch._dynamo  # isort: skip
    import numpy as np
    import transformers

    task = sample(args, 1)
    lengths = task.training.lengths
    config = transformers.AlbertConfig(
        embedding_size=128,
        hidden_size=768,
        num_attention_heads=12,
        intermediate_size=3072,
        attention_probs_dropout_prob=0.0,
        hidden_dropout_prob=0.0,
    )
    config.num_labels = task.declared.outputs
    model = transformers.AlbertForSequenceClassification(config)
    model.train(args.work == "train")
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.01)
    random = np.random.default_rng(1)
    regression = task.declared.labels is None

    def batch(rows):
        made = task.training.make(rows, int(lengths[rows].max()))
        found = {name: torch.tensor(value).long() for name, value in made.items()}
        if regression:
            found["labels"] = torch.tensor(made["labels"])
        return {
            "input_ids": found["input_ids"],
            "attention_mask": found["input_mask"],
            "token_type_ids": found["segment_ids"],
            "labels": found["labels"],
        }

    steps = args.examples // args.batch_size

    def epoch(steps=steps):
        order = random.permutation(args.examples)[: steps * args.batch_size]
        for rows in order.reshape(-1, args.batch_size):
            with torch.autocast("cpu", torch.bfloat16, enabled="bfloat16" in policy):
                loss = model(**batch(rows)).loss
            if args.work == "train":
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()

    with torch.set_grad_enabled(args.work == "train"):
        epoch(min(2, steps))
        wait = Turns()
        while wait():
            epoch()


if __name__ == "__main__":
    main()
