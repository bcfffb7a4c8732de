// Passages prints random passages of this project for a reader who is new to it. A passage is a paragraph of a document,
// a comment, or a string such as a message.
//
//	go run ./docs/passages -n 40 -seed 1
//
// At least 38 of 40 should read as if a native technical writer had written them, and none should have to be read twice.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// passage is a string and its location.
type passage struct {
	file string
	line int
	text string
}

func main() {
	n := flag.Int("n", 40, "number of passages to print")
	seed := flag.Uint64("seed", 1, "seed of the random selection")
	flag.Parse()
	all, err := collect(".")
	if err != nil {
		log.Fatal(err)
	}
	rand.New(rand.NewPCG(*seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i, p := range all[:min(*n, len(all))] {
		fmt.Printf("%d. %s:%d\n%s\n\n", i+1, p.file, p.line, p.text)
	}
}

func collect(root string) (all []passage, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "node_modules"):
			return fs.SkipDir
		case strings.HasSuffix(path, ".md"):
			return appendParagraphs(&all, path)
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			return appendTexts(&all, path)
		}
		return nil
	})
	return all, err
}

// appendParagraphs adds the paragraphs of a document, except short ones, headings, code and tables.
func appendParagraphs(all *[]passage, path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	line, inCode := 1, false
	for block := range strings.SplitSeq(string(b), "\n\n") {
		fences := strings.Count(block, "```")
		prose := !inCode && fences == 0 && !strings.HasPrefix(block, "    ") && !strings.HasPrefix(block, "|") && !strings.HasPrefix(block, "#")
		if prose && len(block) >= 60 {
			*all = append(*all, passage{path, line, block})
		}
		inCode = inCode != (fences%2 == 1)
		line += strings.Count(block, "\n") + 2
	}
	return nil
}

// appendTexts adds the comments of at least two lines, and the strings that look like sentences.
func appendTexts(all *[]passage, path string) error {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	for _, c := range f.Comments {
		if text := c.Text(); strings.Count(text, "\n") >= 2 {
			*all = append(*all, passage{path, files.Position(c.Pos()).Line, text})
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING {
			if text, err := strconv.Unquote(s.Value); err == nil && len(text) >= 40 && strings.Count(text, " ") >= 5 {
				*all = append(*all, passage{path, files.Position(s.Pos()).Line, text})
			}
		}
		return true
	})
	return nil
}
