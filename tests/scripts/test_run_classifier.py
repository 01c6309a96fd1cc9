import json
import os
import re
import subprocess
import sys

import pytest
from helpers import DATA, ROOT

# How lines of TensorFlow, Keras, Python and LiteRT begin: a time, level or kind.
FOREIGN = re.compile(r"\d{4}-\d\d-\d\d |[IWEF]\d{4} |[A-Z]+: |\S+Warning: |To enable ")


def run(script, *arguments):
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    environ.pop("TF_CPP_MIN_LOG_LEVEL", None)
    return subprocess.run(
        [sys.executable, str(ROOT / script), *arguments],
        env=environ,
        capture_output=True,
        text=True,
    )


# But --num_tpu_cores, which goes with --use_tpu alone.
FLAGS = """
--task_name=CoLA --vocab_file=unused --init_checkpoint= --albert_hub_module_handle=
--do_lower_case --max_seq_length=33 --do_train --do_eval --do_predict
--train_batch_size=4 --eval_batch_size=3 --predict_batch_size=5 --learning_rate=2e-5
--train_step=2 --warmup_step=1 --save_checkpoints_steps=1 --keep_checkpoint_max=1
--iterations_per_loop=1000 --nouse_tpu --optimizer=adamw --tpu_name= --tpu_zone=
--gcp_project= --master= --export_dir= --threshold_to_export=nan
"""


def test_every_released_flag_is_understood_and_tensorflow_is_quiet(tmp_path, new_model):
    files = (
        f"--data_dir={DATA}/glue_own",
        f"--albert_config_file={new_model().albert_config_file}",
        f"--spm_model_file={DATA}/spm_small.model",
        f"--output_dir={tmp_path}/run",
        f"--cached_dir={tmp_path}/cache",
    )
    result = run("run_classifier.py", *files, *FLAGS.split())
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "cache/cola_train.npz").exists()
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert "model.ckpt-1.index" not in names
    assert names >= {
        *("model.ckpt-2.index", "model.ckpt-best.index", "eval_results.txt"),
        *("test_results.tsv", "submit_results.tsv", "CoLA.tsv", "task.json"),
    }
    lines = result.stderr.splitlines()
    assert any(line.startswith("step 2/2 ") for line in lines)
    assert not [line for line in lines if FOREIGN.match(line)]


@pytest.mark.slow
def test_predictions_are_quiet():
    folder = DATA / "earlier_version"
    files = f"--model={folder}/fine_tuned", f"--spm_model_file={folder}/vocab.model"
    answered = run("predict.py", *files, "A text.")
    assert list(json.loads(answered.stdout)["probabilities"]) == ["no", "yes"]
    assert not [line for line in answered.stderr.splitlines() if FOREIGN.match(line)]
