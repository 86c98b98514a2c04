# Thin on purpose: what a target does is in scripts/, which sets up what is missing by itself.
.DEFAULT_GOAL := help
.PHONY: bench bench-compare bench-latency bench-ledger bench-load bench-scaling bench-simulation build check check-long clean demo help setup soak test

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand --tabs 24

demo: build ## Score a real text with a real checkpoint on this machine
	@scripts/setup-demo.sh
	@scripts/demo.sh

build: setup ## Build assay, assay-server and assay-worker into target/release
	@scripts/build-dashboard.sh
	cargo build --release --locked -p assay -p assay-server -p assay-worker

test: setup ## Check, then run every test against a private PostgreSQL
	@scripts/setup-demo.sh
	@scripts/check.sh
	@scripts/test.sh

check: setup ## Check formatting, lints, licences and scripts
	@scripts/check.sh

check-long: build ## Open damaged checkpoints (half an hour on two cores), then call a running service with all sorts of requests
	@scripts/check-long.sh

soak: build ## Disturb workers at random for half an hour (ASSAY_SOAK_MINUTES) and compare the integers
	@scripts/soak.sh

bench: build ## Run every benchmark
	@scripts/setup-demo.sh
	@scripts/bench.sh

bench-compare: build ## Measure Assay beside transformers and lm-evaluation-harness (some 50 minutes)
	@scripts/setup-demo.sh
	@scripts/bench-compare.sh

bench-latency: build ## Measure how soon a job computes, and answers to 500 clients
	@scripts/setup-demo.sh
	@scripts/bench-latency.sh

bench-load: build ## Measure the memory that loading a checkpoint takes
	@scripts/setup-demo.sh
	@scripts/bench-load.sh

bench-ledger: setup ## Measure claims and commits of many workers, on a private PostgreSQL
	@scripts/bench-ledger.sh

bench-scaling: build ## Measure one job on one device and on two
	@scripts/setup-demo.sh
	@scripts/bench-scaling.sh

bench-simulation: setup ## Compare ways to spread a job, in virtual time
	@scripts/bench-simulation.sh

clean: ## Remove all that was built or fetched
	rm -rf build target

setup:
	@scripts/setup-rust.sh
	@scripts/setup-system.sh
	@scripts/setup-libtorch.sh
