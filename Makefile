# One command each: `make test` builds and tests everything, on a fresh machine too. `make help` lists the rest.
#
# Everything made here lives in .venv and build; stamp files there keep the second run short.
PYTHON ?= python3
VENV ?= .venv
CLANG_FORMAT ?= clang-format
CLANG_TIDY ?= clang-tidy
RUN_CLANG_TIDY ?= run-clang-tidy
# Fuzzing: runs per target. Soak: how many seeds.
RUNS ?= 100000
SEEDS ?= 10000
# Interpreters that wheels are built for and tried with: 3.11, and any later, which share a wheel. Here: pyenv's.
WHEEL_PYTHONS ?= $(or $(wildcard $(HOME)/.pyenv/versions/3.1[1-9].*/bin/python),$(PYTHON))
# More words for `dlcp train`: make demo DEMO_ARGS="--recipe dlcp --loss 5%".
DEMO_ARGS ?=
# More words for pytest: make test PYTEST_ARGS="-k wire -x".
PYTEST_ARGS ?=
# Sanitized tests: make test SANITIZE=address,undefined (or thread); each has its own build folder.
SANITIZE ?=

JOBS := $(shell nproc 2>/dev/null || echo 2)
# The module, the wheel and what a second clone builds share objects. Asked for at each recipe: setup may just have brought it.
export CMAKE_CXX_COMPILER_LAUNCHER = $(shell command -v ccache)
# A hundred programs of the tests import torch, which is installed without bytecode: the first one leaves it for the others,
# also where the environment says that Python is not to write any.
unexport PYTHONDONTWRITEBYTECODE
PY := $(VENV)/bin/python
comma := ,
NATIVE_BUILD := build/native$(if $(SANITIZE),-$(subst $(comma),-,$(SANITIZE)))

# Debian packages: without the first group nothing builds, the second adds to it.
SYSTEM_NEEDED := g++ cmake ninja-build libssl-dev doctest-dev python3-venv python3-dev
SYSTEM_USEFUL := ccache libipsec-mb-dev iproute2 netbase iputils-ping nftables ethtool clang libclang-rt-dev clang-format clang-tidy libbpf-dev libns3-dev valgrind
# Of the drivers below the kernel. libdpdk-dev brings every poll-mode driver along, dpdk the tools that bind cards.
SYSTEM_USEFUL += pkgconf libdpdk-dev dpdk libxdp-dev

CPP_SOURCES := $(shell find native sim -name '*.[ch]pp' -o -name '*.h' 2>/dev/null)
CPP_TESTS := $(shell find tests bench -name '*.[ch]pp' -o -name '*.h' 2>/dev/null)
# What is installed for editing knows which names are packages.
PACKAGES := $(shell find dlcp sim -name __init__.py 2>/dev/null)
PYTHON_FOLDERS := $(wildcard .ci dlcp docs/site p4/compile.py sim bench examples tests)

SHELL := /bin/bash
.PHONY: help setup native test test-torch test-pytorch test-frameworks gpu check lint lint-ruff lint-types lint-format lint-tidy format
.PHONY: p4 settings drawings lines docs wheels bench fuzz soak demo clean distclean always
help:
	@echo "make setup     system packages (as root), .venv, dlcp in it, ready to edit"
	@echo "make test      setup, C++ tests built, pytest            PYTEST_ARGS=... SANITIZE=address,undefined"
	@echo "make test-torch  smoke tests with each version of torch    TORCH_VERSIONS=\"2.12.1 2.13.0\""
	@echo "make test-pytorch  PyTorch's own distributed tests over dlcp"
	@echo "make test-frameworks  the examples under the tools that they need, all installed"
	@echo "make gpu       tests and benchmarks on a GPU; none: says so, status 3 of .ci/gpu.py    BENCH_ARGS=--quick"
	@echo "make check     lint, types and the fast tests"
	@echo "make lint      ruff, mypy, clang-format, clang-tidy      make format: rewrite files instead"
	@echo "make p4        switch programs compiled anew, with p4c-bm2-ss on PATH"
	@echo "make settings  what is written from the tables of settings; make drawings: from the tables of states"
	@echo "make wheels    dist/*.whl for Linux with glibc 2.28      WHEEL_PYTHONS=\"python3.11 python3.12\" WHEEL_MACHINE=aarch64"
	@echo "make lines     how long each room is, after it has grown or shrunk"
	@echo "make bench     benchmarks, printed; all take hours         BENCH_ARGS=\"engine --quick\""
	@echo "make fuzz      every fuzz target on its corpus           RUNS=$(RUNS)"
	@echo "make soak      random networks, many seeds               SEEDS=$(SEEDS)"
	@echo "make demo      two models trained over a lossy network   DEMO_ARGS=\"--mode study\""
	@echo "make docs      the documentation as a site, in build/site"
	@echo "make clean     remove build; make distclean: .venv too"

