"""Settings as dataclasses whose fields are the scripts' flags.

Nothing here imports TensorFlow or Keras: a script's `--help` and its checks of the
command line need not wait for them.

base            the base of all families: the keys of `task.json`
training        one run, whatever the task
pretraining     what to pretrain, on what
fine_tuning     what all fine-tuning tasks share: training, model and vocabulary
classification  GLUE, and tables of one's own
squad           questions about a text
race            RACE, and questions with choices
tagging         sentences with a label for each word
answer          how a model answers raw text

The generator's are in `corpus.config`, a vocabulary's in `corpus.vocabulary`, those of
model files in `weights.settings`, the devices' in `train.settings`, those of the
scripts that serve and convert in `serve.settings`.
"""
