package caddymodule

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

// An option may hold these placeholders of Caddy. They are replaced when the
// configuration is loaded, and the result is checked as if it had been written
// there.
const (
	environmentPlaceholder = "env."
	filePlaceholder        = "file."
)

// hasPlaceholder reports whether a text is known only when the configuration is
// loaded.
func hasPlaceholder(text string) bool {
	return strings.Contains(text, "{"+environmentPlaceholder) || strings.Contains(text, "{"+filePlaceholder)
}

// replacePlaceholders replaces {env.X} and {file.X} in the values of an option.
// Others stay: {http.request.host} is replaced at each request, and {namespace}
// belongs to a template. A placeholder for an empty value is an error: an option
// that restricts something must not fall back to its default.
func replacePlaceholders(values []string) ([]string, error) {
	replaced := slices.Clone(values)
	replacer := caddy.NewReplacer()
	for i, value := range replaced {
		if !hasPlaceholder(value) {
			continue
		}
		var err error
		if replaced[i], err = replacer.ReplaceFunc(value, replacePlaceholder); err != nil {
			return nil, err
		}
	}
	return replaced, nil
}

func replacePlaceholder(key string, value any) (any, error) {
	variable, isVariable := strings.CutPrefix(key, environmentPlaceholder)
	path, isFile := strings.CutPrefix(key, filePlaceholder)
	if !isVariable && !isFile {
		return "{" + key + "}", nil
	}
	if strings.TrimSpace(caddy.ToString(value)) != "" {
		return value, nil
	}
	why := errors.New("it is empty")
	if isFile {
		why = openError(path, why)
	} else if _, set := os.LookupEnv(variable); !set {
		why = errors.New("the environment variable is not set")
	}
	return nil, fmt.Errorf("nothing to put in place of {%s}: %w", key, why)
}

// openError says why a file cannot be opened, and otherwise what was known before.
func openError(path string, otherwise error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	_ = file.Close()
	return otherwise
}
