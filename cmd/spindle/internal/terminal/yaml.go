package terminal

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// PrintYAML writes a YAML document with the same keys as the JSON, in the same order.
func PrintYAML(w io.Writer, v any) error {
	var text bytes.Buffer
	if err := PrintJSON(&text, v); err != nil {
		return err
	}
	in := json.NewDecoder(&text)
	in.UseNumber()
	node, err := yamlOf(in)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, "---\n"); err != nil {
		return err
	}
	out := yaml.NewEncoder(escaping{w, `\U%08x`})
	out.SetIndent(2)
	return errors.Join(out.Encode(node), out.Close())
}

// yamlOf converts the next JSON value.
func yamlOf(in *json.Decoder) (*yaml.Node, error) {
	token, err := in.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Delim:
		node := &yaml.Node{Kind: yaml.SequenceNode}
		if token == '{' {
			node.Kind = yaml.MappingNode
		}
		for in.More() { // of an object: the keys and the values in turn
			item, err := yamlOf(in)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, item)
		}
		_, err := in.Token()
		return node, err
	case string:
		node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: token}
		if !plainly(token) {
			node.Style = yaml.DoubleQuotedStyle
		}
		return node, nil
	case json.Number:
		return number(token), nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(token)}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
}

var (
	word     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_./-]*$`)
	otherYet = regexp.MustCompile(`(?i)^(y|n|yes|no|on|off|true|false|null|nan|inf)$`) // not strings to some parsers
)

// plainly reports whether every YAML parser reads the word as a string even without quotes.
func plainly(s string) bool { return word.MatchString(s) && !otherYet.MatchString(s) }

// number returns a number without an exponent, because YAML 1.1 parsers read 1e-06 as a string.
func number(n json.Number) *yaml.Node {
	if strings.ContainsAny(n.String(), "eE") {
		if f, err := n.Float64(); err == nil {
			n = json.Number(strconv.FormatFloat(f, 'f', -1, 64))
		}
	}
	tag := "!!int"
	if strings.Contains(n.String(), ".") {
		tag = "!!float"
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: n.String()}
}
