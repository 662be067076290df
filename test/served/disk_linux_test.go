package served_test

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// data is the folder of what s keeps.
func (s *survivor) data() string { return filepath.Join(s.dir, ".switchboard") }

// fresh returns an id that was not used yet, of a call of the tool, with a key or without.
func (s *survivor) fresh(tool string, key bool) int {
	id := len(s.all) + 1
	for toolOf(id) != tool || rig.HasKey(id) != key || s.used(id) {
		id++
	}
	return id
}

func (s *survivor) used(id int) bool {
	for _, l := range s.all {
		if l.ID == id {
			return true
		}
	}
	return false
}

// Law 9, SB-RCPT-001: with no room for what has to be kept, what may have an effect is not
// done, what only reads is; and nothing is lost.
func TestWithoutRoomNothingIsLostAndItGoesOnByItself(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	t.Run("a file may not grow", func(t *testing.T) {
		t.Parallel()
		s := newSurvivor(t, nil)
		may := func(bytes uint64) {
			if err := unix.Prlimit(s.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil); err != nil {
				t.Fatal(err)
			}
		}
		s.runsOut(func() {
			info, err := os.Stat(filepath.Join(s.data(), "store.db-wal"))
			if err != nil {
				t.Fatal(err)
			}
			may(uint64(info.Size()) + 10_000)
		}, func() { may(unix.RLIM_INFINITY) })
	})
	t.Run("the disk is full", func(t *testing.T) {
		t.Parallel()
		s := newSurvivor(t, nil)
		if err := os.Mkdir(s.data(), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("none", s.data(), "tmpfs", 0, "size=8m,mode=700"); err != nil {
			t.Skipf("only who may mount a small disk can fill one: %v", err)
		}
		t.Cleanup(func() {
			s.kill()
			if err := unix.Unmount(s.data(), 0); err != nil {
				t.Error(err)
			}
		})
		ballast := filepath.Join(s.data(), "ballast")
		s.runsOut(func() {
			f, err := os.Create(ballast)
			if err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, err = f.Write(make([]byte, 4096))
			}
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			_ = f.Close()
		}, func() {
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
		})
		if !strings.Contains(s.log.String(), "the disk is full; it goes on by itself once there is space") {
			t.Error("the log does not say what is wrong")
		}
	})
}

// runsOut takes its room away and gives it back.
func (s *survivor) runsOut(take, give func()) {
	t := s.t
	s.live()
	g := &rig.Gateway{T: t, URL: s.url, Dir: s.dir}
	var clients []*client
	for _, modern := range []bool{false, true} {
		clients = append(clients, &client{HTTPSession: g.Open(t, "/mcp", modern)})
	}
	n := 0
	do := func(tool string, key bool) lived {
		t.Helper()
		n++
		l, _ := s.call(clients[n%2], s.fresh(tool, key), false, false)
		return l
	}
	for range 4 {
		if l := do("post", n%2 == 0); !l.Good() {
			t.Fatal(l.Attempt)
		}
	}
	take()
	for l := do("post", false); rig.Code(l.Answer) != "SB-RCPT-001"; l = do("post", n%2 == 0) {
		if !l.Good() && rig.Code(l.Answer) != "SB-ROUT-004" || n > 3000 {
			t.Fatalf("while there is less and less room: %v", l.Attempt)
		}
	}
	for range 4 {
		if l := do("look", false); !l.Good() {
			t.Errorf("what only reads: %v", l.Attempt)
		}
		if l := do("post", n%2 == 0); rig.Code(l.Answer) != "SB-RCPT-001" {
			t.Errorf("what may have an effect: %v", l.Attempt)
		}
	}
	if got := g.Readyz(); !strings.HasPrefix(got, `200 {"ready":true,"store":{"unavailable_since":"2`) {
		t.Errorf("/readyz says %s", got)
	}
	g.Do(1, `The store has been unavailable for [0-9]+s; what needs it is refused with SB-ROUT-004: `, "status")
	s.mu.Lock()
	log := s.log.String()
	s.mu.Unlock()
	if !strings.Contains(log, `msg="the store is unavailable"`) || !strings.Contains(log, filepath.Join(s.data(), "store.db")) {
		t.Error("the log does not say of which file it is")
	}
	give()
	rig.Eventually(t, "it goes on", func() string {
		if l := do("post", n%2 == 0); !l.Good() {
			return l.String()
		}
		return ""
	})
	rig.Eventually(t, "/readyz says so", func() string {
		if got := g.Readyz(); got != `200 {"ready":true}` {
			return got
		}
		return ""
	})
	s.stop()
	s.judge(true)
}

