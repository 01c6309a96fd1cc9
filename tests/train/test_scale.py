"""The numbers of docs/scale.md are those of the estimate and of the configuration."""

import dataclasses
import types
from pathlib import Path

import pytest

from albert_tf.model.config import AlbertConfig
from albert_tf.train import memory

PAGE = (Path(__file__).parents[2] / "docs/scale.md").read_text("utf-8")
CONFIG = AlbertConfig.named("albert_xxlarge_v2")
H, E, V = CONFIG.hidden_size, CONFIG.embedding_size, CONFIG.vocab_size
# The encoder with its pooler, see tests/model; and both heads of pretraining.
PARAMETERS = 222_595_584 + (H * E + 3 * E + V) + (2 * H + 2)


@pytest.mark.parametrize(
    ("rows", "microbatches", "recompute", "row"),
    [
        (0, 1, "none", "the gradients of the block's copies | {} | |"),
        (8, 1, "none", "| 8, one microbatch | {} |"),
        (8, 1, "block", "one microbatch | 18.6 GiB | {} |"),
        (8, 64, "none", "| 8, of several (two gradients: 9 x 4 P) | {} |"),
        (16, 32, "none", "| 16, of several | {} |"),
        (32, 16, "block", "| 32, of several | | {} |"),
        (64, 8, "block", "| 64, of several | | {} |"),
    ],
)
def test_memory_is_the_estimate(rows, microbatches, recompute, row):
    task = types.SimpleNamespace(
        sequence_length=512,
        tokens_at_once=512,
        outputs_per_token=0.15 * 3 * V,
    )
    model = types.SimpleNamespace(
        config=dataclasses.replace(CONFIG, recompute=recompute),
        compute_dtype="bfloat16",
        count_params=lambda: PARAMETERS,
    )
    config = types.SimpleNamespace(
        gradient_accumulation_steps=microbatches,
        train_batch_size=8 * rows * microbatches,
    )
    bytes = memory.step_bytes(model, task, config, 8)
    assert row.format(f"{bytes / memory.GIB:.1f} GiB") in PAGE


def test_a_step_is_counted_from_the_sizes():
    layers, inner = CONFIG.num_hidden_layers, CONFIG.intermediate_size
    forward = 2 * layers * (4 * H * H + 2 * H * inner) + 4 * 512 * H * layers
    forward += 2 * 0.15 * E * (V + H)
    step, share = 4096 * 512, 0.4
    assert f"{PARAMETERS:,}" in PAGE
    assert f"| {forward / 1e9:.2f}e9 |" in PAGE
    gpus = step * 3 * forward / (8 * 989e12 * share)
    cores = step * 4 * forward / (512 * 61.5e12 * share)
    assert f"| {gpus:.1f} | {cores:.1f} |" in PAGE
    days = [125_000 * seconds / 86400 for seconds in (gpus, cores)]
    assert f"| **{days[0]:.0f} days** | **{days[1]:.1f} days** |" in PAGE
