# CONTRIBUTING.md describes these targets, and README.md describes `make demo`. The first call
# of a target prepares .venv, and later calls reuse it.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# This variable forbids bytecode files. Without these files, each process would compile
# TensorFlow's modules again, which takes 10 seconds.
unexport PYTHONDONTWRITEBYTECODE
# By default, pip compiles all 19,400 modules that it installs. With --no-compile, Python
# compiles a module at its first import, and only a third of them are ever imported.
PIP := $(RUN) -m pip install --disable-pip-version-check --progress-bar=off \
  --no-compile -c constraints.txt
# uv needs a fifth of pip's time, but it does not read pip's settings. So pip installs the
# packages if its settings name an index, or if uv fails. INSTALL defines a shell function and
# calls it with the arguments that follow INSTALL in a recipe.
UV := $(RUN) -m uv pip install --python $(RUN) -c constraints.txt
INSTALL := install() { { ! $(RUN) -m pip config list | grep -q '[.]index-url' && \
  $(UV) "$$@"; } || $(PIP) "$$@"; }; install

.PHONY: demo test test-slow test-all test-jax test-torch lint package audit docs format clean

demo: $(VENV)/.runtime
	@$(RUN) examples/demo.py

test: $(VENV)/.dev
	$(RUN) -m pytest

# The slowest tests, the slowest cases of parametrized tests, and the notebooks.
test-slow: $(VENV)/.dev
	$(RUN) -m pytest -m slow

# All tests but the slow ones: also those that compare with Hugging Face's programs, those of
# the demo page, and those of Apache Beam with a Dask cluster. PyTorch's standard wheel
# installs gigabytes.
test-all: $(VENV)/.extras
	$(RUN) -m pytest -rs

# Runs on another backend of Keras the tests that compare with the release, the tests of
# gradients and of precision, and the tests of functions that only one backend has, without
# those of Keras's dropout and casts. All tests of these files would take three times as long.
# One process, because a second one would compile the same functions again, and on a GPU
# JAX gives the memory to the first.
test-torch: $(VENV)/.extras
test-jax: $(VENV)/.jax
test-jax test-torch:
	KERAS_BACKEND=$(@:test-%=%) $(RUN) -m pytest -n 0 \
	  -k "(release or record or gradient or precision or clipping or recompute or jit or state) \
	      and not drops and not heads" \
	  $(patsubst %,tests/model/test_%.py,layers models optimizers)

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports

# Builds the files to upload, installs the wheel in dist/venv, and tests it there. The new
# environment uses the packages of .venv, so no requirements are downloaded.
package: $(VENV)/.dev
	rm -rf dist build
	$(RUN) -m build --no-isolation >/dev/null
	$(RUN) -m twine check --strict dist/*
	$(RUN) -m venv --without-pip dist/venv
	$(RUN) -m pip --python dist/venv/bin/python install -q --no-deps dist/*.whl
	$(RUN) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	  > $$(echo dist/venv/lib/python*/site-packages)/requirements.pth
	cd dist && env -u PYTHONPATH venv/bin/python ../tests/commands/installed.py

# Asks PyPI for known vulnerabilities of the pinned versions.
audit: $(VENV)/.audit
	$(RUN) -m pip_audit --strict --disable-pip --no-deps -r constraints.txt

# Writes the documentation site to site/. Warnings, such as for broken links, are errors.
docs: $(VENV)/.docs
	$(RUN) -m mkdocs build --strict

format: $(VENV)/.dev
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
	  || { echo "albert_tf needs Python 3.11 to 3.13, and $(PYTHON) is" \
	       "$$($(PYTHON) --version 2>&1); call make with PYTHON=/path/to/python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# An empty file such as .venv/.jax records that the packages of the extra `jax` are installed.
# If uv cannot be installed, this is no error (-): pip then installs the packages.
$(VENV)/.runtime: requirements.lock constraints.txt pyproject.toml | $(VENV)/bin/python
	@echo "Installing TensorFlow and the other requirements into $(VENV) (once) ..."
	-$(PIP) --quiet uv
	$(INSTALL) -r requirements.lock
	$(INSTALL) --no-deps -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(INSTALL) -e '.[dev]'
	@touch $@

# Installs the extra `dev` too, because a second installation would look for all packages again.
$(VENV)/.extras: $(VENV)/.runtime
	$(INSTALL) -e '.[dev,hf,page,dask]'
	@touch $(VENV)/.dev $@

$(VENV)/.jax: $(VENV)/.dev
	$(INSTALL) -e '.[jax]'
	@touch $@

$(VENV)/.audit: $(VENV)/.runtime
	$(INSTALL) -e '.[audit]'
	@touch $@

$(VENV)/.docs: $(VENV)/.runtime
	$(INSTALL) -e '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) build dist site *.egg-info
