# `make demo` and `make test` are all that a newcomer types: each makes .venv/ and installs what it needs, once.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && { echo $$p; break; }; done)
# Parts to install; the tests of a part that is left out skip and say so. Smallest: EXTRAS=build.
EXTRAS ?= build,deploy,ethos-u,hf,native,openvino,ray
# ExecuTorch's version, to test an older one: make test EXECUTORCH=1.4.1. Its environment, .venv-1.4.1/, differs from
# .venv/ in that package only.
EXECUTORCH ?=
PINNED := $(shell sed -n 's/^executorch==//p' constraints.txt)
VENV := .venv$(addprefix -,$(filter-out $(PINNED),$(EXECUTORCH)))
BIN := $(VENV)/bin
# Processes that run the tests: each takes a gigabyte or two.
JOBS ?= 2
# Without bytecode, each process of the tests compiles all that it imports.
export PYTHONDONTWRITEBYTECODE =
# Set in CI: install only files with the hashes of .ci/constraints-hashed.txt, torch as its CPU build.
HASHES ?=
INSTALLED := $(VENV)/.installed
# The older version of ExecuTorch that is tested, and the tests that reach ExecuTorch.
OLDER := $(shell sed -n 's/^executorch==\([^ ]*\).*/\1/p' .ci/executorch-hashed.txt)
# Longest first.
OLDER_TESTS := tests/pipeline/test_versions.py tests/pipeline/test_stock_is_wrong.py tests/cli/test_plain_files.py \
	tests/backends/test_xnnpack.py tests/pipeline/stages tests/kernel_trials tests/test_compat.py tests/pipeline/test_doctor.py \
	$(addprefix tests/runtime/test_client.py::test_,what_the_runtime_and_a_file_have values_of_every_kind \
	methods_share_their_memory_or_do_not custom_kernels_are_imported_from_their_folder the_runtime_starts_without_openvino)

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-older lint format bench bench-quick hardware docs release sbom clean

help:  ## Show the commands.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(INSTALLED)  ## Build and verify a model trained on real data.
	$(BIN)/etdev build -c examples/digits/etdev.toml
	@printf '\n%s\n' \
		'The .pte files and their reports are in examples/digits/build/.' \
		'Next: read examples/digits/etdev.toml, or start a project of your own:' \
		'  . $(VENV)/bin/activate && etdev init my-model && cd my-model && etdev build'

test: $(INSTALLED)  ## Run the tests of every commit; skipped ones say why.
	$(BIN)/pytest --numprocesses $(JOBS) --dist worksteal $(ARGS)

test-all: $(INSTALLED)  ## Run all tests, those of every night too.
	$(BIN)/pytest --integration --slow --nightly --numprocesses $(JOBS) --dist worksteal $(ARGS)

test-older: $(INSTALLED)  ## Build an example, and run the tests that use ExecuTorch, with the older version.
	$(MAKE) EXECUTORCH=$(OLDER) demo
	ETDEV_OTHER_PYTHON=$(abspath $(BIN)/python) $(MAKE) EXECUTORCH=$(OLDER) test ARGS='--integration $(OLDER_TESTS) $(ARGS)'

lint: $(INSTALLED)  ## Check style, types and imports.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini
	$(BIN)/lint-imports

format: $(INSTALLED)  ## Format the code.
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(INSTALLED)  ## Measure every figure that the docs state.
	$(MAKE) EXECUTORCH=$(OLDER) .venv-$(OLDER)/.installed
	set -e; for script in $(filter-out benchmarks/quick.py,$(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python $$script; done

bench-quick: $(INSTALLED)  ## Compare figures that a change may worsen with those of the last committed run.
	$(BIN)/python benchmarks/quick.py $(ARGS)

hardware: $(INSTALLED)  ## Verify memory on a CUDA device, with programs built here.
	$(BIN)/python tests/hardware/make_files.py build/hardware
	$(BIN)/python tests/hardware/check.py build/hardware

docs: $(INSTALLED)  ## Write the generated pages of docs/, and build the site in build/site.
	PYTHONPATH=src $(BIN)/python -m etdev.config.reference
	PYTHONPATH=src:tools $(BIN)/python -m release.licences
	PYTHONPATH=src:tools $(BIN)/python -m docsite
	PYTHONPATH=src:tools NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

release: $(INSTALLED)  ## Build and check the published files, and list their components, in dist/.
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/twine check --strict dist/*
	PYTHONPATH=tools $(BIN)/python -m release.sbom dist/*.whl
	$(BIN)/pytest --slow --integration tests/project/test_wheel.py

sbom: $(INSTALLED)  ## List the components of the wheel as CycloneDX JSON, in dist/.
	$(BIN)/python -m build --wheel --no-isolation --outdir dist
	PYTHONPATH=tools $(BIN)/python -m release.sbom dist/*.whl

clean:  ## Remove the environment and all built files.
	rm -rf .venv .venv-* dist build examples/*/build examples/*/etdev.lock .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(INSTALLED): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo 'etdev needs Python 3.11, 3.12 or 3.13: install one, or name it: make $(MAKECMDGOALS) PYTHON=...' >&2; exit 1; }
	@echo 'Making $(VENV)/ with everything that etdev needs. This takes some minutes, once.'
	$(PYTHON) -m venv $(VENV)
ifdef HASHES
	$(BIN)/python .ci/install.py --extras '$(EXTRAS)' --group dev --cpu --editable $(addprefix --executorch ,$(EXECUTORCH))
else
	sed 's/^executorch==.*/executorch==$(or $(EXECUTORCH),$(PINNED))/' constraints.txt > $(VENV)/constraints.txt
	$(BIN)/pip install --quiet --constraint $(VENV)/constraints.txt --upgrade pip
	$(BIN)/pip install --quiet --constraint $(VENV)/constraints.txt --group dev --editable '.[$(EXTRAS)]'
	$(if $(findstring ethos-u,$(EXTRAS)),$(BIN)/pip install --quiet --constraint $(VENV)/constraints.txt --no-deps --upgrade --target $(VENV)/share/tosa-tools tosa-tools ml-dtypes)
endif
	@touch $@
