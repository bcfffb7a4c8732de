package cli

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/agent"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

// schemaText is a JSON Schema. For each command that has --output, its $defs contain a schema under the command's name.
// The other $defs are parts of these schemas.
//
//go:generate go test -run TestTheSchemaIsGenerated . -update
//go:embed schema.json
var schemaText []byte

// schemaVersion is the version of the schema. The major version changes when a key is removed or gets a different
// meaning. The minor version changes when a key is added.
const schemaVersion = "1.0"

func newSchema() *cobra.Command {
	c := &cobra.Command{
		Use:   "schema [COMMAND]",
		Short: "Print the JSON Schema for the output of commands",
		Long: `Schema prints a JSON Schema (draft 2020-12) that describes what COMMAND prints
with --output json. Without COMMAND, it describes the output of all commands.
Each line of output is one of the objects in the schema.

The schema has a version, which spindle version -o json shows. The major version
changes when a key is removed or gets a different meaning, and the minor version
changes when a key is added. Programs should therefore ignore keys that they
don't know. The schema itself is stricter, and rejects unknown keys.

With agent as COMMAND, schema prints an OpenAPI 3.1 document instead. It
describes the agent's requests and their parameters, the lines of its responses,
and the codes of refusals.
` + terminal.CommonCodes,
		Example: `  spindle schema >spindle.json
  spindle schema ls | jq -r '."$defs".lock.properties | keys[]'
  spindle schema agent | jq -r '.paths | keys[]'`,
		Args: terminal.AtMostOne("command name"),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				_, err := os.Stdout.Write(schemaText)
				return err
			}
			if args[0] == "agent" {
				_, err := os.Stdout.Write(agent.OpenAPI)
				return err
			}
			text, err := schemaFor(args[0])
			if err == nil {
				_, err = fmt.Printf("%s\n", text)
			}
			return err
		},
	}
	c.ValidArgs = append(schemaCommands(), "agent")
	return c
}

// A schemaDocument is the schema, split into its definitions.
type schemaDocument struct {
	Schema      string                     `json:"$schema"`
	ID          string                     `json:"$id"`
	Title       string                     `json:"title"`
	Description string                     `json:"description,omitempty"`
	Ref         string                     `json:"$ref,omitempty"`
	OneOf       []map[string]string        `json:"anyOf,omitempty"`
	Defs        map[string]json.RawMessage `json:"$defs"`
}

func readSchema() (s schemaDocument) {
	if err := json.Unmarshal(schemaText, &s); err != nil {
		panic(err) // it is embedded
	}
	return s
}

// schemaCommands returns the commands that have a schema.
func schemaCommands() (names []string) {
	for _, of := range readSchema().OneOf {
		names = append(names, of["$ref"][len("#/$defs/"):])
	}
	return slices.Sorted(slices.Values(names))
}

// schemaFor returns the schema for the output of one command.
func schemaFor(command string) ([]byte, error) {
	if !slices.Contains(schemaCommands(), command) {
		return nil, terminal.Misuse("there is no schema for %q: want %s", command, terminal.OneOf(append(schemaCommands(), "agent")))
	}
	s := readSchema()
	s.ID += "/" + command
	s.Title += ": spindle " + command
	s.Ref, s.OneOf = "#/$defs/"+command, nil
	used := map[string]json.RawMessage{}
	s.use(command, used)
	s.Defs = used
	return json.MarshalIndent(s, "", "  ")
}

var reference = regexp.MustCompile(`"#/\$defs/(\w+)"`)

// use adds a definition to used, together with all definitions that it refers to.
func (s *schemaDocument) use(name string, used map[string]json.RawMessage) {
	if used[name] != nil {
		return
	}
	used[name] = s.Defs[name]
	for _, to := range reference.FindAllSubmatch(s.Defs[name], -1) {
		s.use(string(to[1]), used)
	}
}
