package logoutput

import (
	"bufio"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A client may start Switchboard with a pipe as its stderr, and never read from it.
func TestAStderrThatIsNotReadDelaysARecordOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe() // a write waits for its reader
		o := New(out, false)
		log := slog.New(o.Handler())
		began := time.Now()
		for range 100 {
			log.Info("unread")
		}
		if took := time.Since(began); took > patience {
			t.Errorf("100 records took %v", took)
		}
		lines := bufio.NewScanner(in)
		next := func() string {
			if !lines.Scan() {
				t.Error(lines.Err())
			}
			return lines.Text()
		}
		if got := next(); !strings.HasSuffix(got, "msg=unread") {
			t.Errorf("the first is %q", got)
		}
		synctest.Wait()
		go log.Info("read")
		if got := next(); !strings.HasSuffix(got, "msg=read") {
			t.Errorf("then comes %q", got)
		}
		if got := next(); got != "99 records before this one were left out, because nothing read them" {
			t.Errorf("then comes %q", got)
		}
		go log.Info("again")
		if got := next(); !strings.HasSuffix(got, "msg=again") {
			t.Errorf("then comes %q", got)
		}
		synctest.Wait()
		o.Close()
	})
}
