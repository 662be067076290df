//go:build amd64 || arm64

package wall

import "golang.org/x/sys/unix"

// A filter of system calls is a small program that the kernel runs before each call. It sees the number of the call and its six arguments,
// and cannot follow pointers.

// Positions in struct seccomp_data, which the kernel gives to the filter.
const (
	numberAt = 0
	archAt   = 4
	argsAt   = 16 // eight bytes each; the lower half is first, as on every machine with a filter
)

// x32Calls is the bit in the numbers of a second table of calls on amd64. It would pass a filter that knows the first table alone.
const x32Calls = 0x40000000

// Verdicts of the filter.
const (
	allowCall   = unix.SECCOMP_RET_ALLOW
	refuseCall  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	unknownCall = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS) // programs have another way where the kernel is older
	killProgram = unix.SECCOMP_RET_KILL_PROCESS
)

// refusedCalls are refused at every level: they reach into other processes, into the kernel or around the other walls.
var refusedCalls = []uint32{
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_SETNS,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
}

// unknownCalls are answered as by a kernel that does not have them. io_uring makes other calls without passing the filter.
var unknownCalls = []uint32{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER}

// namespaceFlags make namespaces. In a user namespace, a program has capabilities again.
const namespaceFlags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// tiocsti and tioclinux are calls of terminals that type for the user.
const (
	tiocsti   = 0x5412
	tioclinux = 0x541C
)

// filter is a program of the kernel's filter that is being written.
type filter []unix.SockFilter

func (f *filter) add(code uint16, k uint32, yes, no uint8) {
	*f = append(*f, unix.SockFilter{Code: code, Jt: yes, Jf: no, K: k})
}

// load loads four bytes of struct seccomp_data.
func (f *filter) load(at uint32) { f.add(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, at, 0, 0) }

// answer ends the program.
func (f *filter) answer(verdict uint32) { f.add(unix.BPF_RET|unix.BPF_K, verdict, 0, 0) }

// ifEqual gives the verdict if the loaded value is k.
func (f *filter) ifEqual(k, verdict uint32) {
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, k, 0, 1)
	f.answer(verdict)
}

// ofCall runs then for one call alone. Afterwards the number of the call is loaded again.
func (f *filter) ofCall(number uint32, then func(f *filter)) {
	var inner filter
	then(&inner)
	inner.load(numberAt)
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, number, 0, uint8(len(inner)))
	*f = append(*f, inner...)
}

// argument loads the lower half of an argument, with a mask.
func (f *filter) argument(n int, mask uint32) {
	f.load(argsAt + uint32(n)*8)
	if mask != 0 {
		f.add(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, mask, 0, 0)
	}
}

// refuseUnless refuses the call if the loaded value is none of the values.
func (f *filter) refuseUnless(values ...uint32) {
	for i, v := range values {
		f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, v, uint8(len(values)-i), 0)
	}
	f.answer(refuseCall)
}

// callFilter returns the filter of an order.
func (o *Order) callFilter() filter {
	var f filter
	f.load(archAt)
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, ownArch, 1, 0)
	f.answer(killProgram) // a program of another machine, such as one of 32 bits: its calls have other numbers
	f.load(numberAt)
	if hasX32 {
		f.add(unix.BPF_JMP|unix.BPF_JGE|unix.BPF_K, x32Calls, 0, 1)
		f.answer(unknownCall)
	}
	for _, n := range unknownCalls {
		f.ifEqual(n, unknownCall)
	}
	for _, n := range refusedCalls {
		f.ifEqual(n, refuseCall)
	}
	f.ofCall(unix.SYS_IOCTL, func(f *filter) {
		f.argument(1, 0)
		f.ifEqual(tiocsti, refuseCall)
		f.ifEqual(tioclinux, refuseCall)
	})
	// Those of other processes are the user's, too.
	f.ofCall(unix.SYS_PRLIMIT64, func(f *filter) {
		f.argument(0, 0)
		f.refuseUnless(0)
	})
	f.ofCall(unix.SYS_SETPRIORITY, func(f *filter) {
		f.argument(0, 0)
		f.refuseUnless(unix.PRIO_PROCESS)
		f.argument(1, 0)
		f.refuseUnless(0)
	})
	if o.NoNetwork || o.OnlyIP {
		o.filterStrict(&f)
	}
	f.answer(allowCall)
	return f
}

// filterStrict adds the rules of the level strict.
func (o *Order) filterStrict(f *filter) {
	noNamespaces := func(f *filter) {
		f.argument(0, namespaceFlags)
		f.refuseUnless(0)
	}
	f.ofCall(unix.SYS_UNSHARE, noNamespaces)
	f.ofCall(unix.SYS_CLONE, noNamespaces)
	f.ifEqual(unix.SYS_CLONE3, unknownCall) // its flags are behind a pointer; libraries then use clone
	if o.NoNetwork {
		f.ifEqual(unix.SYS_SOCKET, refuseCall)
	} else {
		f.ofCall(unix.SYS_SOCKET, func(f *filter) {
			f.argument(0, 0)
			f.refuseUnless(unix.AF_INET, unix.AF_INET6)
			f.argument(1, 0xf)
			f.refuseUnless(unix.SOCK_STREAM, unix.SOCK_DGRAM)
		})
	}
	// Pairs of sockets are pipes. But one that sends single messages can be connected to another address afterwards.
	f.ofCall(unix.SYS_SOCKETPAIR, func(f *filter) {
		f.argument(1, 0xf)
		f.refuseUnless(unix.SOCK_STREAM, unix.SOCK_SEQPACKET)
	})
}
