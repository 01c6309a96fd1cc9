"""Runs what the tests have written in transformers: a process without TensorFlow.

    python -P programs.py FOLDER

reads `inputs.npz` and `plan.json` in the folder, and writes `outputs.npz` and
`answers.json`.
"""

import json
import sys
from pathlib import Path

import torch  # before all others
import transformers

import numpy as np  # isort: skip


def main(folder):
    """Does everything in one go, since the imports take longest."""
    plan = json.loads((folder / "plan.json").read_text())
    with np.load(folder / "inputs.npz") as arrays:
        tokens = dict(arrays)
    np.savez(
        folder / "outputs.npz",
        **{
            f"{name}/{key}": value
            for name in plan["models"]
            for key, value in run(folder / name, tokens).items()
        },
    )
    answers = {name: classify(folder / name, *plan[name]) for name in plan["classify"]}
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder / "masked_lm")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "masked_lm")
    batch = tokenizer(plan["gaps"], padding=True, return_tensors="pt")
    gaps = model(**batch).logits[batch["input_ids"] == tokenizer.mask_token_id]
    chances, ids = torch.softmax(gaps, -1).topk(3)
    answers["gaps"] = [
        [
            {"piece": tokenizer.convert_ids_to_tokens(i), "probability": p}
            for i, p in zip(of_gap[0], of_gap[1], strict=True)
        ]
        for of_gap in zip(ids.tolist(), chances.tolist(), strict=True)
    ]
    answers["scores"] = [score(model, tokenizer, text) for text in plan["scored"]]
    answers["modules"] = [name for name in sys.modules if name == "tensorflow"]
    answers["ids"] = tokenizer(plan["texts"], add_special_tokens=False)["input_ids"]
    (folder / "answers.json").write_text(json.dumps(answers))


def run(folder, tokens):
    """Runs a model; its outputs are under our names."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    [architecture] = config["architectures"]
    model = getattr(transformers, architecture).from_pretrained(folder)
    model.eval()
    tensors = {key: torch.tensor(value).long() for key, value in tokens.items()}
    names = {
        "last_hidden_state": "sequence_output",
        "pooler_output": "pooled_output",
        "prediction_logits": "mlm_logits",
        "logits": "mlm_logits" if "MaskedLM" in architecture else "logits",
    }
    if "MultipleChoice" in architecture:
        tensors = {key: value[:, None] for key, value in tensors.items()}
    with torch.no_grad():
        outputs = model(
            input_ids=tensors["input_ids"],
            attention_mask=tensors["input_mask"],
            token_type_ids=tensors["segment_ids"],
        )
    return {names.get(key, key): value.numpy() for key, value in outputs.items()}


def classify(folder, kind, rows):
    """Answers as a user of transformers asks."""
    pipeline = transformers.pipeline("text-classification", str(folder))
    inputs = [
        row["text"]
        if "text" in row
        else {"text": row["text_a"], "text_pair": row["text_b"]}
        for row in rows
    ]
    return [pipeline(text, top_k=None, truncation=True) for text in inputs]


def score(model, tokenizer, text):
    """Returns the log probability of each token of a text when it alone is masked."""
    [ids] = tokenizer(text, return_tensors="pt")["input_ids"]
    logs = []
    for place in range(1, len(ids) - 1):
        masked = ids.clone()
        masked[place] = tokenizer.mask_token_id
        logits = model(input_ids=masked[None]).logits[0, place]
        logs.append(torch.log_softmax(logits, -1)[ids[place]].item())
    return logs


if __name__ == "__main__":
    main(Path(sys.argv[1]))