# --- setup ----------------------------------------------------------------------------------------------------

# What nothing builds without, then what adds to it; the second is installed while pip works. Checked once per change of the
# lists, and again each time while something is missing that root could install. What no package list names, once that list
# is fresh, is not asked for again. Only Debian and its kin are known here; elsewhere CMake says what it lacks.
missing := missing() { for p in "$$@"; do \
    dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || printf '%s ' $$p; done; }; \
    install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$$@" >/dev/null; }
build/.system-needed: Makefile
	@mkdir -p build
	@command -v dpkg-query >/dev/null || { touch $@; \
	    echo "not a Debian system: have the equivalents of $(SYSTEM_NEEDED) $(SYSTEM_USEFUL)"; exit 0; }; \
	$(missing); needed=$$(missing $(SYSTEM_NEEDED)); useful=$$(missing $(SYSTEM_USEFUL)); \
	if [ "$$(id -u)" = 0 ] && [ -n "$$needed$$useful" ]; then \
	    apt-get update -qq -o APT::Update::Error-Mode=any && touch build/.apt-lists \
	        || echo "apt-get update failed; trying with the lists that are here"; \
	    [ -z "$$needed" ] || install $$needed || exit 1; \
	elif [ -n "$$needed" ]; then echo "missing: apt-get install $$needed"; exit 1; fi; \
	touch $@

build/.system: build/.system-needed
	@command -v dpkg-query >/dev/null || { touch $@; exit 0; }; \
	$(missing); useful=$$(missing $(SYSTEM_USEFUL)); \
	if [ -z "$$useful" ]; then touch $@; \
	elif [ "$$(id -u)" != 0 ]; then echo "useful, but missing: apt-get install $$useful"; \
	else \
	    echo "installing: $$useful"; \
	    install $$useful 2>/dev/null || for p in $$useful; do \
	        install $$p || echo "could not install $$p; what needs it is skipped"; done; \
	    if [ -e build/.apt-lists ] || [ -z "$$(missing $$useful)" ]; then touch $@; fi; \
	fi

# Which libraries the drivers below the kernel find here (CMakeLists.txt, dlcp_plugin), rewritten only when that changes:
# the module is built anew then, with a driver more or less. CMake's cache and its folder would still have one that has gone.
build/.libraries: always | build/.system
	@mkdir -p build
	@found=$$(for p in libdpdk libxdp; do \
	    echo "$$p $$(pkg-config --modversion $$p 2>/dev/null || echo none)"; done); \
	if [ "$$found" != "$$(cat $@ 2>/dev/null)" ]; then \
	    rm -f build/native*/{CMakeCache.txt,libdlcp_io_*.so}; echo "$$found" >$@; fi
always:

$(PY): | build/.system-needed
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "dlcp needs Python >= 3.11: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Build requirements first, so that the build needs no isolation and shares its objects with the C++ tests, in $(NATIVE_BUILD).
# Nothing is compiled to bytecode beforehand: most of it is never imported.
$(VENV)/.packages: pyproject.toml constraints.txt | $(PY)
	$(PY) .ci/requirements.py dependencies torch test lint demo sim ray p4 completion docs | $(PY) -m pip install -q \
	    --disable-pip-version-check --no-compile -c constraints.txt scikit-build-core nanobind -r /dev/stdin
	@touch $@

$(VENV)/.dlcp: $(VENV)/.packages CMakeLists.txt build/.libraries $(CPP_SOURCES) $(PACKAGES)
	$(PY) -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation \
	    --config-settings=build-dir=build/native --config-settings=cmake.define.DLCP_BUILD_TESTS=ON -e .
	@touch $@

setup:
	@$(MAKE) --no-print-directory -j2 $(VENV)/.packages build/.system
	@$(MAKE) --no-print-directory $(VENV)/.dlcp

# --- test -----------------------------------------------------------------------------------------------------

# The module's own build folder, which has the tests' targets too; a sanitized build has a folder of its own and no module.
native: $(if $(SANITIZE),| build/.libraries,setup)
ifneq ($(SANITIZE),)
	@cmake -S . -B $(NATIVE_BUILD) -G Ninja -DDLCP_BUILD_TESTS=ON -DDLCP_SANITIZE=$(SANITIZE) \
	    > $(NATIVE_BUILD).log 2>&1 || { cat $(NATIVE_BUILD).log; exit 1; }
endif
	@cmake --build $(NATIVE_BUILD)

# One worker more than there are cores: some tests wait. Which tests share a worker: tests/conftest.py.
PYTEST := DLCP_NATIVE_BUILD=$(NATIVE_BUILD) $(PY) -m pytest -n $(shell expr $(JOBS) + 1) --dist loadscope
test: native
	$(PYTEST) $(PYTEST_ARGS)

# Draws up to 6 GB for each version, one after another, and deletes them. Which tests: SMOKE in tests/conftest.py.
test-torch: setup
	$(PY) .ci/torch_versions.py $(TORCH_VERSIONS)

