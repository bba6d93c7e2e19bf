# `make help` is the table of contents. Everything is installed into .venv from requirements.lock; nothing else is needed
# but Python >= 3.11, a JDK >= 17 and make.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
DATA ?=
EXAMPLES ?= 20000
BATCHES ?= 1000000
ROUNDS ?= 10
MINUTES ?= 60
SEED ?=
ARGS ?=
UNIT_TESTS := tests/unit tests/property tests/architecture tests/contract
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
COMPILED := provider/hatch_build.py provider/wasmline/kafka/compiled_columns.c

##@ The main job
.PHONY: demo test test-unit up down
demo: $(INSTALLED) ## run the delivery pipeline through Airflow, Kafka and Spark; print and keep its report (DATA=path.csv)
	@PYTHONPATH=dags $(BIN)/python -P -m demo_stack $(if $(DATA),--data "$(DATA)")

test: $(INSTALLED) rust-target lint ## check and run the whole test suite
	@$(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder

test-unit: $(INSTALLED) ## the tests that need no broker and no JVM, in two minutes
	@$(BIN)/python -m pytest --numprocesses 3 --dist loadfile -m "not kafka" $(UNIT_TESTS)

up: $(INSTALLED) ## start the demo's Kafka and Airflow and leave them running
	@PYTHONPATH=dags $(BIN)/python -P -m demo_stack.up

down: $(INSTALLED) ## stop what `make up` started
	@PYTHONPATH=dags $(BIN)/python -P -m demo_stack.down

##@ Development
.PHONY: install lint format lock wheels docs pictures fuzz test-long chaos soak simulate simulate-gate backfill acls matrix clean
install: $(INSTALLED) ## install everything into .venv

lint: $(INSTALLED) ## formatting, ruff, mypy --strict and the import contracts
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache | tail -n 3

format: $(INSTALLED) ## format the code and sort its imports
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format .

lock: $(INSTALLED) ## resolve the dependencies anew into requirements.lock
	@$(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes --quiet \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" --upgrade -o requirements.lock

LONG := WASMLINE_LONG=1 $(BIN)/python -m pytest --timeout=0 -o faulthandler_timeout=0

PLATFORMS := linux-x86_64 linux-aarch64 musl-x86_64 musl-aarch64 macos-x86_64 macos-arm64 other
wheels: $(INSTALLED) ## a wheel for each platform into dist/: one has the C of the package compiled, "other" has none
	@for platform in $(PLATFORMS); do \
	  WASMLINE_PLATFORM=$$platform $(BIN)/python -c "from hatchling.build import build_wheel; print(build_wheel('dist'))"; done

docs: $(INSTALLED) ## fill the operators' pages from the code, check every link, build the documentation into site/
	@AIRFLOW_HOME=$(CURDIR)/build/docs PYTHONPATH=tests $(BIN)/python -P -m support.operator_pages
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pictures: $(INSTALLED) ## the pictures of the page, of a real Airflow in Chromium, for the documentation (about six minutes)
	@WASMLINE_PICTURES=$(CURDIR)/docs/pictures $(LONG) tests/system/test_page.py

fuzz: $(INSTALLED) ## random records and modules, soaks, two million records in Go (EXAMPLES=20000 BATCHES=1000000; about half an hour)
	@FUZZ_EXAMPLES=$(EXAMPLES) FUZZ_BATCHES=$(BATCHES) $(LONG) tests/fuzz tests/integration/wasm/test_go_memory.py \
	  tests/integration/build/test_sdk_cpp.py tests/integration/build/test_cpp.py

CHAOS_ALONE := $(wildcard tests/chaos/test_*broker*.py) tests/chaos/test_lease_drivers.py tests/chaos/test_lease_executors.py \
  tests/chaos/test_supervision.py tests/chaos/test_evictions.py
CHAOS := tests/chaos tests/integration/leases tests/integration/spark/test_parallel.py \
  tests/integration/provider/test_standalone.py tests/integration/provider/test_launcher.py tests/integration/spark/test_launcher_claims.py
OTHER_LONG_FORMS := tests/soak tests/system/test_backfill.py tests/simulation/test_gate.py tests/integration/kafka/test_acls.py

chaos: $(INSTALLED) ## consumers, brokers, streams and Airflow die and come back, beside outside books (ROUNDS=10; about two hours)
	@CHAOS_ROUNDS=$(ROUNDS) $(LONG) --numprocesses 2 --dist loadfile $(CHAOS_ALONE:%=--ignore=%) $(CHAOS)
	@CHAOS_ROUNDS=$(ROUNDS) $(LONG) $(CHAOS_ALONE)  # alone: they have time limits, and up to three brokers each

test-long: $(INSTALLED) ## the tests of which `make test` runs one of a kind, or leaves to the models (about half an hour)
	@$(LONG) --numprocesses 2 --dist loadfile -m long $(CHAOS:%=--ignore=%) $(OTHER_LONG_FORMS:%=--ignore=%) tests

soak: $(INSTALLED) ## a job in parallel mode for long: nothing lost or doubled, its memory flat (MINUTES=60; see build/soak/memory.tsv)
	@SOAK_MINUTES=$(MINUTES) $(LONG) tests/soak

simulate: $(INSTALLED) ## histories of whole jobs on a cluster in memory (MINUTES=60, or SEED=7: one that failed)
	@$(BIN)/python tests/simulation/simulate.py $(if $(SEED),--seed $(SEED),--minutes $(MINUTES))

simulate-gate: $(INSTALLED) ## ten times twenty nights of training on data that does not change, and on data that does (about 3 minutes)
	@$(LONG) tests/simulation/test_gate.py

backfill: $(INSTALLED) ## a backfill of ten days on a real Airflow: a slice for each day, and these touch (about 8 minutes)
	@$(LONG) tests/system/test_backfill.py

acls: $(INSTALLED) ## each part with exactly its ACLs on a broker with an authorizer, and without each of them (about 8 minutes)
	@$(LONG) tests/integration/kafka/test_acls.py

matrix: $(INSTALLED) ## a short set of tests on the wheel, by Airflow, PySpark and Python (an hour and a half; ARGS="--spark 4.0 --python 3.12")
	@PYTHONPATH=tests $(BIN)/python -P tests/matrix.py $(ARGS)

clean: ## remove the environment and what the demo left
	@rm -rf $(VENV) build site

##@ Figures
.PHONY: bench-pipeline bench-engine bench-model bench-limit bench-consumer bench-throughput bench-scale bench-stream bench-control
bench-pipeline: $(INSTALLED) ## Kafka -> Wasm -> Kafka on Spark beside the same query without it, as ratios
	@$(BIN)/python tests/benchmarks/bench_pipeline.py

bench-engine: $(INSTALLED) ## the engine beside native code, a callback host, per-row Python and pyarrow, as ratios
	@$(BIN)/python tests/benchmarks/bench_engine.py

bench-model: $(INSTALLED) ## a compiled model beside XGBoost and tl2cgen's generated code, from the same JSON records, as ratios
	@$(BIN)/python tests/benchmarks/bench_model.py

bench-limit: $(INSTALLED) ## how exactly a guest that loops is stopped at its CPU limit, alone and beside busy processes
	@$(BIN)/python tests/benchmarks/bench_cpu_limit.py

bench-consumer: $(INSTALLED) ## the key-parallel consumer beside the Java library and others, as ratios (ARGS="--quick", ARGS="--help")
	@$(BIN)/python tests/benchmarks/bench_consumer.py $(ARGS)

bench-throughput: $(INSTALLED) ## Kafka -> transform -> Kafka beside Kafka Streams, a Python loop and Quix Streams, as ratios (ARGS="--quick", ARGS="--help")
	@$(BIN)/python tests/benchmarks/bench_throughput.py $(ARGS)

bench-scale: $(INSTALLED) ## what a worker takes for 1,000 partitions and a million keys: memory, threads, files, CPU time (ARGS="--help")
	@$(BIN)/python tests/benchmarks/bench_scale.py $(ARGS)

bench-control: $(INSTALLED) ## deploys, switches, starts and listing with 10 and 10,000 versions, as ratios (about five minutes)
	@$(BIN)/python tests/benchmarks/bench_control.py

bench-stream: $(INSTALLED) ## streams on Spark beside what they are measured against, as ratios (ARGS="--quick", ARGS="--help")
	@$(BIN)/python tests/benchmarks/bench_stream.py $(ARGS)

# -- installation ------------------------------------------------------------------------------------------------------

.PHONY: prerequisites rust-target
prerequisites:
	@$(PYTHON) .ci/prerequisites.py

# Rust is optional; where rustup manages it, its standard library for WebAssembly is one download away.
rust-target:
	@if command -v rustup >/dev/null && ! test -d "$$(rustc --print target-libdir --target wasm32-wasip1)"; then \
	  rustup target add wasm32-wasip1 || echo "rustup has no wasm32-wasip1: the tests of Rust skip"; \
	fi

$(INSTALLED): pyproject.toml requirements.lock $(COMPILED) | prerequisites
	@PYTHONPATH=dags $(PYTHON) -P .ci/install.py $(VENV)
	@touch $@

.PHONY: help
help:
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' \
	  $(MAKEFILE_LIST)
