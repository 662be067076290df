package bench

import (
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wall"
)

// A program gets leave by its walls only if they are those of strict, and none is missing.
func TestWeakerWallsThanThoseOfStrictGiveNoLeave(t *testing.T) {
	lacks := func(w string) []wall.MissingWall { return []wall.MissingWall{{Wall: w, Why: "this machine lacks it"}} }
	both := []string{wall.Capabilities, wall.Files, wall.Calls, wall.Network}
	for _, tt := range []struct {
		about string
		walls wall.InEffect
		leave bool
	}{
		{"the walls of strict", wall.InEffect{Level: switchboard.SandboxStrict, Walls: both}, true},
		{"no report of a guard", wall.InEffect{}, false},
		{"a program that may do all", wall.InEffect{Level: switchboard.SandboxOff}, false},
		{"a program that may do all, and names walls", wall.InEffect{Level: switchboard.SandboxOff, Walls: both}, false},
		{"the level standard", wall.InEffect{Level: switchboard.SandboxStandard, Walls: both}, false},
		{"strict without a wall around files", wall.InEffect{Level: switchboard.SandboxStrict, Walls: []string{wall.Calls, wall.Network}}, false},
		{"strict with a network", wall.InEffect{Level: switchboard.SandboxStrict, Walls: []string{wall.Files, wall.Calls}}, false},
		{"strict without any wall", wall.InEffect{Level: switchboard.SandboxStrict}, false},
		{"strict that lacks the wall around files", wall.InEffect{Level: switchboard.SandboxStrict, Walls: both, Missing: lacks(wall.Files)}, false},
		{"strict that lacks a lesser wall", wall.InEffect{Level: switchboard.SandboxStrict, Walls: both, Missing: lacks(wall.Temp)}, false},
	} {
		if got := holds(&tt.walls); got != tt.leave {
			t.Errorf("%s: leave is %v, want %v", tt.about, got, tt.leave)
		}
	}
}

// A program in walls gets no secret of its command; what it gets in its place is a text that no answer may have.
func TestASecretInACommandIsReplacedByACanary(t *testing.T) {
	for _, tt := range []struct {
		word   string
		keeps  string // what stays before the canary
		canary bool
	}{
		{"--token=for-the-real-service", "--token=", true},
		{"--api-key=for-the-real-service", "--api-key=", true},
		{"API_TOKEN=for-the-real-service", "API_TOKEN=", true},
		{"--header=Bearer ghp_0123456789abcdef", "--header=", true},
		{"ghp_0123456789abcdef", "", true},
		{"https://ann:for-the-real-service@db.example.com/", "", true},
		{"--verbose", "", false},
		{"--port=8080", "", false},
		{"--token-file=tokens.txt", "", false},
		{"notes", "", false},
	} {
		b := &Bench{}
		got := b.withoutSecret(tt.word)
		switch {
		case !tt.canary && (got != tt.word || len(b.canaries) > 0):
			t.Errorf("%s: it is replaced by %s", tt.word, got)
		case tt.canary && (len(b.canaries) != 1 || got != tt.keeps+b.canaries[0].Text || b.canaries[0].Place != "an argument of its program"):
			t.Errorf("%s: it becomes %s, with the canaries %+v", tt.word, got, b.canaries)
		}
	}
}
