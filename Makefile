# make test   runs all the tests; it installs for itself what its suites need
#             beyond Go, and says at the end what it had to skip
# make test-agents  runs agents of others against Switchboard, and installs
#             them: a gigabyte from npm, then a minute
# make bench  measures Switchboard against a plain proxy and a naive gateway,
#             in some five minutes; ARGS="-only small" and the like go to it
# make microbench  runs the benchmarks of the packages, each beside its baseline

.PHONY: test test-agents bench microbench lint fmt

test:
	@scripts/test

test-agents:
	@go test -tags agents -count=1 -timeout 20m -v ./test/agents

bench:
	@go run ./test/bench $(ARGS)

microbench:
	@scripts/microbench

lint:
	@scripts/lint

fmt:
	@gofmt -w $$(git ls-files '*.go')
