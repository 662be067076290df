package doctor

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// maxProcesses limits the processes that are looked at.
const maxProcesses = 20_000

// listenerName returns the name and the process id of the program that listens at the address, or "" if it belongs to another user.
func listenerName(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	inode := ""
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if inode = listeningInode(table, number(port)); inode != "" {
			break
		}
	}
	if inode == "" {
		return ""
	}
	processes, err := filepath.Glob("/proc/[0-9]*/fd")
	if err != nil {
		return ""
	}
	for _, folder := range processes[:min(len(processes), maxProcesses)] {
		files, err := os.ReadDir(folder)
		if err != nil { // another user's
			continue
		}
		for _, f := range files {
			if to, err := os.Readlink(filepath.Join(folder, f.Name())); err == nil && to == "socket:["+inode+"]" {
				process := filepath.Dir(folder)
				name, _ := os.ReadFile(filepath.Join(process, "comm"))
				return fmt.Sprintf("%s, pid %s", strings.ToValidUTF8(strings.TrimSpace(string(name)), "?"), filepath.Base(process))
			}
		}
	}
	return ""
}

// listeningInode returns the inode of the socket that listens at the port, by a table of the kernel, or "".
//
//	sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
//	0: 0100007F:1D1C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 31337 …
func listeningInode(table string, port int) string {
	const localAddress, state, inode = 1, 3, 9
	const listening = "0A"
	f, err := os.Open(table)
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // it was only read from
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) > inode && words[state] == listening && strings.HasSuffix(words[localAddress], fmt.Sprintf(":%04X", port)) {
			return words[inode]
		}
	}
	return ""
}
