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

.PHONY: build demo test quick models bench format check-format install clean
