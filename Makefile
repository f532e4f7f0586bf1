# Two commands matter: `make demo` and `make test`. Both set up all they need, and both can be run again at any time.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# Fetched and built things live in one cache folder outside the clone.
export EXPCTL_CACHE ?= $(HOME)/.cache/expctl
export CARGO_TARGET_DIR ?= $(EXPCTL_CACHE)/target
# Kept with every job: which code submitted it.
export EXPCTL_BUILD_COMMIT ?= $(shell git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null)

# What torch-sys and the HDF5 library need to build; the scripts print what they set up.
WITH_LIBRARIES = export LIBTORCH="$$(scripts/libtorch.sh)" LIBTORCH_CXX11_ABI=1 CMAKE="$$(scripts/cmake.sh)" &&

# Crates that only tests and wheels need. (Naming the two programs with -p would build some libraries with other features than tests do.)
NOT_FOR_USERS = $(addprefix --exclude ,expctl-fuzz expctl-fake-gpu expctl-rounding test-support python-loaders)

.PHONY: help setup build install wheels env demo check test figures test-gpu bench-gpu gpu-bundle clean

help: ## This list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

setup: ## Compiler, Python, libtorch and cmake (skips what is there)
	@scripts/system.sh
	@scripts/target_dir.sh
	@scripts/libtorch.sh >/dev/null
	@scripts/cmake.sh >/dev/null

build: setup ## Build expctl and expctl-worker into bin/
	@echo "==> build: cargo, release profile, into $(CARGO_TARGET_DIR)" >&2
	@$(WITH_LIBRARIES) cargo build --release --workspace --locked $(NOT_FOR_USERS)
	@install -D -t bin $(CARGO_TARGET_DIR)/release/expctl $(CARGO_TARGET_DIR)/release/expctl-worker
	@strip --strip-debug bin/expctl bin/expctl-worker # perf and backtraces keep the names of functions

install: build ## Copy both programs to PREFIX/bin (default ~/.local)
	@install -D -t $(or $(PREFIX),$(HOME)/.local)/bin bin/expctl bin/expctl-worker
	@echo "==> installed into $(or $(PREFIX),$(HOME)/.local)/bin" >&2

wheels: setup ## Wheels for clusters without a compiler (glibc 2.28), into dist/
	@$(WITH_LIBRARIES) scripts/wheels.sh

env: setup ## Print what plain cargo needs: eval "$$(make -s env)"
	@$(WITH_LIBRARIES) echo "export LIBTORCH=$$LIBTORCH LIBTORCH_CXX11_ABI=1 CMAKE=$$CMAKE CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)"

demo: setup ## Run the main job on this machine and show its result
	@$(WITH_LIBRARIES) scripts/demo.sh

check: setup ## Format, lints and fast tests: minutes
	@$(WITH_LIBRARIES) scripts/test.sh check

test: setup ## Everything: format, lints, docs, unit and end-to-end tests
	@$(WITH_LIBRARIES) scripts/test.sh

figures: setup ## Make README.md and docs from docs/templates and results/reference/records
	@$(WITH_LIBRARIES) EXPCTL_UPDATE_FIGURES=1 cargo test --release --locked --workspace --test integration -- figures::documents_are_rendered

test-gpu: build ## What needs a GPU; says what it skips without one
	@$(WITH_LIBRARIES) scripts/gpu.sh test

bench-gpu: build ## Measure on a GPU, into results/gpu; PARTS="NAME ..." names some (scripts/gpu.sh list)
	@$(WITH_LIBRARIES) scripts/gpu.sh bench $(PARTS)

gpu-bundle: build ## Both for a machine without Rust, into .gpu.tar.xz: carry it with the clone, run scripts/gpu.sh there
	@$(WITH_LIBRARIES) scripts/gpu.sh bundle

clean: ## Remove what make left in the clone (not the cache, data or results)
	rm -rf bin dist .gpu .gpu.tar.xz
