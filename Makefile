# make check  compiles and lints everything and runs the pure tests, in half a
#             minute: for every minute
# make test   runs all the tests; it installs for itself what its suites need
#             beyond Go, and says at the end what it had to skip; ARGS="-run=NAME
#             ./test/served" and the like go to go test
# make test-agents  runs agents of others against Switchboard, and installs
#             them: a gigabyte from npm, then a minute
# make bench  measures Switchboard against a tuned proxy, a lean relay and a naive
#             gateway; ARGS="-only calls" and the like go to it
# make chaos  prints what becomes of calls when servers fail: every fault, on
#             every transport, as one table, in half a minute
# make microbench  runs the benchmarks of the packages, each beside its baseline
# make vet  does what go vet does, for Windows, macOS and FreeBSD
# make screenshots  writes a picture of each view of the page, light and dark, with
#             the data of the demo, to docs/images
# make vuln   looks for known vulnerabilities in the code that Switchboard calls

.PHONY: check test test-agents chaos bench microbench lint vet fmt vuln screenshots

check:
	@scripts/check

test:
	@scripts/test $(ARGS)

test-agents:
	@AGENTS=1 scripts/test ./test/agents ./test/browser

chaos:
	@scripts/chaos

bench:
	@go run ./test/bench $(ARGS)

microbench:
	@scripts/microbench

screenshots:
	@mkdir -p docs/images
	@go test ./test/browser -run=TestPicturesOfEveryView -count=1 -screenshots=$(CURDIR)/docs/images

vuln:
	@scripts/vuln

lint:
	@scripts/lint

vet:
	@CGO_ENABLED=0 go run -trimpath ./test/vet windows darwin freebsd

fmt:
	@gofmt -w $$(git ls-files '*.go')
