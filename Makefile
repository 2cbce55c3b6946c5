# ProxyAuthK8S for Caddy. Needs Go, git, make and a C compiler; the rest is
# built from pinned sources into a cache outside the repository.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := build

# The toolchain is the one at hand: nothing is downloaded behind one's back.
export GOTOOLCHAIN := local
export GOWORK := off

# The same flags for every build, as xcaddy and the image have them: what is
# compiled once serves the distribution, the tests and the checks.
export GOFLAGS := $(strip -trimpath $(filter-out -trimpath,$(GOFLAGS)))
export CGO_ENABLED := 0

# Every module of the repository that holds code of its own.
MODULES := . integration xcaddy/demo

# Rooms whose goroutines meet: their unit tests run with the race detector in
# each run. All others do in test-long.
RACE_ROOMS := ./caddymodule/serving/... ./caddymodule/trust/... ./caddymodule/upstream/... ./k8swatch/source/hub/...

# How many test programs of integration/ run at the same time. They wait for
# real servers more than they compute.
TESTS_AT_ONCE ?= 4

# The version that the program reports; without git it is the one Go finds.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
LDFLAGS = -X github.com/proxyauthk8s/caddy-proxyauthk8s/internal/version.stamped=$(VERSION)

TOOLS = cd integration && go run ./cmd/realtools
# -count=1: the product runs as a process of its own, which a kept result knows
# nothing of. Test programs are linked in each run, so without what only a debugger
# reads; lint vets them.
SUITES = cd integration && go build -o ../bin/testrun ./cmd/testrun && \
	PROXYAUTH_BINARY=$${PROXYAUTH_BINARY:-$(CURDIR)/bin/caddy} exec ../bin/testrun go test -count=1 -vet=off -ldflags=-s

.PHONY: build
build: ## bin/caddy, the distribution
	cd integration && go run ./cmd/gobuild -C .. -ldflags "$(LDFLAGS)" -o bin/caddy ./xcaddy

.PHONY: demo
demo: build ## A cluster behind the proxy, to try; DEMO=once ends after its checks
	@# A program of its own and not `go run`, which would not pass a SIGTERM on.
	cd xcaddy/demo && go build -o ../../bin/demo . && exec ../../bin/demo $(if $(filter once,$(DEMO)),-once)

.PHONY: demo-once
demo-once: build ## The demo runs its checks, and cleans up however it ends
	@# -count=1: a change of the proxy alone does not invalidate a kept result.
	cd xcaddy/demo && go test -count=1 -timeout 15m ./...

.PHONY: check
check: build ## While working: format, static checks, unit tests, one request on a real apiserver
	$(TOOLS) staticcheck controller-gen etcd kube-apiserver kubectl >/dev/null
	@$(MAKE) --no-print-directory -k -j3 lint unit smoke

.PHONY: test
test: build tools ## Before landing, and in CI: all that holds in twelve minutes
	@failed=0; \
	$(MAKE) --no-print-directory -k -j3 integration rest || failed=1; \
	$(MAKE) --no-print-directory scale || failed=1; \
	exit $$failed

# What computes runs beside integration, which waits.
.PHONY: rest
rest:
	@$(MAKE) --no-print-directory -k -j1 lint unit race xcaddy demo-once

.PHONY: tools
tools: ## The real servers and tools, built once and kept outside the repository
	$(TOOLS) >/dev/null

.PHONY: unit
unit:
	go test -vet=off -ldflags=-s -timeout 15m ./...

.PHONY: race
race:
	CGO_ENABLED=1 go test -race -vet=off -timeout 15m $(RACE_ROOMS)

.PHONY: smoke
smoke: build
	$(SUITES) -timeout 5m -run TestWhoAmIThroughTheProxy ./suites/mechanism

# These begin, the longest first: those that wait run beside what computes (rest),
# and no long one is alone at the end.
FIRST := node hub/replicas hub/tenant hub/migration identity/faults hostile lifecycle identity/users hub/source request/crowd

