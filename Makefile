# make alone prints what each target does.
SHELL := bash
GO ?= go
BIN := build/proffer

.PHONY: help demo test build generate lint bench clean tools

help: ## print this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: build ## show 30,000 real connections a policy finding free servers (root; < 2 minutes)
	@$(BIN) demo

test: tools ## check everything: objects, style, units, programs, end to end (root; installs what it lacks)
	@.ci/check

build: ## build/proffer from the committed eBPF objects (needs Go only)
	@$(GO) build -o $(BIN) ./cmd/proffer

generate: ## compile bpf/*/*.bpf.c again (needs clang-19, libbpf-dev)
	@$(GO) generate ./...

lint: ## gofmt, vet, staticcheck, the import rule
	@.ci/lint

bench: build ## what a packet costs (root; < 3 minutes), speed of the pure parts, the simulator beside SimPy (from PyPI)
	@.ci/bench

clean: ## remove what make and the demo wrote
	@rm -rf build demo-out

tools:
	@.ci/tools
