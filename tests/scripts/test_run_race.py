"""run_race.py: trained, killed, gone on with, evaluated, asked to predict, misled."""

import json
import os
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "fixtures"
PATIENCE = 300  # seconds
SIZES = {
    "vocab_size": 1500,
    "embedding_size": 8,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 48,
}


# Runs in a process that has imported everything already, so a start takes no seconds.
START = """
import os, runpy, sys
log = os.open({log!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.dup2(log, 1), os.dup2(log, 2)
sys.argv = {argv!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def start(processes, tmp_path):
    """Runs the script: `start("--flag=value")`; kills it where a line is written."""
    (tmp_path / "config.json").write_text(json.dumps(SIZES))

    def run(*flags, kill_at=None, code=0):
        log = tmp_path / f"{len(os.listdir(tmp_path))}.log"
        argv = [
            str(ROOT / "run_race.py"),
            f"--albert_config_file={tmp_path / 'config.json'}",
            f"--spm_model_file={DATA / 'spm_small.model'}",
            f"--output_dir={tmp_path / 'run'}",
            "--max_seq_length=48",
            "--max_qa_length=24",
            *flags,
        ]
        text = START.format(log=str(log), argv=argv)
        process = processes.Process(target=exec, args=(text,))
        process.start()
        end = time.monotonic() + PATIENCE
        while kill_at and process.is_alive() and time.monotonic() < end:
            if log.exists() and kill_at in log.read_text():
                process.kill()
            time.sleep(0.005)
        process.join(PATIENCE)
        text = log.read_text()
        assert process.exitcode == (-9 if kill_at else code), text
        return text

    return run


def results(path):
    return dict(line.split(" = ") for line in path.read_text().splitlines())


def test_a_killed_run_goes_on_evaluates_and_predicts(start, tmp_path):
    flags = [
        f"--data_dir={DATA / 'race_own'}",
        f"--train_file={DATA / 'race_own/RACE/dev/middle/all.txt'}",
        f"--predict_file={DATA / 'race_own/RACE/dev/high/all.txt'}",
        "--task_name=race",
        "--do_lower_case",
        "--dropout_prob=0.2",
        "--num_keep_checkpoint=1",
        "--train_batch_size=2",
        "--eval_batch_size=4",
        "--predict_batch_size=3",
        "--learning_rate=0.003",
        "--train_step=9",
        "--warmup_step=2",
        "--save_checkpoints_steps=4",
        "--log_steps=1",
        "--iterations_per_loop=3",
        "--do_predict",
    ]
    start(*flags, kill_at="\nstep 6/9")
    text = start(*flags)
    folder = tmp_path / "run"
    assert f"Resuming from {folder}/model.ckpt-4" in text
    assert "train: 5 questions with 4 choices about 2 articles, " in text
    assert "dev: 6 questions with 4 choices about 3 articles, " in text
    assert "  6 questions with a truncated article (--max_seq_length=48)\n" in text
    assert sorted(file.name for file in folder.glob("model.ckpt-?.index")) == [
        "model.ckpt-9.index"
    ]
    last = (folder / "eval_results.txt").read_text().split("=" * 50 + "\n")[-2]
    assert [line.split(" = ")[0] for line in last.splitlines()] == [
        *("eval_accuracy", "eval_loss", "global_step", "high_accuracy", "loss"),
        *("middle_accuracy", "best"),
    ]
    [line] = (folder / "predictions.jsonl").read_text().splitlines()
    found = json.loads(line)
    best = max(range(4), key=found["probabilities"].__getitem__)
    assert found == {
        "id": "high1.txt-1",
        "choice": best,
        "letter": "ABCD"[best],
        "probabilities": found["probabilities"],
        "answer": 3,
    }
    assert sum(found["probabilities"]) == pytest.approx(1, abs=1e-5)
    scores = results(folder / "predict_results.txt")
    assert scores["eval_accuracy"] == str(float(best == 3))
    # Of --predict_file as of --data_dir: one question, evaluated with the same weights.
    noted = json.loads((folder / "model.ckpt-best.json").read_text())
    assert noted["high_accuracy"] == float(best == 3)


def test_a_users_mistake_is_one_line(start):
    assert start(code=2) == (
        "error: --do_train: expected --data_dir or --train_file with it, or "
        "--nodo_train\n"
    )
