# `make demo` and `make test` on a machine that has Python >= 3.11 and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# one thread a process: two threads that wait for each other are slower than one, see docs/speed.md
export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-slow test-timm lint clean

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "triplepoint needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[test]'
	@touch $@

demo: $(STAMP)
	$(BIN)/triplepoint screen --train-tokens 1500000 --planned-steps 1500 --out runs/demo

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m "not slow and not gpu"

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow

# timm needs torchvision, and that its own torch: an environment apart
test-timm:
	$(PYTHON) -m venv .venv-timm
	.venv-timm/bin/python -m pip install --quiet --upgrade pip
	.venv-timm/bin/python -m pip install --quiet 'torch==2.14.1' 'torchvision==0.29.1' timm -e . pytest pytest-timeout pytest-xdist hypothesis beartype scipy
	.venv-timm/bin/python -m pytest tests/families/test_timm.py

lint: $(STAMP)
	$(BIN)/python -m pip install --quiet -e '.[lint]'
	$(BIN)/ruff check src tests benchmarks studies
	$(BIN)/ruff format --check src tests benchmarks studies

clean:
	rm -rf runs/demo
