# make test   runs all the tests; it installs for itself what its suites need
#             beyond Go, and says at the end what it had to skip
# make bench  measures Switchboard against a plain proxy and a naive gateway,
#             in some five minutes; ARGS="-only small" and the like go to it
# make microbench  runs the benchmarks of the packages, each beside its baseline

.PHONY: test bench microbench lint fmt

test:
	@scripts/test

bench:
	@go run ./test/bench $(ARGS)

microbench:
	@scripts/microbench

lint:
	@scripts/lint

fmt:
	@gofmt -w $$(git ls-files '*.go')
