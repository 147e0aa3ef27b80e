# `make` prints what there is. Variables go behind the target: make demo TRACE=dir SPEED=60

SHELL := /bin/bash -o pipefail
.DEFAULT_GOAL := help

VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
BUILDVCS  := $(shell git rev-parse HEAD >/dev/null 2>&1 && echo auto || echo false)
TESTFLAGS ?=
FUZZTIME  ?= 30s
BENCHTIME ?= 1s
BENCH     ?=
CURVE     ?= all
OUTPUT    ?= table
COUNT     ?= 6
CHAOS     ?= normal
SCHEDULES ?= full
LIMITS    ?= full
FLOWS     ?= full
DURATIONS ?= full
REACH     ?= full
BASE      ?=

COMMA := ,
SHORT = $(if $(filter short,$(BENCH)),-short)

# Packages without goroutines: the race detector would find nothing there and
# slow their many random runs down tenfold.
SEQUENTIAL := . ./scoring/... ./slotindex/... ./backlog/... ./internal/schedule/cron/... ./internal/heap ./internal/flow ./internal/limits/permits ./internal/schedule ./internal/timing/... ./internal/trace/... ./internal/sim/... ./internal/lint/...
# Packages tested with it and without: what is compiled differs.
TWICE      := ./actor/... ./workerproto/...
# Tests that the race detector would slow down too much, or that measure what it changes.
AS_BUILT   := TestDaemonKeepsWithinItsMemoryAtFullLoad|TestClaimOfManyRowsThatAreLongAsTextIsShort
# Packages with large random tests.
RANDOM     := ./actor ./backlog ./workerproto ./internal/trace ./internal/limits/... ./internal/schedule/... ./internal/flow/...
SLOWEST    := ./e2e ./claim ./internal/flow/flowstore ./internal/schedule/schedulestore
# Packages that do no I/O: what is not covered there has no excuse.
PURE       := ./scoring ./slotindex ./internal/schedule/cron ./internal/heap ./internal/flow ./internal/limits/permits ./internal/schedule ./internal/timing ./backlog ./actor
COVERAGE   := 95

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z\/-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: deps
deps: ## Install what is missing (Postgres, Python 3, C compiler; systemd-analyze and promtool where it may), or print the line that does
	@tools/deps.sh
	@tools/rules.sh install

.PHONY: build
build: ## Build the program into bin/
	CGO_ENABLED=0 go build -trimpath -buildvcs=$(BUILDVCS) -ldflags '-s -w -X main.version=$(VERSION)' -o bin/ ./cmd/dispatcherd

.PHONY: demo
demo: deps build ## Watch workers empty a table; TRACE=DIR SPEED=N replays a workload of yours
	bin/dispatcherd trace demo $(if $(TRACE),'$(TRACE)') $(if $(SPEED),--speed $(SPEED))

.PHONY: test
test: deps ## Run every test on one private Postgres, with the race detector where there are goroutines (TESTFLAGS=-v …)
	@go run ./internal/pgtest/run $(MAKE) -s test/packages

# Random tests run in short sizes here, and in full size by "make sim". "make lint" vets. The slowest packages come first.
GO_TEST := go test -count=1 -short -vet=off -timeout 20m $(TESTFLAGS)
# Tests with Postgres and processes mostly wait, so more of them run at once than there are processors.
WAITING := -parallel 4

.PHONY: test/packages
test/packages:
	@status=0; \
	$(GO_TEST) -race $(WAITING) $(SLOWEST) $$(go list ./... | grep -vxF "$$(go list $(SEQUENTIAL))") || status=1; \
	$(GO_TEST) $(SEQUENTIAL) $(TWICE) || status=1; \
	$(GO_TEST) -run '$(AS_BUILT)' ./e2e ./claim || status=1; \
	(cd tools/lab && go vet ./... && $(GO_TEST) ./...) || status=1; \
	(cd tools && go vet ./licenses ./manifest && $(GO_TEST) ./licenses ./manifest) || status=1; \
	exit $$status

