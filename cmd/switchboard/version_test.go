package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestTheVersionNamesTheCommitAndChangesThatAreNotInIt(t *testing.T) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	vcs := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}, {Key: "vcs.time", Value: "2026-11-24T18:40:08Z"}, {Key: "vcs.modified", Value: modified}}
	}
	for _, tt := range []struct {
		info debug.BuildInfo
		want string
	}{
		{debug.BuildInfo{GoVersion: "go1.26", Main: debug.Module{Version: "v1.2.3"}, Settings: vcs("false")}, "switchboard v1.2.3 (commit 0123456789ab of 2026-11-24 18:40 UTC; go1.26, " + platform + ")"},
		{debug.BuildInfo{GoVersion: "go1.26", Main: debug.Module{Version: "(devel)"}, Settings: vcs("true")}, "switchboard devel (commit 0123456789ab of 2026-11-24 18:40 UTC, with changes that are not committed; go1.26, " + platform + ")"},
		{debug.BuildInfo{GoVersion: "go1.26"}, "switchboard devel (built without a commit; go1.26, " + platform + ")"},
	} {
		if got := buildOf(&tt.info).String(); got != tt.want {
			t.Errorf("%s\nwant\n%s", got, tt.want)
		}
	}
}
