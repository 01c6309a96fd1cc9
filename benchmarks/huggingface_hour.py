"""Pretrains with Hugging Face's Trainer for a given time, to compare what it is worth.

The model has the sizes, and the vocabulary, of a folder that `albert-tf convert
--output_format=hf` wrote, and random weights. Text, collator and arguments are
those of Hugging Face's run_mlm.py: lines with their special tokens, strung together and
cut to 128, 15 % hidden anew in each batch, and the Trainer's defaults (8 sequences a
step, AdamW at 5e-5 falling linearly). The clock starts before the text is read, and
the number of steps is what the time allows.

    python benchmarks/huggingface_hour.py --model=folder --input_file=text.txt \
        --output_dir=peer --minutes=60
"""

import argparse
import shutil
import time

import transformers

LENGTH = 128
MEASURED = 100  # steps, of which the first half, which is slower, is not counted


def main():
    """Tokenizes, measures a step, trains, and saves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder of config and tokenizer")
    parser.add_argument("--input_file", required=True)
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()
    end = time.monotonic() + 60 * args.minutes
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    rows = sequences(tokenizer, args.input_file)
    print(f"{len(rows)} sequences of {LENGTH} tokens", flush=True)
    _, ends = train(args, tokenizer, rows, MEASURED)
    a_step = (ends[-1] - ends[MEASURED // 2 - 1]) / (MEASURED // 2)
    steps = int((end - time.monotonic()) / a_step)
    print(f"{a_step:.4f} seconds a step, {steps} steps", flush=True)
    trainer, _ = train(args, tokenizer, rows, steps, end)
    trainer.save_model(args.output_dir)
    tokenizer.save_pretrained(args.output_dir)
    # Which this version of Hugging Face's does not write.
    shutil.copy(f"{args.model}/spiece.model", args.output_dir)
    print(f"{trainer.state.global_step} steps; {time.process_time() / 60:.1f} minutes")


def sequences(tokenizer, path):
    """Returns the tokens of all lines, strung together and cut."""
    with open(path, encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip()]
    tokens = [t for row in tokenizer(lines)["input_ids"] for t in row]
    whole = len(tokens) // LENGTH * LENGTH
    return [{"input_ids": tokens[i : i + LENGTH]} for i in range(0, whole, LENGTH)]


def train(args, tokenizer, rows, steps, end=None):
    """Trains a model of random weights for some steps, and at most until `end`.

    Returns:
        The trainer, and when each step ended.
    """
    ends = []

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            ends.append(time.monotonic())
            control.should_training_stop |= end is not None and ends[-1] > end

    transformers.set_seed(args.seed)
    config = transformers.AutoConfig.from_pretrained(args.model)
    trainer = transformers.Trainer(
        model=transformers.AlbertForMaskedLM(config),
        args=transformers.TrainingArguments(
            output_dir=args.output_dir,
            per_device_train_batch_size=args.batch,
            learning_rate=args.learning_rate,
            max_steps=steps,
            seed=args.seed,
            use_cpu=True,
            save_strategy="no",
            logging_steps=500,
            disable_tqdm=True,
            report_to=[],
        ),
        train_dataset=rows,
        data_collator=transformers.DataCollatorForLanguageModeling(tokenizer),
        callbacks=[Clock()],
    )
    trainer.train()
    return trainer, ends


if __name__ == "__main__":
    main()
