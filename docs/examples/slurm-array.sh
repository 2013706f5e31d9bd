#!/bin/sh
# A slice of a batch for each task of a Slurm job array: task i of n takes every n-th job, from the i-th on.
#   sbatch --array=0-9 --cpus-per-task=4 slurm-array.sh jobs.jsonl
# A task that Slurm starts again (sbatch --requeue) goes on where it was.
set -eu
jobs=$1
task=$((SLURM_ARRAY_TASK_ID - SLURM_ARRAY_TASK_MIN))
out=results.$SLURM_ARRAY_TASK_ID.jsonl
awk -v n="$SLURM_ARRAY_TASK_COUNT" -v i="$task" 'NR % n == i' "$jobs" |
  ${SBX:-sbx} batch --resume --jobs "${SLURM_CPUS_PER_TASK:-1}" --out "$out" -
