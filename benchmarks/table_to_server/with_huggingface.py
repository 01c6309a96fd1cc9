"""Fine-tunes on a table and serves it, with transformers and datasets."""

import sys

import numpy as np
import transformers
from datasets import load_dataset
from sklearn.metrics import accuracy_score
from transformers.trainer_utils import get_last_checkpoint

table, pretrained, folder = sys.argv[1:]
rows = load_dataset("csv", data_files=table)["train"].class_encode_column("label")
names = rows.features["label"].names
tokenizer = transformers.AutoTokenizer.from_pretrained(pretrained)


def _encode(batch):
    return tokenizer(batch["text"], truncation=True, max_length=64)


def _metrics(predictions):
    labels = np.argmax(predictions.predictions, axis=-1)
    return {"accuracy": accuracy_score(predictions.label_ids, labels)}


splits = rows.map(_encode, batched=True).train_test_split(test_size=200, shuffle=False)
model = transformers.AutoModelForSequenceClassification.from_pretrained(
    pretrained,
    num_labels=len(names),
    id2label=dict(enumerate(names)),
    label2id={name: number for number, name in enumerate(names)},
)
arguments = transformers.TrainingArguments(
    output_dir=folder,
    num_train_epochs=3,
    per_device_train_batch_size=16,
    learning_rate=3e-5,
    weight_decay=0.01,
    warmup_steps=0.1,
    eval_strategy="epoch",
    save_strategy="epoch",
    load_best_model_at_end=True,
    metric_for_best_model="accuracy",
    report_to="none",
)
trainer = transformers.Trainer(
    model,
    arguments,
    train_dataset=splits["train"],
    eval_dataset=splits["test"],
    data_collator=transformers.DataCollatorWithPadding(tokenizer),
    compute_metrics=_metrics,
    processing_class=tokenizer,
)
trainer.train(resume_from_checkpoint=get_last_checkpoint(folder))
print(trainer.evaluate())
trainer.save_model(f"{folder}/served")
served = transformers.pipeline("text-classification", f"{folder}/served")
print(served(["A fine film."], top_k=None))
