# A thin front: CMake does the work. `make demo` and `make test` also install what they need (scripts/setup.sh).
PREFIX ?= /usr/local

build: build/release/build.ninja
	cmake --build build/release

build/release/build.ninja:
	cmake --preset release

demo:
	scripts/setup.sh demo
	@$(MAKE) --no-print-directory build
	scripts/demo.sh build/release/ramet

# Everything CI needs: build without a warning, then all tests; some of them build and run the other presets.
test:
	scripts/setup.sh test
	cmake --preset ci
	cmake --build build/ci
	ctest --preset ci

# The tests to run while working: under a minute.
quick: build
	ctest --preset quick

# libFuzzer with clang on each target, or on those named in FUZZ_TARGETS.
FUZZ_SECONDS ?= 60
fuzz:
	tests/fuzz/run.sh $(FUZZ_SECONDS) $(FUZZ_TARGETS)

# State and store beside their twin, by random operations; SOAK_PROCESSES of them for less than an hour on 2 cores.
SOAK_OPERATIONS ?= 120000000
SOAK_PROCESSES ?= 2
soak: build
	build/release/ramet-soak $(SOAK_OPERATIONS) $(SOAK_PROCESSES)

# A process that saves, spills and evicts, killed 10,000 times: under three minutes.
KILLS ?= 10000
kill-test: build
	build/release/ramet-killtest $(KILLS)

models:
	scripts/get_model.py smollm2 gemma3

# Beside llama.cpp: make bench LLAMA_BENCH=path/to/llama-bench MODELS="a.gguf b.gguf"
bench: build
	bench/against_llamacpp.py --ramet build/release/ramet --llama-bench $(LLAMA_BENCH) $(MODELS)

format:
	scripts/format.sh

check-format:
	scripts/format.sh --check

install:
	cmake --preset release -DCMAKE_INSTALL_PREFIX=$(PREFIX)
	cmake --build build/release
	cmake --install build/release

clean:
	rm -rf build

.PHONY: build demo test quick fuzz soak kill-test models bench format check-format install clean
