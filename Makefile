# The targets for people. Everything is built under build/<preset>. Missing packages are installed.
SHELL := /bin/bash
.DEFAULT_GOAL := help
FUZZ_SECONDS ?= 60
JOBS ?= $(shell nproc)
SOURCES = $(shell git ls-files 'src/*.h' 'src/*.cpp' 'src/*.inl' 'examples/*.cpp' 'examples/*.h')

# $(call configure,PRESET): quiet if it works; shows the log if it fails.
define configure
@mkdir -p build
@cmake --preset $(1) >build/configure-$(1).log 2>&1 || { cat build/configure-$(1).log; exit 1; }
endef

.PHONY: help deps build test test-all serve soak speculation asan tsan fuzz bench bench-state lint format clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps: ## install the Debian packages that the build needs
	@tools/deps.sh build

build: deps ## build everything (build/release)
	$(call configure,release)
	@cmake --build --preset release -j $(JOBS)

test: build ## build, then run the tests
	@ctest --preset release

test-all: test ## the tests, the real clients, real Redis servers and a cluster: what CI runs
	@tools/deps.sh clients
	@tests/clients/run
	@tests/redis/run
	@tests/tiers/run

serve: deps ## serve the bundled demo model; SERVE="--port 8081" and the like are its options
	$(call configure,release)
	@cmake --build --preset release -j $(JOBS) --target quire
	@exec build/release/src/cli/quire serve $(SERVE)

soak: build ## a million requests through the engine, in a pool for a tenth of them; replays the journals of its pools
	@QUIRE_SOAK_REQUESTS=1000000 QUIRE_SOAK_JOURNAL=build/soak.journal build/release/src/engine/soak_test
	@for journal in build/soak.journal.*; do echo "== $$journal" && build/release/src/cli/quire replay $$journal || exit 1; done

speculation: build ## answers with and without speculation compared over 1,024 prompts, on all kinds of models
	@QUIRE_SPECULATION_PROMPTS=32 build/release/src/engine/speculation_exact_test

asan: deps ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(call configure,asan)
	@cmake --build --preset asan -j $(JOBS)
	@QUIRE_PROPERTY_PERCENT=10 ctest --preset asan

tsan: deps ## the tests of modules whose threads share something, under ThreadSanitizer
	$(call configure,tsan)
	@cmake --build --preset tsan -j $(JOBS)
	@QUIRE_PROPERTY_PERCENT=10 ctest --preset tsan

fuzz: ## run every fuzzer for FUZZ_SECONDS (60) seconds
	@tools/deps.sh fuzz
	$(call configure,fuzz)
	@tools/fuzz.sh $(FUZZ_SECONDS) $(JOBS)

bench-state: build ## benchmarks of the state library, with their targets
	@build/release/src/state/state_bench

bench: bench-state ## all benchmarks; writes the table of docs/performance.md (half an hour)
	@build/release/src/text/tokenizer_bench
	@build/release/src/text/chat_prompt_bench
	@build/release/src/bench/products_bench
	@tools/deps.sh clients
	@tests/redis/bench
	@build/release/src/cli/quire bench --report docs/performance.md

lint: ## clang-format in check mode, and clang-tidy
	@tools/deps.sh lint
	$(call configure,lint)
	@tools/lint.sh build/lint

format: ## rewrite the sources with clang-format
	@tools/deps.sh lint
	@clang-format -i $(SOURCES)

clean: ## remove everything that was built
	@rm -rf build
