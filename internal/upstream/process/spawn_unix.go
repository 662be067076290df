//go:build unix

package process

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// BaseEnv are the variables of ours that every child process gets. Its configuration adds the
// others.
var BaseEnv = []string{"HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER"}

// tie is our end of the leash of the guard; nil without a guard.
type tie = *os.File

// findProgram returns the path of a program: one with a folder is a path already.
func findProgram(program string) (string, error) {
	if hasFolder(program) {
		return program, nil
	}
	return exec.LookPath(program)
}

// launch starts p's program, by a guard if there is one.
func (sp *Spawner) launch(p *Process) error {
	if len(sp.guard) > 0 {
		return sp.startGuarded(p)
	}
	walls, err := p.order.Absent("its program is started without a guard")
	if err != nil {
		return err
	}
	if err := sp.startCommand(p.cmd); err != nil {
		return err
	}
	walls.PID = p.cmd.Process.Pid
	p.PID, p.Walls = walls.PID, &walls
	go p.reap()
	return nil
}

// startGuarded lets a guard start p's program.
func (sp *Spawner) startGuarded(p *Process) error {
	by, leash, report, err := guardCommand(sp.guard, p.cmd)
	if err != nil {
		return err
	}
	prepareNetwork(by, p.order)
	err = explainStart(by, sp.startCommand(by))
	_, _ = by.Stdin.(*os.File).Close(), by.Stdout.(*os.File).Close() // the guard has its own copies
	lines := bufio.NewReader(report)
	if err == nil {
		var start startReport
		if err = sendOrder(leash, p.order); err == nil {
			start, err = readStart(report, lines)
		}
		p.PID, p.Walls = start.pid, &start.walls
		p.Walls.PID = p.PID
		if err != nil {
			_ = by.Process.Kill()
			_ = by.Wait()
		}
	}
	if err != nil {
		_, _ = leash.Close(), report.Close()
		return err
	}
	p.cmd, p.tie = by, leash
	go func() {
		defer report.Close() //nolint:errcheck // it was only read
		how, _ := lines.ReadString('\n')
		p.exitText = strings.TrimSuffix(how, "\n")
		close(p.Ended)
		_ = by.Wait()
		p.mu.Lock()
		_ = leash.Close()
		p.reaped = true
		p.mu.Unlock()
		close(p.gone)
	}()
	return nil
}

// reap waits for the child process and kills the rest of its process group. It kills the group
// before it reaps the child, because until then no other process can get its number.
func (p *Process) reap() {
	waitWithoutReaping(p.PID)
	p.mu.Lock()
	_ = syscall.Kill(-p.PID, syscall.SIGKILL)
	_ = p.cmd.Wait() // the result is in cmd.ProcessState
	p.exitText, p.reaped = p.cmd.ProcessState.String(), true
	p.mu.Unlock()
	close(p.Ended)
	close(p.gone)
}

// signal sends SIGTERM or SIGKILL to the process group, if it still exists.
func (p *Process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.reaped:
	case p.tie == nil:
		_ = syscall.Kill(-p.PID, sig)
	case sig == syscall.SIGTERM:
		_, _ = p.tie.Write([]byte{'t'})
	default:
		_ = p.tie.Close()
	}
}

// terminate asks the program to end.
func (p *Process) terminate() { p.signal(syscall.SIGTERM) }

// kill ends the program and all that it started.
func (p *Process) kill() { p.signal(syscall.SIGKILL) }
