package wall

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Launch is a program that is to be started within walls.
type Launch struct {
	Path      string
	Args, Env []string
	Files     [3]int // its stdin, stdout and stderr: open files of this process, with numbers above 2
}

// Start starts a program within the walls of an order, in a process group of its own. The kernel kills it when the calling thread ends. So the
// caller must hold the thread until then, and it must be the thread that has entered the network of the program, if that has one of its own. An
// error means that nothing was started.
//
// The walls are taken on between fork and exec. No thread of this process ever has them: the kernel lets a program signal and trace whatever has the
// same walls. Package syscall has no place for that, so the fork is our own.
func (o *Order) Start(l *Launch) (pid int, e InEffect, err error) {
	e.Level, e.Walls = o.Level, []string{Capabilities, Setuid, Bounds}
	if len(o.Hosts) > 0 && !hasOwnNetwork() {
		e.lack(Network, "this thread has no network of its own")
	}
	if o.OwnTemp && o.noTemp != "" {
		e.lack(Temp, o.noTemp)
	} else {
		if o.OwnTemp {
			e.Walls = append(e.Walls, Temp)
		}
		if o.OwnHome {
			e.Walls = append(e.Walls, Home)
		}
	}
	c := childCalls{rules: -1, strict: o.Level == switchboard.SandboxStrict}
	abi := landlockABI()
	switch {
	case abi == 0:
		e.lack(Files, "the kernel has no Landlock, or it is switched off")
	case abi < abiTruncate:
		e.lack(Files, fmt.Sprintf("the kernel's Landlock is of version %d, and cannot stop that files are cut off; version %d, of Linux 6.2, can", abi, abiTruncate))
	default:
		if c.rules, e.Fixed, err = o.makeRules(abi); err != nil {
			return 0, e, err
		}
		defer unix.Close(c.rules) //nolint:errcheck // it was not written to
		e.Walls = append(e.Walls, Files)
	}
	if abi >= abiScope {
		e.Walls = append(e.Walls, Signals)
	} else {
		e.lack(Signals, fmt.Sprintf("this needs version %d of Landlock, of Linux 6.12", abiScope))
	}
	filter := o.callFilter()
	if len(filter) > 0 {
		c.filter = unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	} else {
		e.lack(Calls, "there is no filter of system calls for "+runtime.GOARCH)
	}
	if c.strict && len(e.Missing) > 0 {
		return 0, e, &UnavailableError{e.Missing[0]}
	}
	pid, said, err := c.run(l)
	runtime.KeepAlive(filter)
	if err != nil {
		return 0, e, err
	}
	switch {
	case len(filter) == 0:
	case said.filtered != 0:
		e.lack(Calls, "filter system calls: "+said.filtered.Error())
	default:
		e.Walls = append(e.Walls, Calls)
		if o.NoNetwork || o.OnlyIP {
			e.Walls = append(e.Walls, Network)
		}
	}
	if said.step == 0 {
		return pid, e, nil
	}
	var status unix.WaitStatus
	for _, err := unix.Wait4(pid, &status, 0, nil); err == unix.EINTR; _, err = unix.Wait4(pid, &status, 0, nil) {
	}
	if said.step == stepFilter {
		return 0, e, &UnavailableError{e.Missing[len(e.Missing)-1]}
	}
	if said.step == stepExec { // the caller names the program
		return 0, e, said.failed
	}
	return 0, e, fmt.Errorf("%s: %w", stepNames[said.step], said.failed)
}

// The steps of the child, as it reports them.
const (
	stepGroup uint32 = iota + 1
	stepFiles
	stepCapabilities
	stepPrivileges
	stepRules
	stepFilter
	stepParent
	stepExec
)

var stepNames = map[uint32]string{
	stepGroup: "make its process group", stepFiles: "give it its files", stepCapabilities: "drop capabilities", stepPrivileges: "set no_new_privs",
	stepRules: "take on rules", stepParent: "tie it to its guard",
}

// A childReport is what the child says before it becomes the program, or when it cannot.
type childReport struct {
	filtered syscall.Errno // of the filter of system calls
	failed   syscall.Errno // of the step
	step     uint32        // that has failed; 0 if none has
}

// childCalls are what the child does between fork and exec: system calls alone.
type childCalls struct {
	rules  int // the Landlock ruleset; -1 for none
	filter unix.SockFprog
	strict bool

	path       *byte
	args, env  **byte // each ends with nil
	files      [3]int
	report     int
	parent     uintptr
	capHeader  unix.CapUserHeader
	noCaps     [2]unix.CapUserData
	allSignals [2]uint64
	oldSignals [2]uint64
	action     [8]uint64 // a struct sigaction of the kernel
	said       childReport
}

