package process

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
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = childSysProcAttr()
	var start func() error
	start = func() error {
		runtime.LockOSThread() // never unlocked: the thread ends here
		if syscall.Gettid() == os.Getpid() {
			return <-onOwnThread(start) // Go does not end the first thread
		}
		return cmd.Start()
	}
	if err := <-onOwnThread(start); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if s := cmd.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() || s.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v", err)
	}
}

// onOwnThread runs f in a goroutine and returns a channel for its error.
func onOwnThread(f func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	return ended
}
