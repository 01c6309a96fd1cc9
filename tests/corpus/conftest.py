import io

import pytest
from helpers import DATA, SMALL_MODEL

from albert_tf import corpus


@pytest.fixture(scope="session")
def generate():
    """Runs the generator on 200 short documents, in one process by default."""

    def call(folder, log=None, **changes):
        values = {
            "input_file": (str(DATA / "docs200.txt"),),
            "output_file": (str(folder / "x.tfrecord"),),
            "spm_model_file": SMALL_MODEL,
            "max_seq_length": 128,
            "dupe_factor": 3,
            "num_workers": 1,
        }
        config = corpus.CorpusSettings(**values | changes)
        corpus.generate(config, log or io.StringIO())
        return folder

    return call


@pytest.fixture
def make(generate, tmp_path):
    """Does the same in a folder of the test."""
    return lambda folder="run", *args, **changes: generate(
        tmp_path / folder, *args, **changes
    )
