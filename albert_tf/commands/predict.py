"""Predicts on raw text with a fine-tuned or pretrained ALBERT; prints JSON lines.

    python predict.py --model=runs/sst-2 "A fine film." "Two hours of nothing."
    python predict.py --model=albert_base_v2 --task=fill_mask "Say [MASK]."
    python predict.py --model=runs/squad --input_file=asked.jsonl

docs/predict.md lists the tasks with their input and output.
"""

from albert_tf.serve.settings import PredictSettings
from albert_tf.tasks.settings.pipeline import PipelineSettings

SETTINGS = (PredictSettings, PipelineSettings)
TAKES_ARGUMENTS = True


def main(config: PredictSettings, options: PipelineSettings, texts: list[str]) -> None:
    """Predicts on texts, or on the rows of the input file."""
    from albert_tf.serve import predict

    predict.write_answers(config, options, texts)
