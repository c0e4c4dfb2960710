# The two commands to know: `make demo` shows the main job, `make test` runs the whole test suite.
# Both make .venv first, from nothing but Python 3.11 and pip.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.complete
REPORTS := .reports

.DEFAULT_GOAL := help
.PHONY: help venv demo test check test-models docs clean

help:  ## show this list
	@sed -nE 's/^([a-z-]+):[^#]*##  *(.*)/  make \1\t\2/p' Makefile | expand -t 22

venv: $(STAMP)  ## create .venv with the pinned versions (at once when it is there)

$(STAMP): pyproject.toml constraints.txt
	@PYTHON="$(PYTHON)" tools/make_venv.sh

demo: $(STAMP)  ## edit a real text with the embedded model, plain and drafted, and compare
	@$(BIN)/python examples/demo.py

# Coverage is only collected here; its threshold is a matter of `make check`.
test: $(STAMP)  ## run all tests (under 12 minutes on two cores)
	@rm -rf $(REPORTS) && mkdir -p $(REPORTS)
	$(BIN)/python -m pytest --cov --cov-report= --cov-fail-under=0 --junitxml=$(REPORTS)/junit.xml
	$(BIN)/python tools/check_skips.py $(REPORTS)/junit.xml

check: $(STAMP)  ## lint, format, types, import direction, coverage, suppressions, generated docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/check_suppressions.py
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python tools/generate_docs.py --check
	@test -e $(REPORTS)/.coverage || { echo "no coverage data yet: running the tests"; $(MAKE) test; }
	$(BIN)/coverage report

test-models: $(STAMP)  ## run the tests of other real models: MODELS=FOLDER [DATA=FOLDER]
	@test -d "$(MODELS)" || { echo "make test-models needs the folder of the models, for example:" \
		"make test-models MODELS=../shared/models (it is now '$(MODELS)')" >&2; exit 2; }
	@test -z "$(DATA)" -o -d "$(DATA)" || { echo "DATA is not a folder: '$(DATA)'" >&2; exit 2; }
	@mkdir -p $(REPORTS)
	ECHODRAFT_TEST_MODELS="$(abspath $(MODELS))" ECHODRAFT_TEST_DATA="$(abspath $(DATA))" \
		$(BIN)/python -m pytest -m models --timeout=3600 --junitxml=$(REPORTS)/models.xml; \
		status=$$?; $(BIN)/python tools/record_models.py $(REPORTS)/models.xml results/models.json && exit $$status

docs: $(STAMP)  ## rewrite the generated parts of README and docs
	$(BIN)/python tools/generate_docs.py

clean:  ## remove .venv, reports, caches and build outputs
	rm -rf .venv $(REPORTS) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
