//go:build unix

package process

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/summit-switchboard/switchboard/internal/wall"
)

// A guard is a small process between Switchboard and a server's program. It starts the program and
// ends with it, and then ends every process that the program has started. If Switchboard is killed
// by any signal, the guard outlives it for a moment to do that.
//
// Two simpler ways do not suffice. The parent-death signal reaches only the program, and not its
// own children (such as those of npx). And programs can leave their process group. On Linux, a
// process that loses its parent becomes a child of the nearest ancestor that asked for it. That
// ancestor must outlive Switchboard, so it cannot be Switchboard itself. On other systems the guard
// ends the process group.
//
// A guard has the other ends of two pipes. It reads from the leash: first a line that says which walls the program has, then orders. A byte means to send
// SIGTERM to the program, and the end of the leash means to kill everything. It writes two lines to
// the report: that the program was started and which walls are in effect, or why not, and then how it ended.
//
// The walls are the program's alone, and no thread of the guard has them: the program could signal and trace it. One thread starts the program and then waits for the
// guard to end. If the program may reach single hosts, that thread has a network of its own, and the other threads carry the program's connections from there; see
// package passage.

// Time limits of a guard.
const (
	guardStartTimeout = 10 * time.Second // to start a program
	sweepTimeout      = 5 * time.Second  // to kill everything that is left
)

// The lines of the report.
const (
	reportStarted = "started " // followed by the program's process id, and the walls in effect as JSON
	reportNoWalls = "walls "   // followed by the wall that is missing, as JSON
	reportError   = "error "
)

// guardStdin is the number of the program's stdin among the guard's files. stdout and stderr
// follow.
const guardStdin = 3

// guardCommand returns the command of a guard that runs cmd, and our ends of its pipes.
func guardCommand(guard []string, cmd *exec.Cmd) (by *exec.Cmd, leash, report *os.File, err error) {
	by = &exec.Cmd{
		Path: guard[0], Args: append(append(append([]string{}, guard...), cmd.Path), cmd.Args...), Env: cmd.Env, Dir: cmd.Dir,
		ExtraFiles: []*os.File{cmd.Stdin.(*os.File), cmd.Stdout.(*os.File), cmd.Stderr.(*os.File)},
		// A session of its own: signals of the terminal do not reach it.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	their, leash, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	report, theirs, err := os.Pipe()
	if err != nil {
		_, _ = their.Close(), leash.Close()
		return nil, nil, nil, err
	}
	by.Stdin, by.Stdout = their, theirs
	return by, leash, report, nil
}

// A startReport is what a guard reports about a program that was started.
type startReport struct {
	pid   int
	walls wall.InEffect
}

// readStart reads from the report whether the program was started.
func readStart(report *os.File, lines *bufio.Reader) (r startReport, err error) {
	if err := report.SetReadDeadline(time.Now().Add(guardStartTimeout)); err != nil {
		return r, err
	}
	line, err := lines.ReadString('\n')
	if err != nil {
		return r, fmt.Errorf("its guard does not start: %w", err)
	}
	line = strings.TrimSuffix(line, "\n")
	if text, ok := strings.CutPrefix(line, reportStarted); ok {
		number, walls, _ := strings.Cut(text, " ")
		if r.pid, err = strconv.Atoi(number); err == nil {
			err = json.Unmarshal([]byte(walls), &r.walls)
		}
		if err != nil {
			return r, err
		}
		return r, report.SetReadDeadline(time.Time{})
	}
	if text, ok := strings.CutPrefix(line, reportNoWalls); ok {
		missing := &wall.UnavailableError{}
		if err := json.Unmarshal([]byte(text), &missing.Lack); err != nil {
			return r, err
		}
		return r, missing
	}
	return r, errors.New(strings.TrimPrefix(line, reportError))
}

// sendOrder writes to the leash which walls the program has.
func sendOrder(leash *os.File, o *wall.Order) error {
	line, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := leash.SetWriteDeadline(time.Now().Add(guardStartTimeout)); err != nil {
		return err
	}
	if _, err = leash.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("its guard does not start: %w", err)
	}
	return leash.SetWriteDeadline(time.Time{})
}

