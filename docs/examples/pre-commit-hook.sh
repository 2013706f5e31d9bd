#!/bin/sh
# A git hook: cp docs/examples/pre-commit-hook.sh .git/hooks/pre-commit
# The checks of a repository are code of that repository. They look at it, change nothing and reach nothing.
exec sbx run --profile check -- sh ./checks.sh
