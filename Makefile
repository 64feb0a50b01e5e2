# make demo   trains a model with a parameter server and two workers, on this machine
# make test   everything that must hold
# Nothing is installed outside of this folder.

export CARGO_TERM_COLOR ?= auto
CARGO ?= cargo
PYTHON ?= python3
# Where cargo builds: `target`, or what CARGO_TARGET_DIR or cargo's configuration says
TARGET := $(or $(shell $(CARGO) metadata --no-deps --format-version 1 2>/dev/null | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'),target)
BIN := $(TARGET)/release/rallypoint
VENV := build/venv
# cargo-nextest where it is installed, else cargo's own runner
TEST := $(shell $(CARGO) nextest --version >/dev/null 2>&1 && echo "nextest run --no-fail-fast" || echo "test --no-fail-fast")

# Tests that need namespaces, and so root
ROOTLESS := $(if $(filter 0,$(shell id -u)),,-m "not root")

.PHONY: build wheel demo sample test fmt lint unit model simulate soak mutants tensorflow python slurm htcondor htcondor-next faults faults-short plain-runs hostile hostile-short fuzz deny reference bench
build: $(BIN)

$(BIN): $(shell find crates -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock
	$(CARGO) build --release --locked
	@touch $@

# CPU TensorFlow and pytest, in a private virtual environment
$(VENV)/ready: examples/requirements.txt examples/keras_fit/requirements.txt tests/requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r examples/requirements.txt -r tests/requirements.txt
	# It asks for `tensorflow`, of which tensorflow-cpu is another name
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps -r examples/keras_fit/requirements.txt
	@touch $@

# The Python package with the command in it: build/wheels/rallypoint-*.whl
wheel: build/wheels/ready
build/wheels/ready: $(BIN) $(VENV)/ready $(shell find python -name '*.py' -o -name '*.pyi') pyproject.toml README.md
	rm -rf build/wheels
	$(VENV)/bin/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/wheels .
	@touch $@

$(VENV)/package: build/wheels/ready
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps --force-reinstall build/wheels/rallypoint-*.whl
	@touch $@

demo: $(BIN) $(VENV)/ready
	$(BIN) run --ps 1 --workers 2 -- $(VENV)/bin/python examples/digits/train.py

# plan, env and check on a captured two-node allocation
sample: $(BIN)
	@sh examples/sample/demo.sh $(BIN)

test: fmt lint unit model simulate faults-short hostile-short python tensorflow slurm htcondor
ifneq ($(ROOTLESS),)
	@echo "LEFT OUT: tests that need namespaces were not run, since this is not root" >&2
endif

fmt:
	$(CARGO) fmt --all --check

lint:
	# Clippy knows what each version of the language and its library has
	test "$$(sed -n 's/^rust-version = //p' Cargo.toml)" = "$$(sed -n 's/^msrv = //p' clippy.toml)"
	$(CARGO) clippy --workspace --all-targets --all-features --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --quiet --no-deps --locked -p rallypoint -p rallypoint-english

unit:
	$(CARGO) $(TEST) --workspace --locked
	# The examples of the crate's documentation
	$(CARGO) test --quiet --doc --locked --workspace
	# What the fuzzers keep, and what they once found
	$(CARGO) $(TEST) -p rallypoint --locked --features fuzzing --test corpus
	# A scheduler that was added by the guide alone
	$(CARGO) $(TEST) -p rallypoint-cli --locked --features toy-scheduler --test toy

# Every order of steps of a small meeting, and of a job's end: docs/design/model.md
model:
	$(CARGO) run --quiet --release --locked -p rallypoint-model

# Whole jobs of the real code among simulated machines, some hundreds of seeds: docs/design/simulation.md. tokio takes a seed
# for its own choices only where it is built for that, so it is built apart.
SIMULATE := RUSTFLAGS="--cfg tokio_unstable" CARGO_TARGET_DIR=$(abspath $(TARGET))/simulation \
	$(CARGO) test --quiet -p rallypoint --locked --features simulation --test simulation
simulate:
	$(SIMULATE)

# More of them: make soak SEEDS=10000 FIRST=400; make soak SEED=7 shows one
soak:
	$(SIMULATE) -- --nocapture whatever

# The real code with one thing wrong in it, many times over: each has to be noticed. Apart from `test`, since it takes minutes
mutants:
	MUTANTS_TARGET=$(abspath $(TARGET))/mutants $(PYTHON) tests/simulation/mutants.py

# The libraries of the oldest TensorFlow for the Python that the newest was tried with; the wheel alone
OLDEST := build/tensorflow-oldest
$(OLDEST)/ready: $(VENV)/ready
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.11 \
		--upgrade --target $(OLDEST) tensorflow-cpu==2.12.0
	@touch $@

# Real TensorFlow, started by the real command
tensorflow: $(BIN) $(VENV)/ready $(OLDEST)/ready
	RALLYPOINT=$(abspath $(BIN)) $(VENV)/bin/python -m pytest -q tests/tensorflow

# The Python package as it is installed, its examples, and its types
python: $(BIN) $(VENV)/package
	RALLYPOINT=$(abspath $(BIN)) WHEELS=$(abspath build/wheels) $(VENV)/bin/python -m pytest -q tests/python

# A real HTCondor pool, started for the tests and stopped again; TESTBEDS=none leaves it out
htcondor: $(BIN) $(VENV)/package
ifeq ($(TESTBEDS),none)
	@echo "LEFT OUT: tests/htcondor was not run, since TESTBEDS=none" >&2
else
	RALLYPOINT=$(abspath $(BIN)) testbed/htcondor/with $(VENV)/bin/python -m pytest -q $(ROOTLESS) tests/htcondor
endif

# The same with HTCondor of Debian's next release; apart from `test`, since that one changes from day to day
htcondor-next: $(BIN) $(VENV)/package
	SUITE=forky RALLYPOINT=$(abspath $(BIN)) testbed/htcondor/with $(VENV)/bin/python -m pytest -q $(ROOTLESS) tests/htcondor

# A real Slurm of four nodes, fetched privately and started for the tests
slurm: $(BIN) $(VENV)/package
ifeq ($(TESTBEDS),none)
	@echo "LEFT OUT: tests/slurm was not run, since TESTBEDS=none" >&2
else
	RALLYPOINT=$(abspath $(BIN)) testbed/slurm/with $(VENV)/bin/python -m pytest -q $(ROOTLESS) tests/slurm
endif

# Random faults in all modes that this machine has: make faults N=500 SEED=7; CASE=NAME is one of them once more
N ?= 100
FAULTS ?= $(N)
SEED ?= $(shell date +%s)
BEDS := $(if $(filter none,$(TESTBEDS)),,testbed/slurm/with testbed/htcondor/with)
faults: $(BIN)
	RALLYPOINT=$(abspath $(BIN)) $(if $(CASE),$(if $(findstring /slurm,$(CASE))$(findstring /htcondor,$(CASE)),$(BEDS)),$(BEDS)) \
		$(PYTHON) tests/faults $(if $(CASE),--case $(CASE),--faults $(FAULTS) --seed $(SEED))

# Some of them, always the same ones, on this machine alone; and whether the harness would notice
faults-short: $(BIN)
	RALLYPOINT=$(abspath $(BIN)) $(PYTHON) tests/faults/sabotage.py
	RALLYPOINT=$(abspath $(BIN)) $(PYTHON) tests/faults --faults 30 --seed 7 --modes plain

# Many runs to which nothing is done, beside busy loops: none may hang
RUNS ?= 2000
plain-runs: $(BIN)
	RALLYPOINT=$(abspath $(BIN)) $(PYTHON) tests/faults/plain_runs.py $(RUNS)

# Strangers while a job of 50 meets and runs, and somebody in the middle of a connection: make hostile CONNECTIONS=10000
CONNECTIONS ?= 10000
hostile: $(BIN)
	RALLYPOINT=$(abspath $(BIN)) $(PYTHON) tests/hostile --connections $(CONNECTIONS)

# Some of both, always the same ones
hostile-short: $(BIN)
	RALLYPOINT=$(abspath $(BIN)) $(PYTHON) tests/hostile --short

# Each reader of bytes from outside, fuzzed for TIME seconds: make fuzz TIME=600 TARGETS="hostlist slurm"; docs/design/fuzzing.md
TIME ?= 60
fuzz:
	$(PYTHON) fuzz/run --time $(TIME) $(TARGETS)

# Licences, duplicates and sources of all crates, by deny.toml. Apart from `test`, since it builds its tool first, privately.
# Known holes (`advisories`) are left out: they need RustSec's database from GitHub. Where that can be reached:
# build/tools/bin/cargo-deny check advisories
build/tools/bin/cargo-deny:
	$(CARGO) install --quiet --locked --root build/tools cargo-deny
deny: build/tools/bin/cargo-deny
	build/tools/bin/cargo-deny --locked check licenses bans sources

# docs/reference, from the code
reference:
	UPDATE_REFERENCE=1 $(CARGO) test -q -p rallypoint-cli reference

bench: $(BIN) $(VENV)/package
	$(CARGO) bench -p rallypoint
	sh benchmarks/command.sh $(BIN)
	sh benchmarks/launch.sh $(BIN)
	$(PYTHON) benchmarks/agents.py $(BIN)
	[ "$(TESTBEDS)" = none ] || benchmarks/slurm.sh $(BIN)
	$(VENV)/bin/python benchmarks/serve.py $(BIN)
	$(VENV)/bin/python benchmarks/resolver.py