# torch's own, by ranks that are forked; some minutes for each size.
test-pytorch: setup
	@$(PY) -m pip install -q --disable-pip-version-check expecttest
	$(PY) .ci/pytorch_tests.py

# Lightning, Ray and the like, as far as they install: up to 8 GB in build/frameworks.
test-frameworks: setup
	$(PY) .ci/frameworks.py

# Installs torch with CUDA, 6 GB, in build/gpu. Ten minutes at most.
gpu: setup
	$(PY) .ci/gpu.py $(BENCH_ARGS)

# For daily work. What it leaves out: SLOW in tests/conftest.py.
check: native lint-ruff lint-types
	$(PYTEST) -m "not slow" $(PYTEST_ARGS)

soak: native
	$(NATIVE_BUILD)/dlcp_property --seeds $(SEEDS) --jobs $(JOBS)

FUZZERS := $(patsubst tests/fuzz/%.cpp,%,$(wildcard tests/fuzz/fuzz_*.cpp))
fuzz: | build/.system
	@cmake -S . -B build/fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DDLCP_BUILD_FUZZ=ON > build/fuzz.log 2>&1 \
	    || { cat build/fuzz.log; exit 1; }
	@cmake --build build/fuzz --target $(FUZZERS)
	@set -e; for target in $(FUZZERS); do \
	    echo "== $$target, $(RUNS) runs"; \
	    mkdir -p build/fuzz/corpus/$$target tests/fuzz/corpus/$$target; \
	    build/fuzz/$$target -runs=$(RUNS) -print_final_stats=1 -artifact_prefix=build/fuzz/ \
	        build/fuzz/corpus/$$target tests/fuzz/corpus/$$target; \
	done

# After any change of a table of settings: what is written from it, for type checkers and readers.
settings: setup
	$(PY) -m dlcp.transport.settings_reference
	$(PY) -m dlcp_sim.transports
	$(PY) -m ruff format -q dlcp/transport/settings_fields.py sim/dlcp_sim/transports/__init__.pyi

# After any change of a table of states (tests/tables/states.txt).
drawings: setup
	$(PY) -m tests.support.drawings

# After a change that makes a room longer or shorter (tests/tables/lines.txt).
lines: setup
	$(PY) -m tests.support.lines

# What dlcp/switch/compiled holds is committed: few machines have the compiler. After any change of p4/*.p4 or p4/blocks.
p4: setup
	$(PY) p4/compile.py

# Needs nothing of setup but its system packages; the tools come from PyPI into build/wheels.
wheels: | build/.system-needed
	@$(PYTHON) .ci/wheels.py $(if $(WHEEL_MACHINE),--machine $(WHEEL_MACHINE)) $(WHEEL_PYTHONS)

# --- look ----------------------------------------------------------------------------------------------------

# Every tool has its say, also when one before it found something.
lint: setup
	@$(MAKE) --no-print-directory --keep-going lint-ruff lint-types lint-format lint-tidy

lint-ruff:
	$(PY) -m ruff check $(PYTHON_FOLDERS)
	$(PY) -m ruff format --check $(PYTHON_FOLDERS)

lint-types:
	$(PY) -m mypy

lint-format:
	@bad=0; for file in $(CPP_SOURCES) $(CPP_TESTS); do \
	    $(CLANG_FORMAT) --dry-run --Werror $$file 2>/dev/null || { echo "not as clang-format writes it: $$file"; bad=1; }; \
	done; exit $$bad

# Reads the commands of the build of the Python modules, which compiles all of native/ and sim/.
lint-tidy:
	$(RUN_CLANG_TIDY) -quiet -clang-tidy-binary $(CLANG_TIDY) -p build/native -j $(JOBS) '$(CURDIR)/(native|sim)/.*\.cpp$$' \
	    2>/dev/null | grep -v -e ' -header-filter=' -e '^$$' ; exit $${PIPESTATUS[0]}

format: setup
	$(PY) -m ruff check --fix $(PYTHON_FOLDERS)
	$(PY) -m ruff format $(PYTHON_FOLDERS)
	$(CLANG_FORMAT) -i $(CPP_SOURCES) $(CPP_TESTS)

# --- run -----------------------------------------------------------------------------------------------------

# Builds bench/native in build/bench by itself.
bench: setup
	$(PY) -m bench $(or $(BENCH_ARGS),all)

# About two minutes on two cores, once set up. What DEMO_ARGS may be: dlcp train --help.
demo: setup
	$(PY) -m dlcp train --output build/demo $(DEMO_ARGS)

# Nothing is fetched: neither by the build nor by who reads what it makes. tests/test_site.py builds it too.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "the site: build/site/index.html"

clean:
	rm -rf build .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find dlcp sim bench tests -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean
	rm -rf $(VENV)
