package wall

import "golang.org/x/sys/unix"

const (
	ownArch = unix.AUDIT_ARCH_X86_64
	hasX32  = true
)
