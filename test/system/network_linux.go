package system

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// InOwnNetwork returns how a process is started in a network of its own, with the capabilities to change it.
func InOwnNetwork() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if os.Getuid() != 0 {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
		attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE}
	}
	return attr
}

// NeedNetworks skips the test where the machine gives a program no network of its own.
func NeedNetworks(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "true")
	cmd.SysProcAttr = InOwnNetwork()
	if err := cmd.Run(); err != nil {
		t.Skipf("skipped: network namespaces (this machine forbids them: %v)", err)
	}
}
