# ProxyAuthK8S for Caddy. Needs Go, git, make and a C compiler; the rest is
# built from pinned sources into a cache outside the repository.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := build

# The toolchain is the one at hand: nothing is downloaded behind one's back.
export GOTOOLCHAIN := local
export GOWORK := off

# Every module of the repository that holds code of its own.
MODULES := . integration xcaddy/demo
PACKAGES := ./...

# The version that the program reports; without git it is the one Go finds.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
LDFLAGS = -X github.com/proxyauthk8s/caddy-proxyauthk8s/internal/version.stamped=$(VERSION)

TOOLS = cd integration && go run ./cmd/realtools

.PHONY: build
build: ## bin/caddy, the distribution
	@# Without cgo, as in the image and as xcaddy builds: one compilation serves all.
	CGO_ENABLED=0 go build -ldflags "$(LDFLAGS)" -o bin/caddy ./xcaddy

.PHONY: demo
demo: build ## A cluster behind the proxy, to try; DEMO=once ends after its checks
	@# A program of its own and not `go run`, which would not pass a SIGTERM on.
	cd xcaddy/demo && go build -o ../../bin/demo . && exec ../../bin/demo $(if $(filter once,$(DEMO)),-once)

.PHONY: demo-once
demo-once: build ## The demo runs its checks, and cleans up however it ends
	@# -count=1: a change of the proxy alone does not invalidate a kept result.
	cd xcaddy/demo && go test -count=1 -timeout 15m ./...

.PHONY: test
test: lint unit integration demo-once xcaddy ## Everything that takes less than half an hour

.PHONY: unit
unit:
	go test -race -timeout 15m $(PACKAGES)

.PHONY: integration
integration: build
	@# Ten minutes of building the first time, which go test would be silent about.
	$(TOOLS) >/dev/null
	@# -count=1: the product runs as a process of its own, which a kept result knows nothing of.
	cd integration && go test -count=1 -timeout 30m ./...

.PHONY: test-long
test-long: build ## What needs over three minutes alone: streams, attacks and reloads against a race-enabled proxy
	@# Ten minutes of building the first time, which go test would be silent about.
	$(TOOLS) kube-apiserver-1.28 kube-apiserver-1.29 >/dev/null
	cd integration && go test -count=1 -timeout 60m -tags long -run Long ./...
	cd integration && PROXYAUTH_RACE=1 go test -race -count=1 -timeout 60m ./suites/hostile/... ./suites/lifecycle/...

.PHONY: bench
bench: build ## CPU time a request, against stock reverse_proxy in the same run
	cd integration && go test -timeout 30m -run '^$$' -bench . -benchtime 1x ./suites/bench/...

.PHONY: lint
lint: ## gofmt, vet and staticcheck over every module
	@echo "checking the format"
	@test -z "$$(gofmt -l . | tee /dev/stderr)"
	@staticcheck=$$($(TOOLS) staticcheck); \
	for module in $(MODULES); do \
		echo "checking module $$module"; \
		(cd $$module && go vet ./... && "$$staticcheck" ./...); \
	done
	@echo "checking what is generated"
	@go run ./k8swatch/api/v1/gen -check

.PHONY: xcaddy
xcaddy: ## The distribution as xcaddy builds it
	cd integration && go test -timeout 15m -tags xcaddy -run XCaddy ./suites/xcaddybuild/...

.PHONY: generate
generate: ## CRD, its chart and deepcopy from the markers of the API types
	go generate ./k8swatch/api/v1/...

.PHONY: fuzz
fuzz: ## Each fuzz target for half a minute
	@for target in $$(grep -rlE '^func Fuzz' --include='*_test.go' caddymodule k8swatch probe | xargs -n1 dirname | sort -u); do \
		for name in $$(grep -hoE '^func (Fuzz[A-Za-z0-9_]+)' $$target/*_test.go | awk '{print $$2}'); do \
			go test -run '^$$' -fuzz "^$$name\$$" -fuzztime 30s ./$$target; \
		done; \
	done

.PHONY: clean
clean:
	rm -rf bin
