# make demo   what rallypoint does, on this machine
# make test   everything that must hold
# Nothing is installed outside of this folder.

export CARGO_TERM_COLOR ?= auto
CARGO ?= cargo
BIN := target/release/rallypoint
# cargo-nextest where it is installed, else cargo's own runner
TEST := $(shell $(CARGO) nextest --version >/dev/null 2>&1 && echo "nextest run --no-fail-fast" || echo "test --no-fail-fast")

.PHONY: demo test fmt lint unit reference bench build
build: $(BIN)

$(BIN): $(shell find crates -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock
	$(CARGO) build --release --locked
	@touch $@

demo: $(BIN)
	@sh examples/sample/demo.sh $(BIN)

test: fmt lint unit

fmt:
	$(CARGO) fmt --all --check

lint:
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

unit:
	$(CARGO) $(TEST) --workspace --locked

# docs/reference, from the code
reference:
	UPDATE_REFERENCE=1 $(CARGO) test -q -p rallypoint-cli reference

bench: $(BIN)
	$(CARGO) bench -p rallypoint
	sh benchmarks/command.sh $(BIN)
