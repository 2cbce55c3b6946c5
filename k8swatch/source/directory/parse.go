package directory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v2"
	kjson "sigs.k8s.io/json"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// maxExpanded bounds what a YAML file may hold with its aliases repeated, in
// bytes, a value counting 16 for itself.
const maxExpanded = 4 * maxFileSize

var (
	errNotUTF8    = errors.New("the text is not UTF-8")
	errExpanded   = errors.New("it holds too much, aliases repeated")
	errKeyIsNone  = errors.New("a key is no text")
	errNotNumber  = errors.New("a number is not finite")
	errNotLiteral = errors.New("a value is of a type that JSON does not have")
)

// parseDocuments splits a file into its documents, as JSON values. Duplicate
// keys are an error. No error holds a value of the file: a Secret is usually
// one line away (SIG-3).
func parseDocuments(name string, text []byte) ([]any, error) {
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	if !utf8.Valid(text) {
		return nil, errNotUTF8
	}
	if strings.HasSuffix(name, ".json") {
		return parseJSON(text)
	}
	// JSON under a YAML name is JSON to kubectl too: its escapes are not all
	// those of YAML.
	if bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		if documents, err := parseJSON(text); err == nil {
			return documents, nil
		}
	}
	return parseYAML(text)
}

func parseJSON(text []byte) ([]any, error) {
	var documents []any
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err == io.EOF {
			return documents, nil
		} else if err != nil {
			return nil, jsonError(text, decoder.InputOffset(), err)
		}
		var document any
		strict, err := kjson.UnmarshalStrict(raw, &document)
		if err != nil {
			return nil, errNotNumber
		}
		if len(strict) > 0 {
			return nil, fmt.Errorf("document %d: a key is there twice: %s", len(documents)+1, fieldOf(strict[0]))
		}
		documents = append(documents, document)
	}
}

// jsonError says where the text stops to be JSON, and not what is there.
func jsonError(text []byte, offset int64, err error) error {
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		offset = syntax.Offset
	}
	line := 1 + bytes.Count(text[:min(max(offset, 0), int64(len(text)))], []byte("\n"))
	return fmt.Errorf("line %d: is not JSON", line)
}

// fieldOf is the name of the field a strict error is about.
func fieldOf(err error) string {
	var named kjson.FieldError
	if errors.As(err, &named) {
		return text.Quote(named.FieldPath(), k8swatch.MaxQuoted)
	}
	return "?"
}

func parseYAML(text []byte) ([]any, error) {
	var documents []any
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.SetStrict(true)
	budget := maxExpanded
	for {
		var document any
		if err := decoder.Decode(&document); err == io.EOF {
			return documents, nil
		} else if err != nil {
			return nil, yamlError(err)
		}
		value, err := jsonValue(document, &budget)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", len(documents)+1, err)
		}
		documents = append(documents, value)
	}
}

var (
	yamlErrorText = regexp.MustCompile(`(?s)^(?:yaml: )?(?:unmarshal errors:\n *)?(line [0-9]+: )?(.*)$`)
	yamlTwice     = regexp.MustCompile(`^key ("[A-Za-z0-9_./-]{1,100}") already set in map`)
	// yamlSafe are the beginnings of messages of the YAML parser that repeat
	// nothing of the text.
	yamlSafe = regexp.MustCompile(`^(did not find |could not find |found |mapping values are not allowed|block sequence entries are not allowed|control characters are not allowed|document contains excessive aliasing|exceeded max depth|map merge requires )[ -~]{0,120}$`)
)

// yamlError keeps the line and what is known to repeat nothing of the text: an
// unknown anchor may be a password that begins with an asterisk.
func yamlError(err error) error {
	parts := yamlErrorText.FindStringSubmatch(err.Error())
	line, text := parts[1], parts[2]
	switch twice := yamlTwice.FindStringSubmatch(text); {
	case twice != nil:
		text = "a key is there twice: " + twice[1]
	case strings.Contains(text, "already set in map"):
		text = "a key is there twice"
	case strings.HasPrefix(text, "unknown anchor"):
		text = "an alias names an anchor that does not exist"
	case strings.HasPrefix(text, "invalid map key"):
		text = "a key is itself a mapping or a list (a template that was not filled in?)"
	case !yamlSafe.MatchString(text):
		text = "is not YAML"
	}
	return errors.New(line + text)
}

// jsonValue makes of a YAML value the JSON value that kubectl makes of it. It
// copies no text, and counts what aliases repeat.
func jsonValue(value any, budget *int) (any, error) {
	if *budget -= 16; *budget < 0 {
		return nil, errExpanded
	}
	switch value := value.(type) {
	case map[any]any:
		object := make(map[string]any, len(value))
		for k, v := range value {
			key, err := jsonKey(k)
			if err != nil {
				return nil, err
			}
			if _, twice := object[key]; twice {
				return nil, fmt.Errorf("a key is there twice: %s", text.Quote(key, k8swatch.MaxQuoted))
			}
			*budget -= len(key)
			if object[key], err = jsonValue(v, budget); err != nil {
				return nil, err
			}
		}
		return object, nil
	case []any:
		list := make([]any, len(value))
		for i, v := range value {
			var err error
			if list[i], err = jsonValue(v, budget); err != nil {
				return nil, err
			}
		}
		return list, nil
	case string:
		if *budget -= len(value); *budget < 0 {
			return nil, errExpanded
		}
		if !utf8.ValidString(value) {
			return nil, errNotUTF8 // !!binary
		}
		return value, nil
	default:
		return jsonScalar(value)
	}
}

func jsonScalar(value any) (any, error) {
	switch value := value.(type) {
	case nil, bool, int64:
		return value, nil
	case int:
		return int64(value), nil
	case uint64:
		return float64(value), nil
	case float64:
		switch {
		case math.IsNaN(value) || math.IsInf(value, 0):
			return nil, errNotNumber
		case value == math.Trunc(value) && math.Abs(value) < 1<<63:
			// 443.0 is 443 in JSON.
			return int64(value), nil
		}
		return value, nil
	}
	return nil, errNotLiteral
}

// jsonKey writes a key as sigs.k8s.io/yaml does: 80: and true: are texts.
func jsonKey(key any) (string, error) {
	switch key := key.(type) {
	case string:
		if !utf8.ValidString(key) {
			return "", errNotUTF8
		}
		return key, nil
	case int:
		return strconv.Itoa(key), nil
	case int64:
		return strconv.FormatInt(key, 10), nil
	case bool:
		return strconv.FormatBool(key), nil
	}
	return "", errKeyIsNone
}
