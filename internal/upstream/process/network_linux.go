package process

import (
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/summit-switchboard/switchboard/internal/wall"
	"github.com/summit-switchboard/switchboard/internal/wall/passage"
)

// prepareNetwork prepares a guard whose program gets a network of its own, if the order says so.
func prepareNetwork(guard *exec.Cmd, o *wall.Order) {
	if len(o.Hosts) > 0 {
		passage.Prepare(guard.SysProcAttr)
	}
}

// explainStart returns the error of a guard that was not started. A guard with a namespace of its own is refused where the machine forbids namespaces.
func explainStart(guard *exec.Cmd, err error) error {
	if err == nil || guard.SysProcAttr.Cloneflags&unix.CLONE_NEWUSER == 0 {
		return err
	}
	return &wall.UnavailableError{Lack: wall.MissingWall{Wall: wall.Network, Why: passage.WhyForbidden(err)}}
}

// raise takes on the walls of an order, for this thread. If the order names hosts, the thread gets a network of its own first: the walls forbid that later. The
// guard's other threads stay in the network of the machine, and carry the program's connections. They write to its stderr which hosts it does not reach.
func (w *guardedProgram) raise(o *wall.Order, stderr *os.File) (walls wall.InEffect, err error) {
	if len(o.Hosts) == 0 {
		return o.Raise()
	}
	words, err := unix.FcntlInt(stderr.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return walls, err
	}
	network, err := passage.Open(o.Hosts)
	if err != nil {
		return walls, &wall.UnavailableError{Lack: wall.MissingWall{Wall: wall.Network, Why: err.Error()}}
	}
	w.network = network
	network.Serve(os.NewFile(uintptr(words), "stderr"))
	return o.Raise()
}
