# Every chore. `make` alone lists them.

.DEFAULT_GOAL := help
.PHONY: help demo demo-python test quick test-python wheel check faults soak fuzz leaks sanitize lab compare deny deps install install-built uninstall image dist fmt docs clean

# Root installs into /usr/local/bin, a user into ~/.local/bin; PREFIX=/somewhere changes that.
PREFIX ?= $(if $(filter 0,$(shell id -u)),/usr/local,$(HOME)/.local)
BUILT = target/release/flatout
BIN = $(DESTDIR)$(PREFIX)/bin
SHARE = $(DESTDIR)$(PREFIX)/share
# mount(8) looks for mount.flatout in /sbin only; installed elsewhere, it must be called by its path.
SBIN = $(DESTDIR)$(if $(filter /usr /usr/local,$(PREFIX)),/sbin,$(PREFIX)/sbin)
# Debian's, as in scripts/deps.sh.
PYTHON = /usr/bin/python3
# Of the container image: its name, before the version.
IMAGE ?= flatout
# Of fuzzing: how long each target.
SECONDS ?= 600
# Of the lab: quick or full.
SUITE ?= quick
# Of the fault matrix: how many, from 1 on. Of the soak: how many, from FIRST on.
SEEDS ?= 10

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## fetch 4 GiB from an origin on this machine and compare with the floor; needs Rust only
	@command -v cargo >/dev/null || { echo "demo: needs Rust 1.92 or newer with cargo on the PATH" >&2; exit 1; }
	@test -x $(BUILT) || echo "The first build takes about 4 minutes on two cores (then none); the demo itself a minute."
	@cargo build --release --quiet -p flatout-cli
	@$(BUILT) bench demo

test: ## install what the tests need, then run every check and test; each stage runs even if another fails
	@scripts/deps.sh ensure
	@PYTHON=$(PYTHON) scripts/test.sh

quick: ## while you work: format, tidy, and the test programs that take seconds
	@cargo fmt --all --check
	@cargo xtask tidy
	@cargo xtask test --quick --strict

test-python: ## the Python package alone: make test-python [PYTEST="-k ranges"]
	@scripts/deps.sh ensure
	scripts/python.sh test $(PYTEST)

wheel: ## build the Python package's wheel into dist/; needs Rust and Python with venv
	scripts/python.sh wheel

demo-python: ## load a generated safetensors model in Python from a local origin, with a bar; needs the same as wheel
	@scripts/python.sh demo

faults: ## the fault matrix with many seeds: make faults SEEDS=100 (docs/faults.md)
	FLATOUT_SEEDS=$(SEEDS) cargo test -p flatout-cli --test it faults:: -- --nocapture

soak: ## hours: fresh seeds, odd environments, every outage, leaks, all under load, an install: make soak [SEEDS=100] [FIRST=123]
	@scripts/deps.sh ensure
	scripts/soak.sh all $(SEEDS) $(FIRST)

fuzz: ## libFuzzer, ten minutes a target: make fuzz [TARGET=head] [SECONDS=60] (docs/fuzzing.md)
	@scripts/fuzz.sh $(SECONDS) $(TARGET)

lab: ## measure flatout beside its peers, about 15 minutes; SUITE=full for everything (bench/README.md)
	$(PYTHON) bench/lab run --suite $(SUITE)

compare: ## two results of the lab: make compare A=before.json B=bench/results/latest.json
	@test -n "$(A)" -a -n "$(B)" || { echo "compare: name both: make compare A=before.json B=bench/results/latest.json" >&2; exit 4; }
	$(PYTHON) bench/lab compare $(A) $(B)

check: ## format, clippy, tidy, licences
	@scripts/test.sh check

leaks: ## ten thousand failing transfers: memory, descriptors and threads must not grow, about 2 minutes
	scripts/soak.sh leaks

sanitize: ## the tests of code with `unsafe` under AddressSanitizer and LeakSanitizer, about 8 minutes on two cores
	scripts/sanitize.sh

deny: ## licences, bans and sources by cargo-deny (docs/decisions/licences-without-cargo-deny.md)
	@command -v cargo-deny >/dev/null || { echo "deny: cargo install cargo-deny --version 0.20.2 --locked" >&2; exit 1; }
	cargo deny check licenses bans sources

deps: ## install missing tools of the tests (sudo make deps)
	@scripts/deps.sh install

install: ## build the program and put it, its manual pages and its completions below PREFIX
	cargo build --release -p flatout-cli
	@$(MAKE) --no-print-directory install-built

# Of BUILT. The folder .debug is where gdb, perf and backtraces look for line tables (scripts/strip.sh).
install-built:
	scripts/strip.sh $(BUILT) $(BUILT).stripped $(BUILT).debug
	install -D -m 755 $(BUILT).stripped $(BIN)/flatout
	install -D -m 644 $(BUILT).debug $(BIN)/.debug/flatout.debug
	install -d $(SBIN)
	ln -sfn $(PREFIX)/bin/flatout $(SBIN)/mount.flatout
	install -d $(addprefix $(SHARE)/,man/man1 bash-completion/completions zsh/site-functions fish/vendor_completions.d)
	$(BUILT) man --quiet $(SHARE)/man/man1
	$(BUILT) completions bash > $(SHARE)/bash-completion/completions/flatout
	$(BUILT) completions zsh > $(SHARE)/zsh/site-functions/_flatout
	$(BUILT) completions fish > $(SHARE)/fish/vendor_completions.d/flatout.fish
	@echo "installed: $(BIN)/flatout, $(SBIN)/mount.flatout for fstab, and below $(SHARE) manual pages and completions"

uninstall: ## remove what `make install` put below PREFIX
	rm -f $(BIN)/flatout $(BIN)/.debug/flatout.debug $(SBIN)/mount.flatout $(SHARE)/man/man1/flatout.1 $(SHARE)/man/man1/flatout-*.1
	rm -f $(SHARE)/bash-completion/completions/flatout $(SHARE)/zsh/site-functions/_flatout $(SHARE)/fish/vendor_completions.d/flatout.fish
	@rmdir --ignore-fail-on-non-empty $(BIN)/.debug 2>/dev/null || true

image: ## a container image of the program, in target/dist/: make image [IMAGE=registry/flatout] (deploy/README.md)
	cargo build --release -p flatout-cli
	@IMAGE=$(IMAGE) $(PYTHON) scripts/image.py $(BUILT) target/dist

dist: ## a release in target/dist/: tar, Debian package, container image, checksums; needs dpkg-dev (deploy/README.md)
	cargo build --release -p flatout-cli
	@IMAGE=$(IMAGE) scripts/dist.sh $(BUILT)

fmt: ## format the code
	cargo fmt --all

docs: ## write the generated pages
	cargo xtask docs

clean: ## remove build outputs; the cache of tools stays
	cargo clean
