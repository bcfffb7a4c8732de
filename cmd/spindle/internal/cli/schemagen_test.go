package cli

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/doctor"
	"github.com/spindle-lock/spindle/internal/operator"
)

// An object is a JSON object whose keys stay in their order.
type object []member

type member struct {
	key   string
	value any
}

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	var all []string
	for _, m := range o {
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		all = append(all, strconv.Quote(m.key)+":"+string(value))
	}
	return []byte("{" + strings.Join(all, ",") + "}"), nil
}

func words(all ...string) object { return object{{"type", "string"}, {"enum", all}} }

// A generator makes the schema of types. The comment of a type or a field is its description, and the tag "schema" of a
// field has a further rule, such as minimum=1.
type generator struct {
	*testing.T
	comments map[string]map[string]string // of each package, by the names of types and fields, such as LockJSON.State
	defs     object
}

func newSchemaOf(t *testing.T) []byte {
	g := &generator{T: t, comments: map[string]map[string]string{}}
	g.defs = object{
		{"state", append(words("held", "leaving", "expired", "released", "paused", "unconfirmed", "orphaned", "unreadable", "free"),
			member{"description", "the state by Spanner's clock: see spindle ls --help"})},
		{"notified", append(words(model.Notified...), member{"description", "whether it can be told that the lock is free: see spindle status --help; absent: the lock has no holder"})},
		{"groupState", append(words("held", "partial", "expired", "released", "orphaned", "unreadable"),
			member{"description", "held: all partitions are held or paused; partial: some have no holder; the others as for locks"})},
	}
	var commands []any
	for _, p := range allPrinted {
		commands = append(commands, object{{"$ref", "#/$defs/" + p.command}})
		if len(p.types) == 1 {
			g.define(p.command, g.structure(p.about, reflect.TypeOf(p.types[0])))
			continue
		}
		var any []any
		for _, of := range p.types {
			any = append(any, g.refer(reflect.TypeOf(of)))
		}
		g.define(p.command, object{{"description", p.about}, {"anyOf", any}})
	}
	schema := object{{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"$id", "https://github.com/spindle-lock/spindle/schema/" + schemaVersion}, {"title", "spindle " + schemaVersion},
		{"description", "What the commands of spindle print with --output json: each line is one of these objects. A key that is not required is left out if it has no value."},
		{"anyOf", commands}, {"$defs", g.defs}}
	text, err := schema.MarshalJSON()
	require.NoError(t, err)
	require.NotContains(t, string(text), `"description":""`, "a type or a field has no comment")
	var b bytes.Buffer
	require.NoError(t, json.Indent(&b, text, "", "  "))
	return append(b.Bytes(), '\n')
}

func (g *generator) define(name string, def object) {
	if !slices.ContainsFunc(g.defs, func(m member) bool { return m.key == name }) {
		g.defs = append(g.defs, member{name, def})
	}
}

// refer defines a type, and returns a reference to it. LockJSON is "lock" in the schema.
func (g *generator) refer(of reflect.Type) object {
	name := []rune(strings.TrimSuffix(of.Name(), "JSON"))
	name[0] = unicode.ToLower(name[0])
	about := regexp.MustCompile(`^\w+ is (the JSON form of )?`).ReplaceAllString(g.comment(of, of.Name()), "")
	g.define(string(name), g.structure(about, of))
	return object{{"$ref", "#/$defs/" + string(name)}}
}

func (g *generator) structure(about string, of reflect.Type) object {
	var properties object
	var required []string
	for _, f := range reflect.VisibleFields(of) {
		key, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous {
			continue
		}
		in := of
		for _, i := range f.Index[:len(f.Index)-1] {
			in = in.Field(i).Type
		}
		properties = append(properties, member{key, g.property(f, g.comment(in, in.Name()+"."+f.Name))})
		if rest == "" {
			required = append(required, key)
		}
	}
	return object{{"description", about}, {"type", "object"}, {"properties", properties}, {"required", required}, {"additionalProperties", false}}
}

func (g *generator) property(f reflect.StructField, about string) object {
	rule, value, _ := strings.Cut(f.Tag.Get("schema"), "=")
	made := g.kind(f.Type, about)
	switch n, err := strconv.Atoi(value); {
	case rule == "":
	case rule == "$ref":
		made = object{{"$ref", "#/$defs/" + value}}
	case err == nil:
		made = append(made, member{rule, n})
	default:
		made = append(made, member{rule, value})
	}
	return made
}

// kind describes the values of a type. A struct in a pointer is described where it is used, and others under their names.
func (g *generator) kind(of reflect.Type, about string) object {
	pointer := of.Kind() == reflect.Pointer
	if pointer {
		of = of.Elem()
	}
	plain := map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean", reflect.Float64: "number", reflect.Int: "integer", reflect.Int64: "integer"}
	switch {
	case of == reflect.TypeFor[time.Time]():
		return object{{"type", "string"}, {"format", "date-time"}, {"description", about}}
	case of == reflect.TypeFor[operator.State]():
		return object{{"$ref", "#/$defs/state"}}
	case of == reflect.TypeFor[doctor.Verdict]():
		return words("ok", "note", "warning", "failed", "not checked")
	case of.Kind() == reflect.Struct && pointer:
		return g.structure(about, of)
	case of.Kind() == reflect.Struct:
		return g.refer(of)
	case of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Struct:
		return object{{"type", "array"}, {"items", g.refer(of.Elem())}, {"description", about}}
	case of.Kind() == reflect.Slice:
		return object{{"type", "array"}, {"items", object{{"type", "string"}}}, {"description", about}}
	}
	return object{{"type", plain[of.Kind()]}, {"description", about}}
}

// comment returns the first sentence of the comment of a type or field, without its period.
func (g *generator) comment(of reflect.Type, name string) string {
	all := g.comments[of.PkgPath()]
	if all == nil {
		all = g.read(strings.Replace(of.PkgPath(), "github.com/spindle-lock/spindle", "../../../..", 1))
		g.comments[of.PkgPath()] = all
	}
	return all[name]
}

// read returns the comments of the types and fields in a folder.
func (g *generator) read(folder string) map[string]string {
	all := map[string]string{}
	sentence := func(comments ...*ast.CommentGroup) string {
		for _, c := range comments {
			if text := strings.Join(strings.Fields(c.Text()), " "); text != "" {
				first, _, _ := strings.Cut(text, ". ")
				return strings.TrimSuffix(first, ".")
			}
		}
		return ""
	}
	files, err := filepath.Glob(folder + "/*.go")
	require.NoError(g, err)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(g, err)
		ast.Inspect(file, func(n ast.Node) bool {
			d, ok := n.(*ast.GenDecl)
			if !ok || d.Tok != token.TYPE {
				return true
			}
			of := d.Specs[0].(*ast.TypeSpec)
			all[of.Name.Name] = sentence(d.Doc, of.Doc)
			if s, is := of.Type.(*ast.StructType); is {
				for _, f := range s.Fields.List {
					for _, name := range f.Names {
						all[of.Name.Name+"."+name.Name] = sentence(f.Doc, f.Comment)
					}
				}
			}
			return false
		})
	}
	return all
}
