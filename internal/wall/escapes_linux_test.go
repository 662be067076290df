package wall_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// escapes are what a hostile program tries. Each gets the word that its row in the table gives. It returns nil if it has got out.
var escapes = map[string]func(word string) error{
	"read":      func(path string) error { _, err := os.ReadFile(path); return err },
	"follow":    func(path string) error { _, err := os.Readlink(path); return err },
	"overwrite": func(path string) error { return os.WriteFile(path, []byte("mine"), 0o600) },
	"make":      func(dir string) error { return os.WriteFile(filepath.Join(dir, "new"), nil, 0o600) },
	"cut":       func(path string) error { return os.Truncate(path, 1) },
	"temp": func(string) error {
		f, err := os.CreateTemp("", "")
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	},
	"link": func(word string) error {
		from, to, _ := strings.Cut(word, " ")
		_ = os.Remove(from)
		if err := os.Symlink(to, from); err != nil {
			return err
		}
		_, err := os.ReadFile(from)
		return err
	},
	"open":   openFile,
	"signal": func(pid string) error { return syscall.Kill(number(pid), 0) },
	"parent": func(string) error {
		return anyThread(os.Getppid(), func(tid int) error { return syscall.Kill(tid, 0) })
	},
	"leash": func(file string) error {
		return anyThread(os.Getppid(), func(tid int) error {
			f, err := os.OpenFile(fmt.Sprintf("/proc/%d/%s", tid, file), os.O_WRONLY, 0)
			if err == nil {
				_ = f.Close()
			}
			return err
		})
	},
	"limits": func(pid string) error {
		var limit unix.Rlimit
		return unix.Prlimit(number(pid), unix.RLIMIT_NOFILE, nil, &limit)
	},
	"priority":    func(pid string) error { return unix.Setpriority(unix.PRIO_PROCESS, number(pid), 19) },
	"ptrace":      ptrace,
	"vm":          readMemory,
	"abstract":    func(name string) error { return dial("unix", "@"+name) },
	"unix":        func(path string) error { return dial("unix", path) },
	"tcp":         func(to string) error { return dial("tcp", to) },
	"udp":         func(to string) error { return dial("udp", to) },
	"pair":        reconnectPair,
	"mptcp":       func(string) error { return socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP) },
	"raw":         func(string) error { return socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP) },
	"packet":      func(string) error { return socket(unix.AF_PACKET, unix.SOCK_RAW, 0) },
	"netlink":     func(string) error { return socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE) },
	"io_uring":    ioUring,
	"keyctl":      func(string) error { _, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, true); return err },
	"userfaultfd": func(string) error { return call(unix.SYS_USERFAULTFD, 1, 0, 0) },
	"bpf":         loadMap,
	"perf":        openCounter,
	"mount":       mount,
	"namespace": func(string) error {
		return run(&exec.Cmd{Path: os.Args[0], Args: []string{os.Args[0], "escape", "nothing"}, SysProcAttr: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}})
	},
	"x32":     func(string) error { return call(unix.SYS_GETPID|0x40000000, 0, 0, 0) },
	"program": func(path string) error { return run(exec.Command(path)) },
	"euid": func(path string) error {
		out, err := exec.Command(path, "escape", "print-euid").Output()
		if err == nil && strings.TrimSpace(string(out)) == strconv.Itoa(os.Getuid()) {
			err = errors.New("the program runs as the same user")
		}
		return err
	},
	"print-euid":   func(string) error { fmt.Println(os.Geteuid()); os.Exit(0); return nil },
	"replace":      replaceProgram,
	"capabilities": hasCapabilities,
	"core":         canDumpCore,
	"descriptors":  openMany,
	"processes":    startMany,
	"memory":       useMemory,
	"daemon":       startDaemon,
	"nothing":      func(string) error { return nil },
}

// escape is the program that tries one of them, and says how it went. The word is the first line of its stdin: a path among its arguments would be one that the
// operator has named for it.
func escape(args []string) {
	word := ""
	if len(args) > 1 {
		word = args[1]
	} else {
		_, _ = fmt.Scanln(&word)
		word = strings.ReplaceAll(word, "|", " ")
	}
	if err := escapes[args[0]](word); err != nil {
		fmt.Println("stopped:", err)
		return
	}
	fmt.Println("out")
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func call(trap, a, b, c uintptr) error {
	if _, _, err := unix.RawSyscall(trap, a, b, c); err != 0 {
		return err
	}
	return nil
}

func openFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return f.Close()
}

