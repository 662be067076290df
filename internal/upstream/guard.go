package upstream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A guard is a small process between us and a server's program: it starts the
// program and ends with it, and takes along all that the program has started.
// Where we are killed by whatever signal, it outlives us by an instant.
//
// The parent-death signal does not suffice for that: it reaches the program,
// and not what that has started (as npx does). Nor do process groups, which
// programs leave. On Linux whoever loses its parent becomes a child of the
// nearest ancestor that has asked for it, so that this ancestor must live
// longer than we do, and so cannot be us. On other systems it ends the group.
//
// It holds the other end of two pipes. From the leash it reads what to do: a
// byte asks the program to end, and the leash's end kills everything. To the
// report it writes a line when the program was started or why not, and then
// how it ended.

// How long a guard may take.
const (
	guardPatience = 10 * time.Second // to start a program
	sweepPatience = 5 * time.Second  // to end all that there is
)

// What a guard reports.
const (
	reportStarted = "started " // with the program's process id
	reportError   = "error "
)

// The files that the program gets, as the guard finds them.
const guardStdin = 3 // and stdout and stderr

// guarded returns the command of a guard that runs cmd, and our ends of its
// pipes.
func guarded(guard []string, cmd *exec.Cmd) (by *exec.Cmd, leash, report *os.File, err error) {
	by = &exec.Cmd{
		Path: guard[0], Args: append(append(append([]string{}, guard...), cmd.Path), cmd.Args...), Env: cmd.Env, Dir: cmd.Dir,
		ExtraFiles: []*os.File{cmd.Stdin.(*os.File), cmd.Stdout.(*os.File), cmd.Stderr.(*os.File)},
		// A session of its own, so that what the terminal sends to us misses it.
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

// readStart reads from the report what became of the program.
func readStart(report *os.File, lines *bufio.Reader) (pid int, err error) {
	if err := report.SetReadDeadline(time.Now().Add(guardPatience)); err != nil {
		return 0, err
	}
	line, err := lines.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("its guard does not start: %w", err)
	}
	line = strings.TrimSuffix(line, "\n")
	if number, ok := strings.CutPrefix(line, reportStarted); ok {
		if pid, err = strconv.Atoi(number); err != nil {
			return 0, err
		}
		return pid, report.SetReadDeadline(time.Time{})
	}
	return 0, errors.New(strings.TrimPrefix(line, reportError))
}

// Guard is the whole life of the process that Options.Guard names: in and out
// are its stdin and stdout, command are its further arguments.
func Guard(in io.Reader, out io.Writer, command []string) {
	// Caught and not ignored: what is ignored here would be in the program. Of
	// a report that nobody reads it must not die.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	runtime.LockOSThread() // the program must not outlive it, and does not end with a thread of ours
	w, err := startWard(command)
	if err != nil {
		_, _ = fmt.Fprintf(out, "%s%s\n", reportError, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	_, _ = fmt.Fprintf(out, "%s%d\n", reportStarted, w.cmd.Process.Pid)
	debug.FreeOSMemory() // there is a guard for each server, and nothing more to do
	go func() {
		var order [1]byte
		for {
			if n, err := in.Read(order[:]); n > 0 {
				w.ask()
			} else if err != nil {
				break
			}
		}
		for end := time.Now().Add(sweepPatience); time.Now().Before(end); time.Sleep(sweepEvery) {
			w.kill()
		}
		os.Exit(1) // what is left hangs in the kernel
	}()
	_, _ = fmt.Fprintln(out, w.wait())
	w.sweep()
}

// sweepEvery is how soon it is looked again for what must be killed.
const sweepEvery = 5 * time.Millisecond

// A ward is the program that a guard runs, and all that it has started.
type ward struct {
	cmd *exec.Cmd

	mu    sync.Mutex // held to signal and to reap, so that nobody is signalled who is gone
	ended bool       // and waited for
}

func startWard(command []string) (*ward, error) {
	if len(command) < 2 {
		return nil, errors.New("there is no program to run; Switchboard itself runs this command")
	}
	if err := adoptOrphans(); err != nil {
		return nil, err
	}
	var files [3]*os.File
	for i := range files {
		files[i] = os.NewFile(uintptr(guardStdin+i), "")
		syscall.CloseOnExec(guardStdin + i)
		defer files[i].Close() //nolint:errcheck // the program has its own
	}
	w := &ward{cmd: &exec.Cmd{
		Path: command[0], Args: command[1:],
		Stdin: files[0], Stdout: files[1], Stderr: files[2],
		SysProcAttr: childAttr(),
	}}
	err := w.cmd.Start()
	if wrapped, ok := errors.AsType[*os.PathError](err); ok {
		err = wrapped.Err
	}
	return w, err
}

// ask asks the program's group to end.
func (w *ward) ask() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		_ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGTERM)
	}
}
