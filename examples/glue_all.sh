#!/bin/sh
# Fine-tunes on all tasks of GLUE, and packs the predictions for the benchmark's site.
#
#     sh examples/glue_all.sh runs --data_dir=glue --init_checkpoint=albert_base_v2
#
# The first argument is the folder of the runs. The others are flags of
# run_classifier.py for every task, such as --num_runs=5. A second call resumes a call
# that was stopped. The scores of a task are in RUNS/TASK/eval_results.txt.
set -eu
runs=$1
shift
for task in mnli qnli qqp rte sst-2 mrpc cola sts-b wnli; do
  python run_classifier.py --flagfile="recipes/$task.flags" "$@" --output_dir="$runs/$task"
done
# AX is only a test set for models of MNLI.
python run_classifier.py --flagfile=recipes/ax.flags "$@" --output_dir="$runs/ax" \
  --init_checkpoint="$runs/mnli" --albert_hub_module_handle= --num_runs=1
cd "$runs"
python -m zipfile -c submission.zip */AX.tsv */CoLA.tsv */MNLI-m*.tsv */MRPC.tsv \
  */QNLI.tsv */QQP.tsv */RTE.tsv */SST-2.tsv */STS-B.tsv */WNLI.tsv