func dial(network, to string) error {
	conn, err := net.DialTimeout(network, to, time.Second)
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte("out"))
	return errors.Join(err, conn.Close())
}

func socket(domain, kind, protocol int) error {
	fd, err := unix.Socket(domain, kind, protocol)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// reconnectPair makes a pair of sockets, and then connects one of them to an address.
func reconnectPair(path string) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	if err := unix.Connect(pair[0], &unix.SockaddrUnix{Name: path}); err != nil {
		return err
	}
	_, err = unix.Write(pair[0], []byte("out"))
	return err
}

func ptrace(pid string) error {
	runtime.LockOSThread()
	const seize = 0x4206
	if _, _, err := unix.RawSyscall6(unix.SYS_PTRACE, seize, uintptr(number(pid)), 0, 0, 0, 0); err != 0 {
		return err
	}
	return nil
}

// readMemory reads from the address of something that is at the same place in the other process, which runs the same program.
func readMemory(pid string) error {
	var to [8]byte
	local := []unix.Iovec{{Base: &to[0], Len: 8}}
	_, err := unix.ProcessVMReadv(number(pid), local, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
	return err
}

func ioUring(string) error {
	var params [120]byte
	fd, _, err := unix.RawSyscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
	if err != 0 {
		return err
	}
	return unix.Close(int(fd))
}

func loadMap(string) error {
	attr := [72]byte{0: unix.BPF_MAP_TYPE_ARRAY, 4: 4, 8: 4, 12: 1}
	fd, _, err := unix.RawSyscall(unix.SYS_BPF, unix.BPF_MAP_CREATE, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if err != 0 {
		return err
	}
	return unix.Close(int(fd))
}

func openCounter(string) error {
	fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: unix.PERF_ATTR_SIZE_VER0, Bits: unix.PerfBitExcludeKernel}, 0, -1, -1, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// mount mounts over a folder, in a namespace of this thread that ends with it.
func mount(dir string) error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("none", dir, "tmpfs", 0, "")
}

func run(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// replaceProgram puts another file in the place of the program that runs.
func replaceProgram(string) error {
	aside := os.Args[0] + ".new"
	if err := os.WriteFile(aside, []byte("#!/bin/sh\n"), 0o700); err != nil {
		return err
	}
	return os.Rename(aside, os.Args[0])
}

func hasCapabilities(string) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		if name == "CapEff" || name == "CapPrm" { // what no_new_privs keeps from a user can be in the others
			if n, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64); err == nil && n != 0 {
				return nil
			}
		}
	}
	return errors.New("it has none")
}

func canDumpCore(string) error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &l); err != nil {
		return err
	}
	if l.Max == 0 {
		return errors.New("the limit is 0")
	}
	return nil
}

func openMany(string) error {
	const many = 6000
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: l.Max, Max: l.Max})
	for range many {
		if _, err := unix.Open("/dev/null", unix.O_RDONLY, 0); err != nil {
			return err
		}
	}
	return nil
}

// startMany starts more processes than the test allows, and waits.
func startMany(n string) error {
	for range number(n) {
		cmd := exec.Command(os.Args[0], "escape", "wait")
		if err := cmd.Start(); err != nil {
			return err
		}
	}
	time.Sleep(10 * time.Second)
	return nil
}

// useMemory uses more memory than the test allows, and waits.
func useMemory(mebibytes string) error {
	all := make([]byte, number(mebibytes)<<20)
	for i := 0; i < len(all); i += 4096 {
		all[i] = 1
	}
	time.Sleep(10 * time.Second)
	runtime.KeepAlive(all)
	return nil
}

// startDaemon starts a process in a session of its own, and writes its number.
func startDaemon(string) error {
	cmd := exec.Command(os.Args[0], "escape", "wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	fmt.Println(cmd.Process.Pid)
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func init() {
	escapes["wait"] = func(string) error { time.Sleep(time.Hour); return nil } // until it is killed
}

// anyThread tries something on each thread of a process, until it works.
func anyThread(pid int, try func(tid int) error) error {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, thread := range threads {
		if err = try(number(thread.Name())); err == nil {
			return nil
		}
	}
	return err
}
