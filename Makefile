# The targets people type. Everything is built under build/<preset>; what is missing on the machine is installed.
SHELL := /bin/bash
.DEFAULT_GOAL := help
FUZZ_SECONDS ?= 60
JOBS ?= $(shell nproc)
SOURCES = $(shell git ls-files 'src/*.h' 'src/*.cpp' 'examples/*.cpp' 'examples/*.h')

.PHONY: help deps build test test-all asan tsan fuzz bench bench-state lint format clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps: ## install the Debian packages that the build needs
	@tools/deps.sh build

build: deps ## build everything (build/release)
	@cmake --preset release >build/configure.log 2>&1 || { mkdir -p build; cmake --preset release; }
	@cmake --build --preset release -j $(JOBS)

test: build ## build, then run the tests
	@ctest --preset release

test-all: test ## the tests and the real clients: what CI runs

asan: deps ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@cmake --preset asan
	@cmake --build --preset asan -j $(JOBS)
	@ctest --preset asan

tsan: deps ## the tests under ThreadSanitizer
	@cmake --preset tsan
	@cmake --build --preset tsan -j $(JOBS)
	@ctest --preset tsan

fuzz: ## run every fuzzer for FUZZ_SECONDS (60) seconds
	@tools/deps.sh fuzz
	@cmake --preset fuzz
	@cmake --build --preset fuzz -j $(JOBS)
	@tools/fuzz.sh $(FUZZ_SECONDS)

bench-state: build ## benchmarks of the state library, with their targets
	@build/release/src/state/state_bench

bench: bench-state ## all benchmarks

lint: ## clang-format in check mode, and clang-tidy
	@tools/deps.sh lint
	@clang-format --dry-run --Werror $(SOURCES)
	@cmake --preset debug >/dev/null
	@tools/lint.sh build/debug

format: ## rewrite the sources with clang-format
	@tools/deps.sh lint
	@clang-format -i $(SOURCES)

clean: ## remove everything that was built
	@rm -rf build