// refused starts s where it should not serve, and returns what it says.
func (s *survivor) refused() string {
	t := s.t
	t.Helper()
	s.mu.Lock()
	s.log.Reset()
	s.mu.Unlock()
	if url := wait.Receive(t, "that it ends", s.begin()); url != "" {
		t.Error("it serves")
		s.kill()
		return ""
	}
	if err := s.cmd.Wait(); s.cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("it ended with %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// some makes some calls of both eras, and ends s in good order.
func (s *survivor) some() {
	s.live()
	for i, modern := range []bool{false, true} {
		c := &client{HTTPSession: (&rig.Gateway{T: s.t, URL: s.url}).Open(s.t, "/mcp", modern)}
		for n := range 24 {
			s.call(c, i+1+2*n, false, false)
		}
	}
	s.stop()
}

func TestADamagedFileIsRefusedOrAsItWas(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingAckedLost)
	s := newSurvivor(t, nil)
	s.some()
	s.judge(false)
	file := filepath.Join(s.data(), "store.db")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	kept, _, _ := rig.Command(t, s.dir, "receipts", "export")
	put := func(data []byte) {
		t.Helper()
		for _, end := range []string{"-wal", "-shm"} {
			if err := os.Remove(file + end); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for n, remedy := range map[int]string{
		1:              "delete it if nothing was stored in it",
		len(whole) / 3: "put it aside, and a backup or an export in its place",
		len(whole) / 2: "put it aside, and a backup or an export in its place", // the last page may hold nothing
	} {
		put(whole[:n])
		if said := s.refused(); !strings.Contains(said, file) || !strings.Contains(said, remedy) {
			t.Errorf("cut off at %d of %d: %s", n, len(whole), said)
		}
		if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, whole[:n]) {
			t.Errorf("the file that was refused is another one, %v", err)
		}
	}
	noticed := 0
	luck := rand.New(rand.NewPCG(law.Seed(t), 0))
	for range 12 {
		at, bit := 100+luck.IntN(len(whole)-100), byte(1)<<luck.IntN(8) // SQLite does not look at all of its header
		harmed := bytes.Clone(whole)
		harmed[at] ^= bit
		put(harmed)
		out, errs, code := rig.Command(t, s.dir, "store", "check")
		got, failed, _ := rig.Command(t, s.dir, "receipts", "export")
		switch {
		case code != 0 && strings.Contains(out+errs, file):
			noticed++
		case code != 0 || got != kept || failed != "":
			t.Errorf("bit %08b of byte %d: check says %d, %s%s; receipts: %d bytes of %d, %s", bit, at, code, out, errs, len(got), len(kept), failed)
		}
	}
	t.Logf("%d of 12 flips were noticed; the others changed nothing that is kept", noticed)
	put(whole)
	s.live()
	if l, _ := s.call(&client{HTTPSession: (&rig.Gateway{T: t, URL: s.url}).Open(t, "/mcp", true)}, 1001, false, false); !l.Good() {
		t.Errorf("the whole file: %v", l.Attempt)
	}
	s.stop()
	s.judge(false)
}

func TestAFolderThatCannotBeWrittenToIsNamed(t *testing.T) {
	t.Parallel()
	s := newSurvivor(t, nil)
	own := s.binary
	if os.Getuid() == 0 { // whom no mode keeps from writing
		home, err := os.MkdirTemp("", "served-stranger-") //nolint:usetesting // that of t.TempDir has a parent that others may not enter
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(home) })
		own = filepath.Join(home, "switchboard")
		if err := errors.Join(os.Chmod(home, 0o755), exec.Command("cp", s.binary, own).Run(), os.CopyFS(filepath.Join(home, "files"), os.DirFS(s.dir))); err != nil {
			t.Fatal(err)
		}
		s.dir = filepath.Join(home, "files")
	}
	const nobody = 65534
	start := func() (said string, code int) {
		var errs bytes.Buffer
		cmd := exec.Command(own, "serve", "--listen", "127.0.0.1:0")
		cmd.Dir, cmd.Stderr = s.dir, &errs
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
		late := time.AfterFunc(rig.Patience, func() { _ = cmd.Process.Kill() })
		_ = cmd.Run()
		if !late.Stop() {
			wait.Late(t, "it does not end: %s", &errs)
		}
		return errs.String(), cmd.ProcessState.ExitCode()
	}
	chmod := func(mode fs.FileMode, file string) {
		t.Helper()
		if err := os.Chmod(filepath.Join(s.dir, file), mode); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what, names string) {
		t.Helper()
		said, code := start()
		if code != 2 || !strings.Contains(said, names) || !strings.Contains(said, "writ") && !strings.Contains(said, "permission denied") {
			t.Errorf("%s: exit %d: %s", what, code, said)
		}
	}
	chmod(0o555, ".")
	check("where the folder is to be made", s.data())
	chmod(0o755, ".")
	s.binary = own
	s.some()
	if os.Getuid() == 0 {
		if err := filepath.WalkDir(s.data(), func(name string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Chown(name, nobody, nobody))
		}); err != nil {
			t.Fatal(err)
		}
	}
	chmod(0o400, ".switchboard/store.db")
	chmod(0o500, ".switchboard")
	check("what is there", filepath.Join(s.data(), "store.db"))
	chmod(0o700, ".switchboard")
	chmod(0o600, ".switchboard/store.db")
	s.judge(false)
}
