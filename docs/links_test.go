package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryLinkOfTheDocumentsLeadsSomewhere: the file and the heading that a relative link names exist.
func TestEveryLinkOfTheDocumentsLeadsSomewhere(t *testing.T) {
	documents := texts(t, ".md")
	links := 0
	for path, text := range documents {
		for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(withoutCode(text), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			links++
			file, heading, named := strings.Cut(link[1], "#")
			to := path
			if file != "" {
				to = filepath.Join(filepath.Dir(path), file)
			}
			_, err := os.Stat(filepath.Join("..", to))
			assert.NoError(t, err, "%s links to %s", path, link[1])
			if named {
				assert.Contains(t, anchors(documents[to]), heading, "%s links to %s", path, link[1])
			}
		}
	}
	assert.Greater(t, links, 50)
}

// TestTheDocumentsThatCodeNamesExist: comments, help, alerts and units refer to documents by their path from the root.
func TestTheDocumentsThatCodeNamesExist(t *testing.T) {
	documents := texts(t, ".md")
	names := 0
	for path, text := range texts(t, ".go", ".yaml", ".service", ".txtar", ".json", ".pml", ".md") {
		for _, name := range regexp.MustCompile(`\b(docs/\w+\.md)(?:#([\w-]+))?`).FindAllStringSubmatch(text, -1) {
			names++
			document, exists := documents[name[1]]
			assert.True(t, exists, "%s names %s", path, name[1])
			if name[2] != "" {
				assert.Contains(t, anchors(document), name[2], "%s names %s", path, name[0])
			}
		}
	}
	assert.Greater(t, names, 10)
}

// texts returns the files with these endings, by their path from the root.
func texts(t *testing.T, endings ...string) map[string]string {
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "node_modules": // others' documents
			return fs.SkipDir
		}
		for _, ending := range endings {
			if strings.HasSuffix(path, ending) {
				text, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				found[strings.TrimPrefix(path, "../")] = string(text)
			}
		}
		return nil
	}))
	return found
}

func withoutCode(text string) string {
	text = regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(text, "")
	return regexp.MustCompile("`[^`\n]*`").ReplaceAllString(text, "code")
}

// anchors returns the anchors that GitHub generates for the headings.
func anchors(text string) []string {
	var all []string
	times := map[string]int{}
	for _, heading := range regexp.MustCompile(`(?m)^#+ +(.*)$`).FindAllStringSubmatch(regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(text, ""), -1) {
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, heading[1])
		all = append(all, anchor)
		if n := times[anchor]; n > 0 {
			all[len(all)-1] += "-" + strconv.Itoa(n)
		}
		times[anchor]++
	}
	return all
}
