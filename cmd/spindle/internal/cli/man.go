package cli

import (
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Hidden: true, // for packagers
		Short:  "Write the man pages to a directory",
		Long: `Man writes a man page for each command to the directory DIR, and creates DIR if
it does not exist. A page has the same text as the command's help. Man does not
require a database.

The pages carry the date from the environment variable SOURCE_DATE_EPOCH
(seconds since 1970). If it is not set, they carry the date of the commit that
spindle was built from or, if that is not known, the current date.
` + terminal.CommonCodes,
		Example: "  spindle man /usr/local/share/man/man1",
		Args:    terminal.Exactly(1, "the name of one directory"),
		RunE:    func(_ *cobra.Command, args []string) error { return writeMan(args[0]) },
	}
}

func writeMan(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	v := versionOf(buildInfo())
	header := &doc.GenManHeader{Section: "1", Source: "spindle " + v.Version, Manual: "Spindle"}
	if at, err := time.Parse(time.RFC3339, v.At); err == nil && os.Getenv("SOURCE_DATE_EPOCH") == "" {
		header.Date = &at
	}
	return doc.GenManTree(forMan(newRoot()), header, dir)
}

// forMan converts the commands' help text to Markdown, from which the man pages are generated. It keeps the
// layout of indented text.
func forMan(root *cobra.Command) *cobra.Command {
	root.DisableAutoGenTag = true
	terminal.Commands(root, func(c *cobra.Command) {
		c.DisableAutoGenTag = true
		c.Long = markdown(c.Long)
		c.Flags().VisitAll(plainUsage)
	})
	return root
}

// plainUsage removes the backquotes around the name of a flag's value, which a page would show as they are.
func plainUsage(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") }

// markdown turns each indented part into a code block, with an empty line before and after it.
func markdown(help string) string {
	var b strings.Builder
	before := false
	for line := range strings.Lines(help) {
		inside := strings.HasPrefix(line, "  ")
		if inside != before && strings.TrimSpace(line) != "" {
			b.WriteString("\n")
			before = inside
		}
		if inside {
			line = "    " + line[2:]
		} else {
			line = literal.Replace(line)
		}
		b.WriteString(line)
	}
	return b.String()
}

// literal escapes characters that Markdown would read as emphasis.
var literal = strings.NewReplacer("*", `\*`, "_", `\_`)
