# Each target makes its own virtual environment in .venv and installs what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test check bench bench-full paper paper-quick paper-uci paper-celeba format clean

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "fairstream needs Python 3.11 or later: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "python -m venv failed: on Debian, apt-get install python3-venv" >&2; rm -rf $(VENV); exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(STAMP)

demo: $(STAMP)  ## Fit a fair subspace on a stream and show what plain PCA leaks
	$(BIN)/python -m fairstream.demo

test: $(STAMP)  ## Run the tests
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile -q

check: $(STAMP)  ## Lint, types, import direction
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-cache > .import-lint.log 2>&1 || { cat .import-lint.log; rm -f .import-lint.log; exit 1; }
	@rm -f .import-lint.log

bench: $(STAMP)  ## Speed and memory as ratios, the short version (about five minutes)
	$(BIN)/python benchmarks/power_memory.py --block-rows 5000
	$(BIN)/python benchmarks/corrupt_files.py
	$(BIN)/python benchmarks/out_of_core.py --gigabytes 1
	$(BIN)/python benchmarks/limit.py --quick power read sketch memory
	$(BIN)/python benchmarks/peers.py --quick --workloads adult stream-4096 sparse

bench-full: $(STAMP)  ## One table against every peer, written into docs/peers.md (half an hour; torch is large)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python benchmarks/peers.py

paper: $(STAMP)  ## The paper's synthetic experiments and PAFO checks (about half an hour)
	$(BIN)/python paper/synthetic.py
	$(BIN)/python paper/pafo.py

paper-quick: $(STAMP)  ## The UCI tables again: three splits, the fast methods, %Var and MMD^2; fails where one moved
	$(BIN)/python paper/uci_check.py

paper-uci: $(STAMP)  ## The UCI tables in full, costs, leakage and their page: hours; stops and goes on
	$(BIN)/python paper/uci.py --time-cap 3600
	$(BIN)/python paper/uci_scatter.py
	$(BIN)/python paper/uci_costs.py
	$(BIN)/python paper/uci_leakage.py
	$(BIN)/python paper/uci.py --tables
	$(BIN)/python paper/uci_docs.py

paper-celeba: $(STAMP)  ## CelebA at full resolution in colour, from FAIRSTREAM_DATA: about an hour; stops and goes on
	$(BIN)/python paper/celeba.py

format: $(STAMP)  ## Format the code
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format --quiet .

clean:  ## Remove the environment and everything generated
	rm -rf $(VENV) demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
