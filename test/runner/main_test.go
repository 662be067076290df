package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"runner": main})
}

// Each script has `go test` fail in earnest.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			for _, name := range []string{"GOCACHE", "GOPATH", "GOROOT"} {
				out, err := exec.Command("go", "env", name).Output()
				if err != nil {
					return err
				}
				env.Setenv(name, strings.TrimSpace(string(out)))
			}
			env.Setenv("GOFLAGS", "-vet=off")
			for _, name := range []string{"wait", "law"} { // the scripts' own module has these two
				if err := os.CopyFS(filepath.Join(env.WorkDir, name), os.DirFS("../"+name)); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

func TestARunThatIsCutOffIsRed(t *testing.T) {
	var out strings.Builder
	r := newReport(&out, false, nil, func() {})
	events := `{"Action":"start","Package":"example/cut"}
{"Action":"run","Package":"example/cut","Test":"TestA"}
{"Action":"output","Package":"example/cut","Test":"TestA","Output":"so far\n"}
`
	if _, err := r.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	r.close()
	if r.finish() || !strings.Contains(out.String(), "--- FAIL: TestA (example/cut, not ended)\nso far\n") {
		t.Errorf("the report is\n%s", &out)
	}
}

func TestALostNullDeviceIsReportedWithWhatRan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		r := newReport(&out, false, nil, func() {})
		lost := time.Now().Add(90 * time.Second)
		go r.watchNull(t.Context(), func() bool { return time.Now().Before(lost) })
		time.Sleep(time.Minute)
		r.takeLine(`{"Action":"run","Package":"example","Test":"TestB"}`)
		r.takeLine(`{"Action":"run","Package":"example","Test":"TestA"}`)
		time.Sleep(time.Minute)
		r.takeLine(`{"Action":"pass","Package":"example","Test":"TestA"}`)
		r.takeLine(`{"Action":"pass","Package":"example","Test":"TestB"}`)
		r.close()
		if said := "/dev/null is no device since 00:01:30. Something replaced it while these tests ran: TestA, TestB\n"; !r.finish() || strings.Count(out.String(), said) != 2 {
			t.Errorf("the report is\n%s", &out)
		}
	})
}

func TestATestThatHangsWithoutAWordIsNamed(t *testing.T) {
	var out strings.Builder
	r := newReport(&out, false, nil, func() {})
	events := `{"Action":"start","Package":"example/hung"}
{"Action":"run","Package":"example/hung","Test":"TestHangs"}
{"Action":"fail","Package":"example/hung","Elapsed":2400}
`
	if _, err := r.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	r.close()
	if r.finish() || !strings.Contains(out.String(), "not ended, with nothing to say: TestHangs") {
		t.Errorf("the report is\n%s", &out)
	}
}

func TestATrackThatHasEndedTakesFromTheRest(t *testing.T) {
	o := &options{raceFlags: []string{"-race"}, sequential: map[string]bool{"m/internal/pure": true}}
	tracks, rest := o.schedule([]string{"m/test/served", "m/test/npm", "m/cmd/x", "m/internal/run", "m/internal/pure"})
	var got []string
	for _, track := range slices.Backward(tracks) { // as if the last one ended first
		for b := range concat(track, rest) {
			got = append(got, b.packages...)
		}
	}
	if want := []string{"m/internal/run", "m/internal/pure", "m/test/npm", "m/cmd/x", "m/test/served"}; !slices.Equal(got, want) {
		t.Errorf("the packages run in the order %q, want %q", got, want)
	}
}

func TestAPackageThatStartsAGoroutineIsConcurrent(t *testing.T) {
	for body, want := range map[string]bool{
		"func f() {}":         false,
		"func f() { go f() }": true,
		"import \"sync\"\nfunc f() { new(sync.WaitGroup).Go(f) }":    true,
		"import \"testing\"\nfunc f(t *testing.T) { t.Parallel() }":  true,
		"import _ \"testing/synctest\"":                              true,
		"import \"sync\"\nvar mu sync.Mutex\nfunc f() { mu.Lock() }": false,
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"a.go": "package a\n", "a_test.go": "package a\n" + body + "\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := isConcurrent(dir); got != want {
			t.Errorf("%s: %v", body, got)
		}
	}
}
