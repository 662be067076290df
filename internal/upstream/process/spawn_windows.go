package process

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// BaseEnv are the variables of ours that every child process gets. Its configuration adds the
// others.
var BaseEnv = []string{
	"APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LANG", "LOCALAPPDATA", "NUMBER_OF_PROCESSORS", "OS", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE",
	"PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "TZ", "USERNAME", "USERPROFILE", "WINDIR",
}

// A tie is the job of a process. The system ends every process in it when the last handle to the job is closed, which is ours: so no
// process outlives Switchboard, however that ends, and there is no guard.
type tie = windows.Handle

// Guard does nothing: on Windows, a job ends a server's processes.
func Guard(_ io.Reader, out io.Writer, _ []string) {
	_, _ = fmt.Fprintln(out, "error on Windows, a job ends the processes of a server")
}

// findProgram returns the path of a program, with the ending that PATHEXT adds to its name: so "npx" finds npx.cmd, as in a shell.
func findProgram(program string) (string, error) { return exec.LookPath(program) }

// childSysProcAttr starts a child process with its first thread stopped, in a process group of its own, and without a window.
func childSysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{HideWindow: true, CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_SUSPENDED}
}

// setCloseOnExec does nothing: a child process inherits only the files that its command names.
func setCloseOnExec() error { return nil }

// HasUnread returns false. Windows does not tell the writer of a pipe how much is unread.
func (p *Process) HasUnread() bool { return false }

// launch starts p's program in a job of its own. The program runs only when it is in the job.
func (sp *Spawner) launch(p *Process) error {
	walls, err := p.order.Raise()
	if err != nil {
		return err
	}
	p.Walls = &walls
	if isBatch(p.cmd.Path) {
		system, err := windows.GetSystemDirectory()
		if err != nil {
			return fmt.Errorf("the folder of cmd.exe: %w", err)
		}
		shell := filepath.Join(system, "cmd.exe")
		if p.cmd.SysProcAttr.CmdLine, err = batchCommandLine(shell, p.cmd.Path, p.cmd.Args[1:]); err != nil {
			return err
		}
		p.cmd.Path = shell
	}
	job, err := newJob()
	if err != nil {
		return fmt.Errorf("a job for its process: %w", err)
	}
	if err := sp.startCommand(p.cmd); err != nil {
		return errors.Join(err, windows.CloseHandle(job))
	}
	p.tie, p.PID, p.Walls.PID = job, p.cmd.Process.Pid, p.cmd.Process.Pid
	var assigned error
	err = p.cmd.Process.WithHandle(func(handle uintptr) {
		assigned = windows.AssignProcessToJobObject(job, windows.Handle(handle))
	})
	if err = errors.Join(err, assigned); err == nil {
		err = resume(uint32(p.PID))
	}
	if err != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		return errors.Join(fmt.Errorf("put its process into a job: %w", err), windows.CloseHandle(job))
	}
	go p.reap()
	return nil
}

// newJob makes a job that ends all its processes when its last handle is closed. No child process inherits the handle.
func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, err
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE},
	}
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation, uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err != nil {
		return 0, errors.Join(err, windows.CloseHandle(job))
	}
	return job, nil
}

// resume lets a process run that was started with its first thread stopped, which is its only one.
func resume(pid uint32) error {
	all, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(all) //nolint:errcheck // it was only read
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(all, &entry); err == nil; err = windows.Thread32Next(all, &entry) {
		if entry.OwnerProcessID != pid {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return err
		}
		_, err = windows.ResumeThread(thread)
		return errors.Join(err, windows.CloseHandle(thread))
	}
	return fmt.Errorf("find its first thread: %w", err)
}

// How often and how long reap asks whether the processes of a job have ended.
const (
	jobPoll    = 5 * time.Millisecond
	jobTimeout = 5 * time.Second
)

// reap waits for the child process, and ends what it left behind.
func (p *Process) reap() {
	_ = p.cmd.Wait() // the result is in cmd.ProcessState
	p.mu.Lock()
	_ = windows.TerminateJobObject(p.tie, 1)
	for end := time.Now().Add(jobTimeout); !isEmpty(p.tie) && time.Now().Before(end); {
		time.Sleep(jobPoll)
	}
	_ = windows.CloseHandle(p.tie)
	p.exitText, p.reaped = p.cmd.ProcessState.String(), true
	p.mu.Unlock()
	close(p.Ended)
	close(p.gone)
}

// isEmpty reports whether no process of the job runs.
func isEmpty(job windows.Handle) bool {
	var counts struct { // JOBOBJECT_BASIC_ACCOUNTING_INFORMATION
		_               [4]int64 // times
		_, _            uint32   // page faults, processes in all
		active, stopped uint32
	}
	err := windows.QueryInformationJobObject(job, windows.JobObjectBasicAccountingInformation, uintptr(unsafe.Pointer(&counts)), uint32(unsafe.Sizeof(counts)), nil)
	return err != nil || counts.active == 0
}

// terminate asks the program to end: it sends Ctrl+Break to its process group. That reaches programs on our console only; if
// Switchboard has none, the end of the program's stdin must do.
func (p *Process) terminate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(p.PID))
	}
}

// kill ends the program and all that it started.
func (p *Process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = windows.TerminateJobObject(p.tie, 1)
	}
}
