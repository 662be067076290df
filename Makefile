# make test   runs all the tests; it installs for itself what its suites need
#             beyond Go, and says at the end what it had to skip
# make bench  runs the benchmarks, each side by side with its baseline

.PHONY: test bench lint fmt

test:
	@scripts/test

bench:
	@scripts/bench

lint:
	@scripts/lint

fmt:
	@gofmt -w $$(git ls-files '*.go')
