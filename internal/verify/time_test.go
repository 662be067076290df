package verify

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Whatever a tool does with its time, its verification ends within its limit, and the report says which tests were not made.
func TestTheTimeForAToolEndsItsVerification(t *testing.T) {
	for _, tt := range []struct {
		about    string
		limit    time.Duration // 0 means the default
		callTime time.Duration
		takes    time.Duration // of each call
		took     time.Duration // of all
		made     int           // calls with an answer, or without one within their own time
		inTime   TestEnding
		why      string
	}{
		{"slow, and within the time of each call", 0, 30 * time.Second, 11 * time.Second, time.Minute, 5, TestPassed, ""},
		{"silent, with a short time for a call", 0, 20 * time.Second, time.Hour, time.Minute, 3, TestFailed, "a call had no answer within 20s"},
		{"silent, with a longer time for a call than there is", 0, 2 * time.Minute, time.Hour, time.Minute, 0, TestFailed, "a call had no answer within 1m0s, when the time for the tool was over"},
		{"cut after less than is no chance", 45 * time.Second, 40 * time.Second, 19 * time.Second, 45 * time.Second, 2, TestPassed, ""},
		{"silent, with a lower limit", 5 * time.Second, 30 * time.Second, time.Hour, 5 * time.Second, 0, TestSkipped, ""},
		{"silent, with a lower limit and a long wait", 12 * time.Second, 30 * time.Second, time.Hour, 12 * time.Second, 0, TestFailed, "a call had no answer within 12s, when the time for the tool was over"},
		{"silent, with a limit above the highest", time.Hour, 20 * time.Second, time.Hour, time.Minute, 3, TestFailed, "a call had no answer within 20s"},
	} {
		t.Run(tt.about, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				caller := switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
					timer := time.NewTimer(tt.takes)
					defer timer.Stop()
					select {
					case <-ctx.Done():
						return switchboard.Result{}, errSilent
					case <-timer.C:
					}
					raw, _ := wire.Field(c.Params, "arguments")
					var args map[string]any
					if err := json.Unmarshal(raw, &args); err != nil {
						return switchboard.Result{}, err
					}
					out, err := strictly(hello)(nil, args)
					return switchboard.Result{JSON: []byte(out)}, err
				})
				s := &VerifiedTool{ID: switchboard.ToolID{Server: "bench", Name: "tool"}, Digest: "d1:01", Definition: []byte(`{"name":"tool","inputSchema":` + note + `}`), Timeout: tt.callTime}
				r := Verify(t.Context(), s, &switchboard.Tool{ID: s.ID, Definition: s.Definition}, RunOptions{Caller: caller, Leave: LeaveWalls, Limits: CallLimits{Time: tt.limit}})
				if took := time.Since(began); took != tt.took || r.Took != tt.took.Milliseconds() || r.Calls != tt.made {
					t.Errorf("it took %s (%d ms in the report), with %d calls; want %s and %d", took, r.Took, r.Calls, tt.took, tt.made)
				}
				if got := r.test(InTime); got.Outcome != tt.inTime || got.Why != tt.why && tt.inTime == TestFailed {
					t.Errorf("the test of its time is %s (%s), want %s (%s)", got.Outcome, got.Why, tt.inTime, tt.why)
				}
				if got := r.test(Hostile); got.Outcome != TestSkipped || !got.Unmade || got.Why != "no time was left" {
					t.Errorf("the last test is %s (%s)", got.Outcome, got.Why)
				}
				if r.Verified || r.Void != "" {
					t.Error(r.Text())
				}
				if valid := r.test(Valid).Outcome; tt.takes < time.Hour && (valid != TestPassed || !strings.Contains(r.Why, "not all tests were made")) {
					t.Errorf("its valid call %s, and it is not verified because %s", valid, r.Why)
				}
			})
		})
	}
}
