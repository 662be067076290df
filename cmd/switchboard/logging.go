package main

import (
	"io"
	"log/slog"
	"os"

	"github.com/summit-switchboard/switchboard/internal/app"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/logoutput"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// newLog returns the log of a command. That of a command that serves follows the configuration, and is kept in the data
// folder; see keepLog. A command that ends by itself prints only its answer and warnings. The caller must call closeLog in the end.
func newLog(command string, verbose bool, stderr io.Writer) (log *slog.Logger, closeLog func()) {
	switch command {
	case "shared": // its stderr is a file beside the log, for what Go prints when the process crashes
		stderr = io.Discard
		fallthrough
	case "serve", "stdio":
		output := logoutput.New(stderr, verbose)
		return slog.New(output.Handler()), output.Close
	}
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})), func() {}
}

// keepLog makes the log of a command that serves follow the configuration of the App that o starts, and keeps it in the
// data folder.
func keepLog(log *slog.Logger, o *app.Options) {
	output, ok := logoutput.Of(log)
	if !ok {
		return
	}
	data := o.Data
	if _, err := os.Stat(data); data != "" && err == nil {
		output.Keep(data) // also the reason if the configuration is refused; but that makes no folder
	}
	if data != "" {
		o.KeepStderr = func(id switchboard.ServerID, line string, leftOut int) {
			output.KeepStderr(string(id), line, leftOut)
		}
	}
	configured := o.Configured
	o.Configured = func(c *config.Config) {
		if configured != nil {
			configured(c)
		}
		if data != "" {
			output.Keep(data)
		}
		output.Apply(logoutput.Settings{Format: c.Log.Format, Level: c.Log.Level, To: c.Log.To})
	}
}

// keepError keeps the error of a start. A client that started the command may not show stderr.
func keepError(log *slog.Logger, err error) {
	if output, ok := logoutput.Of(log); ok && err != nil {
		output.KeepError("it ends with an error", err)
	}
}
