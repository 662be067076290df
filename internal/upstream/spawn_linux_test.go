package upstream

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
)

// A child process that was started on a thread is killed when that thread ends. Without this test,
// TestChildrenOutliveThreads would prove nothing.
func TestAChildDiesWithTheThreadThatStartedIt(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fakeEnv+"=hang")
	cmd.SysProcAttr = childSysProcAttr()
	var start func() error
	start = func() error {
		runtime.LockOSThread() // never unlocked: the thread ends here
		if syscall.Gettid() == os.Getpid() {
			return <-later(start) // Go does not end the first thread
		}
		return cmd.Start()
	}
	if err := <-later(start); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if s := cmd.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() || s.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v", err)
	}
}