.PHONY: lint
lint: bin/golangci-lint units rules openapi ## Check format, vet (also for macOS, Windows and 32 bits), golangci-lint, the systemd units, the alerts, the API's description and the rules of the architecture
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	if [ -n "$$unformatted" ]; then echo "gofmt would change:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	GOOS=darwin go vet ./...
	GOARCH=386 go vet ./...
	GOOS=windows go vet ./client ./worker
	bin/golangci-lint run ./...
	@$(MAKE) -s licenses >/dev/null
	cd tools/lab && go vet ./... && ../../bin/golangci-lint run ./...
	cd tools && go vet ./licenses ./measures ./manifest && ../bin/golangci-lint run ./licenses ./measures ./manifest
	go test -count=1 ./internal/lint/...

.PHONY: licenses
licenses: ## List the licenses of all dependencies; fail if one is unknown or incompatible
	@cd tools && go run ./licenses

.PHONY: measures
measures: ## Print the measures of size and structure beside those of a387fc2 and the targets (CHECK=1: fail if one must hold and does not)
	@cd tools && go run ./measures $(if $(CHECK),-check)

.PHONY: units
units: ## Check the systemd units: accepted, and confined to an exposure of at most 1.5
	@tools/units.sh

.PHONY: rules
rules: ## Check the alerts for Prometheus
	@tools/rules.sh

# A test of internal/httpapi generates the document from the routes.
.PHONY: openapi
openapi: tools/openapi/node_modules/.package-lock.json ## Lint the description of the HTTP API
	cd tools/openapi && REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true node_modules/.bin/redocly lint --config redocly.yaml ../../internal/httpapi/openapi.json

tools/openapi/node_modules/.package-lock.json: tools/openapi/package-lock.json
	@tools/deps.sh node
	cd tools/openapi && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

# Built from source through the module proxy, at the version in tools/go.mod.
bin/golangci-lint: tools/go.mod tools/go.sum
	cd tools && go build -o ../bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: bench
bench: deps ## Run the benchmarks (BENCH=regexp BENCHTIME=1s)
	go test -run '^$$' -bench '$(or $(BENCH),.)' -benchtime $(BENCHTIME) -benchmem ./...

# The functions that a job passes on its way, and no others: what a run of them
# takes in time and allocations is committed, so that a change can be compared.
HOT := ./actor ./slotindex ./scoring ./workerproto ./worker ./internal/daemon ./internal/daemon/backend
HOT_BENCH := -run '^$$' -bench 'Core|TakeRelease|AddRemove|Score|Encode|Decode(Job|Done)$$|ServeDone|NoopJobs|Plain' -benchmem -count $(COUNT) -benchtime 200ms
BASELINE  := tools/lab/hot.txt

# Without the processor's name: benchstat would not compare two of them.
bin/hot.txt: FORCE
	@mkdir -p bin
	go test $(HOT_BENCH) $(HOT) >$@.tmp || { cat $@.tmp; exit 1; }
	@grep -v '^cpu:' $@.tmp >$@ && rm $@.tmp
FORCE:

.PHONY: bench/compare
bench/compare: bin/hot.txt ## Compare time and allocations of every hot function with the committed baseline (COUNT=6)
	cd tools && go tool benchstat ../$(BASELINE) ../bin/hot.txt

.PHONY: bench/baseline
bench/baseline: bin/hot.txt ## Make what bench/compare measures the new baseline
	cp bin/hot.txt $(BASELINE)

.PHONY: bench/peers
bench/peers: deps ## Race River, graphile-worker, pg-boss and bare SQL (BENCH=short; OUTPUT=json; CURVE=distance: over 0 to 5 ms to Postgres)
	cd tools/lab && go run ./peers $(SHORT) $(if $(filter distance,$(CURVE)),-distance 0s$(COMMA)500us$(COMMA)1ms$(COMMA)5ms,-o $(OUTPUT))

.PHONY: bench/noop
bench/noop: deps ## Compare the rate of no-op jobs and of COPY with another commit: BASE=COMMIT (BENCH=short: three rounds)
	cd tools/lab && go run ./regression $(SHORT) -base '$(BASE)'

.PHONY: bench/scaling
bench/scaling: deps ## Draw a curve: CURVE=slots|types|dispatchers|backlog|snapshot|all (BENCH=short)
	cd tools/lab && go run ./scaling $(SHORT) $(CURVE)

.PHONY: bench/latency
bench/latency: deps ## Measure INSERT to worker, idle and in an open loop beside River (BENCH=short: four minutes)
	cd tools/lab && go run ./latency $(SHORT)

