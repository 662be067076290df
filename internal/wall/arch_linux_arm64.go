package wall

import "golang.org/x/sys/unix"

const (
	ownArch = unix.AUDIT_ARCH_AARCH64
	hasX32  = false
)
