import io
from pathlib import Path

import pytest

from albert_tf import corpus

DATA = Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def make(tmp_path):
    """Runs the generator on 200 short documents, in one process by default."""

    def call(folder="run", log=None, **changes):
        values = {
            "input_file": (str(DATA / "docs200.txt"),),
            "output_file": (str(tmp_path / folder / "x.tfrecord"),),
            "spm_model_file": str(DATA / "spm_small.model"),
            "max_seq_length": 128,
            "dupe_factor": 3,
            "num_workers": 1,
        }
        config = corpus.CorpusSettings(**values | changes)
        corpus.generate(config, log or io.StringIO())
        return tmp_path / folder

    return call