.PHONY: bench/bounds
bench/bounds: ## Drive each bound of the core to its limit; no step may take more than 5 ms
	cd tools/lab && go run ./bounds

.PHONY: bench/introspect
bench/introspect: ## Ask a busy core for lists, explanations and metrics; no portion may take more than 1 ms (p99)
	cd tools/lab && go run ./bounds -introspect

.PHONY: bench/ondemand
bench/ondemand: deps ## Measure how long a caller waits, beside NATS (BENCH=short: half a minute)
	cd tools/lab && go run ./ondemand $(SHORT)

.PHONY: bench/copyin
bench/copyin: deps ## Measure how fast a producer can COPY
	cd tools/lab && go run ./copyin

.PHONY: bench/profile
bench/profile: deps ## Say where the time of a job goes (with perf where it is installed)
	cd tools/lab && go run ./profile $(if $(shell command -v perf),-perf)

.PHONY: sim
sim: ## Simulate dispatchers, workers and faults for SIM_EVENTS events (1e8), and run the other random tests in full size
	SIM_EVENTS=$(or $(SIM_EVENTS),1e8) HISTORIES=1000000 go test -count=1 -timeout 2h ./internal/sim/ $(RANDOM)

.PHONY: chaos
chaos: deps ## Break everything at once, check that no job is lost and that the check would notice (CHAOS=smoke|short|normal|long)
	cd tools/lab && go run ./chaos -size $(CHAOS)

.PHONY: chaos-controls
chaos-controls: deps ## Take one safeguard after the other out of the daemon: the check must notice each time
	cd tools/lab && go run ./chaos -what controls

.PHONY: schedules
schedules: deps ## Measure schedules while controllers are killed, in a burst, idle, and near changes of the clock (SCHEDULES=full|short)
	SCHEDULES=$(SCHEDULES) go test -count=1 -v -timeout 1h -run TestSimulatedYear ./internal/schedule/controller
	cd tools/lab && go run ./schedules $(if $(filter short,$(SCHEDULES)),-short)

.PHONY: limits
limits: deps ## Measure keys and limits: cost, kills, hand-off, deep queues, rates, takeovers (LIMITS=full|short BASE=COMMIT)
	cd tools/lab && go run ./limits $(if $(filter short,$(LIMITS)),-short) $(if $(BASE),-base '$(BASE)')

.PHONY: flows
flows: deps ## Measure batches, flows, children, fan-outs and unique jobs: cost, latency, kills (FLOWS=full|short BASE=COMMIT)
	cd tools/lab && go run ./flows $(if $(filter short,$(FLOWS)),-short) $(if $(BASE),-base '$(BASE)')

.PHONY: durations
durations: deps ## Measure expected durations: waits of recorded traces, overtaking, cost (DURATIONS=full|short BASE=COMMIT)
	cd tools/lab && go run ./durations $(if $(filter short,$(DURATIONS)),-short) $(if $(BASE),-base '$(BASE)')

.PHONY: reach
reach: deps ## Measure workers on other hosts: sessions over TLS, floods, partitions, moves, kills, requests, pause, drain (REACH=full|short)
	cd tools/lab && go run ./reach $(if $(filter short,$(REACH)),-short)

.PHONY: cover
cover: ## Check that the pure packages have at least 95 % of their statements covered
	@mkdir -p coverage
	@for p in $(PURE); do \
		go test -count=1 -coverprofile coverage/profile $$p >coverage/log || { cat coverage/log; exit 1; }; \
		go tool cover -func coverage/profile | awk -v p=$$p -v want=$(COVERAGE) \
			'/^total:/{sub("%","",$$3); print p, $$3 "%"; if ($$3+0 < want) {print p " is below " want " %"; exit 1}}' || exit 1; \
	done

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME (30s each), two at once
	@tools/fuzz.sh $(FUZZTIME)

.PHONY: vuln
vuln: bin/govulncheck ## Look for known vulnerabilities in what is linked (needs https://vuln.go.dev; VULN=--if-reachable)
	@tools/vuln.sh $(VULN)

# Built from source through the module proxy, at the version in tools/go.mod.
bin/govulncheck: tools/go.mod tools/go.sum
	cd tools && go build -o ../bin/govulncheck golang.org/x/vuln/cmd/govulncheck

.PHONY: clean
clean: ## Remove what make has built
	rm -rf bin coverage
