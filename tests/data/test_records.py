import gzip
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from helpers import refusal

from albert_tf.data import records
from albert_tf.data.records import Feature
from albert_tf.errors import InputError

GOLDEN = Path(__file__).parents[3] / "shared" / "golden"
SPEC = {"ids": Feature("int", 3), "weights": Feature("float", 2)}
BATCH = {
    "ids": np.array([[0, 127, 128], [16383, 16384, 30000]]),
    "weights": np.array([[0.0, 1.5], [-2.0, 0.25]]),
}


def write(path, batch=BATCH, spec=SPEC, compress=False):
    with records.create(str(path), compress) as writer:
        writer.write(records.encode(spec, batch))
    return str(path)


def test_the_bytes_of_a_small_record_are_those_worked_by_hand():
    [record] = records.encode(
        {"a": Feature("int", 2), "b": Feature("float", 1)},
        {"a": np.array([[1, 300]]), "b": np.array([[1.0]])},
    )
    # 300 = 0b10_0101100 -> ac 02; 1.0f = 3f800000. Example{Features{entry, entry}}.
    a = b"\x0a\x0c" + b"\x0a\x01a" + b"\x12\x07" + b"\x1a\x05" + b"\x0a\x03\x01\xac\x02"
    b = b"\x0a\x0d" + b"\x0a\x01b" + b"\x12\x08" + b"\x12\x06" + b"\x0a\x04\0\0\x80\x3f"
    assert record[12:-4] == b"\x0a\x1d" + a + b


def test_integers_of_every_length_come_back():
    edges = [0, 1, 127, *(1 << 7 * k for k in range(1, 9)), 2**63 - 1, -1, -(2**63)]
    near = [edge - 1 for edge in edges[3:-2]]
    values = np.array([edges + near, (edges + near)[::-1]])
    spec = {"x": Feature("int", values.shape[1])}
    for row, record in zip(values, records.encode(spec, {"x": values}), strict=True):
        example = tf.train.Example.FromString(record[12:-4])
        assert example.features.feature["x"].int64_list.value == row.tolist()


@pytest.mark.parametrize("compress", [False, True])
def test_what_is_written_is_read_back_with_types_for_training(tmp_path, compress):
    path = write(tmp_path / "x.tfrecord", compress=compress)
    [batch] = records.dataset([path], SPEC, batch_size=5)
    assert batch["ids"].dtype == tf.int32
    assert batch["weights"].dtype == tf.float32
    for name in SPEC:
        np.testing.assert_array_equal(batch[name], BATCH[name])


def test_a_compressed_file_holds_no_time_and_no_name(tmp_path):
    data = Path(write(tmp_path / "x", compress=True)).read_bytes()
    assert data[3:8] == bytes(5)
    assert gzip.decompress(data) == Path(write(tmp_path / "y")).read_bytes()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"mask": Feature("int", 3)}, "missing; expected 3 values of type int"),
        ({"ids": Feature("float", 3)},
         "3 values of type int; expected 3 values of type float"),
        ({"ids": Feature("int", 128)},
         "3 values of type int; expected 128 values of type int"),
    ],
)  # fmt: skip
def test_reading_with_another_spec_is_refused(tmp_path, spec, message):
    path, [name] = write(tmp_path / "x"), spec
    message = f"{path}: feature {name!r}: {message}"
    assert refusal(records.dataset, [path], spec, batch_size=1) == message


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "text"
    path.write_text("not records, and longer than a header\n")
    assert refusal(records.check, [str(path)], SPEC).startswith(
        f"{path}: corrupted record at 0"
    )


def many(path, compress=False, **changes):
    """Writes 60 records; of each `name=(number, value)` one holds another value."""
    batch = {name: np.repeat(rows[:1], 60, axis=0) for name, rows in BATCH.items()}
    for name, (number, value) in changes.items():
        batch[name][number - 1] = value
    return write(path, batch, compress=compress)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize(
    "record",
    [
        records.frame(b"\xff\xff\xff"),
        records.encode({"ids": Feature("int", 2)}, {"ids": np.ones((1, 2), int)})[0],
        records.encode({"ids": Feature("float", 3)}, {"ids": np.ones((1, 3))})[0],
    ],
    ids=["no example", "another length", "another kind"],
)
def test_a_record_that_does_not_fit_is_named(tmp_path, compress, record):
    whole, path = many(tmp_path / "whole"), str(tmp_path / "x")
    with records.create(path, compress) as writer:
        writer.write([*records.encode(SPEC, BATCH), record])
    with pytest.raises(InputError, match=f"^{path}: record 3: "):
        records.locate_error([whole, path], SPEC)
    assert records.locate_error([whole], SPEC) is None


@pytest.mark.parametrize("index", [100, -1])
def test_a_flipped_bit_is_named_with_its_file_and_record(tmp_path, index):
    path = tmp_path / "x"
    data = bytearray(Path(write(path)).read_bytes())
    data[index] ^= 4
    path.write_bytes(data)
    with pytest.raises(InputError, match=f"^{path}: record 2: corrupted record"):
        records.locate_error([str(path)], SPEC)


@pytest.mark.parametrize("value", [16385, 2**31, -1])
def test_a_value_beyond_the_limits_is_refused_and_named(tmp_path, value):
    path, limits = many(tmp_path / "x", ids=(53, [5, value, 7])), {"ids": 16385}
    allowed = many(tmp_path / "y", ids=(53, [5, 16384, 0]))
    parse = records.parser(SPEC, limits)
    lines = tf.data.TFRecordDataset([path]).batch(60).map(parse)
    with pytest.raises(tf.errors.InvalidArgumentError):
        next(iter(lines))
    assert refusal(records.locate_error, [allowed, path], SPEC, limits).startswith(
        f"{path}: record 53: "
    )


@pytest.mark.parametrize("cut", [0, 1, 5, 30])
@pytest.mark.parametrize("compress", [False, True])
def test_the_records_of_a_whole_file_are_counted(tmp_path, cut, compress):
    path = Path(many(tmp_path / "x"))
    data = path.read_bytes()[: -cut or None]
    path.write_bytes(gzip.compress(data) if compress else data)
    if cut:
        message = refusal(records.count, str(path))
        assert message.startswith(f"{path}: ")
        assert message.endswith("; expected a whole TFRecord file")
    else:
        assert records.count(str(path)) == 60


@pytest.mark.skipif(not GOLDEN.exists(), reason="needs the recorded TFRecords")
@pytest.mark.parametrize(
    ("vocabulary", "count"), [("official_30k", 298), ("small", 355)]
)
def test_records_of_the_release_are_read(vocabulary, count):
    lengths = dict.fromkeys(("input_ids", "segment_ids", "token_boundary"), 128)
    spec = {name: Feature("int", n) for name, n in lengths.items()}
    spec |= {
        "input_mask": Feature("int", 128),
        "masked_lm_positions": Feature("int", 20),
        "masked_lm_ids": Feature("int", 20),
        "masked_lm_weights": Feature("float", 20),
        "next_sentence_labels": Feature("int", 1),
    }
    file = str(GOLDEN / f"pretrain_data_{vocabulary}_dupe1.tfrecord")
    [batch] = records.dataset([file], spec, batch_size=1000)
    assert batch["input_ids"].shape == (count, 128)
    ends = tf.reduce_sum(batch["input_mask"], axis=1) - 1
    last = tf.gather(batch["input_ids"], ends, batch_dims=1)
    assert set(last.numpy().tolist()) == {3}
