import io
import sys
from pathlib import Path

import pytest

from albert_tf.corpus import beam, files, plan, store, text
from albert_tf.corpus.config import CorpusConfig
from albert_tf.errors import InputError

DATA = Path(__file__).parents[1] / "data"


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_beam_makes_the_files_of_the_local_run(make, monkeypatch, tmp_path):
    pytest.importorskip("apache_beam")
    monkeypatch.setattr(text, "SPLIT_BYTES", 9_000)
    monkeypatch.setattr(store, "GROUP_TOKENS", 2_000)
    monkeypatch.setattr(plan, "UNIT_TOKENS", 20_000)
    changes = {"eval_fraction": 0.1, "compress": True}
    local = make("local", output_file=(f"{tmp_path}/local/x@3",), **changes)
    beam = make(
        "beam",
        output_file=(f"{tmp_path}/beam/x@3",),
        runner="DirectRunner",
        **changes,
    )
    assert len(contents(local)) == 6
    assert contents(beam) == contents(local)


def test_a_mistake_on_beam_is_one_line(make, tmp_path):
    pytest.importorskip("apache_beam")
    (tmp_path / "x").write_bytes(b"one\n\xff\n")
    with pytest.raises(InputError) as error:
        make(input_file=(f"{tmp_path}/x",), runner="DirectRunner")
    assert str(error.value) == (
        f"{tmp_path}/x: line 2, byte 4: not UTF-8 (byte 0xff); --replace_invalid_utf8 "
        f"would go on"
    )


@pytest.mark.parametrize("kind", [InputError, text.TextError])
def test_a_workers_mistake_is_found_in_the_text_of_a_runners_exception(kind):
    name = f"{kind.__module__}.{kind.__name__}"
    found = beam._FAILURE.search(f"RuntimeError: {name}: x: line 2 [while running 'T']")
    assert found[1] == "x: line 2"


def test_without_beam_the_runner_flag_says_what_to_install(make, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam.io.filesystems", None)
    with pytest.raises(InputError) as error:
        make(runner="DirectRunner")
    assert str(error.value) == (
        "Apache Beam is not installed; pip install 'albert_tf[beam]' adds it"
    )


def test_a_run_on_beam_reports_what_a_local_one_does(make, tmp_path):
    (tmp_path / "empty").write_text("")
    (tmp_path / "x").write_text("one two.\nthree four.\n\n" * 40)
    changes = {
        "input_file": (f"{tmp_path}/empty", f"{tmp_path}/x"),
        "output_file": (f"{tmp_path}/run/x",),
        "spm_model_file": str(DATA / "spm_small.model"),
        "eval_fraction": 0.2,
    }
    make(log=(local := io.StringIO()), **changes)
    config = CorpusConfig(**changes, max_seq_length=128, runner="DirectRunner")
    beam._report(config, log := io.StringIO())
    expected = [
        line
        for line in local.getvalue().splitlines(keepends=True)
        if line.startswith("warning: ") or " instances of " in line
    ]
    assert log.getvalue() == "".join(expected)
    assert [line.split(":")[0] for line in expected] == ["warning", "eval", "train"]


def test_outputs_are_checked_before_beam_starts(make, monkeypatch, tmp_path):
    monkeypatch.setattr(files, "beam_file_systems", lambda: None)
    path = tmp_path / "x"
    path.write_text("one two\n")
    changes = {"input_file": (str(path),), "runner": "DirectRunner"}
    with pytest.raises(InputError) as error:
        make(output_file=(str(path),), **changes)
    assert str(error.value) == f"--output_file: {path} is an input file, too"
    with pytest.raises(InputError) as error:
        make(output_file=(f"{path}/y",), **changes)
    assert str(error.value) == f"{path}/y: its folder cannot be made: File exists"
    assert path.read_text() == "one two\n"


def test_remote_outputs_are_not_looked_for_on_this_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files.check_outputs(["gs://bucket/x"], ["gs://bucket/y"])
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError) as error:
        files.check_outputs(["gs://bucket/x"], ["gs://bucket/x"])
    assert str(error.value) == "--output_file: gs://bucket/x is an input file, too"
