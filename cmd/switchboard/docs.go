package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/summit-switchboard/switchboard/docs"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/markdown"
)

type docsCmd struct {
	Page string `arg:"" optional:"" help:"The document, such as calls, or one section of it, such as calls#rate-limits. Without PAGE, list the documents."`
}

// Run lists the documents, or prints one.
func (d *docsCmd) Run(ctx context.Context, io streams) error {
	pages := docs.Pages()
	if d.Page == "" {
		var names []string
		for _, p := range pages {
			names = append(names, fmt.Sprintf("%-14s %s\n", p.Name, p.Title))
		}
		_, err := fmt.Fprintf(io.out, "%s\nswitchboard docs PAGE prints one, switchboard help CODE the text of an error code.\n", strings.Join(names, ""))
		return err
	}
	page, ok := docs.Find(d.Page)
	if !ok {
		var names []string
		for _, p := range pages {
			names = append(names, p.Name)
		}
		name, section, _ := strings.Cut(d.Page, "#")
		if page, ok = docs.Find(name); ok {
			return usageError{fmt.Errorf("the document %s has no section %q; switchboard docs %s prints it whole", page.Name, section, page.Name)}
		}
		return usageError{fmt.Errorf("there is no document %q%s", d.Page, config.SuggestName(strings.ToLower(name), "documents", names))}
	}
	return printMarkdown(ctx, io, page.Name, page.Text)
}

// printMarkdown prints a text of the document: rendered on a terminal, in the pager of the user if there is one, and
// otherwise as it is written.
func printMarkdown(ctx context.Context, io streams, document, text string) error {
	if !io.isTerminal() {
		_, err := fmt.Fprint(io.raw, text)
		return err
	}
	text = markdown.Render(text, markdown.Options{
		Width: min(io.width(), maxTextWidth),
		Color: io.hasColor(),
		Link:  func(target string) string { return linkCommand(document, target) },
	})
	if pager := strings.Fields(os.Getenv("PAGER")); len(pager) > 0 {
		return page(ctx, io, pager, text)
	}
	_, err := fmt.Fprint(io.raw, text)
	return err
}

// linkCommand returns the command that prints the target of a link in a document; the target itself if it is none of
// our documents.
func linkCommand(document, target string) string {
	name, ok := docs.LinkName(document, target)
	if !ok {
		return target
	}
	if _, section, _ := strings.Cut(name, "#"); strings.HasPrefix(name, "errors#sb-") {
		for _, c := range docs.Codes("SB-") {
			if strings.HasPrefix(section, strings.ToLower(c.Code)+"-") {
				return "switchboard help " + c.Code
			}
		}
	}
	return "switchboard docs " + name
}

// maxTextWidth is the width of text that is still easy to read.
const maxTextWidth = 110

// page shows the text in the user's pager. If the pager cannot be started, page prints the text.
func page(ctx context.Context, out streams, pager []string, text string) error {
	cmd := exec.CommandContext(ctx, pager[0], pager[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), out.raw, out.err
	if os.Getenv("LESS") == "" {
		cmd.Env = append(os.Environ(), "LESS=FRX") // colours; a short text needs no key to end
	}
	err := cmd.Run()
	if errors.As(err, new(*exec.ExitError)) {
		return nil // the user has left the pager
	}
	if err != nil {
		_, err = io.WriteString(out.raw, text)
	}
	return err
}
