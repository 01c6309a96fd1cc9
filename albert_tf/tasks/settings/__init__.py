"""Settings classes of tasks; most of their fields are flags of the scripts.

The docstring of a class is a section of `--help`: its first line is the heading of the
section, and `Args:` describes the flags. No module here imports TensorFlow or Keras, so
`--help` and errors in flags appear at once.

base            base class of the settings that `task.json` stores
training        training and evaluation of any task
pretraining     data, model and objective of pretraining
fine_tuning     training and model of all fine-tuning tasks
classification  GLUE, and users' tables
squad           question answering
race            multiple choice
tagging         labels for words
answer          predictions on raw text

Other settings are in `corpus.config` (generator), `corpus.vocabulary`,
`weights.settings` (model files), `train.settings` (devices) and `serve.settings`.
"""
