import json
import os
import subprocess
import sys

from helpers import DATA, ROOT

FLAGS = """
--vocab_file=unused --input_file_mode=r --do_lower_case --do_whole_word_mask=true
--nodo_permutation --favor_shorter_ngram --random_next_sentence=false
--max_seq_length=64 --ngram=2 --max_predictions_per_seq=9 --random_seed=7
--dupe_factor=2 --masked_lm_prob=0.15 --short_seq_prob=0.1 --num_workers=1
"""


def test_every_released_flag_is_understood(tmp_path):
    command = [
        *(sys.executable, str(ROOT / "create_pretraining_data.py"), *FLAGS.split()),
        f"--input_file={DATA / 'docs200.txt'}",
        f"--output_file={tmp_path}/a,{tmp_path}/b",
        f"--spm_model_file={DATA / 'spm_small.model'}",
    ]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, f"{tmp_path}/a.json\n")
    description = json.loads((tmp_path / "a.json").read_text())
    assert description["settings"]["random_seed"] == 7
    assert set(description["statistics"]["words_per_span"]) == {"1", "2"}
    [a, b] = (description["files"][name]["records"] for name in "ab")
    assert abs(a - b) <= 1
    lines = result.stderr.splitlines()
    assert any(line.startswith("shards: 100%") for line in lines)
    assert lines[-1].startswith("train: ")
