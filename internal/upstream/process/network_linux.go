package process

import (
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
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

// launch starts the program with its walls. If the order names hosts, this thread gets a network of its own first, which the program inherits. The guard's
// other threads stay in the network of the machine, and carry the program's connections. They write to its stderr which hosts it does not reach.
func (w *guardedProgram) launch(o *wall.Order, files [3]*os.File) (walls wall.InEffect, err error) {
	if o.Level == switchboard.SandboxOff {
		walls.Level, walls.Walls = o.Level, []string{}
		return walls, w.cmd.Start()
	}
	if len(o.Hosts) > 0 {
		words, err := unix.FcntlInt(files[2].Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return walls, err
		}
		network, err := passage.Open(o.Hosts)
		if err != nil {
			return walls, &wall.UnavailableError{Lack: wall.MissingWall{Wall: wall.Network, Why: err.Error()}}
		}
		w.network = network
		network.Serve(os.NewFile(uintptr(words), "stderr"))
	}
	l := wall.Launch{Path: w.cmd.Path, Args: w.cmd.Args, Env: w.cmd.Env}
	for i, f := range files {
		l.Files[i] = int(f.Fd())
	}
	pid, walls, err := o.Start(&l)
	if err == nil {
		w.cmd.Process, err = os.FindProcess(pid)
	}
	return walls, err
}
