package process

import (
	"os"
	"slices"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestVariablesThatLoadOtherCodeAreRefused(t *testing.T) {
	for _, name := range []string{"LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "PATH", "NODE_OPTIONS", "PYTHONSTARTUP", "PYTHONPATH", "npm_config_registry", "A=B", "", "N\x00"} {
		env, err := childEnv(&switchboard.Server{Env: map[string]switchboard.Secret{name: switchboard.NewSecret("x")}, AllowEnv: []string{"pythonpath"}}, os.LookupEnv)
		if err == nil {
			t.Errorf("%q is not masked: %q", name, env)
		}
	}
	own := map[string]switchboard.Secret{"HOME": switchboard.NewSecret("/elsewhere"), "PYTHONPATH": switchboard.NewSecret("src")}
	env, err := childEnv(&switchboard.Server{Env: own, AllowEnv: []string{"PYTHONPATH"}},
		func(name string) (string, bool) { return "ours", name == "HOME" || name == "PATH" })
	if want := []string{"HOME=/elsewhere", "PATH=ours", "PYTHONPATH=src"}; err != nil || !slices.Equal(env, want) {
		t.Errorf("%q, %v; want %q", env, err, want)
	}
}