// Guard is the whole life of the process that Options.Guard starts. in and out are its stdin and
// stdout. command are its further arguments.
func Guard(in io.Reader, out io.Writer, command []string) {
	// The signals are caught and not ignored, because the program would inherit ignored signals.
	// SIGPIPE is caught so that a guard survives when its report is not read.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	orders := bufio.NewReaderSize(in, 4096)
	w := &guardedProgram{}
	walls, err := w.start(command, orders)
	if err != nil {
		w.clean()
		text := []byte(reportError + strings.ReplaceAll(err.Error(), "\n", " "))
		if missing, ok := errors.AsType[*wall.UnavailableError](err); ok {
			lack, _ := json.Marshal(missing.Lack) // two texts
			text = append([]byte(reportNoWalls), lack...)
		}
		_, _ = fmt.Fprintf(out, "%s\n", text)
		return
	}
	effect, _ := json.Marshal(walls) // texts
	_, _ = fmt.Fprintf(out, "%s%d %s\n", reportStarted, w.cmd.Process.Pid, effect)
	debug.FreeOSMemory() // there is one guard per server, and it needs no more memory
	go func() {
		for {
			if _, err := orders.ReadByte(); err != nil {
				break
			}
			w.terminate()
		}
		for end := time.Now().Add(sweepTimeout); time.Now().Before(end); time.Sleep(sweepEvery) {
			w.kill()
		}
		os.Exit(1) // the rest hangs in the kernel
	}()
	go w.watchLimits()
	how := w.wait()
	w.mu.Lock()
	if w.over != "" {
		how = w.over
	}
	w.mu.Unlock()
	_, _ = fmt.Fprintln(out, how)
	if w.network != nil {
		w.network.Close()
	}
	w.sweep()
	w.clean()
}

// sweepEvery is the interval between two searches for processes to kill.
const sweepEvery = 5 * time.Millisecond

// A guardedProgram is the program that a guard runs, and all processes that it has started.
type guardedProgram struct {
	cmd    *exec.Cmd
	limits wall.Limits
	temp   string // its own folder for temporary files; "" means none

	// network carries its connections to permitted hosts; nil means that it has no network of its own.
	network interface{ Close() }

	mu    sync.Mutex // held to signal and to reap, so that no signal reaches a process that got the number later
	ended bool       // and was reaped
	over  string     // why it was ended because of its limits
}

// start reads which walls the program has, and starts it.
func (w *guardedProgram) start(command []string, orders *bufio.Reader) (walls wall.InEffect, err error) {
	if len(command) < 2 {
		return walls, errors.New("there is no program to run; Switchboard itself runs this command")
	}
	line, err := orders.ReadBytes('\n')
	if err != nil {
		return walls, fmt.Errorf("read its walls: %w", err)
	}
	var order wall.Order
	if err := json.Unmarshal(line, &order); err != nil {
		return walls, fmt.Errorf("read its walls: %w", err)
	}
	if err := adoptOrphans(); err != nil {
		return walls, err
	}
	var files [3]*os.File
	for i := range files {
		files[i] = os.NewFile(uintptr(guardStdin+i), "")
		syscall.CloseOnExec(guardStdin + i)
		defer files[i].Close() //nolint:errcheck // the program has its own
	}
	if w.temp, err = order.Prepare(); err != nil {
		return walls, err
	}
	w.limits = order.Limits
	w.cmd = &exec.Cmd{
		Path: command[0], Args: command[1:], Env: ownPlaces(os.Environ(), w.temp, order.OwnHome),
		Stdin: files[0], Stdout: files[1], Stderr: files[2],
		SysProcAttr: childSysProcAttr(),
	}
	started := make(chan error, 1)
	go onOtherThread(func() {
		var err error
		walls, err = w.launch(&order, files)
		started <- err
		if err == nil {
			select {} // the program must end with the guard, and not with a thread of the guard
		}
	})
	err = <-started
	if wrapped, ok := errors.AsType[*os.PathError](err); ok {
		err = wrapped.Err
	}
	return walls, err
}

// ownPlaces returns the environment with the program's own folder for temporary files, which may be its home too. "" means that it has none.
func ownPlaces(env []string, temp string, home bool) []string {
	if temp == "" {
		return env
	}
	env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "TMPDIR=") || home && strings.HasPrefix(v, "HOME=") })
	if home {
		env = append(env, "HOME="+temp)
	}
	return append(env, "TMPDIR="+temp)
}

// clean removes the program's own folder for temporary files.
func (w *guardedProgram) clean() {
	if w.temp != "" {
		_ = os.RemoveAll(w.temp) // the system removes the rest some day
	}
}

// terminate asks the program to end.
func (w *guardedProgram) terminate() { w.signalGroup(syscall.SIGTERM) }

// signalGroup sends a signal to the program's process group.
func (w *guardedProgram) signalGroup(signal syscall.Signal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		_ = syscall.Kill(-w.cmd.Process.Pid, signal)
	}
}