// run forks, and returns what the child reports.
func (c *childCalls) run(l *Launch) (pid int, said childReport, err error) {
	if c.path, err = syscall.BytePtrFromString(l.Path); err != nil {
		return 0, said, err
	}
	args, err := syscall.SlicePtrFromStrings(l.Args)
	if err != nil {
		return 0, said, err
	}
	env, err := syscall.SlicePtrFromStrings(l.Env)
	if err != nil {
		return 0, said, err
	}
	c.args, c.env = &args[0], &env[0]
	c.files, c.parent = l.Files, uintptr(os.Getpid())
	c.capHeader.Version = unix.LINUX_CAPABILITY_VERSION_3
	c.allSignals = [2]uint64{^uint64(0), ^uint64(0)}
	var pipe [2]int
	syscall.ForkLock.Lock()
	if err = unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		syscall.ForkLock.Unlock()
		return 0, said, err
	}
	c.report = pipe[1]
	runtime.LockOSThread()
	child, errno := c.fork()
	runtime.UnlockOSThread()
	syscall.ForkLock.Unlock()
	unix.Close(pipe[1])       //nolint:errcheck // the child has its own
	defer unix.Close(pipe[0]) //nolint:errcheck // it was only read
	if errno != 0 {
		return 0, said, fmt.Errorf("fork: %w", errno)
	}
	// The report comes in one piece, after the filter and again where a step fails. The end comes with exec.
	raw := (*[unsafe.Sizeof(said)]byte)(unsafe.Pointer(&said))
	for {
		switch n, err := unix.Read(pipe[0], raw[:]); {
		case err == unix.EINTR:
		case err != nil:
			return 0, said, err
		case n == 0:
			return int(child), said, nil
		}
	}
}

// fork makes the child. It grows no stack, allocates nothing and calls nothing of the runtime, since the child has this thread alone.
//
//go:norace
//go:nosplit
//go:noinline
func (c *childCalls) fork() (pid uintptr, errno syscall.Errno) {
	// No handler of the runtime may run in the child.
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&c.allSignals)), uintptr(unsafe.Pointer(&c.oldSignals)), 8, 0, 0)
	pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&c.oldSignals)), 0, 8, 0, 0)
		return pid, errno
	}
	c.said.step = c.become()
	_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, uintptr(c.report), uintptr(unsafe.Pointer(&c.said)), unsafe.Sizeof(c.said))
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 253, 0, 0)
	}
}

// become makes the child the program. It returns the step that has failed.
//
//go:norace
//go:nosplit
func (c *childCalls) become() (failed uint32) {
	if _, _, c.said.failed = syscall.RawSyscall(unix.SYS_SETPGID, 0, 0, 0); c.said.failed != 0 {
		return stepGroup
	}
	for to := range uintptr(3) {
		if _, _, c.said.failed = syscall.RawSyscall(unix.SYS_DUP3, uintptr(c.files[to]), to, 0); c.said.failed != 0 {
			return stepFiles
		}
	}
	for n := uintptr(0); n <= 63; n++ {
		// EINVAL: the kernel knows no more. EPERM: a user without capabilities cannot drop any, and no_new_privs keeps it so.
		if _, _, c.said.failed = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, n, 0, 0, 0, 0); c.said.failed != 0 {
			break
		}
	}
	if c.said.failed != 0 && c.said.failed != syscall.EINVAL && c.said.failed != syscall.EPERM {
		return stepCapabilities
	}
	_, _, _ = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0) // capset clears them too
	if _, _, c.said.failed = syscall.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&c.capHeader)), uintptr(unsafe.Pointer(&c.noCaps)), 0); c.said.failed != 0 {
		return stepCapabilities
	}
	if _, _, c.said.failed = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); c.said.failed != 0 {
		return stepPrivileges
	}
	// The kernel then kills the program when its guard is gone. It may be gone already.
	if _, _, c.said.failed = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0, 0); c.said.failed != 0 {
		return stepParent
	}
	if parent, _, _ := syscall.RawSyscall(unix.SYS_GETPPID, 0, 0, 0); parent != c.parent {
		c.said.failed = syscall.ESRCH
		return stepParent
	}
	for n := uintptr(1); n <= 64; n++ { // the program inherits what is ignored, and no handler
		if _, _, errno := syscall.RawSyscall6(unix.SYS_RT_SIGACTION, n, 0, uintptr(unsafe.Pointer(&c.action)), 8, 0, 0); errno == 0 && c.action[0] > 1 {
			c.action = [8]uint64{}
			_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, n, uintptr(unsafe.Pointer(&c.action)), 0, 8, 0, 0)
		}
	}
	if c.rules >= 0 {
		if _, _, c.said.failed = syscall.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(c.rules), 0, 0); c.said.failed != 0 {
			return stepRules
		}
	}
	// Without this flag, older kernels slow the program down against attacks on processors, which every program here could make anyway.
	if c.filter.Len > 0 {
		_, _, c.said.filtered = syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, uintptr(unsafe.Pointer(&c.filter)))
	}
	if c.said.filtered != 0 && c.strict {
		return stepFilter
	}
	_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, uintptr(c.report), uintptr(unsafe.Pointer(&c.said)), unsafe.Sizeof(c.said))
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&c.oldSignals)), 0, 8, 0, 0)
	_, _, c.said.failed = syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(c.path)), uintptr(unsafe.Pointer(c.args)), uintptr(unsafe.Pointer(c.env)))
	return stepExec
}
