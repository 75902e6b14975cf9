# make alone prints what each target does.
SHELL := bash
# Go of go.mod's version, fetched where the installed one is too old.
WITH_GO := .ci/with-go
VERSION := $(shell git describe --always --dirty 2>/dev/null)
# Where git does not answer, go would fail to ask it for the commit.
STAMP := -buildvcs=$(if $(VERSION),auto,false) -ldflags "-X proffer/cmd/internal/cli.version=$(VERSION)"

# Where make install puts things; DESTDIR is before all of them.
PREFIX ?= /usr/local
# Of the package: the number of commits, so that a later build is an upgrade.
DEB_VERSION ?= 0.$(or $(shell git rev-list --count HEAD 2>/dev/null),0)$(if $(VERSION),+$(subst -,.,$(VERSION)))
export SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),1767225600)

.PHONY: help demo test quick build install deb generate update lint bench clean tools

help: ## print this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: build ## show real connections finding free servers, as many as fit this machine (root; < 2 minutes)
	@build/proffer-lab demo

test: tools ## check everything: objects, style, units, programs, end to end (root; installs what it lacks)
	@$(WITH_GO) .ci/check

quick: tools ## style, units and programs, before a commit (root)
	@$(WITH_GO) .ci/quick

build: ## build/proffer and build/proffer-lab from the committed eBPF objects (needs Go only)
	@mkdir -p build
	@$(WITH_GO) go build -trimpath $(STAMP) -o build/ ./cmd/proffer ./cmd/proffer-lab

install: build ## install proffer with units, manual pages and completion (PREFIX, DESTDIR)
	@dist/install build/proffer "$(DESTDIR)" "$(PREFIX)"

deb: ## build/proffer_VERSION_amd64.deb (needs dpkg-deb)
	@mkdir -p build/deb
	@CGO_ENABLED=0 GOARCH=amd64 $(WITH_GO) go build -trimpath $(subst -ldflags ",-ldflags "-s -w ,$(STAMP)) -o build/deb/ ./cmd/proffer
	@dist/deb build/deb/proffer "$(DEB_VERSION)" build

generate: ## compile bpf/*/*.bpf.c again (needs clang-19, libbpf-dev)
	@$(WITH_GO) go generate ./...

update: ## all that is generated: make generate, then docs, schemas and expected output
	@$(WITH_GO) .ci/update

lint: ## gofmt, vet, staticcheck, the import rule
	@$(WITH_GO) .ci/lint

bench: build ## what a packet costs (root; minutes), speed of the pure parts, the simulator beside SimPy (from PyPI)
	@$(WITH_GO) .ci/bench

clean: ## remove what make and the demo wrote
	@rm -rf build demo-out

tools:
	@.ci/tools
