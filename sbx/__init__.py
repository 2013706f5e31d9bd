"""sbx: run one command under a policy that the kernel enforces.

The public names resolve on first use, because importing them all would cost more than a run.
"""
