package decide_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// fiveLargest are the five pairs of verb and resource that most tools have; five are pairs that a person might ask for.
func fiveLargest() []switchboard.Requirement {
	return requirements("read market_data readonly", "write issue_tracker", "read database readonly", "read issue_tracker", "read reference readonly")
}

func five() []switchboard.Requirement {
	return requirements("search internet", "read codebase readonly", "read fs readonly", "write issue_tracker", "notify chat human_in_the_loop")
}

func requirements(lines ...string) (rs []switchboard.Requirement) {
	for _, line := range lines {
		f := strings.Fields(line)
		r := switchboard.Requirement{Verb: switchboard.Verb(f[0]), Resource: switchboard.Resource(f[1])}
		for _, c := range f[2:] {
			r.Constraints = append(r.Constraints, switchboard.Constraint(c))
		}
		rs = append(rs, r)
	}
	return rs
}

// BenchmarkDecide measures a decision over the whole real catalog, with the full record, its bytes and its digest. It
// reports the median as well as the mean.
func BenchmarkDecide(b *testing.B) {
	r := realCatalog(b)
	snapshot := catalog.Build(r.sources, r.overlays, r.tax)
	tenant := r.tenant(3, r.sources)
	p, digests := r.pipeline(tenant, snapshot)
	for name, rs := range map[string][]switchboard.Requirement{"five": five(), "largest": fiveLargest()} {
		b.Run(name, func(b *testing.B) {
			in := decide.Input{
				Tenant: tenant, Principal: switchboard.Principal{Tenant: tenant.ID, ID: "ann"},
				Task: &switchboard.Task{ID: "t", Requirements: rs}, Snapshot: digests,
			}
			d, err := p.Decide(b.Context(), in)
			if err != nil || d.Err() != nil {
				b.Fatal(err, d.Err())
			}
			considered := 0
			for i := range d.Outcomes {
				considered += d.Outcomes[i].Considered()
			}
			b.ReportAllocs()
			took := make([]time.Duration, 0, 1<<16)
			for b.Loop() {
				began := time.Now()
				if d, err = p.Decide(b.Context(), in); err != nil {
					b.Fatal(err)
				}
				d.Digest()
				if len(took) < cap(took) {
					took = append(took, time.Since(began))
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2]), "median-ns")
			b.ReportMetric(float64(considered), "candidates")
		})
	}
}
