package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/join"
	"github.com/summit-switchboard/switchboard/internal/serving"
)

// An addressCheck examines the processes that serve, and the address for serve.
type addressCheck struct{ *examination }

// A servingProcess serves from the data folder.
type servingProcess struct {
	serving.Neighbor
	silent error // why it does not answer; nil if it does
}

func (p *servingProcess) answers() bool { return p.silent == nil }

// servingProcesses are the processes that serve from the data folder, the newest first.
type servingProcesses []*servingProcess

// maxProbed limits the processes that are asked.
const maxProbed = 16

// findRunning finds the processes that serve from the data folder, and probes each. A probe is no client, so it does not keep a process alive.
func (x *examination) findRunning() servingProcesses {
	if x.Data == "" {
		return nil
	}
	rows, err := serving.Rows(x.Data)
	if err != nil { // checkRows reports it
		return nil
	}
	defer x.begin("the Switchboard that runs")()
	var out servingProcesses
	var asked sync.WaitGroup
	for i, row := range rows {
		p := &servingProcess{Neighbor: row}
		out = append(out, p)
		if i < maxProbed {
			asked.Go(func() { p.silent = join.Probe(p.Address, p.Token) })
		}
	}
	asked.Wait()
	return out
}

// joinable returns the process that a client with our identity would join, or nil.
func (r servingProcesses) joinable(identity string) *servingProcess {
	for _, p := range r {
		if p.Identity == identity && p.answers() {
			return p
		}
	}
	return nil
}

// checkRunning says which processes serve from the data folder.
func (x addressCheck) checkRunning(_ context.Context, run servingProcesses) {
	for _, p := range run {
		subject := fmt.Sprintf("pid %d", p.PID)
		what := "it serves the clients of this folder on stdio"
		if p.URL != "" {
			what = "it serves at " + p.URL
		}
		switch {
		case !p.answers():
			x.add(Diagnosis{
				Area: Running, Subject: subject, State: Wrong, Cause: "silent",
				What:   what + ", and does not answer where clients join (" + p.Address + "): " + p.silent.Error(),
				Remedy: "it may be stopped or overloaded. End it: the next client starts another one", Command: commandLine("kill", "-KILL", strconv.Itoa(p.PID)),
			})
		case p.Version != x.Version:
			x.add(Diagnosis{
				Area: Running, Subject: subject, State: Note, Cause: "other-version",
				What:   fmt.Sprintf("%s, with version %s; this is %s, and clients that start now do not join it", what, p.Version, x.Version),
				Remedy: "end it when its clients have ended", Command: commandLine("kill", strconv.Itoa(p.PID)),
			})
		case p.Configuration != x.Config:
			x.add(Diagnosis{Area: Running, Subject: subject, State: Note, Cause: "other-configuration", What: what + ", with the configuration " + p.Configuration})
		default:
			x.well(Running, subject, what)
		}
	}
}

// probeTimeout limits one look at an address.
const probeTimeout = 3 * time.Second

// maxOtherPorts limits the search for a free port.
const maxOtherPorts = 50

// checkAddress looks whether serve could listen at its address.
func (x addressCheck) checkAddress(ctx context.Context, run servingProcesses) {
	address, chosen := config.DefaultListen, false
	if given := config.ListenAddress(x.Config); given != "" {
		address, chosen = given, true
	}
	if x.cfg != nil {
		address = x.cfg.Listen
	}
	for _, p := range run {
		if p.URL != "" && samePort(p.URL, address) {
			x.well(Address, address, fmt.Sprintf("Switchboard serves there (pid %d)", p.PID))
			return
		}
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err == nil {
		_ = l.Close()
		x.well(Address, address, "free, for switchboard serve")
		return
	}
	if ctx.Err() != nil {
		return
	}
	f := Diagnosis{Area: Address, Subject: address, State: Wrong, Cause: "address", What: "switchboard serve cannot listen there: " + errorText(withoutAddress(err)), Remedy: `correct "listen" in ` + x.Config + ": an address of this machine and a port"}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		f.Cause, f.What = "port-taken", "another program listens there: "+x.listener(ctx, address)
		f.Remedy = "end that program, or choose another address"
		if free := nextFree(ctx, address); free != "" {
			f.Remedy += fmt.Sprintf(": write listen: %s into %s", free, x.Config)
		}
		if !chosen {
			f.State, f.What = Note, f.What+"; only switchboard serve needs the address"
		}
	case errors.Is(err, fs.ErrPermission):
		f.Cause, f.Remedy = "port-forbidden", `only the administrator may use a port below 1024; write another port into "listen" in `+x.Config
	}
	x.add(f)
}

// withoutAddress returns the cause of an error of package net, without the address, which the reader knows.
func withoutAddress(err error) error {
	if e, ok := errors.AsType[*os.SyscallError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e.Err
	}
	return err
}

// samePort reports whether a URL and an address have the same port.
func samePort(url, address string) bool {
	_, port, err := net.SplitHostPort(address)
	return err == nil && strings.HasSuffix(url, ":"+port)
}

// listener names the program that listens at the address, if this user may know it.
func (x addressCheck) listener(ctx context.Context, address string) string {
	base := "http://" + reachable(address)
	if answers, _ := askReady(ctx, base); answers {
		return "it is a Switchboard, of another folder or user"
	}
	if name := listenerName(address); name != "" {
		return name
	}
	return "its name is not known to this user"
}

// reachable returns the address of a listener for a program on this machine.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

// askReady reports whether a Switchboard answers at a URL without a path.
func askReady(ctx context.Context, base string) (answers bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/readyz", http.NoBody)
	if err != nil {
		return false, err
	}
	t := &http.Transport{DisableKeepAlives: true}
	resp, err := t.RoundTrip(req) // it follows no redirect
	if err != nil {
		return false, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read from
	var start [512]byte
	n, _ := resp.Body.Read(start[:])
	ours := resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusServiceUnavailable
	return ours && strings.Contains(string(start[:n]), "ready"), nil
}

// nextFree returns the next address on the same host with a free port, or "".
func nextFree(ctx context.Context, address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	for n := number(port) + 1; n < number(port)+maxOtherPorts && n < 1<<16; n++ {
		next := net.JoinHostPort(host, strconv.Itoa(n))
		if l, err := new(net.ListenConfig).Listen(ctx, "tcp", next); err == nil {
			_ = l.Close()
			return next
		}
	}
	return ""
}