.PHONY: integration
integration: build tools
	@packages=$$(cd integration && go list $(addprefix ./suites/,$(FIRST)) ./... | grep -v /suites/hub/scale$$ | awk '!seen[$$0]++'); \
	$(SUITES) -p $(TESTS_AT_ONCE) -timeout 30m $$packages

# Measured in seconds, so alone.
.PHONY: scale
scale: build tools
	$(SUITES) -timeout 10m ./suites/hub/scale

# Parts of test-long, each under an hour: what waits in real time, the oldest
# apiservers, and everything that runs beside other goroutines against the race
# detector.
LONG := limits hub oldest node clients conformance race-unit race-hostile race-lifecycle

# SHARD=1/3 is the first, the fourth and so on of the parts.
SHARD ?= 1/1
.PHONY: test-long
test-long: ## What needs longer; SHARD=2/3 is a third of it, test-long-<part> one part
	@shard=$(SHARD); i=0; for part in $(LONG); do \
		if [ $$((i % $${shard#*/})) = $$(($${shard%/*} - 1)) ]; then $(MAKE) --no-print-directory test-long-$$part; fi; \
		i=$$((i + 1)); \
	done

.PHONY: $(addprefix test-long-,$(LONG))
test-long-limits: build tools # floods of tokens and keys, slow downloads, for minutes
	$(SUITES) -timeout 60m -tags long -run '^TestLong' ./suites/identity/... ./suites/request/... ./suites/hostile
test-long-hub: build tools
	$(SUITES) -timeout 60m -tags long -run '^TestLong' -skip Oldest ./suites/hub/... ./suites/lifecycle/...
test-long-oldest: build tools # Kubernetes 1.29 as the hub, 1.28 behind the proxy
	$(TOOLS) kube-apiserver-1.28 kube-apiserver-1.29 kubectl-1.29 >/dev/null
	$(SUITES) -timeout 60m -tags long -run '^TestLong.*(Oldest|Targets|Hub)' ./suites/hub/... ./suites/oldkube/...
test-long-node: build tools # what kubectl does, in quantity, behind load balancers too, and streams that are silent for minutes
	$(TOOLS) kubectl-1.29 sample-apiserver >/dev/null
	$(SUITES) -timeout 60m -tags long -run '^TestLong' ./suites/node ./suites/balancers
test-long-clients: build tools # clients of others: JavaScript, Python, helm, kustomize, stern, k9s, controller-runtime
	cd integration/tools/manager && go vet ./...
	$(TOOLS) k9s stern kustomize manager >/dev/null
	$(SUITES) -timeout 60m -tags long -run '^TestLong' ./suites/clients
test-long-conformance: build conformance-tools # a few of Kubernetes' own tests, directly and through the proxy
	$(SUITES) -timeout 60m -tags long -run '^TestLong' -v ./suites/conformance
test-long-race-unit:
	CGO_ENABLED=1 go test -race -timeout 60m ./...
test-long-race-hostile: tools
	cd integration && CGO_ENABLED=1 PROXYAUTH_RACE=1 go test -race -count=1 -timeout 60m ./suites/hostile/...
test-long-race-lifecycle: tools
	cd integration && CGO_ENABLED=1 PROXYAUTH_RACE=1 go test -race -count=1 -timeout 60m ./suites/lifecycle/...

.PHONY: conformance
conformance: build conformance-tools ## Kubernetes' conformance tests, directly and through the proxy; SHARD=2/3 is a third of them
	$(SUITES) -timeout 6h -tags long -run '^TestConformance$$' -v ./suites/conformance

.PHONY: conformance-tools
conformance-tools: tools
	$(TOOLS) e2e.test ginkgo agnhost nonewprivs sample-apiserver >/dev/null

.PHONY: bench
bench: build ## CPU time a request and of exec sessions, memory of watches, against stock reverse_proxy in the same run
	$(SUITES) -timeout 30m -run '^$$' -bench . -benchtime 1x ./suites/bench/...

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
	cd integration && go test -timeout 15m -tags xcaddy -run "XCaddy|ModuleProxy" ./suites/xcaddybuild/...

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
