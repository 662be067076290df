package conformance_test

import (
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/programs"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// directions are what Switchboard is run in: the era of the suite as a client
// and that of the server behind, or that of the suite's server and a client.
var directions = []string{"legacy-legacy", "legacy-modern", "modern-legacy", "modern-modern", "client-legacy", "client-modern"}

// eras are the requirement lists of the suite.
var eras = map[string]string{"legacy": legacy, "modern": modern}

// servers runs the suite's scenarios for servers.
func servers(t *testing.T, era, url string) results {
	t.Helper()
	got := results{}
	for c, v := range suite(t, "server", "--url", url, "--requirements", era) {
		c.scenario = strings.TrimPrefix(c.scenario, "server-") // which the suite puts before each
		got[c] = v
	}
	return got
}

func TestWhatAServerPassesDirectItPassesThroughSwitchboard(t *testing.T) {
	// What the SDK's server does, so that nothing is compared with nothing. All
	// that it fails is of the tasks extension, which it does not have.
	does := map[string]verdict{"legacy": {82, 0}, "modern": {165, 30}}
	for front, version := range eras {
		t.Run(front+" client", func(t *testing.T) {
			t.Parallel()
			direct := baseline(t, does[front], func() results { return servers(t, version, fixture(t, version)) })
			for back, behind := range eras {
				t.Run(back+" server", func(t *testing.T) {
					t.Parallel()
					compare(t, front+"-"+back, func(*wait.Lateness) results {
						url := fixture(t, behind)
						if front == "legacy" && back == "modern" {
							url = modernOnly(t, url)
						}
						through, _, err := serve(t, built(t, programs.Plain), url)
						if err != nil {
							t.Fatal(err)
						}
						return servers(t, version, through)
					}, direct)
				})
			}
		})
	}
}
