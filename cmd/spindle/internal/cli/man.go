package cli

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/flags"
)

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Hidden: true, // for packagers
		Short:  "Write the man pages into a directory",
		Long: `Man writes a man page for each command into the directory DIR, which it makes if
it is missing. A page's text is the command's help. Man needs no database.

The pages have the date in SOURCE_DATE_EPOCH, in seconds since 1970, or the date
of the commit.
` + flags.CommonCodes,
		Example: "  spindle man /usr/local/share/man/man1",
		Args:    flags.Exactly(1, "the name of one directory"),
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

// forMan changes the help of the commands to the Markdown that the pages are made of. Indented text keeps its layout.
func forMan(root *cobra.Command) *cobra.Command {
	root.DisableAutoGenTag = true
	flags.Commands(root, func(c *cobra.Command) {
		c.DisableAutoGenTag = true
		c.Long = markdown(c.Long)
		c.Flags().VisitAll(plainUsage)
		c.PersistentFlags().VisitAll(plainUsage)
	})
	return root
}

// plainUsage removes the quotes from the word that names a flag's value: a page shows that word nowhere else.
func plainUsage(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") }

// markdown puts an empty line around each part that is indented, and indents it as code.
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

// literal escapes what Markdown would take for emphasis.
var literal = strings.NewReplacer("*", `\*`, "_", `\_`)

// pageOf returns the file name of a command's page.
func pageOf(c *cobra.Command) string {
	return fmt.Sprintf("%s.1", strings.ReplaceAll(c.CommandPath(), " ", "-"))
}
