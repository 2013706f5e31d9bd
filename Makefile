# Everything a contributor or a CI step needs. On a fresh clone: Python >= 3.11 and make, nothing else.
#   make demo    see what sbx is for           make bench   compare with peers
#   make test    run every test                make matrix  run on other kernels
#   make check   what CI runs                  make docs    regenerate what is generated
#   make wheel   wheel and sdist into dist/    make coverage  tests, and what they reach

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
PYTEST_ARGS ?=

.DELETE_ON_ERROR:
.PHONY: demo test test-self test-user check lint types bench matrix docs coverage wheel clean

demo: $(STAMP)
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh docs/examples/demo.sh

# As whoever calls, then, for root, again as an ordinary user: root hides bugs.
test: $(STAMP)
	@.ci/test $(PYTEST_ARGS)

test-self: $(STAMP)
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

test-user: $(STAMP)
	@.ci/test --user-only $(PYTEST_ARGS)

# With COVERAGE=yes the tests also say which lines they reach, and fail below what is asked for.
check: lint types $(if $(COVERAGE),coverage,test)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy --strict --platform linux
	$(BIN)/mypy --config-file .ci/mypy-elsewhere.ini --platform darwin
	$(BIN)/mypy --config-file .ci/mypy-elsewhere.ini --platform win32

bench: $(STAMP)
	@$(BIN)/python bench/run.py $(BENCH_ARGS)

matrix: $(STAMP)
	@.ci/matrix $(MATRIX_ARGS)

docs: $(STAMP)
	@$(BIN)/python docs/generate.py

# The same tests, and which lines they reach: also those of pid 1 inside a sandbox (tests/covered).
coverage: $(STAMP)
	@.ci/coverage $(PYTEST_ARGS)

wheel: $(STAMP)
	@$(BIN)/python -m hatchling build -d dist

# console.sh is copied at installation, even of an editable one.
$(STAMP): pyproject.toml .ci/find-python sbx/launch/console.sh
	@python=$$(.ci/find-python) && echo "setting up $(VENV) with $$python" && \
	 { [ -x $(BIN)/python ] && $(BIN)/python -c '' 2>/dev/null || "$$python" -m venv --clear $(VENV); } && \
	 $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' && \
	 touch $@

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage bench/out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
